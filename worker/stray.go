package worker

import (
	"context"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// JudgeStrays says for each job that no route's consumer covers why it becomes a dead letter, or nil: the ledger owns its operation, so that a
// letter would say of a withdrawal that was made that it could not be. Routes that were retired have such jobs. Nothing is claimed. An error
// means that nothing was found out.
func (w *Worker) JudgeStrays(ctx context.Context, origins []job.Origin, payloads [][]byte) ([]*job.Fault, error) {
	faults := make([]*job.Fault, len(origins))
	var wishes []ledger.Wish
	var places []int
	for i, origin := range origins {
		faults[i] = strayFault("")
		order, fault := w.decode(origin, payloads[i])
		if fault != nil {
			continue
		}
		wish := wish(&operation{job: order}, origin, payloads[i])
		wish.Refused, wish.Intention.Partner = true, w.opts.Routes[origin.Route].Partner
		wishes, places = append(wishes, wish), append(places, i)
	}
	if len(wishes) == 0 {
		return faults, nil
	}
	for n, answer := range w.ledger.Claim(ctx, wishes) {
		switch {
		case answer.Err != nil:
			return nil, fmt.Errorf("judge stray job %s: %w", wishes[n].Key, answer.Err)
		case answer.Answer == ledger.NotOnRecord && answer.InDoubt:
			w.log.Error().Stringer("key", wishes[n].Key).Msg("dead letter may have been sent under a claim that was lost in a failover")
			faults[places[n]] = strayFault("; " + mayHaveBeenSent)
		case answer.Answer == ledger.NotOnRecord:
		case answer.Answer == ledger.Conflict:
			faults[places[n]] = &job.Fault{Reason: job.ReasonKeyReused, Code: "key_reused", Detail: "the key belongs to another job"}
		default: // under a fingerprint of another version, too
			faults[places[n]] = nil
		}
	}
	return faults, nil
}

func strayFault(more string) *job.Fault {
	return &job.Fault{Reason: job.ReasonUnknownRoute, Code: "unknown_route", Detail: "no consumer covers the subject" + more}
}
