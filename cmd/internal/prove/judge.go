package prove

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

func keyText(key id) string { return uuid.UUID(key).String() }

// file is everything that is known under one operation key, or of one message without a key.
type file struct {
	key       id
	operation *operationRecord
	jobs      []jobRecord
	dead      []int64 // sequences of messages that became dead letters
	said      byte    // events in the stream
	paid      []paidRecord
	strays    []strayRecord

	corrects, published bool // it is the new key of a correction, whose job was published
}

type jobRecord struct {
	sequence      int64
	queued        bool // the queue still owns it
	keyed, sound  bool
	amount        int64
	currency      string
	route, source string
}

type paidRecord struct {
	transfer
	byEndToEnd bool
}

type strayRecord struct {
	number              int64
	verdict, transferID string
}

func (r *run) judgeKeys() error {
	r.Progress("judge", 0)
	var judged int64
	return r.byKey.groups(func(of id, records [][]byte) error {
		f := readFile(of, records)
		if judged++; judged%pageSize == 0 {
			r.Progress("judge", judged)
		}
		r.judgeMessages(f)
		r.judgeStrays(f)
		if f.operation == nil {
			return nil
		}
		r.judgeTransfers(f)
		if f.operation.inScope {
			r.judgeEvents(f)
		}
		return nil
	})
}

func readFile(of id, records [][]byte) *file {
	f := &file{key: of}
	for _, record := range records {
		body := reader(record)
		switch body.byte() {
		case recordOperation:
			f.operation = readOperation(body)
		case recordJob:
			f.jobs = append(f.jobs, jobRecord{
				sequence: body.number(), queued: body.boolean(), keyed: body.boolean(), sound: body.boolean(), amount: body.number(),
				currency: body.text(), route: body.text(), source: body.text(),
			})
		case recordDead:
			f.dead = append(f.dead, body.number())
		case recordEvent:
			f.said |= body.byte()
		case recordPaid:
			byEndToEnd := body.boolean()
			f.paid = append(f.paid, paidRecord{readTransfer(&body), byEndToEnd})
		case recordCorrection:
			f.corrects, f.published = true, body.boolean()
		case recordStray:
			f.strays = append(f.strays, strayRecord{number: body.number(), verdict: body.text(), transferID: body.text()})
		}
	}
	return f
}

func (f *file) finding(kind Kind, format string, args ...any) Finding {
	found := Finding{Kind: kind, Key: keyText(f.key), Text: fmt.Sprintf(format, args...)}
	if f.operation != nil {
		found.Partner, found.TransferID = f.operation.partner, f.operation.transferID
	}
	return found
}

// judgeMessages accounts for every message of a key: it is the operation's, a dead letter, or still in the queue.
func (r *run) judgeMessages(f *file) {
	queued, lost := false, []string{}
	keyed := true
	for _, j := range f.jobs {
		keyed = keyed && j.keyed
		switch {
		case f.operation != nil && j.is(f.operation), slices.Contains(f.dead, j.sequence):
		case j.queued:
			queued = true
		default:
			lost = append(lost, fmt.Sprint(j.sequence))
		}
	}
	switch {
	case len(lost) > 0 && !keyed:
		r.book.find(Finding{Kind: KindLost, Text: "message " + strings.Join(lost, ", ") + " is no job, was acknowledged, and is no dead letter"})
	case len(lost) > 0 && f.operation == nil:
		r.book.Keys++
		r.book.find(f.finding(KindLost, "its job (message %s) was acknowledged, and there is neither operation nor dead letter", strings.Join(lost, ", ")))
	case len(lost) > 0:
		r.book.find(f.finding(KindLost, "a job that differs from the operation (message %s) was acknowledged, and is no dead letter", strings.Join(lost, ", ")))
	case queued && f.operation == nil && keyed:
		r.book.Keys++
		r.book.Open++
	case f.corrects && f.operation == nil && len(f.jobs)+len(f.dead) == 0 && f.published:
		r.book.Keys++
		r.book.find(f.finding(KindLost, "its job, the correction of a dead letter, was published, and there is neither message nor operation nor dead letter"))
	case f.corrects && f.operation == nil && len(f.jobs)+len(f.dead) == 0:
		r.book.Keys++
		r.book.Open++
		r.book.CorrectionsPending++
	}
}

// is says whether the operation can be this job's. Beneficiary and reference are not in the ledger's reach of this package.
func (j *jobRecord) is(o *operationRecord) bool {
	return j.sound && j.amount == o.amount && j.currency == o.currency && j.route == o.route && j.source == o.source
}

func (r *run) judgeStrays(f *file) {
	for _, s := range f.strays {
		text := ""
		switch {
		case f.operation == nil:
			text = fmt.Sprintf("stray %d (%s) is about a key that the ledger does not know", s.number, orNothing(s.verdict))
		case s.verdict == "authorized" && s.transferID != f.operation.transferID:
			text = fmt.Sprintf("stray %d says authorized, and the operation does not say the same", s.number)
		default:
			continue // its operation came later, and tells the same
		}
		found := f.finding(KindStray, "%s", text)
		found.TransferID = s.transferID
		r.book.find(found)
	}
}

// judgeTransfers holds the operation against what the partner did.
func (r *run) judgeTransfers(f *file) {
	o := f.operation
	executed := slices.DeleteFunc(slices.Clone(f.paid), func(p paidRecord) bool { return !p.executed })
	slices.SortFunc(executed, func(a, b paidRecord) int { return strings.Compare(a.id, b.id) })
	executed = slices.CompactFunc(executed, func(a, b paidRecord) bool { return a.id == b.id })
	if len(executed) > 1 { // also for operations that are not judged: it is never right
		ids := make([]string, len(executed))
		for i, p := range executed {
			ids[i] = clean(p.id)
		}
		r.book.find(f.finding(KindTwice, "%s, and the partner has %d transfers: %s", o.state, len(executed), strings.Join(ids[:min(len(ids), 8)], ", ")))
	}
	if !o.inScope {
		return
	}
	s, read := r.statements[o.partner]
	switch {
	case !read && o.state == "authorized":
		r.book.find(f.finding(KindUnproved, "authorized, and there is no statement of partner %s", o.partner))
	case (o.state == "rejected" || o.state == "cancelled") && len(executed) > 0:
		r.book.find(f.finding(KindMismatch, "%s, and the partner has transfer %s: %s", o.state, clean(executed[0].id), executed[0].state))
	case o.state == "authorized" && len(executed) == 0:
		r.judgeMissing(f, s)
	default:
		if fault := o.differs(executed); fault != "" {
			r.book.find(f.finding(KindMismatch, "%s", fault))
		}
	}
}

// judgeMissing judges an authorized operation without a transfer by which money moved.
func (r *run) judgeMissing(f *file, s statement) {
	o := f.operation
	switch {
	case len(f.paid) > 0:
		r.book.find(f.finding(KindMismatch, "authorized, and the partner calls transfer %s %s", clean(f.paid[0].id), clean(f.paid[0].state)))
	case !s.blindSince.IsZero() && o.when.After(s.blindSince):
		r.book.Authorized-- // the statement cannot show it yet
		r.book.Open++
	default:
		r.book.find(f.finding(KindOrphanOurs, "authorized, and the partner's statement does not have its transfer"))
	}
}

// differs says how transfers differ from the operation.
func (o *operationRecord) differs(executed []paidRecord) string {
	for _, p := range executed {
		switch {
		case !p.readable:
			return fmt.Sprintf("%s with %d %s, and transfer %s is about %s", o.state, o.amount, o.currency, clean(p.id), p.money())
		case p.amount != o.amount || p.currency != o.currency:
			return fmt.Sprintf("%s with %d %s, and transfer %s is about %s", o.state, o.amount, o.currency, clean(p.id), p.money())
		case !p.byEndToEnd && o.attempted:
			return fmt.Sprintf("%s, and transfer %s carries an end-to-end id of none of its attempts", o.state, clean(p.id))
		}
	}
	if o.state == "authorized" && !slices.ContainsFunc(executed, func(p paidRecord) bool { return p.id == o.transferID }) {
		return "authorized, and the partner has another transfer for it: " + clean(executed[0].id)
	}
	return ""
}

// judgeEvents: what happened is in the stream, or was in the outbox at the cut.
func (r *run) judgeEvents(f *file) {
	o := f.operation
	if o.when.Before(r.events.until) {
		return
	}
	if silent := o.unpublished &^ f.said; silent != 0 {
		r.book.find(f.finding(KindUnannounced, "%s, and neither an event nor the outbox says: %s", o.state, spoken(silent)))
	}
}
