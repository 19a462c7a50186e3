package worker

import (
	"context"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

// sweep drives one partner's operations whose next attempt is due or whose lease ran out. It is the only owner of retries.
// It runs until ctx ends; what it started is waited for by the flight.
func (w *Worker) sweep(ctx context.Context, p *partner) {
	for ctx.Err() == nil {
		slots, err := p.gate.Acquire(ctx, w.opts.SweepBatch)
		if err != nil {
			return // only ctx ends it
		}
		if w.sweepOnce(ctx, p, slots) < slots {
			w.wait(ctx, w.opts.SweepEvery)
		}
	}
}

// sweepOnce claims what is due, at most one operation per slot held, and works each in its own goroutine. The claim runs on
// a context that the stop signal does not end, so that no claim is made and forgotten.
func (w *Worker) sweepOnce(ctx context.Context, p *partner, slots int) int {
	if !w.flight.enter() {
		p.gate.Release(slots)
		return 0
	}
	defer w.flight.leave()
	claimedAt := w.clock()
	works, err := w.ledger.ClaimDue(w.life, p.id, slots)
	if err != nil {
		w.log.Warn().Err(err).Str("partner", p.id).Msg("due operations not claimed")
	}
	if unused := slots - len(works); unused > 0 {
		p.gate.Release(unused)
	}
	for i := range works {
		work := &works[i]
		if work.State == ledger.StateClaimed {
			w.metrics.takeovers.Inc()
		}
		w.flight.join()
		go func() {
			defer w.flight.leave()
			defer p.gate.Release(1)
			w.resume(p, work, claimedAt)
		}()
	}
	return len(works)
}

// watchParked looks up one partner's parked operations, each at its own time. Nothing is ever sent for them; Authorized
// found there decides.
func (w *Worker) watchParked(ctx context.Context, p *partner) {
	if p.profile.LookUp == bankclient.LookUpNone {
		return
	}
	for w.wait(ctx, w.opts.ParkedEvery) {
		works, err := w.ledger.LookAtParked(ctx, p.id, w.opts.SweepBatch)
		if err != nil {
			w.log.Warn().Err(err).Str("partner", p.id).Msg("parked operations not read")
		}
		for i := range works {
			if !w.askParked(ctx, p, &works[i]) {
				return
			}
		}
	}
}

// askParked reports false when ctx ended.
func (w *Worker) askParked(ctx context.Context, p *partner, work *ledger.Work) bool {
	if _, err := p.gate.Acquire(ctx, 1); err != nil {
		return false
	}
	defer p.gate.Release(1)
	if p.gate.Take(ctx) != nil || !w.flight.enter() {
		return false
	}
	defer w.flight.leave()
	op := recall(p, work)
	op.claimedAt = w.clock()
	op.at = op.claimedAt
	if len(op.attempts) == 0 && !op.inDoubt {
		return true // never sent
	}
	if fault := w.reread(op, work); fault != nil {
		w.log.Warn().Stringer("key", work.Claim.Key).Str("code", fault.Code).Msg("parked operation is not readable")
		return true
	}
	w.prepare(op)
	w.next(op)
	known := op.standing.Mismatch // a person has been called for it already
	said := w.lookUp(op)
	if !known {
		w.alarm(op, said)
	}
	fact := op.facts[len(op.facts)-1]
	if w.next(op); op.standing.Mismatch && fact.Verdict == saysAuthorized {
		// Beside a mismatch it decides nothing: a person does.
		fact.Kind, fact.Verdict, fact.Code = ledger.FactNote, "", "authorized_beside_mismatch"
	}
	for _, result := range w.ledger.Append(w.life, []ledger.Late{{Key: work.Claim.Key, Facts: []ledger.Fact{fact}, PartnerKey: op.prepared.PartnerKey}}) {
		if result.Err != nil {
			w.log.Warn().Err(result.Err).Stringer("key", work.Claim.Key).Msg("look-up of parked operation not kept")
		}
		w.judgeLate(op, result)
	}
	return true
}

// readGauges reads the ledger's numbers for the metrics until ctx ends.
func (w *Worker) readGauges(ctx context.Context) {
	for w.wait(ctx, 10*time.Second) {
		gauges, err := w.ledger.Gauges(ctx)
		if err != nil {
			w.log.Warn().Err(err).Msg("gauges not read")
			continue
		}
		w.metrics.gauge(gauges, w.partners)
		w.watchDoubt(gauges)
	}
}
