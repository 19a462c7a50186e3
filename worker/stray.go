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
	var orders []job.Job
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
		orders, wishes, places = append(orders, order), append(wishes, wish), append(places, i)
	}
	for n, answer := range w.askMany(ctx, orders, wishes) {
		switch {
		case answer.Err != nil:
			return nil, fmt.Errorf("judge stray job %s: %w", wishes[n].Key, answer.Err)
		case answer.Answer == ledger.NotOnRecord && answer.InDoubt:
			w.log.Error().Stringer("key", wishes[n].Key).Msg("dead letter may have been sent under a claim that was lost in a failover")
			faults[places[n]] = strayFault("; " + mayHaveBeenSent)
		case answer.Answer == ledger.NotOnRecord:
		case answer.Answer == ledger.Conflict:
			faults[places[n]] = &job.Fault{Reason: job.ReasonKeyReused, Code: "key_reused", Detail: "the key belongs to another job"}
		default: // under a fingerprint of a version that this program does not know, too: it is left to whoever does
			faults[places[n]] = nil
		}
	}
	return faults, nil
}

// askMany is ask for many wishes at once.
func (w *Worker) askMany(ctx context.Context, orders []job.Job, wishes []ledger.Wish) []ledger.ClaimAnswer {
	if len(wishes) == 0 {
		return nil
	}
	answers := w.ledger.Claim(ctx, wishes)
	var again []ledger.Wish
	var places []int
	for n, answer := range answers {
		if answer.Err != nil || answer.Answer != ledger.OtherVersion {
			continue
		}
		if stored, known := orders[n].FingerprintAs(answer.Version); known {
			wish := wishes[n]
			wish.Fingerprint = stored
			again, places = append(again, wish), append(places, n)
		}
	}
	if len(again) == 0 {
		return answers
	}
	for i, answer := range w.ledger.Claim(ctx, again) {
		answers[places[i]] = answer
	}
	return answers
}

func strayFault(more string) *job.Fault {
	return &job.Fault{Reason: job.ReasonUnknownRoute, Code: "unknown_route", Detail: "no consumer covers the subject" + more}
}
