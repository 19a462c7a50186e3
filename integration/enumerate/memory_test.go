package enumerate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// memory is the ledger's statements over one map: what each of them reads, compares and writes, and nothing else. A differential test runs
// the same calls on it and on Postgres. Not safe for concurrent use: the scheduler is its only caller.
type memory struct {
	lease       time.Duration
	now         func() time.Time
	ops         map[uuid.UUID]*row
	pauses      map[string]string // "scope/name" to reason
	doubtBefore time.Time
	lostSince   time.Time // what may have been lost begins here; zero = it is settled
	nextID      int64
	tokens      uint64
	strays      map[uuid.UUID]bool // keys with evidence and no operation
	broken      switches
}

// switches break the model on purpose.
type switches struct {
	skipFence, skipToken, skipLease, busyIsClaimed, lateRejectedDecides, noEvent, oneEntry, sweepsParked, lapsedForgotten,
	resurrects, purgeTakesKey, purgeTakesPrint, renewsUnasked, stopsUnheeded bool
}

// row is one operation with all that hangs on it.
type row struct {
	id                              int64
	wish                            ledger.Wish
	state                           ledger.State
	inDoubt, held, contradicted     bool
	unobserved, epoch               int16
	fence                           int32
	token                           uuid.UUID
	leaseUntil, firstSent, created  time.Time
	dueAt                           time.Time // zero = no row in due
	duePartner                      string
	partner, credential, partnerKey string
	transferID, code, stopped       string
	attempts                        []ledger.Attempt
	facts                           []ledger.Fact
	factKeys                        map[factKey]bool
	entries                         []ledger.Entry
	events                          []string
	states                          []ledger.State // every state it was given
}

type factKey struct {
	token uuid.UUID
	n     int
}

var (
	errRefused = errors.New("refused by a check of the schema")
	errNoReply = errors.New("the reply was lost")
	errAway    = errors.New("the ledger is away")
)

func newMemory(lease time.Duration, now func() time.Time) *memory {
	return &memory{lease: lease, now: now, ops: map[uuid.UUID]*row{}, pauses: map[string]string{}, strays: map[uuid.UUID]bool{}}
}

func (m *memory) mint() uuid.UUID {
	m.tokens++
	var token uuid.UUID
	token[0] = 0x70
	binary.BigEndian.PutUint64(token[8:], m.tokens)
	return token
}

func (m *memory) paused(partner, route, source string) bool {
	for _, scope := range []string{"all/", "partner/" + partner, "route/" + route, "source/" + source} {
		if _, ok := m.pauses[scope]; ok {
			return true
		}
	}
	return false
}

func (r *row) put(s ledger.State) {
	r.state = s
	r.states = append(r.states, s)
}

// mayBeLost reports whether a key does not exclude that it was made before a recovery: it says so, or nothing that can be believed.
func (m *memory) mayBeLost(key uuid.UUID) bool {
	seconds, nanos := key.Time().UnixTime()
	told := time.Unix(seconds, nanos)
	switch {
	case m.doubtBefore.IsZero():
		return false
	case key.Version() == 7 && !told.After(m.now().Add(time.Minute)):
		return told.Before(m.doubtBefore)
	}
	return !m.lostSince.IsZero()
}

func (m *memory) claim(w ledger.Wish, token uuid.UUID) ledger.ClaimAnswer {
	now := m.now()
	paused := m.paused(w.Intention.Partner, w.Route, w.Source)
	start := !paused && !w.NotBefore.After(now) && (w.NotAfter.IsZero() || w.NotAfter.After(now))
	doubt := w.PublishedAt.Before(m.doubtBefore) || m.mayBeLost(w.Key) || m.strays[w.Key] // never published counts as long ago
	r, known := m.ops[w.Key]
	if w.Refused {
		return m.judgeRefused(w, now, doubt)
	}
	switch {
	case !known:
		r = m.insert(w, token, now, paused, start, doubt)
		if start {
			return m.claimed(r, doubt, now)
		}
	case start && r.wish.Fingerprint == w.Fingerprint &&
		((r.state == ledger.StateOpen && r.fence == 0 && !r.held && !r.inDoubt) || (r.state == ledger.StateClaimed && r.token == token) ||
			(r.state == ledger.StateClaimed && m.broken.busyIsClaimed) || (r.state.Finished() && m.broken.resurrects)):
		if r.state != ledger.StateClaimed || m.broken.busyIsClaimed {
			r.fence, r.unobserved = r.fence+1, r.unobserved+1
		}
		r.put(ledger.StateClaimed)
		r.inDoubt, r.token, r.leaseUntil = true, token, now.Add(m.lease)
		r.firstSent = either(r.firstSent, now)
		r.partner, r.credential, r.partnerKey = w.Intention.Partner, w.Intention.Credential, w.Intention.PartnerKey
		r.dueAt, r.duePartner = now.Add(m.lease), w.Intention.Partner
		if !doubt {
			r.attempt(w.Intention, now)
		}
		return m.claimed(r, doubt, now)
	}
	return m.loser(r, w, now)
}

// accept puts an order on record that nobody has been given yet.
func (m *memory) accept(w ledger.Wish, grace time.Duration) (answer ledger.AcceptAnswer, state ledger.State, inDoubt bool) {
	if r := m.ops[w.Key]; r != nil {
		switch {
		case r.wish.Fingerprint.Version != w.Fingerprint.Version:
			return ledger.AcceptOtherVersion, "", false
		case r.wish.Fingerprint != w.Fingerprint:
			return ledger.AcceptConflict, "", false
		}
		return ledger.AcceptedBefore, r.state, r.inDoubt
	}
	now := m.now()
	w.PublishedAt = time.Time{}
	r := m.insert(w, uuid.Nil, now, false, false, m.mayBeLost(w.Key) || m.strays[w.Key])
	r.events = append(r.events, "accepted")
	switch {
	case !w.NotAfter.IsZero() && !w.NotAfter.After(now):
		r.dueAt = now
	case now.Add(grace).After(w.NotBefore):
		r.dueAt = now.Add(grace)
	}
	return ledger.Accepted, r.state, r.inDoubt
}

// judgeRefused makes nothing of a refused job but doubt that is not on record.
func (m *memory) judgeRefused(w ledger.Wish, now time.Time, doubt bool) ledger.ClaimAnswer {
	r, known := m.ops[w.Key]
	if !known && (!doubt || w.Intention.Partner == "") {
		return ledger.ClaimAnswer{Answer: ledger.NotOnRecord, InDoubt: doubt}
	}
	if !known {
		r = m.insert(w, uuid.Nil, now, false, false, true)
		r.dueAt = now
	}
	return m.loser(r, w, now)
}

func (m *memory) insert(w ledger.Wish, token uuid.UUID, now time.Time, paused, start, doubt bool) *row {
	m.nextID++
	r := &row{id: m.nextID, wish: w, created: now, duePartner: w.Intention.Partner, factKeys: map[factKey]bool{}, inDoubt: start || doubt, held: paused}
	r.wish.Payload = slices.Clone(w.Payload)
	m.ops[w.Key] = r
	if doubt {
		r.firstSent = earlier(either(w.PublishedAt, now), now)
		if m.mayBeLost(w.Key) && !m.lostSince.IsZero() {
			r.firstSent = earlier(r.firstSent, m.lostSince)
		}
	}
	r.dueAt = now
	switch {
	case paused:
		r.code, r.dueAt = "paused", now.Add(10*time.Minute)
	case !start && (w.NotAfter.IsZero() || w.NotAfter.After(now)):
		r.dueAt = w.NotBefore
	}
	if !start {
		r.put(ledger.StateOpen)
		return r
	}
	r.put(ledger.StateClaimed)
	r.unobserved, r.fence, r.token, r.leaseUntil, r.dueAt = 1, 1, token, now.Add(m.lease), now.Add(m.lease)
	r.firstSent = either(r.firstSent, now)
	r.partner, r.credential, r.partnerKey = w.Intention.Partner, w.Intention.Credential, w.Intention.PartnerKey
	if !doubt {
		r.attempt(w.Intention, now)
	}
	return r
}

func (r *row) attempt(in ledger.Intention, now time.Time) {
	if slices.ContainsFunc(r.attempts, func(a ledger.Attempt) bool { return a.Fence == r.fence }) {
		return
	}
	r.attempts = append(r.attempts, ledger.Attempt{Intention: in, Fence: r.fence, Token: r.token, At: now})
}

func (m *memory) claimed(r *row, doubt bool, now time.Time) ledger.ClaimAnswer {
	return ledger.ClaimAnswer{Answer: ledger.Claimed, State: ledger.StateClaimed, InDoubt: doubt, Now: now,
		Claim: ledger.Claim{OperationID: r.id, Key: r.wish.Key, Token: r.token, Fence: r.fence}}
}

func (m *memory) loser(r *row, w ledger.Wish, now time.Time) ledger.ClaimAnswer {
	a := ledger.ClaimAnswer{State: r.state, Now: now}
	switch {
	case r.wish.Fingerprint.Version != w.Fingerprint.Version:
		a.Answer, a.Version = ledger.OtherVersion, r.wish.Fingerprint.Version
	case r.wish.Fingerprint != w.Fingerprint:
		a = ledger.ClaimAnswer{Answer: ledger.Conflict, Now: now}
	case r.state.Finished():
		a.Answer = ledger.Finished
	case r.state == ledger.StateParked:
		a.Answer = ledger.Parked
	case r.state == ledger.StateClaimed:
		a.Answer = ledger.Busy
	case r.held:
		a.Answer, a.HeldReason = ledger.Held, r.code
	default:
		a.Answer = ledger.Scheduled
	}
	return a
}

// holds finds the row that a claim holds.
func (m *memory) holds(c ledger.Claim) *row {
	r := m.ops[c.Key]
	switch {
	case r == nil, r.state != ledger.StateClaimed && !(m.broken.skipFence && !r.state.Finished()):
		return nil
	case m.broken.skipFence:
		return r
	case r.fence != c.Fence:
		return nil
	case m.broken.skipToken:
		return r
	case r.id != c.OperationID, r.token != c.Token:
		return nil
	}
	return r
}

func (m *memory) commitAttempt(s ledger.Resend) ledger.AttemptAnswer {
	r, in := m.holds(s.Claim), s.Intention
	if r == nil {
		return ledger.AttemptFenced
	}
	if r.stopped != "" && !m.broken.stopsUnheeded && !slices.ContainsFunc(r.attempts, func(a ledger.Attempt) bool { return a.Token == s.Claim.Token }) {
		return ledger.AttemptStopped
	}
	same := (r.partner == "" || r.partner == in.Partner) && (r.partnerKey == "" || r.partnerKey == in.PartnerKey)
	for _, a := range r.attempts {
		if a.PartnerKey == in.PartnerKey && ((a.BodySHA256 != in.BodySHA256 && a.BodySHA256 != [32]byte{}) ||
			(r.inDoubt && (a.Endpoint != in.Endpoint || a.Credential != in.Credential))) {
			same = false
		}
	}
	if !same {
		return ledger.AttemptDiffers
	}
	now := m.now()
	r.partner, r.credential, r.partnerKey, r.inDoubt = in.Partner, in.Credential, in.PartnerKey, true
	r.firstSent = either(r.firstSent, now)
	r.attempt(in, now)
	return ledger.AttemptCommitted
}

// allowed are the checks of the schema that a record can break.
func (r *row) allowed(w ledger.Record) bool {
	ended := w.Next.Finished()
	switch {
	case w.Next != ledger.StateOpen && w.Next != ledger.StateParked && !ended,
		w.InDoubt && (ended || w.RaiseEpoch),
		w.Held && w.Next != ledger.StateOpen,
		w.Code == "" && (w.Held || w.Next == ledger.StateRejected || w.Next == ledger.StateCancelled || w.Next == ledger.StateParked),
		w.Next == ledger.StateAuthorized && (w.TransferID == "" || w.RaiseEpoch):
		return false
	}
	return true
}

func (m *memory) record(w ledger.Record) ledger.RecordResult {
	r := m.holds(w.Claim)
	if r == nil {
		return m.keepEvidence(w.Claim, w.Facts, true)
	}
	if w.Next == ledger.StateAuthorized && (w.Claim.Fence > 1 || asked(w)) && disputed(r) {
		w.Next, w.Code, w.InDoubt, w.DueIn, w.TransferID = ledger.StateParked, "mismatch", true, 0, ""
	}
	if !r.allowed(w) {
		return ledger.RecordResult{Err: errRefused}
	}
	now := m.now()
	for n, f := range w.Facts {
		r.observe(f, w.Claim.Token, n, w.Claim.Fence, now)
	}
	r.put(w.Next)
	r.inDoubt, r.held, r.unobserved, r.leaseUntil, r.code, r.transferID = w.InDoubt, w.Held, 0, time.Time{}, w.Code, ""
	if w.RaiseEpoch {
		r.epoch++
		r.partnerKey, r.firstSent = "", time.Time{}
	}
	if w.InDoubt || w.Next == ledger.StateAuthorized {
		r.firstSent, r.partner = either(r.firstSent, r.created), cmp.Or(r.partner, r.duePartner)
	}
	if w.Next == ledger.StateAuthorized {
		r.pinKey()
	}
	r.dueAt = now.Add(w.DueIn.Truncate(time.Millisecond))
	switch {
	case w.Next == ledger.StateParked && w.DueIn == 0:
		r.dueAt = now.Add(24 * time.Hour)
	case w.Next.Finished():
		r.dueAt = time.Time{}
	}
	if w.Next == ledger.StateAuthorized {
		r.transferID = w.TransferID
		m.post(r, now)
	}
	if w.Next != ledger.StateOpen {
		m.publish(r, string(w.Next))
	}
	return ledger.RecordResult{Answer: ledger.Recorded, State: w.Next}
}

// pinKey gives an authorized operation the partner key that a failover or an epoch took from its row.
func (r *row) pinKey() {
	if r.partnerKey == "" && len(r.attempts) > 0 {
		r.partnerKey = r.attempts[len(r.attempts)-1].PartnerKey
	}
	r.partnerKey = cmp.Or(r.partnerKey, "unknown")
}

func asked(w ledger.Record) bool {
	return slices.ContainsFunc(w.Facts, func(f ledger.Fact) bool { return f.Kind == ledger.FactLookUp })
}

func (r *row) observe(f ledger.Fact, token uuid.UUID, n int, fence int32, now time.Time) {
	if r.factKeys[factKey{token, n}] {
		return
	}
	r.factKeys[factKey{token, n}] = true
	f.Fence, f.Token, f.At = fence, token, now
	if !f.AskedAt.IsZero() && f.AskedAt.Before(now) {
		f.At = f.AskedAt
	}
	r.facts = append(r.facts, f)
}

func (m *memory) post(r *row, now time.Time) {
	sides := []ledger.Entry{{Account: "customer:" + r.wish.Source + "/" + r.wish.DebtorAccount, AmountMinor: -r.wish.Amount.Minor},
		{Account: "transit:" + r.partner, AmountMinor: r.wish.Amount.Minor}}
	if m.broken.oneEntry {
		sides = sides[:1]
	}
	for _, e := range sides {
		e.Event, e.Currency, e.At = "authorized", r.wish.Amount.Currency, now
		r.entries = append(r.entries, e)
	}
}

func (m *memory) publish(r *row, event string) {
	if !m.broken.noEvent {
		r.events = append(r.events, event)
	}
}

func (m *memory) keepEvidence(c ledger.Claim, facts []ledger.Fact, record bool) ledger.RecordResult {
	r := m.ops[c.Key]
	if r == nil {
		m.strays[c.Key] = m.strays[c.Key] || len(facts) > 0
		return ledger.RecordResult{Answer: ledger.Stray}
	}
	if record && r.token == c.Token && r.fence == c.Fence {
		if r.state != ledger.StateClaimed {
			return ledger.RecordResult{Answer: ledger.Recorded, State: r.state}
		}
		return ledger.RecordResult{Err: errRefused} // its internal id differs
	}
	now := m.now()
	beside := disputed(r)
	transferID, mismatch, rejected := "", false, false
	for n, f := range facts {
		if record {
			f.Kind = ledger.FactLate
		}
		r.observe(f, c.Token, n, max(c.Fence, 0), now)
		mismatch = mismatch || f.Verdict == "mismatch"
		rejected = rejected || f.Verdict == "rejected"
		if transferID == "" && f.Verdict == "authorized" {
			transferID = f.TransferID
		}
	}
	switch {
	case rejected && m.broken.lateRejectedDecides:
		r.put(ledger.StateRejected)
		r.code, r.inDoubt, r.dueAt = "late", false, time.Time{}
		return ledger.RecordResult{Answer: ledger.Fenced, State: r.state}
	case mismatch:
		if !record && r.state == ledger.StateClaimed {
			r.fence++ // its holder does not know of it
		}
		return ledger.RecordResult{Answer: ledger.Fenced, State: r.state}
	case transferID == "", beside && !r.state.Finished(), r.state == ledger.StateAuthorized && r.transferID == transferID:
		return ledger.RecordResult{Answer: ledger.Fenced, State: r.state}
	case r.state.Finished():
		m.contradict(r)
		return ledger.RecordResult{Answer: ledger.LateContradicted, State: r.state}
	}
	r.put(ledger.StateAuthorized)
	r.fence++
	r.transferID, r.inDoubt, r.held, r.code, r.leaseUntil, r.unobserved, r.dueAt = transferID, false, false, "", time.Time{}, 0, time.Time{}
	r.firstSent, r.partner = either(r.firstSent, r.created), cmp.Or(r.partner, r.duePartner)
	r.pinKey()
	m.post(r, now)
	m.publish(r, "authorized")
	return ledger.RecordResult{Answer: ledger.LateAuthorized, State: r.state}
}

func (m *memory) contradict(r *row) {
	if r.contradicted {
		return
	}
	r.contradicted = true
	m.publish(r, "contradicted")
	if r.partner != "" {
		m.pause(ledger.ScopePartner, r.partner, "contradicted outcome")
	} else {
		m.pause(ledger.ScopeRoute, r.wish.Route, "contradicted outcome")
	}
}

func (m *memory) pause(scope ledger.Scope, name, reason string) {
	at := string(scope) + "/" + name
	if _, known := m.pauses[at]; !known {
		m.pauses[at] = reason
	}
}

// due lists the rows of one partner that are due, oldest first.
func (m *memory) due(partner string, parked bool) []*row {
	now := m.now()
	var due []*row
	for _, r := range m.ops {
		isParked := r.state == ledger.StateParked && !m.broken.sweepsParked
		early := m.broken.skipLease && r.state == ledger.StateClaimed
		if !r.dueAt.IsZero() && r.duePartner == partner && isParked == parked && (early || !r.dueAt.After(now)) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *row) int { return cmp.Or(a.dueAt.Compare(b.dueAt), cmp.Compare(a.id, b.id)) })
	return due
}

func (m *memory) claimDue(partner string, limit int, token uuid.UUID) []ledger.Work {
	now := m.now()
	var works []ledger.Work
	due := m.due(partner, false)
	for _, r := range due[:min(limit, len(due))] {
		lapsed := (m.broken.skipLease || !r.leaseUntil.After(now)) && !m.broken.lapsedForgotten
		if r.state != ledger.StateOpen && !(r.state == ledger.StateClaimed && lapsed) && !(r.state == ledger.StateParked && m.broken.sweepsParked) {
			continue
		}
		paused := m.paused(partner, r.wish.Route, r.wish.Source)
		if paused && !r.inDoubt {
			r.dueAt = now.Add(15 * time.Second)
			continue
		}
		before, unobserved := r.state, r.unobserved
		if r.firstSent.IsZero() && (r.created.Before(m.doubtBefore) || m.strays[r.wish.Key]) {
			r.inDoubt, r.firstSent = true, r.created
		}
		r.put(ledger.StateClaimed)
		r.fence, r.unobserved, r.token, r.leaseUntil, r.held, r.dueAt = r.fence+1, r.unobserved+1, token, now.Add(m.lease), false, now.Add(m.lease)
		works = append(works, m.work(r, before, unobserved, paused, now))
	}
	return works
}

func (m *memory) work(r *row, before ledger.State, unobserved int16, paused bool, now time.Time) ledger.Work {
	w := ledger.Work{Claim: ledger.Claim{OperationID: r.id, Key: r.wish.Key, Token: r.token, Fence: r.fence}, State: before, Source: r.wish.Source,
		Route: r.wish.Route, Payload: r.wish.Payload, Fingerprint: r.wish.Fingerprint, TraceParent: r.wish.TraceParent, Pinned: r.partner, PartnerKey: r.partnerKey, Epoch: r.epoch,
		InDoubt: r.inDoubt, Paused: paused, FirstSentAt: r.firstSent, UnobservedClaims: unobserved, Stopped: r.stopped, Attempts: slices.Clone(r.attempts),
		Facts: slices.Clone(r.facts), CreatedAt: r.created, Now: now}
	return w
}

func (m *memory) lookAtParked(partner string, limit int) []ledger.Work {
	now := m.now()
	var works []ledger.Work
	due := m.due(partner, true)
	for _, r := range due[:min(limit, len(due))] {
		r.dueAt = now.Add(24 * time.Hour)
		w := m.work(r, r.state, r.unobserved, false, now)
		w.Claim.Token = uuid.Nil
		works = append(works, w)
	}
	return works
}

func (m *memory) renew(c ledger.Claim) bool {
	r := m.holds(c)
	if m.broken.renewsUnasked {
		r = m.ops[c.Key]
	}
	if r == nil {
		return false
	}
	r.leaseUntil = m.now().Add(m.lease)
	r.dueAt = r.leaseUntil
	return true
}

// stop is what the cancelling of a batch run does to one of its operations: it ends what may be ended, and marks the rest.
func (m *memory) stop(r *row) {
	if r.state != ledger.StateOpen || r.inDoubt {
		r.stopped = "run_cancelled"
		return
	}
	r.put(ledger.StateCancelled)
	r.held, r.code, r.dueAt = false, "run_cancelled", time.Time{}
	r.observe(ledger.Fact{Kind: ledger.FactNote, Code: "run_cancelled"}, m.mint(), 0, r.fence, m.now())
	m.publish(r, string(ledger.StateCancelled))
}

// purge deletes the payloads of what has an outcome that nothing speaks against.
func (m *memory) purge() {
	for key, r := range m.ops {
		if !r.state.Finished() || r.contradicted {
			continue
		}
		r.wish.Payload, r.wish.TraceParent = nil, ""
		if m.broken.purgeTakesPrint {
			r.wish.Fingerprint = ledger.Fingerprint{}
		}
		if m.broken.purgeTakesKey {
			delete(m.ops, key)
		}
	}
}

// snapshot is what a standby had.
func (m *memory) snapshot() *memory {
	c := *m
	c.ops, c.pauses, c.strays = map[uuid.UUID]*row{}, maps.Clone(m.pauses), maps.Clone(m.strays)
	for k, r := range m.ops {
		o := *r
		o.attempts, o.facts, o.entries = slices.Clone(r.attempts), slices.Clone(r.facts), slices.Clone(r.entries)
		o.events, o.states, o.factKeys = slices.Clone(r.events), slices.Clone(r.states), maps.Clone(r.factKeys)
		c.ops[k] = &o
	}
	return &c
}

// promote makes the standby the ledger: tokens go on, everything else is as it was then, and a person runs recover.
func (m *memory) promote(standby *memory) {
	m.ops, m.pauses, m.strays, m.nextID = standby.ops, standby.pauses, standby.strays, standby.nextID+10_000_000
	m.doubtBefore = m.now().Add(time.Minute)
	for _, r := range m.ops {
		if !r.state.Finished() {
			r.inDoubt, r.fence, r.firstSent = true, r.fence+1_000_000, earlier(either(r.firstSent, r.created), r.created)
		}
	}
}

// earlier is a time before both, as the ledger stores it where a lost claim may have sent.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		a = b
	}
	return a.Add(-time.Millisecond)
}

func either(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}
