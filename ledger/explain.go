package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger/money"
)

// Summary is one operation as lists show it.
type Summary struct {
	Key            uuid.UUID
	Source, Route  string
	State          State
	InDoubt        bool
	HeldReason     string // why an open operation is not started; "" = not held
	Partner        string
	DebtorAccount  string // not masked: print it through job.Sensitive
	Amount         money.Amount
	TransferID     string
	Code           string
	Settlement     string
	Attempts       int
	Fence          int32
	FirstSentAt    time.Time
	CreatedAt      time.Time
	OutcomeAt      time.Time
	ContradictedAt time.Time
	DueAt          time.Time // next attempt, end of the lease, or next look-up; zero = finished
}

// Entry is one line of the journal.
type Entry struct {
	Event       string
	Account     string
	AmountMinor int64
	Currency    string
	At          time.Time
}

// Explanation is everything known of one key.
type Explanation struct {
	Summary
	PartnerKey  string
	Credential  string
	Epoch       int16
	LeaseUntil  time.Time
	Payload     []byte    // nil after a purge
	PublishedAt time.Time // when the broker stored the job; zero = not known, or purged
	TraceParent string
	Attempts    []Attempt
	Facts       []Fact
	Entries     []Entry
	Unpublished []string // types of events not published yet
	Outbox      []Outgoing
	Paused      []Pause // that cover the operation now
	Now         time.Time
}

// Outgoing is an event that is in the outbox still.
type Outgoing struct {
	ID   string
	Type string
	At   time.Time
}

const summaryColumns = `o.key, o.source, o.route, o.state, o.in_doubt, CASE WHEN o.held THEN o.code ELSE '' END, coalesce(o.partner, ''),
	o.debtor_account, o.amount_minor, o.currency, coalesce(o.transfer_id, ''), CASE WHEN o.held THEN '' ELSE coalesce(o.code, '') END,
	coalesce(o.settlement::text, ''), (SELECT count(*) FROM attempts a WHERE a.operation_id = o.id), o.fence, o.first_sent_at, o.created_at,
	o.outcome_at, o.contradicted_at, d.due_at`

func (s *Summary) targets() []any {
	return []any{&s.Key, &s.Source, &s.Route, &s.State, &s.InDoubt, &s.HeldReason, &s.Partner, &s.DebtorAccount, &s.Amount.Minor,
		&s.Amount.Currency, &s.TransferID, &s.Code, &s.Settlement, &s.Attempts, &s.Fence, timeOrZero{&s.FirstSentAt}, &s.CreatedAt,
		timeOrZero{&s.OutcomeAt}, timeOrZero{&s.ContradictedAt}, timeOrZero{&s.DueAt}}
}

// Explain returns everything known of one key, read in one snapshot, or ErrNotFound.
func (l *Ledger) Explain(ctx context.Context, key uuid.UUID) (Explanation, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	var e Explanation
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, l.pool, options, func(tx pgx.Tx) error {
		var id int64
		targets := append(e.Summary.targets(), &id, &e.PartnerKey, &e.Credential, &e.Epoch, timeOrZero{&e.LeaseUntil}, &e.Now)
		err := tx.QueryRow(ctx, `SELECT `+summaryColumns+`, o.id, coalesce(o.partner_key, ''), coalesce(o.credential, ''), o.epoch, o.lease_until,
			now() FROM operations o LEFT JOIN due d ON d.operation_id = o.id WHERE o.key = $1`, key).Scan(targets...)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		queueHistory(b, []int64{id}, func(_ int64, a Attempt) { e.Attempts = append(e.Attempts, a) },
			func(_ int64, f Fact) { e.Facts = append(e.Facts, f) })
		queueRest(b, id, &e)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return e, fmt.Errorf("explain %s: %w", key, err)
	}
	return e, nil
}

func queueRest(b *pgx.Batch, id int64, e *Explanation) {
	b.Queue(`SELECT event::text, account, amount_minor, currency, at FROM entries WHERE operation_id = $1 ORDER BY at, event, amount_minor`, id).
		Query(func(rows pgx.Rows) (err error) {
			e.Entries, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
			return err
		})
	b.Queue(`SELECT type::text, fence, at FROM outbox WHERE operation_id = $1 ORDER BY id`, id).Query(func(rows pgx.Rows) (err error) {
		for rows.Next() {
			var w Outgoing
			var fence int32
			if err := rows.Scan(&w.Type, &fence, &w.At); err != nil {
				return err
			}
			w.ID = EventID(e.Key, w.Type, fence)
			e.Outbox, e.Unpublished = append(e.Outbox, w), append(e.Unpublished, w.Type)
		}
		return rows.Err()
	})
	b.Queue(`SELECT body, coalesce(traceparent, ''), published_at FROM payloads WHERE operation_id = $1`, id).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&e.Payload, &e.TraceParent, timeOrZero{&e.PublishedAt}); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	b.Queue(`SELECT p.scope, p.name, p.reason, p.by, p.at FROM pauses p, operations o LEFT JOIN due d ON d.operation_id = o.id
	          WHERE o.id = $1 AND (p.scope = 'all' OR (p.scope = 'partner' AND p.name = coalesce(o.partner, d.partner))
	             OR (p.scope = 'route' AND p.name = o.route) OR (p.scope = 'source' AND p.name = o.source))`, id).
		Query(func(rows pgx.Rows) (err error) {
			e.Paused, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Pause])
			return err
		})
}

// Filter selects operations for List; zero fields select all.
type Filter struct {
	States  []State
	Source  string
	Route   string
	Partner string
	InDoubt bool      // only those in doubt
	Since   time.Time // only those that were recorded since then; zero = all
	// ByRisk is for unfinished ones alone, and has no pages: in doubt first; then, since currencies are not compared, the largest amount of each
	// currency, then the second of each; among equals what has the least left of its key's window; then what was sent first.
	ByRisk  bool
	Windows map[string]time.Duration // of keys, by partner, for ByRisk; a partner that is not named comes last among equals
	Before  int64                    // page: only operations older than this cursor; 0 = newest first
	Limit   int                      // default 100
	Reach   int64                    // look through about so many operations for finished ones, then give up the page as it is; 0 = all that there are
}

// listWindow is how many internal ids one query of a list reads through, so that none takes long, however rare is what is asked for.
const listWindow = 100_000

// List returns operations newest first, and the cursor of the next page (0 = no more). Unfinished ones are found through what is due, so
// that finding ten parked operations among millions stays cheap. Others are looked for backwards, a window after the other, until the page is
// full, all that Reach allows was looked through (then the page may be short and has a cursor), or ctx ends.
func (l *Ledger) List(ctx context.Context, f Filter) ([]Summary, int64, error) {
	f.Limit = orElse(f.Limit, 100)
	if onlyUnfinished(f) {
		list, last, err := l.listBetween(ctx, f, 0, orElse(f.Before, math.MaxInt64))
		if len(list) < f.Limit || f.ByRisk {
			last = 0
		}
		return list, last, err
	}
	before, first, err := l.listBounds(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	reach := orElse(f.Reach, math.MaxInt64)
	var list []Summary
	for limit := f.Limit; before > first; {
		if reach <= 0 {
			return list, before, nil
		}
		from := before - min(listWindow, reach, before-first)
		part, last, err := l.listBetween(ctx, f, from, before)
		if err != nil {
			return nil, 0, err
		}
		if list = append(list, part...); len(list) == limit {
			return list, last, nil
		}
		f.Limit = limit - len(list)
		before, reach = from, reach-(before-from)
	}
	return list, 0, nil
}

// sinceSlack is how much later than its internal id an operation may say that it was recorded: transactions take time, and clocks are set.
const sinceSlack = time.Hour

// listBounds gives the internal ids between which a list is looked for: below before, and from first on. Ids are given out in the order of time,
// so that where a time begins is found by halving.
func (l *Ledger) listBounds(ctx context.Context, f Filter) (before, first int64, err error) {
	if before, first = f.Before, 1; before == 0 {
		if err := l.pool.QueryRow(ctx, `SELECT coalesce(max(id), 0) + 1 FROM operations`).Scan(&before); err != nil {
			return 0, 0, fmt.Errorf("list operations: %w", err)
		}
	}
	if f.Since.IsZero() {
		return before, first, nil
	}
	for high := before; first < high; {
		middle := first + (high-first)/2
		var younger bool
		err := l.pool.QueryRow(ctx, `SELECT coalesce((SELECT created_at >= $2 FROM operations WHERE id >= $1 ORDER BY id LIMIT 1), true)`,
			middle, f.Since.Add(-sinceSlack)).Scan(&younger)
		if err != nil {
			return 0, 0, fmt.Errorf("list operations: %w", err)
		}
		if younger {
			high = middle
		} else {
			first = middle + 1
		}
	}
	return before, first, nil
}

// listBetween reads those with internal ids from one on and below another, and gives the last one's.
func (l *Ledger) listBetween(ctx context.Context, f Filter, from, before int64) (list []Summary, last int64, err error) {
	join := "LEFT JOIN"
	if onlyUnfinished(f) {
		join = "JOIN"
	}
	order := "o.id DESC"
	if f.ByRisk {
		order = `o.in_doubt DESC, rank() OVER (PARTITION BY o.in_doubt, o.currency ORDER BY o.amount_minor DESC),
			o.first_sent_at + (SELECT w.ms * interval '1 ms' FROM unnest($10::text[], $11::int8[]) AS w(partner, ms) WHERE w.partner = o.partner LIMIT 1),
			o.first_sent_at, o.id`
	}
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	var since *time.Time
	if !f.Since.IsZero() {
		since = &f.Since
	}
	args := []any{states, f.Source, f.Route, f.Partner, f.InDoubt, from, before, f.Limit, since}
	if f.ByRisk {
		partners, windows := []string{}, []int64{}
		for partner, window := range f.Windows {
			partners, windows = append(partners, partner), append(windows, window.Milliseconds())
		}
		args = append(args, partners, windows)
	}
	rows, err := l.pool.Query(ctx, `SELECT o.id, `+summaryColumns+` FROM operations o `+join+` due d ON d.operation_id = o.id
		WHERE ($1::text[] IS NULL OR cardinality($1) = 0 OR o.state::text = ANY($1)) AND ($2 = '' OR o.source = $2) AND ($3 = '' OR o.route = $3)
		  AND ($4 = '' OR coalesce(o.partner, d.partner) = $4) AND (NOT $5 OR o.in_doubt) AND o.id >= $6::int8 AND o.id < $7::int8
		  AND ($9::timestamptz IS NULL OR o.created_at >= $9)
		ORDER BY `+order+` LIMIT $8`, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list operations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s Summary
		if err := rows.Scan(append([]any{&last}, s.targets()...)...); err != nil {
			return nil, 0, fmt.Errorf("list operations: %w", err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("list operations: %w", err)
	}
	return list, last, nil
}

func onlyUnfinished(f Filter) bool {
	if f.InDoubt || f.ByRisk {
		return true
	}
	for _, s := range f.States {
		if s.Finished() {
			return false
		}
	}
	return len(f.States) > 0
}
