package worker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// Handle works one delivery through the life of a withdrawal, step by step below. The caller holds a slot of the route's
// gate and releases it when Handle returns. The delivery is settled exactly once.
func (w *Worker) Handle(ctx context.Context, d Delivery) {
	if !w.flight.enter() {
		d.Retry(0)
		return
	}
	defer w.flight.leave()

	// 1. Decode strictly. What cannot become an operation is a dead letter.
	origin := d.Origin()
	order, fault := w.decode(origin, d.Payload())
	if fault != nil {
		w.bury(d, fault, fault.Error())
		return
	}
	op := &operation{job: order, partner: w.partners[w.opts.Routes[origin.Route].Partner]}
	if fault := w.allowed(&order); fault != nil {
		w.refuse(ctx, op, d, fault)
		return
	}
	// 2. The slot is held. Take a rate token, so that nothing is claimed that cannot be started.
	defer w.keeper.drop(op) // whatever happens here, a panic too: an abandoned claim must lapse
	if op.partner.gate.Take(w.opening) != nil || w.flight.isStopping() {
		d.Retry(0)
		return
	}
	// 3, 4. Claim, and commit the attempt with it. Nothing has left yet.
	answer, err := w.claim(ctx, op, origin, d.Payload())
	if err != nil || answer.Answer != ledger.Claimed {
		w.settle(op, d, answer, err)
		return
	}
	// 5 to 8. One call at most, its verdict, its record.
	if !w.take(op, w.first(op, answer)) {
		d.Retry(w.later(0))
		return
	}
	// 9. Acknowledge only now.
	d.Done()
}

// refuse answers a delivery that the policy of today does not allow. The ledger is asked first: a job that was allowed when it came may come
// again, and its operation may be finished, or in doubt. Only what was never on record is a dead letter. What may have been sent under a
// claim that was lost is put on record by the ledger, in doubt, for the sweep.
func (w *Worker) refuse(ctx context.Context, op *operation, d Delivery, fault *job.Fault) {
	wish := wish(op, d.Origin(), d.Payload())
	wish.Refused = true
	if op.partner != nil {
		wish.Intention.Partner = op.partner.id
	}
	answer, err := w.ask(ctx, &op.job, wish)
	switch {
	case err != nil || answer.Answer != ledger.NotOnRecord:
		w.settle(op, d, answer, err)
	case answer.InDoubt:
		w.log.Error().Stringer("key", op.job.Key).Msg("dead letter may have been sent under a claim that was lost in a failover")
		w.bury(d, fault, fault.Error()+"; "+mayHaveBeenSent)
	default:
		w.bury(d, fault, fault.Error())
	}
}

// mayHaveBeenSent warns of a job that nobody can ask a partner about.
const mayHaveBeenSent = "it is older than the last recovery of the ledger and may have been sent: ask the partner before it is replayed"

// bury makes a dead letter of a job.
func (w *Worker) bury(d Delivery, fault *job.Fault, detail string) {
	w.log.Info().Str("reason", string(fault.Reason)).Str("code", fault.Code).Str("path", fault.Path).Msg("dead letter")
	d.Dead(fault.Reason, detail)
}

// settle answers a delivery that no call follows.
func (w *Worker) settle(op *operation, d Delivery, answer ledger.ClaimAnswer, err error) {
	deliveries := min(max(d.Origin().Deliveries-1, 0), 4) // so often in vain, perhaps; the delay need not grow beyond
	switch {
	case errors.Is(err, errClosed) || errors.Is(err, context.Canceled):
		d.Retry(0)
	case err != nil:
		w.log.Warn().Err(err).Stringer("key", op.job.Key).Msg("claim not found out")
		d.Retry(w.later(deliveries))
	case answer.Answer == ledger.Conflict:
		d.Dead(job.ReasonKeyReused, "the key belongs to another job")
	case answer.Answer == ledger.OtherVersion:
		d.Retry(w.later(deliveries)) // one that this program does not know
	default:
		w.metrics.suppressed.Inc()
		w.log.Debug().Stringer("key", op.job.Key).Str("state", string(answer.State)).Msg("delivery needs no call")
		d.Done()
	}
}

// resume works one operation that the sweep claimed: the same life from line 5 on, after looking at what is on record.
func (w *Worker) resume(p *partner, work *ledger.Work, claimedAt time.Duration) {
	op := recall(p, work)
	w.hold(op, work.Claim, work.Now, claimedAt)
	defer w.keeper.drop(op)
	if op.unobserved >= w.opts.PoisonClaims {
		w.take(op, w.next(op)) // before anything that may have killed the workers before us
		return
	}
	if fault := w.reread(op, work); fault != nil {
		w.next(op) // it may be in doubt
		w.take(op, Step{Kind: Park, Code: fault.Code})
		return
	}
	w.prepare(op)
	next := w.next(op)
	if next.Kind == Send || next.Kind == LookUp {
		_ = p.gate.Take(w.opening) // ends early only when we stop, which the next step sees
		op.at = w.clock()
		next = w.next(op) // the token may have been long in coming: the window, not_after and the lease go on
	}
	w.take(op, next)
}

// claim asks for the operation together with its first attempt. The lease is counted from before the statement.
func (w *Worker) claim(ctx context.Context, op *operation, origin job.Origin, payload []byte) (ledger.ClaimAnswer, error) {
	w.prepare(op)
	claimedAt := w.clock()
	answer, err := w.ask(ctx, &op.job, wish(op, origin, payload))
	if err != nil || answer.Answer != ledger.Claimed {
		return answer, err
	}
	w.hold(op, answer.Claim, answer.Now, claimedAt)
	if answer.InDoubt { // no attempt was committed: the operation may have been sent under a claim that was lost
		op.inDoubt, op.firstSent = true, origin.PublishedAt
		return answer, nil
	}
	op.attempts = []ledger.Attempt{{Intention: intention(&op.prepared), Fence: answer.Claim.Fence, Token: answer.Claim.Token, At: answer.Now}}
	return answer, nil
}

// ask puts a wish to the ledger. Where the operation is on record under another version of the fingerprint, it is compared under that one, if
// this program knows it.
func (w *Worker) ask(ctx context.Context, order *job.Job, wish ledger.Wish) (ledger.ClaimAnswer, error) {
	answer, err := w.claims.Do(ctx, wish)
	if err == nil && answer.Answer == ledger.OtherVersion {
		if stored, known := order.FingerprintAs(answer.Version); known {
			wish.Fingerprint = stored
			answer, err = w.claims.Do(ctx, wish)
		}
	}
	return answer, errors.Join(err, answer.Err)
}

// first is the step after a claim by a delivery.
func (w *Worker) first(op *operation, answer ledger.ClaimAnswer) Step {
	switch {
	case answer.InDoubt:
		return w.next(op)
	case op.unsound:
		w.observe(op, ledger.Fact{Kind: ledger.FactVerdict, Verdict: saysNotExecuted, Code: "local_check"})
		return w.next(op)
	}
	return Step{Kind: Send}
}

// take does one step with a claimed operation and records what it came to. False means that the record could not be
// written: the claim lapses, and the next worker begins with what is on record.
func (w *Worker) take(op *operation, step Step) bool {
	var said bankclient.Result
	switch step.Kind {
	case Send:
		if !op.attempted() {
			refused, ours := w.commitAttempt(op)
			if !ours {
				w.keeper.drop(op)
				return true // somebody else holds the operation
			}
			if refused.Code != "" {
				return w.conclude(op, step.Kind, refused, said)
			}
		}
		if w.mayNotStart(op) || op.expired() {
			return w.notStarted(op)
		}
		said = w.send(op)
	case LookUp:
		if w.mayNotStart(op) {
			return w.notStarted(op)
		}
		said = w.lookUp(op)
	default:
		return w.conclude(op, step.Kind, step, said)
	}
	return w.conclude(op, step.Kind, w.next(op), said)
}

// commitAttempt puts the attempt on record before any byte leaves (I2). A Step with a code says that nothing may be sent.
func (w *Worker) commitAttempt(op *operation) (refused Step, ours bool) {
	want := intention(&op.prepared)
	op.at = w.clock()
	result, err := w.resends.Do(w.life, ledger.Resend{Claim: op.claim, Intention: want})
	if err = errors.Join(err, result.Err); err != nil {
		w.log.Warn().Err(err).Stringer("key", op.claim.Key).Msg("attempt not committed")
		w.judgeRefusal(op, err)
		w.observe(op, ledger.Fact{Kind: ledger.FactVerdict, Verdict: saysNotExecuted, Code: "not_started"})
		w.next(op)
		return Step{Kind: WaitUntil, At: op.dbNow().Add(op.partner.schedule.retry(len(op.attempts))), Code: "not_started"}, true
	}
	switch result.Answer {
	case ledger.AttemptFenced:
		w.metrics.fenced.Inc()
		return Step{}, false
	case ledger.AttemptDiffers:
		return Step{Kind: Park, Code: "request_changed"}, true
	case ledger.AttemptStopped: // since we claimed it
		op.stopped = cmp.Or(result.Stopped, "stopped") // without a word it may be sent no more than with one
		step := w.next(op)
		step.Code = cmp.Or(step.Code, op.stopped)
		return step, true
	case ledger.AttemptCommitted:
	default:
		panic("an attempt was answered with neither an answer nor an error")
	}
	op.attempts = append(op.attempts, ledger.Attempt{Intention: want, Fence: op.claim.Fence, Token: op.claim.Token, At: op.dbNow()})
	return Step{}, true
}

// mayNotStart reports whether it is too late to start a call: we stop, or what is left of the lease would not do for a call
// of full length and its record.
func (w *Worker) mayNotStart(op *operation) bool {
	op.at = w.clock()
	left := op.leaseLeft(op.at)
	if op.attempted() { // counted from the attempt too, whatever was renewed since: the fold relies on it
		left = min(left, w.opts.Lease-op.dbNow().Sub(op.attempts[len(op.attempts)-1].At))
	}
	op.spare = left - op.partner.timeout - w.opts.RecordMargin
	return w.flight.isStopping() || op.spare < 0
}

// inTime says of a call that starts now whether its first byte may still leave: the call's own time is not over, and no more time that it did not
// notice (its machine was suspended) has gone by than the lease can spare.
func (w *Worker) inTime(op *operation) func() bool {
	began, start, timeout, spare, notAfter := op.at, time.Now(), op.partner.timeout, op.spare, time.Duration(math.MaxInt64)
	if !op.job.NotAfter.IsZero() {
		notAfter = op.job.NotAfter.Sub(op.dbNow())
	}
	return func() bool {
		noticed, gone := time.Since(start), w.clock()-began
		return noticed <= timeout && gone-noticed <= spare && gone < notAfter
	}
}

// notStarted hands the claim back: nothing left us under it.
func (w *Worker) notStarted(op *operation) bool {
	fact := ledger.Fact{Kind: ledger.FactNote, Code: "not_started"}
	if op.attempted() {
		fact.Kind, fact.Verdict = ledger.FactVerdict, saysNotExecuted
	}
	w.observe(op, fact)
	return w.conclude(op, WaitUntil, w.next(op), bankclient.Result{})
}

// send makes the one call. It runs on a context that the stop signal does not end.
func (w *Worker) send(op *operation) bankclient.Result {
	started := op.at
	op.prepared.InTime = w.inTime(op)
	said := op.partner.bank.Send(w.life, op.prepared)
	op.prepared.InTime = nil
	op.at = w.clock()
	op.partner.gate.Report(said)
	w.metrics.called(op.partner.id, said.Verdict, op.at-started)
	fact := ledger.Fact{Kind: ledger.FactVerdict, Verdict: said.Verdict.String(), Authoritative: said.Authoritative,
		TransferID: said.TransferID, Code: said.Code, Evidence: said.Evidence.JSON()}
	if said.Verdict == bankclient.Rejected && said.Cause != bankclient.CauseNone && !said.Authoritative {
		fact.Verdict = saysNotExecuted // it moved nothing, the partner keeps nothing, and it is not the customer's rejection
	}
	w.observe(op, fact)
	return said
}

// lookUp asks the partner what it did.
func (w *Worker) lookUp(op *operation) bankclient.Result {
	op.prepared.Trace = traceOf(op.facts)
	finding := op.partner.bank.LookUp(w.life, op.prepared)
	op.at = w.clock()
	said := finding.Result
	op.partner.gate.Report(said)
	fact := found(op, finding)
	fact.AskedAt = op.now // surely not later than when it was asked
	w.observe(op, fact)
	return said
}

// found is a look-up's answer as an observation.
func found(op *operation, finding bankclient.Finding) ledger.Fact {
	said := finding.Result
	fact := ledger.Fact{Kind: ledger.FactLookUp, Code: said.Code, Evidence: said.Evidence.JSON()}
	switch {
	case finding.Answer == bankclient.Found:
		fact.Verdict, fact.TransferID = said.Verdict.String(), said.TransferID
		fact.Authoritative = said.Verdict == bankclient.Rejected // the partner's own record of this partner key
	case finding.Answer == bankclient.NotFound && op.sameCredential() && op.sameEndpoint():
		fact.Verdict = saysNotFound
	default: // no answer, or "not found" to another credential or at another place, where the transfer need not show
		fact.Verdict = saysNoAnswer
	}
	return fact
}

// conclude records what a step came to and where the operation goes. Only here an outcome is decided.
func (w *Worker) conclude(op *operation, did StepKind, next Step, said bankclient.Result) bool {
	record := ledger.Record{Claim: op.claim, Facts: op.facts[op.known:], Code: next.Code, InDoubt: op.standing.InDoubt, PartnerKey: op.prepared.PartnerKey}
	ours := said.Cause != bankclient.CauseNone && !op.standing.Mismatch && !op.standing.Authorized
	switch {
	case ours && next.Kind == Reject && !op.standing.InDoubt: // stored under the partner key for a cause of ours: that key is used up
		record.Next, record.RaiseEpoch = ledger.StateOpen, true
		record.DueIn = w.dueIn(op, Send, Step{Kind: Send}, said)
	case next.Kind == Authorize && next.TransferID != "":
		record.Next, record.TransferID = ledger.StateAuthorized, next.TransferID
	case next.Kind == Reject && !op.standing.InDoubt:
		record.Next, record.Code = ledger.StateRejected, cmp.Or(next.Code, "rejected")
	case next.Kind == Cancel && !op.standing.InDoubt:
		record.Next = ledger.StateCancelled
	case next.Kind == Send, next.Kind == LookUp, next.Kind == WaitUntil:
		record.Next, record.DueIn = ledger.StateOpen, w.dueIn(op, did, next, said)
	default:
		if next.Kind != Park {
			record.Code = "no_transfer_id"
		}
		record.Next, record.DueIn = ledger.StateParked, w.opts.ParkedAgain
	}
	if len(record.Facts) == 0 && record.Next != ledger.StateOpen { // what was decided without a call leaves its reason
		record.Facts = []ledger.Fact{{Kind: ledger.FactNote, Code: record.Code}}
	}
	w.alarm(op, said)
	return w.record(op, record)
}

// alarm pauses the partner where a person must look before anything more is sent to it.
func (w *Worker) alarm(op *operation, said bankclient.Result) {
	switch {
	case said.Verdict == bankclient.Mismatch:
		w.metrics.violations.Inc()
		w.log.Error().Stringer("key", op.claim.Key).Int32("fence", op.claim.Fence).Str("partner", op.partner.id).
			Msg("partner's answer disagrees with what was sent")
		w.pause(op.partner, ledger.PausedMismatch)
	case said.Cause == bankclient.CauseOurFunds:
		w.pause(op.partner, ledger.PausedOurFunds)
	case said.Cause == bankclient.CauseOurLimits:
		w.pause(op.partner, ledger.PausedOurLimits)
	}
}

// record writes under token and fence, again and again while the ledger is away: what the partner said exists nowhere
// else. It gives up when a second lease is over or the worker is cut.
func (w *Worker) record(op *operation, record ledger.Record) bool {
	w.keeper.drop(op)
	for n := 0; ; n++ {
		result, err := w.records.Do(w.life, record)
		if err = errors.Join(err, result.Err); err == nil {
			w.recorded(op, record, result)
			return result.Answer != ledger.Stray // lost with a failover: the job must come again
		}
		w.log.Warn().Err(err).Stringer("key", op.claim.Key).Int32("fence", op.claim.Fence).Msg("outcome not recorded")
		if n == 0 {
			w.judgeRefusal(op, err)
		}
		if op.leaseLeft(w.clock()) < -w.opts.Lease || !w.wait(w.life, w.later(n)) {
			return false
		}
	}
}
