package prove

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The records under an operation key.
const (
	recordOperation byte = iota
	recordJob
	recordDead
	recordEvent
	recordPaid
	recordStray
	recordCorrection
)

// announcements lists the types of events that are judged; what an operation published is one bit each, in this order.
func announcements() []string {
	return []string{"authorized", "rejected", "cancelled", "parked", "settled", "failed", "returned", "contradicted"}
}

func announcement(kind string) byte {
	if i := slices.Index(announcements(), kind); i >= 0 {
		return 1 << i
	}
	return 0
}

// spillOperation judges what the ledger alone shows of an operation, and spills what others have a say in.
func (p *pages) spillOperation(o *operation) error {
	inScope := !o.createdAt.Before(p.Since) && p.wantsPartner(p.partnerOf(o))
	if inScope {
		p.count(o)
		p.judgePlace(o)
		p.judgeJournal(o)
		p.judgeAttempts(o)
	}
	when := o.outcomeAt
	if when.IsZero() {
		when = o.createdAt
	}
	record := operationRecord{
		state: o.state, inScope: inScope, attempted: len(o.attempts) > 0, unpublished: o.mustSay(), when: when, amount: o.amount, currency: o.currency,
		partner: o.partner, transferID: o.transferID, route: o.route, source: o.source,
	}
	if err := p.byKey.add(o.key, record.body()); err != nil {
		return err
	}
	for i, a := range o.attempts {
		if i > 0 && slices.ContainsFunc(o.attempts[:i], func(b attempt) bool { return a.partner == b.partner && a.endToEnd == b.endToEnd }) {
			continue
		}
		if err := p.byEndToEnd.add(endToEndID(a.partner, a.endToEnd), fields{ownsTransfer}.bytes(o.key[:])); err != nil {
			return err
		}
	}
	if o.transferID == "" {
		return nil
	}
	return p.byTransfer.add(transferID(o.partner, o.transferID), fields{ownsTransfer}.bytes(o.key[:]))
}

func (p *pages) count(o *operation) {
	p.book.Keys++
	switch o.state {
	case "authorized":
		p.book.Authorized++
	case "rejected":
		p.book.Rejected++
	case "cancelled":
		p.book.Cancelled++
	case "parked":
		p.book.Parked++
	default:
		p.book.Open++
	}
	if o.contradicted {
		p.find(o, KindContradicted, "%s, and the partner said later that it was authorized, or authorized as another transfer", o.state)
	}
}

func (p *pages) find(o *operation, kind Kind, format string, args ...any) {
	p.book.find(Finding{Kind: kind, Key: o.keyText(), Partner: o.partner, TransferID: o.transferID, Text: fmt.Sprintf(format, args...)})
}

// judgePlace holds the side table of the sweep against the state: exactly one due row per unfinished operation.
func (p *pages) judgePlace(o *operation) {
	switch {
	case o.finished() && len(o.due) > 0:
		p.find(o, KindMisplaced, "%s, and still due for the sweep", o.state)
	case o.finished():
	case len(o.due) == 0:
		p.find(o, KindLost, "%s, and no due row: no sweep will ever look at it", o.state)
	case len(o.due) > 1:
		p.find(o, KindMisplaced, "%s, with %d due rows", o.state, len(o.due))
	case o.due[0].parked != (o.state == "parked"):
		p.find(o, KindMisplaced, "%s, and its due row says otherwise", o.state)
	case o.partner != "" && o.due[0].partner != o.partner:
		p.find(o, KindMisplaced, "%s at partner %s, and due at %s", o.state, o.partner, o.due[0].partner)
	}
}

// judgeJournal holds the entries against settlement and amount.
func (p *pages) judgeJournal(o *operation) {
	needed, allowed := journalOf(o)
	for _, event := range slices.Sorted(maps.Keys(o.journal)) {
		e := o.journal[event]
		what := ""
		switch {
		case !slices.Contains(needed, event) && !slices.Contains(allowed, event):
			what = "is not due to any"
		case e.otherCurrency:
			what = "is in another currency"
		case e.credits != e.debits:
			what = fmt.Sprintf("does not sum to zero: %d and %d", e.credits, e.debits)
		case e.credits != uint64(o.amount): //nolint:gosec // a CHECK of the ledger: positive
			what = fmt.Sprintf("is about %d, the operation about %d", e.credits, o.amount)
		default:
			continue
		}
		p.find(o, KindUnbalanced, "%s, and the journal's %s %s", o.standing(), event, what)
		return // one fault per key
	}
	for _, event := range needed {
		if o.journal[event] == nil {
			p.find(o, KindUnbalanced, "%s, and the journal has no entries of %s", o.standing(), event)
			return
		}
	}
}

func (o *operation) standing() string {
	if o.settlement == "" || o.settlement == "pending" {
		return o.state
	}
	return o.state + " and " + o.settlement
}

// journalOf says which events an operation must have entries of, and which it may.
func journalOf(o *operation) (needed, allowed []string) {
	if o.state != "authorized" {
		return nil, nil
	}
	switch o.settlement {
	case "settled", "failed":
		return []string{"authorized", o.settlement}, nil
	case "returned":
		return []string{"authorized", "returned"}, []string{"settled", "failed"}
	}
	return []string{"authorized"}, nil
}

// judgeAttempts: one partner, and one partner key per epoch (I7).
func (p *pages) judgeAttempts(o *operation) {
	keys := map[string]bool{}
	for _, a := range o.attempts {
		keys[a.partnerKey] = true
		if o.partner != "" && a.partner != o.partner {
			p.find(o, KindMismatch, "at partner %s, and an attempt was made at %s", o.partner, a.partner)
			return
		}
	}
	if len(keys) > int(o.epoch)+1 {
		p.find(o, KindMismatch, "%d partner keys in %d epochs", len(keys), o.epoch+1)
	}
}

// mustSay is what must be in the stream of events: everything that happened and does not wait in the outbox.
func (o *operation) mustSay() byte {
	var said []string
	if o.finished() || o.state == "parked" {
		said = append(said, o.state)
	}
	if o.settlement != "" && o.settlement != "pending" {
		said = append(said, o.settlement)
	}
	if o.contradicted {
		said = append(said, "contradicted")
	}
	var bits byte
	for _, kind := range said {
		if !o.outbox[kind] {
			bits |= announcement(kind)
		}
	}
	return bits
}

// operationRecord is what of an operation is held against messages, events and transfers.
type operationRecord struct {
	state              string
	inScope, attempted bool
	unpublished        byte // the events that must be in the stream
	when               time.Time
	amount             int64
	currency           string
	partner            string
	transferID         string
	route, source      string
}

func (o *operationRecord) body() fields {
	return fields{recordOperation}.text(o.state).boolean(o.inScope).boolean(o.attempted).byte(o.unpublished).number(o.when.UnixMicro()).
		number(o.amount).text(o.currency).text(o.partner).text(o.transferID).text(o.route).text(o.source)
}

func readOperation(r reader) *operationRecord {
	return &operationRecord{
		state: r.text(), inScope: r.boolean(), attempted: r.boolean(), unpublished: r.byte(), when: time.UnixMicro(r.number()), amount: r.number(),
		currency: r.text(), partner: r.text(), transferID: r.text(), route: r.text(), source: r.text(),
	}
}

// spoken lists the events of some bits.
func spoken(bits byte) string {
	var names []string
	for i, name := range announcements() {
		if bits>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
