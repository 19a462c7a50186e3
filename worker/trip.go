package worker

import (
	"github.com/paidonce/paidonce/ledger"
)

// What a worker pauses by itself, until a person resumes it: a partner, for an answer that disagrees with what was sent, for our own funds or
// limits there, and for more money in doubt than its setting allows; everything, once the ledger refuses what must never be. An open breaker
// is no pause: it closes the intake of its partner, and tries again by itself.

// pause stops new starts at a partner until a person resumes it.
func (w *Worker) pause(p *partner, reason string) bool {
	if err := w.ledger.Pause(w.life, ledger.ScopePartner, p.id, reason, ledger.ByWorker); err != nil {
		w.log.Error().Err(err).Str("partner", p.id).Str("reason", reason).Msg("partner not paused")
		return false
	}
	w.log.Error().Str("partner", p.id).Str("reason", reason).Msg("partner paused until a person resumes it")
	return true
}

// judgeRefusal stops everything where the ledger was asked for what breaks an invariant: whatever this program does next is not to be trusted.
func (w *Worker) judgeRefusal(op *operation, err error) {
	if !ledger.Violates(err) {
		return
	}
	w.metrics.violations.Inc()
	w.log.Error().Err(err).Stringer("key", op.claim.Key).Int32("fence", op.claim.Fence).Msg("the ledger refused what breaks an invariant")
	if err := w.ledger.Pause(w.life, ledger.ScopeAll, "", ledger.PausedViolation, ledger.ByWorker); err != nil {
		w.log.Error().Err(err).Msg("everything not paused")
		return
	}
	w.log.Error().Str("reason", ledger.PausedViolation).Msg("everything paused until a person resumes it")
}

// watchDoubt pauses a partner when the money in doubt there rises above its limit. Once resumed it is left alone until it has been below:
// whoever resumes knows how much it is.
func (w *Worker) watchDoubt(g ledger.Gauges) {
	for id, p := range w.partners {
		for currency, limit := range p.doubtLimits {
			above := g.InDoubtAt[id][currency] > limit
			if above && !p.tripped[currency] {
				w.log.Error().Str("partner", id).Str("currency", currency).Int64("in_doubt_minor", g.InDoubtAt[id][currency]).Int64("limit_minor", limit).
					Msg("more money in doubt than the limit")
				above = w.pause(p, ledger.PausedDoubtLimit)
			}
			p.tripped[currency] = above
		}
	}
}
