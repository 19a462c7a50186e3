// Package fake holds an in-memory ledger and a scripted bank for the worker's tests in virtual time. Both are faithful to
// the semantics that the worker relies on; the same scenarios run against the real ones elsewhere.
package fake

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// Ledger keeps operations in memory. Its clock is time.Now, which stands for the database's.
type Ledger struct {
	askedUnder map[uuid.UUID]string
	lease      time.Duration

	mu          sync.Mutex
	ops         map[uuid.UUID]*Operation
	pauses      map[string]string // "scope/name" -> reason
	DoubtBefore time.Time         // what was published earlier may have been sent under a claim that was lost
	lastID      int64
}

// Operation is one row and all that hangs on it.
type Operation struct {
	ID          int64
	Wish        ledger.Wish
	State       ledger.State
	Fence       int32
	Token       uuid.UUID
	LeaseUntil  time.Time
	DueAt       time.Time
	Held        bool
	InDoubt     bool
	Pinned      string
	PartnerKey  string
	Credential  string
	Epoch       int16
	FirstSentAt time.Time
	Unobserved  int16
	TransferID  string
	Code        string
	Contradicts bool
	Stopped     string // as a cancelled batch run leaves it
	StoppedDumb bool   // an attempt is refused as stopped, without a reason
	Attempts    []ledger.Attempt
	Facts       []ledger.Fact
	CreatedAt   time.Time
	History     []ledger.State // every state it was given, in order
}

// NewLedger returns an empty ledger.
func NewLedger(lease time.Duration) *Ledger {
	return &Ledger{lease: lease, askedUnder: map[uuid.UUID]string{}, ops: map[uuid.UUID]*Operation{}, pauses: map[string]string{}}
}

// Lease is how long a claim holds.
func (l *Ledger) Lease() time.Duration { return l.lease }

// Claim answers each wish by itself.
func (l *Ledger) Claim(_ context.Context, wishes []ledger.Wish) []ledger.ClaimAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	token := uuid.New()
	answers := make([]ledger.ClaimAnswer, len(wishes))
	for i := range wishes {
		answers[i] = l.claim(&wishes[i], token)
	}
	return answers
}

func (l *Ledger) claim(w *ledger.Wish, token uuid.UUID) ledger.ClaimAnswer {
	now := time.Now()
	op, known := l.ops[w.Key]
	doubt := w.PublishedAt.Before(l.DoubtBefore)
	switch {
	case !known && w.Refused && (!doubt || w.Intention.Partner == ""):
		return ledger.ClaimAnswer{Answer: ledger.NotOnRecord, InDoubt: doubt}
	case !known:
		op = l.add(w, now)
	}
	if !known && w.Refused { // it may have been sent under a claim that was lost
		op.InDoubt, op.FirstSentAt, op.DueAt = true, w.PublishedAt, now
	}
	answer := ledger.ClaimAnswer{State: op.State, Now: now}
	start := !w.Refused && !l.paused(w.Intention.Partner) && !now.Before(w.NotBefore) && (w.NotAfter.IsZero() || now.Before(w.NotAfter))
	switch {
	case op.Wish.Fingerprint.Version != w.Fingerprint.Version:
		answer.Answer, answer.Version = ledger.OtherVersion, op.Wish.Fingerprint.Version
		return answer
	case op.Wish.Fingerprint.Sum != w.Fingerprint.Sum:
		return ledger.ClaimAnswer{Answer: ledger.Conflict, Now: now}
	case finished(op.State):
		answer.Answer = ledger.Finished
		return answer
	case op.State == ledger.StateParked:
		answer.Answer = ledger.Parked
		return answer
	case op.State == ledger.StateClaimed:
		answer.Answer = ledger.Busy
		return answer
	case op.Fence > 0 || op.InDoubt || w.Refused || (!start && !l.paused(w.Intention.Partner)):
		answer.Answer = ledger.Scheduled
		if op.Held {
			answer.Answer, answer.HeldReason = ledger.Held, op.Code
		}
		return answer
	case !start:
		op.Held, op.Code, op.DueAt = true, "paused", now.Add(10*time.Minute)
		answer.Answer, answer.HeldReason = ledger.Held, op.Code
		return answer
	}
	l.take(op, token, now)
	op.InDoubt, op.FirstSentAt, op.PartnerKey, op.Credential = true, now, w.Intention.PartnerKey, w.Intention.Credential
	op.Pinned = w.Intention.Partner
	if doubt {
		op.FirstSentAt = w.PublishedAt
	} else {
		op.Attempts = append(op.Attempts, ledger.Attempt{Intention: w.Intention, Fence: op.Fence, Token: token, At: now})
	}
	return ledger.ClaimAnswer{Answer: ledger.Claimed, Claim: l.claimOf(op), InDoubt: doubt, State: ledger.StateClaimed, Now: now}
}

func (l *Ledger) add(w *ledger.Wish, now time.Time) *Operation {
	l.lastID++
	kept := *w
	kept.Payload = bytes.Clone(w.Payload)
	op := &Operation{ID: l.lastID, Wish: kept, State: ledger.StateOpen, CreatedAt: now, DueAt: later(now, w.NotBefore),
		History: []ledger.State{ledger.StateOpen}, Pinned: w.Intention.Partner}
	if !w.NotAfter.IsZero() && !now.Before(w.NotAfter) {
		op.DueAt = now
	}
	l.ops[w.Key] = op
	return op
}

// Add records an operation as the gateway does: open, due after a grace.
func (l *Ledger) Add(w ledger.Wish, grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	op := l.add(&w, time.Now())
	op.DueAt = op.DueAt.Add(grace)
}

func (l *Ledger) take(op *Operation, token uuid.UUID, now time.Time) {
	op.State, op.Token, op.LeaseUntil = ledger.StateClaimed, token, now.Add(l.lease)
	op.Held = false
	op.Fence++
	op.Unobserved++
	op.History = append(op.History, op.State)
}

func (l *Ledger) claimOf(op *Operation) ledger.Claim {
	return ledger.Claim{OperationID: op.ID, Key: op.Wish.Key, Token: op.Token, Fence: op.Fence}
}

// ClaimDue claims what is due, oldest first.
func (l *Ledger) ClaimDue(_ context.Context, partner string, limit int) ([]ledger.Work, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, token := time.Now(), uuid.New()
	due := l.pick(func(op *Operation) bool {
		return op.Pinned == partner && ((op.State == ledger.StateOpen && !now.Before(op.DueAt)) ||
			(op.State == ledger.StateClaimed && !now.Before(op.LeaseUntil)))
	})
	var works []ledger.Work
	for _, op := range due {
		if l.paused(partner) && !op.InDoubt {
			op.DueAt = now.Add(15 * time.Second)
			continue
		}
		if len(works) == limit {
			break
		}
		before, unobserved := op.State, op.Unobserved
		l.take(op, token, now)
		work := l.work(op, before, unobserved, now)
		work.Paused = l.paused(partner)
		works = append(works, work)
	}
	return works, nil
}

// LookAtParked returns parked operations whose look-up is due, and puts the next one a day ahead.
func (l *Ledger) LookAtParked(_ context.Context, partner string, limit int) ([]ledger.Work, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var works []ledger.Work
	for _, op := range l.pick(func(op *Operation) bool {
		return op.Pinned == partner && op.State == ledger.StateParked && !now.Before(op.DueAt)
	}) {
		if len(works) < limit {
			op.DueAt = now.Add(24 * time.Hour)
			work := l.work(op, op.State, op.Unobserved, now)
			work.Claim.Token = uuid.Nil
			works = append(works, work)
		}
	}
	return works, nil
}

func (l *Ledger) pick(want func(*Operation) bool) []*Operation {
	var ops []*Operation
	for _, op := range l.ops {
		if want(op) {
			ops = append(ops, op)
		}
	}
	slices.SortFunc(ops, func(a, b *Operation) int { return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.ID, b.ID)) })
	return ops
}

func (l *Ledger) work(op *Operation, before ledger.State, unobserved int16, now time.Time) ledger.Work {
	return ledger.Work{Claim: l.claimOf(op), State: before, Source: op.Wish.Source, Route: op.Wish.Route, Payload: op.Wish.Payload, Fingerprint: op.Wish.Fingerprint,
		Pinned: op.Pinned, PartnerKey: op.PartnerKey, Epoch: op.Epoch, InDoubt: op.InDoubt, FirstSentAt: op.FirstSentAt, Stopped: op.Stopped,
		UnobservedClaims: unobserved, Attempts: slices.Clone(op.Attempts), Facts: slices.Clone(op.Facts), CreatedAt: op.CreatedAt, Now: now}
}

func (l *Ledger) holds(op *Operation, c ledger.Claim) bool {
	return op != nil && op.State == ledger.StateClaimed && op.Token == c.Token && op.Fence == c.Fence
}

// CommitAttempts commits attempts under token and fence, if they repeat the first one under their partner key.
func (l *Ledger) CommitAttempts(_ context.Context, resends []ledger.Resend) []ledger.AttemptResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]ledger.AttemptResult, len(resends))
	for i, r := range resends {
		op := l.ops[r.Claim.Key]
		results[i].Answer = ledger.AttemptFenced
		if !l.holds(op, r.Claim) {
			continue
		}
		if op.Stopped != "" || op.StoppedDumb {
			results[i] = ledger.AttemptResult{Answer: ledger.AttemptStopped, Stopped: op.Stopped}
			continue
		}
		results[i].Answer = ledger.AttemptDiffers
		if (op.PartnerKey != "" && (op.PartnerKey != r.Intention.PartnerKey || op.Credential != r.Intention.Credential)) ||
			slices.ContainsFunc(op.Attempts, func(a ledger.Attempt) bool {
				return a.PartnerKey == r.Intention.PartnerKey && (a.BodySHA256 != r.Intention.BodySHA256 ||
					a.Endpoint != r.Intention.Endpoint || a.Credential != r.Intention.Credential)
			}) {
			continue
		}
		now := time.Now()
		op.PartnerKey, op.Credential, op.InDoubt = r.Intention.PartnerKey, r.Intention.Credential, true
		if op.FirstSentAt.IsZero() {
			op.FirstSentAt = now
		}
		op.Attempts = append(op.Attempts, ledger.Attempt{Intention: r.Intention, Fence: op.Fence, Token: op.Token, At: now})
		results[i].Answer = ledger.AttemptCommitted
	}
	return results
}

// Record writes under token and fence; what is stale is kept as late evidence.
func (l *Ledger) Record(_ context.Context, records []ledger.Record) []ledger.RecordResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]ledger.RecordResult, len(records))
	for i := range records {
		l.askedUnder[records[i].Claim.Key] = records[i].PartnerKey
		results[i] = l.record(&records[i])
	}
	return results
}

func (l *Ledger) record(r *ledger.Record) ledger.RecordResult {
	op := l.ops[r.Claim.Key]
	if op == nil {
		return ledger.RecordResult{Answer: ledger.Stray}
	}
	if !l.holds(op, r.Claim) {
		if op.State != ledger.StateClaimed && op.Token == r.Claim.Token && op.Fence == r.Claim.Fence {
			return ledger.RecordResult{Answer: ledger.Recorded, State: op.State} // our own record: only its reply was lost
		}
		return l.keep(op, r.Claim, r.Facts, true)
	}
	switch {
	case r.Next == ledger.StateAuthorized && r.TransferID == "",
		r.InDoubt && (r.Next == ledger.StateRejected || r.Next == ledger.StateCancelled || r.RaiseEpoch),
		r.Code == "" && (r.Held || r.Next == ledger.StateRejected || r.Next == ledger.StateCancelled || r.Next == ledger.StateParked),
		r.InDoubt && op.FirstSentAt.IsZero(),
		r.Next == "" || r.Next == ledger.StateClaimed:
		return ledger.RecordResult{Err: fmt.Errorf("record %s: refused: next %q", r.Claim.Key, r.Next)}
	}
	now := time.Now()
	mismatched := slices.ContainsFunc(op.Facts, says("mismatch"))
	for _, f := range r.Facts {
		f.Fence, f.Token, f.At = r.Claim.Fence, r.Claim.Token, seen(&f, now)
		op.Facts = append(op.Facts, f)
	}
	op.State, op.InDoubt, op.Held, op.Code, op.Unobserved = r.Next, r.InDoubt, r.Held, r.Code, 0
	op.DueAt = now.Add(r.DueIn)
	op.History = append(op.History, op.State)
	if r.Next == ledger.StateAuthorized {
		op.TransferID = r.TransferID
	}
	if r.Next == ledger.StateAuthorized && mismatched {
		op.State, op.InDoubt, op.Code, op.TransferID, op.DueAt = ledger.StateParked, true, "mismatch", "", now.Add(24*time.Hour)
		op.History[len(op.History)-1] = op.State
	}
	if r.RaiseEpoch {
		op.Epoch++
		op.PartnerKey, op.FirstSentAt = "", time.Time{}
	}
	return ledger.RecordResult{Answer: ledger.Recorded, State: op.State}
}

func says(verdict string) func(ledger.Fact) bool {
	return func(f ledger.Fact) bool { return f.Verdict == verdict }
}

// seen is from when a fact counts.
func seen(f *ledger.Fact, now time.Time) time.Time {
	if !f.AskedAt.IsZero() && f.AskedAt.Before(now) {
		return f.AskedAt
	}
	return now
}

// keep is what happens to evidence without a valid claim (I5).
func (l *Ledger) keep(op *Operation, c ledger.Claim, facts []ledger.Fact, stale bool) ledger.RecordResult {
	result := ledger.RecordResult{Answer: ledger.Fenced, State: op.State}
	known := slices.ContainsFunc(op.Facts, says("mismatch"))
	for _, f := range facts {
		f.Fence, f.Token, f.At = c.Fence, c.Token, seen(&f, time.Now())
		if stale {
			f.Kind = ledger.FactLate
		}
		op.Facts = append(op.Facts, f)
	}
	if slices.ContainsFunc(facts, says("mismatch")) {
		if op.State == ledger.StateClaimed && !stale {
			op.Fence++ // its holder does not know
		}
		return result
	}
	i := slices.IndexFunc(facts, says("authorized"))
	if i < 0 || facts[i].TransferID == "" {
		return result
	}
	switch id := facts[i].TransferID; {
	case op.State == ledger.StateAuthorized && op.TransferID == id:
	case finished(op.State):
		op.Contradicts = true
		result.Answer = ledger.LateContradicted
	case !known:
		op.State, op.TransferID, op.InDoubt = ledger.StateAuthorized, id, false
		op.Fence++
		op.History = append(op.History, op.State)
		result = ledger.RecordResult{Answer: ledger.LateAuthorized, State: op.State}
	}
	return result
}

// Append keeps evidence found outside of a claim.
func (l *Ledger) Append(_ context.Context, lates []ledger.Late) []ledger.RecordResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]ledger.RecordResult, len(lates))
	for i, late := range lates {
		l.askedUnder[late.Key] = late.PartnerKey
		results[i] = l.keep(l.ops[late.Key], ledger.Claim{Token: uuid.New()}, late.Facts, false)
	}
	return results
}

// AskedUnder is the partner key that came with the last record of a key.
func (l *Ledger) AskedUnder(key uuid.UUID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.askedUnder[key]
}

// Renew extends the leases that are still theirs.
func (l *Ledger) Renew(_ context.Context, claims []ledger.Claim) ([]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ours := make([]bool, len(claims))
	for i, c := range claims {
		if op := l.ops[c.Key]; l.holds(op, c) {
			op.LeaseUntil, ours[i] = time.Now().Add(l.lease), true
		}
	}
	return ours, nil
}

// Gauges counts nothing.
func (l *Ledger) Gauges(context.Context) (ledger.Gauges, error) { return ledger.Gauges{}, nil }

// Pause stops new starts.
func (l *Ledger) Pause(_ context.Context, scope ledger.Scope, name, reason, _ string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pauses[string(scope)+"/"+name] = reason
	return nil
}

// Resume ends a pause.
func (l *Ledger) Resume(scope ledger.Scope, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pauses, string(scope)+"/"+name)
}

// Pauses are the pauses in force, "scope/name" to reason.
func (l *Ledger) Pauses() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.pauses)
}

// Look is a copy of an operation; false if there is none.
func (l *Ledger) Look(key uuid.UUID) (Operation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	op, known := l.ops[key]
	if !known {
		return Operation{}, false
	}
	c := *op
	c.Attempts, c.Facts, c.History = slices.Clone(op.Attempts), slices.Clone(op.Facts), slices.Clone(op.History)
	return c, true
}

// Edit changes an operation as a person or another program would.
func (l *Ledger) Edit(key uuid.UUID, change func(*Operation)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.ops[key])
}

func (l *Ledger) paused(partner string) bool {
	_, all := l.pauses["all/"]
	_, one := l.pauses["partner/"+partner]
	return all || one
}

func finished(s ledger.State) bool {
	return s == ledger.StateAuthorized || s == ledger.StateRejected || s == ledger.StateCancelled
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
