package prove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/paidonce/paidonce/bankclient"
)

// The records under an end-to-end id or a transfer id.
const (
	ownsTransfer byte = iota // and the operation key
	isTransfer
	isYounger // an operation after the cut owns it
)

// epoch is the beginning of a statement that is read in full.
const epoch = 0

// readStatements spills every transfer that the partners list.
func (r *run) readStatements(ctx context.Context) error {
	for _, bank := range r.Banks {
		if !r.wantsPartner(bank.ID()) {
			continue
		}
		if err := r.readStatement(ctx, bank); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) readStatement(ctx context.Context, bank Bank) error {
	profile := bank.Profile()
	s := statement{}
	if bound := profile.VisibilityBound; bound <= r.Patience {
		r.Progress("wait for "+bank.ID(), 0)
		if err := pause(ctx, bound-time.Since(r.cutSeen)); err != nil {
			return err
		}
	} else {
		s.blindSince = r.cut.Add(time.Since(r.cutSeen) - bound)
	}
	from, to := time.Unix(epoch, 0), r.cut.Add(24*time.Hour) // whole days ahead: the partner's clock may be wrong
	if !r.Since.IsZero() {
		from = r.Since.Add(-clockSlack)
	}
	rules := map[string]bool{} // states by which no money moved
	for _, rule := range profile.States {
		rules[rule.State] = rule.Verdict == bankclient.Rejected
	}
	for cursor := ""; ; {
		var page []bankclient.Seen
		var next string
		err := r.retry(ctx, func() (err error) {
			page, next, err = bank.Statement(ctx, from, to, cursor)
			return err
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && next != "" && next == cursor {
			err = errors.New("it never ends: a page names itself as the next one")
		}
		if err != nil {
			// The others can still be judged; what is this partner's is unproved.
			r.note("the statement of %s could not be read: %v", bank.ID(), err)
			return nil
		}
		for i := range page {
			if err := r.spillTransfer(bank.ID(), &page[i], !rules[page[i].State]); err != nil {
				return err
			}
		}
		r.Progress("transfers of "+bank.ID(), r.book.Transfers)
		if next == "" {
			r.statements[bank.ID()] = s
			return nil
		}
		cursor = next
	}
}

// transfer is what is kept of a partner's transfer: no name, account or reference.
type transfer struct {
	partner, id string
	endToEnd    string
	executed    bool
	readable    bool // the amount has exactly the digits of the currency
	amount      int64
	currency    string
	state       string
}

func (t *transfer) fields(f fields) fields {
	return f.text(t.partner).text(t.id).text(t.endToEnd).boolean(t.executed).boolean(t.readable).number(t.amount).text(t.currency).text(t.state)
}

func readTransfer(r *reader) transfer {
	return transfer{
		partner: r.text(), id: r.text(), endToEnd: r.text(), executed: r.boolean(), readable: r.boolean(), amount: r.number(), currency: r.text(),
		state: r.text(),
	}
}

func (r *run) spillTransfer(partner string, seen *bankclient.Seen, executed bool) error {
	r.book.Transfers++
	t := transfer{partner: partner, id: seen.ID, executed: executed, state: seen.State}
	if seen.Currency != nil {
		t.currency = *seen.Currency
	}
	if seen.Amount != nil {
		t.amount, t.readable = minor(*seen.Amount, t.currency)
	}
	if seen.EndToEndID != nil {
		t.endToEnd = *seen.EndToEndID
	}
	if t.endToEnd == "" {
		return r.byTransfer.add(transferID(partner, t.id), t.fields(fields{isTransfer}))
	}
	return r.byEndToEnd.add(endToEndID(partner, t.endToEnd), t.fields(fields{isTransfer}))
}

// match finds whose each transfer is: by the end-to-end ids of the attempts, then by the id that an operation recorded.
func (r *run) match() error {
	r.Progress("match", 0)
	err := r.byEndToEnd.groups(func(_ id, records [][]byte) error {
		return r.share(records, "end-to-end id", func(t *transfer) error {
			return r.byTransfer.add(transferID(t.partner, t.id), t.fields(fields{isTransfer}))
		})
	})
	if err != nil {
		return err
	}
	return r.byTransfer.groups(func(_ id, records [][]byte) error {
		return r.share(records, "transfer id", func(t *transfer) error {
			if !t.executed {
				return nil // no money moved, and nobody missed it
			}
			r.suspects++
			of := transferID(t.partner, t.id)
			if t.endToEnd != "" {
				of = endToEndID(t.partner, t.endToEnd)
			}
			return r.unclaimed.add(of, t.fields(fields{isTransfer}))
		})
	})
}

// share gives the transfers of a group to its owner, or to nobody. Of several that claim to be the owner the lowest key is, whatever came first.
func (r *run) share(records [][]byte, what string, nobody func(*transfer) error) error {
	var owner id
	var owners []id
	var transfers []transfer
	for _, record := range records {
		body := reader(record)
		if body.byte() == isTransfer {
			transfers = append(transfers, readTransfer(&body))
			continue
		}
		owners = append(owners, body.id())
	}
	slices.SortFunc(owners, compareIDs)
	for i, another := range owners {
		if i == 0 {
			owner = another
		} else if another != owner {
			r.book.find(Finding{Kind: KindMismatch, Key: keyText(another), Text: fmt.Sprintf("shares its %s with operation %s", what, keyText(owner))})
		}
	}
	seen := map[string]bool{}
	for i := range transfers {
		t := &transfers[i]
		if seen[t.id] {
			continue // listed twice, as by a page that moved while it was read
		}
		seen[t.id] = true
		if owner == (id{}) {
			if err := nobody(t); err != nil {
				return err
			}
			continue
		}
		if err := r.byKey.add(owner, t.fields(fields{recordPaid}.boolean(what == "end-to-end id"))); err != nil {
			return err
		}
	}
	return nil
}

// judgeUnclaimed looks for attempts and outcomes after the cut before it calls a transfer nobody's.
func (r *run) judgeUnclaimed(ctx context.Context) (err error) {
	if r.suspects == 0 {
		return nil
	}
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	// What was committed after the cut may have begun long before it; both times are the database's.
	rows, err := conn.Query(ctx, `
		SELECT 'end-to-end', partner, end_to_end_id FROM attempts WHERE at > $1
		 UNION ALL
		SELECT 'transfer', partner, transfer_id FROM operations WHERE outcome_at > $1 AND transfer_id IS NOT NULL AND partner IS NOT NULL`,
		r.cut.Add(-clockSlack))
	if err != nil {
		return fmt.Errorf("read attempts after the cut: %w", err)
	}
	for rows.Next() {
		var what, partner, text string
		if err := rows.Scan(&what, &partner, &text); err != nil {
			return fmt.Errorf("read attempts after the cut: %w", err)
		}
		if err := r.unclaimed.add(idOf(what, partner, text), fields{isYounger}); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read attempts after the cut: %w", err)
	}
	return r.unclaimed.groups(func(_ id, records [][]byte) error {
		younger := false
		for _, record := range records {
			younger = younger || record[0] == isYounger
		}
		seen := map[string]bool{}
		for _, record := range records {
			body := reader(record)
			if body.byte() != isTransfer {
				continue
			}
			t := readTransfer(&body)
			switch {
			case seen[t.id]:
			case younger:
				r.book.Younger++
			default:
				r.book.find(Finding{Kind: KindOrphanTheirs, Partner: t.partner, TransferID: t.id, Text: "the partner has a transfer that belongs to no operation: " + t.money()})
			}
			seen[t.id] = true
		}
		return nil
	})
}

func (t *transfer) money() string {
	if !t.readable {
		return "an amount that is none of its currency"
	}
	return fmt.Sprintf("%d %s", t.amount, clean(t.currency))
}
