package enumerate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

// truths are what the oracle saw with its own eyes at the interfaces; it shares no code with ledger, fold or worker.
type truths struct {
	faults      []string
	holder      uuid.UUID // the token of the last claim granted
	until       time.Time // the end of its lease
	recorded    map[uuid.UUID]bool
	paused      map[uuid.UUID]bool // claims that were granted while the partner was paused
	unobserved  int                // claims in a row under which nothing was recorded
	poisoned    map[uuid.UUID]bool // claims that were granted after three such
	claimedAt   map[uuid.UUID]time.Time
	byDelivery  map[string]uuid.UUID
	attempts    int                // committed, ever
	answered    ledger.ClaimAnswer // to the latest delivery
	parkedLooks int
	mustPark    bool // by what is on record
	needless    bool
	lost        bool // a failover took writes
	stopped     bool // its run was cancelled
}

func (w *world) fault(format string, args ...any) {
	w.truth.faults = append(w.truth.faults, fmt.Sprintf(format, args...))
}

func (t *truths) promoted() { t.lost, t.holder, t.unobserved = true, uuid.Nil, 0 }

// keep remembers what a standby has: everything before the write that follows.
func (w *world) keep() {
	if w.sc.failover && !w.failedOver {
		w.standby = w.led.snapshot()
	}
}

// granted judges a claim: nobody else may hold the operation.
func (w *world) granted(c ledger.Claim, before ledger.State, paused bool) {
	t := &w.truth
	if t.recorded == nil {
		t.recorded, t.paused, t.poisoned = map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
		t.byDelivery, t.claimedAt = map[string]uuid.UUID{}, map[uuid.UUID]time.Time{}
	}
	if t.holder != uuid.Nil && !t.recorded[t.holder] && time.Now().Before(t.until) {
		w.fault("I5: a claim was granted while another holds the operation")
	}
	if before.Finished() || before == ledger.StateParked {
		w.fault("I4: an operation that is %s was claimed", before)
	}
	t.holder, t.until = c.Token, time.Now().Add(lease)
	t.paused[c.Token], t.claimedAt[c.Token] = paused, time.Now()
	t.poisoned[c.Token] = t.unobserved >= poisonClaims
	t.unobserved++
}

func (w *world) claim(p *process, wish ledger.Wish) ledger.ClaimAnswer {
	w.keep()
	var before ledger.State
	attempts := 0
	if r := w.row(); r != nil {
		before, attempts = r.state, len(r.attempts)
	}
	a := w.led.claim(wish, w.led.mint())
	w.truth.answered = a
	if a.Answer != ledger.Claimed {
		return a
	}
	p.goOn(a.Claim.Token)
	w.granted(a.Claim, before, false)
	w.truth.byDelivery[wish.TraceParent] = a.Claim.Token
	if !a.InDoubt {
		w.truth.attempts++
		if attempts > 0 {
			w.fault("I3: a delivery got an operation that was attempted before, to send at once")
		}
	}
	return a
}

func (w *world) claimDue(p *process, partner string, limit int) []ledger.Work {
	w.keep()
	works := w.led.claimDue(partner, limit, w.led.mint())
	for _, work := range works {
		p.goOn(work.Claim.Token)
		w.granted(work.Claim, work.State, work.Paused)
	}
	return works
}

func (w *world) renew(c ledger.Claim) bool {
	w.keep()
	still := w.led.renew(c)
	switch {
	case !still:
	case w.truth.holder != c.Token || w.truth.recorded[c.Token]:
		w.fault("I5: a lease was renewed under a stale claim")
	default:
		w.truth.until = time.Now().Add(lease)
	}
	return still
}

func (w *world) lookAtParked(p *process, partner string, limit int) []ledger.Work {
	w.keep()
	p.goOn(uuid.Nil)
	works := w.led.lookAtParked(partner, limit)
	for _, work := range works {
		if work.State != ledger.StateParked || work.Claim.Token != uuid.Nil {
			w.fault("what was looked at as parked is %s, or claimed", work.State)
		}
	}
	return works
}

func (w *world) pause(scope ledger.Scope, name, reason string) {
	w.keep()
	w.led.pause(scope, name, reason)
}

func (w *world) commitAttempt(p *process, s ledger.Resend, decided time.Time) ledger.AttemptResult {
	w.keep()
	answer := ledger.AttemptResult{Answer: w.led.commitAttempt(s)}
	switch answer.Answer {
	case ledger.AttemptStopped:
		answer.Stopped = w.row().stopped
		return answer
	case ledger.AttemptCommitted:
	default:
		return answer
	}
	p.goOn(s.Claim.Token)
	w.truth.attempts++
	if w.truth.holder != s.Claim.Token {
		w.fault("I5: an attempt was committed under a stale claim")
	}
	if w.truth.stopped {
		w.fault("an attempt was committed after its run was cancelled")
	}
	if w.truth.paused[s.Claim.Token] {
		w.fault("a paused partner is about to be sent something")
	}
	w.judgeResend(s, decided)
	return answer
}

// judgeResend says by the doc of package worker whether a send may follow what is on record.
func (w *world) judgeResend(s ledger.Resend, decided time.Time) {
	r, p := w.row(), w.sc.profile
	var doubtful []ledger.Attempt
	for _, a := range r.attempts {
		if a.Token != s.Claim.Token && a.PartnerKey == s.Intention.PartnerKey && !w.cleared(r, a) {
			doubtful = append(doubtful, a)
		}
	}
	for _, f := range r.facts {
		switch {
		case f.At.After(w.truth.claimedAt[s.Claim.Token]) && f.Verdict != "authorized":
			// It came while the step was under way; only Authorized takes the claim away.
		case f.Verdict == "authorized", f.Verdict == "mismatch":
			w.fault("I3: sent again, though %s is on record", f.Verdict)
		case f.Kind == ledger.FactLookUp && f.Verdict == "in_flight":
			w.fault("I3: sent again, though a look-up found the transfer")
		case f.Verdict == "rejected" && (f.Authoritative || f.Kind == ledger.FactLookUp) && keyUnder(r, f.Fence) == s.Intention.PartnerKey:
			w.fault("I3: sent again under a partner key that the partner rejected for good")
		}
	}
	if !w.sc.profileExpiry(w.start).IsZero() && !decided.Before(w.sc.profileExpiry(w.start)) {
		w.fault("an attempt was decided on after not_after")
	}
	if len(doubtful) == 0 {
		return
	}
	last := doubtful[len(doubtful)-1]
	after := last.At
	if !p.SerialisesDuplicates {
		after = last.At.Add(p.LatestArrival + p.VisibilityBound)
	}
	absent := w.notFound(r, s, after)
	switch {
	case !p.HonoursKeys:
		w.fault("I3: sent again in doubt to a partner that does not honour keys")
	case !decided.Before(doubtful[0].At.Add(p.KeyWindow / 2)):
		w.fault("I3: sent again in doubt %v after the first send, half of the window is %v", decided.Sub(doubtful[0].At), p.KeyWindow/2)
	case decided.Before(last.At.Add(p.MinResendDelay)):
		w.fault("I3: sent again before the minimum delay")
	case p.LookUp != bankclient.LookUpNone && p.SerialisesDuplicates && absent == 0:
		w.fault("I3: sent again in doubt without a look-up that found nothing")
	case !p.SerialisesDuplicates && !p.LookUpConsistent:
		w.fault("I3: sent again in doubt to a partner that neither serialises duplicates nor has a consistent look-up")
	case !p.SerialisesDuplicates && absent < 2:
		w.fault("I3: sent again in doubt after %d late look-ups to a partner that does not serialise duplicates", absent)
	}
}

// notFound counts what the bank answered "not found" from a time on, and what the ledger has of it.
func (w *world) notFound(r *row, s ledger.Resend, from time.Time) int {
	n := 0
	for _, l := range w.bank.lookUps {
		known := slices.ContainsFunc(r.facts, func(f ledger.Fact) bool {
			return f.Kind == ledger.FactLookUp && f.Verdict == "not_found" && f.Token == l.token
		})
		if known && l.found.Answer == bankclient.NotFound && l.partnerKey == s.Intention.PartnerKey && !l.at.Before(from) {
			n++
		}
	}
	return n
}

// cleared: the attempt's own observations say that it moved nothing, and so did every answer of the bank to it.
func (w *world) cleared(r *row, a ledger.Attempt) bool {
	for _, arrived := range w.bank.arrivals {
		if arrived.token == a.Token && arrived.answer.Verdict != bankclient.NotExecuted && arrived.answer.Verdict != bankclient.Rejected {
			return false
		}
	}
	return clearedOnRecord(r, a)
}

func clearedOnRecord(r *row, a ledger.Attempt) bool {
	clear := false
	for _, f := range r.facts {
		if f.Token != a.Token || (f.Kind != ledger.FactVerdict && f.Kind != ledger.FactLate) || f.Verdict == "" || f.Verdict == "not_found" || f.Verdict == "no_answer" {
			continue
		}
		if f.Verdict != "not_executed" && f.Verdict != "rejected" {
			return false
		}
		clear = true
	}
	return clear
}

// keyUnder is the partner key of the latest attempt up to a fence.
func keyUnder(r *row, fence int32) string {
	key := ""
	for _, a := range r.attempts {
		if a.Fence <= fence {
			key = a.PartnerKey
		}
	}
	return key
}

func (sc *scenario) profileExpiry(start time.Time) time.Time {
	if sc.notAfter == 0 {
		return time.Time{}
	}
	return start.Add(sc.notAfter)
}

// poisonClaims is how many claims in a row may end without an observation: whatever killed those workers is not tried on another.
const poisonClaims = 3

func (w *world) judgePoison(token uuid.UUID, does string) {
	if w.truth.poisoned[token] {
		w.fault("section 5: %s after %d claims without an observation", does, poisonClaims)
	}
}

func (w *world) lookUp(pr bankclient.Prepared, f find, token uuid.UUID) bankclient.Finding {
	w.judgePoison(token, "asked")
	return w.bank.lookUp(pr, f, token)
}

// unsent is what a partner's client says of a request that was too late to begin.
func (w *world) unsent(token uuid.UUID) bankclient.Result {
	w.bank.unsent = append(w.bank.unsent, token)
	return bankclient.Result{Verdict: bankclient.NotExecuted, Code: "late"}
}

func (w *world) send(pr bankclient.Prepared, a act, token uuid.UUID, stood time.Time) bankclient.Result {
	w.judgePoison(token, "sent")
	r := w.row()
	visible := 0
	if r != nil {
		for _, at := range r.attempts {
			if at.PartnerKey == pr.PartnerKey && at.BodySHA256 == pr.BodySHA256 {
				visible++
			}
		}
	}
	before := 0
	for _, seen := range w.bank.arrivals {
		if seen.pr.PartnerKey == pr.PartnerKey {
			before++
		}
		if seen.pr.PartnerKey == pr.PartnerKey && seen.body != string(pr.Body) {
			w.fault("I8: other bytes were sent under the same partner key")
		}
	}
	if before >= visible && !w.truth.lost {
		w.fault("I2: %d sends with %d attempts visible", before+1, visible)
	}
	if end := w.sc.profileExpiry(w.start); !end.IsZero() && !stood.Before(end) {
		w.fault("a call was started after not_after")
	}
	if token == w.truth.holder && stood.Add(cmp.Or(w.sc.timeout, timeout)).After(w.truth.until) {
		w.fault("a call was started so late that its claim may lapse meanwhile")
	}
	return w.bank.arrive(pr, a, token)
}

func (w *world) record(rec ledger.Record) ledger.RecordResult {
	w.keep()
	r := w.row()
	if r == nil {
		return w.led.record(rec)
	}
	ours := w.truth.holder == rec.Claim.Token && r.state == ledger.StateClaimed
	before, facts := r.state, len(r.facts)
	disputed := disputed(r)
	result := w.led.record(rec)
	w.judgeDisputed(disputed, before)
	authorized := slices.ContainsFunc(rec.Facts, func(f ledger.Fact) bool { return f.Verdict == "authorized" })
	switch {
	case !ours && r.state != before && !authorized:
		w.fault("I5: a stale claim moved the operation from %s to %s", before, r.state)
	case result.Err == nil:
		w.truth.recorded[rec.Claim.Token] = true
		if ours {
			w.truth.unobserved = 0
		}
	}
	w.judgeWitness(r, rec, result)
	if result.Err != nil {
		w.fault("the ledger refuses a record: next %s, in doubt %v, code %q", rec.Next, rec.InDoubt, rec.Code)
	}
	if result.Answer == ledger.Fenced && len(r.facts) < facts+len(rec.Facts) && !w.truth.lost && w.tries[rec.Claim.Token] == 0 {
		w.fault("I5: evidence of a stale claim was not kept")
	}
	delete(w.wakes, rec.Claim.Token)
	return result
}

func (w *world) append(l ledger.Late) ledger.RecordResult {
	r := w.row()
	for _, f := range l.Facts {
		if f.Kind != ledger.FactNote && !w.bank.found(f, uuid.Nil) {
			w.fault("kept of a parked operation is a look-up that was %s, and the bank answered none so", f.Verdict)
		}
	}
	before, disputed := r.state, disputed(r)
	result := w.led.keepEvidence(ledger.Claim{Key: l.Key, Token: w.led.mint()}, l.Facts, false)
	w.judgeDisputed(disputed, before)
	return result
}

func disputed(r *row) bool {
	return slices.ContainsFunc(r.facts, func(f ledger.Fact) bool { return f.Verdict == "mismatch" })
}

// judgeDisputed: beside a mismatch on record only a person decides.
func (w *world) judgeDisputed(disputed bool, before ledger.State) {
	if disputed && before != ledger.StateAuthorized && w.row().state == ledger.StateAuthorized {
		w.fault("section 5: authorized beside a mismatch on record, which only a person may decide")
	}
}

func (w *world) settle(d *delivery, how string) {
	d.settled = how
	token, claimed := w.truth.byDelivery[d.origin.TraceParent]
	if how == "done" && claimed && token == w.truth.holder && !w.truth.recorded[token] {
		w.fault("step 9: acknowledged before the record of its own claim")
	}
	if how == "done" && w.row() == nil {
		w.fault("I12: acknowledged, and the ledger does not know the operation")
	}
}

// judgeEnd asks ledger and bank, each on its own.
func (w *world) judgeEnd() {
	r := w.row()
	if r == nil {
		w.fault("I12: the operation is nowhere")
		return
	}
	executions := len(w.bank.executions)
	if executions > 1 {
		w.fault("executed %d times", executions)
	}
	switch r.state {
	case ledger.StateAuthorized:
		if executions != 1 || w.bank.executions[0].transferID != r.transferID {
			w.fault("authorized as %q with %d executions", r.transferID, executions)
		}
	case ledger.StateRejected, ledger.StateCancelled:
		if executions != 0 {
			w.fault("%s with %d executions", r.state, executions)
		}
	case ledger.StateParked:
		w.judgeParked(r)
	default:
		w.fault("I12: the operation ended %s", r.state)
	}
	w.judgeDoubt(r)
	w.judgeJournal(r)
	for i := 1; i < len(r.states); i++ {
		if !stateTable(r.states[i-1], r.states[i]) {
			w.fault("I4: %s -> %s", r.states[i-1], r.states[i])
		}
	}
	if r.contradicted {
		w.fault("the outcome is contradicted")
	}
	keys := map[string]bool{}
	for _, a := range w.bank.arrivals {
		keys[a.pr.PartnerKey] = true
	}
	if len(keys) > 1+int(r.epoch) {
		w.fault("I7: %d partner keys in %d epochs", len(keys), r.epoch+1)
	}
	for _, d := range w.deliveries {
		if d.settled != "done" && !d.again {
			w.fault("a delivery ended %q", d.settled)
		}
	}
	w.judgeEvidence(r)
}

// judgeParked: only what is ambiguous, disagreed on, or killed workers comes before a person, and with its evidence.
func (w *world) judgeParked(r *row) {
	ambiguous := slices.ContainsFunc(r.attempts, func(a ledger.Attempt) bool { return !w.cleared(r, a) }) || w.truth.lost
	poison := r.code == "poison"
	late := slices.ContainsFunc(r.facts, func(f ledger.Fact) bool {
		return f.Kind == ledger.FactLate && !f.At.Before(w.truth.claimedAt[r.token])
	})
	switch {
	case r.code == "", len(r.facts) == 0 && len(r.attempts) == 0:
		w.fault("parked %q without evidence", r.code)
	case poison && !w.truth.poisoned[r.token] && !w.truth.lost:
		w.fault("parked as poison before %d claims ended without an observation", poisonClaims)
	case r.code == "absent_not_resendable" && !w.sc.profile.LookUpConsistent:
		w.fault("parked as absent by look-ups that are not consistent")
	case ambiguous, disputed(r), poison:
	case late: // what cleared it came after the holder who parked it had looked
		w.truth.needless = true
	default:
		w.fault("parked %q, though nothing on record is ambiguous", r.code)
	}
}

// judgeDoubt: no outcome but Authorized beside an attempt that may have moved money, and one send where keys are not honoured.
func (w *world) judgeDoubt(r *row) {
	final := slices.ContainsFunc(r.facts, func(f ledger.Fact) bool {
		return f.Verdict == "rejected" && (f.Authoritative || f.Kind == ledger.FactLookUp)
	})
	ambiguous := slices.ContainsFunc(r.attempts, func(a ledger.Attempt) bool { return !w.cleared(r, a) })
	if ambiguous && !final && (r.state == ledger.StateRejected || r.state == ledger.StateCancelled) {
		w.fault("I9: %s, though an attempt may have moved money", r.state)
	}
	if w.sc.profile.HonoursKeys {
		return
	}
	w.truth.mustPark = disputed(r) && r.state != ledger.StateAuthorized || ambiguous && r.state != ledger.StateAuthorized && !final ||
		w.truth.needless || r.code == "poison"
	harmful := 0
	for _, a := range w.bank.arrivals {
		if a.act != refuses && a.act != limits && a.act != ourFunds {
			harmful++
		}
	}
	if harmful > 1 {
		w.fault("sent %d times to a partner that does not honour keys", harmful)
	}
}

// judgeReplay: whatever was purged, the key answers as before, and of fingerprint, outcome and evidence nothing is gone (I10).
func (w *world) judgeReplay(before *row, sent int) {
	r, said := w.row(), w.truth.answered
	if sent != 0 {
		w.fault("a replay after %s led to %d more sends", before.state, sent)
	}
	if r == nil {
		w.fault("I10: the key went with the payload")
		return
	}
	if before.state == ledger.StateParked {
		if said.Answer != ledger.Parked && said.Answer != ledger.Finished {
			w.fault("I10: a replay of what is parked is answered %v", said.Answer)
		}
		return
	}
	if said.Answer != ledger.Finished || said.State != before.state {
		w.fault("I10: a replay of what is %s is answered %v %s", before.state, said.Answer, said.State)
	}
	if r.wish.Payload != nil {
		w.fault("the payload of what is %s was not purged", before.state)
	}
	if r.wish.Key != before.wish.Key || r.wish.Fingerprint != before.wish.Fingerprint || r.state != before.state || r.transferID != before.transferID ||
		r.code != before.code || r.partnerKey != before.partnerKey || len(r.attempts) != len(before.attempts) || len(r.facts) < len(before.facts) || // late evidence may have come
		len(r.entries) != len(before.entries) {
		w.fault("I10: what a purge left of what was %s is something else", before.state)
	}
}

func (w *world) judgeJournal(r *row) {
	sum, ended, want := int64(0), 0, 0
	for _, e := range r.entries {
		sum += e.AmountMinor
	}
	if r.state == ledger.StateAuthorized {
		want = 2
	}
	if sum != 0 || len(r.entries) != want {
		w.fault("I6: %d entries that sum to %d", len(r.entries), sum)
	}
	for _, e := range r.events {
		if e == string(r.state) {
			ended++
		}
	}
	if ended != 1 && !(r.state == ledger.StateParked && ended > 0) {
		w.fault("I11: %d events for the outcome %s", ended, r.state)
	}
}

// judgeEvidence: an outcome stands on an observation, and every answer that was recorded is among the observations.
func (w *world) judgeEvidence(r *row) {
	has := func(verdict string) bool {
		return slices.ContainsFunc(r.facts, func(f ledger.Fact) bool { return f.Verdict == verdict })
	}
	if (r.state == ledger.StateAuthorized && !has("authorized")) || (r.state == ledger.StateRejected && !has("rejected")) {
		w.fault("%s without an observation that says so", r.state)
	}
	if r.state == ledger.StateCancelled && w.sc.notAfter == 0 && !w.truth.stopped {
		w.fault("cancelled, though nobody asked for that")
	}
}

// stateTable is I4, written once more.
func stateTable(before, after ledger.State) bool {
	allowed := map[ledger.State]string{"open": "claimed cancelled parked authorized", "claimed": "claimed open authorized rejected cancelled parked",
		"parked": "authorized rejected open"}
	return slices.Contains(splitWords(allowed[before]), string(after))
}
