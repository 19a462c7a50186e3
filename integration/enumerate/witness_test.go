package enumerate

import (
	"slices"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

// judgeWitness holds what is put on record of a claim against what the bank itself answered under it, and the other way round: a worker that misreads
// an answer, and records what it misread, agrees with itself.
func (w *world) judgeWitness(r *row, rec ledger.Record, result ledger.RecordResult) {
	for _, f := range rec.Facts {
		switch {
		case f.Kind == ledger.FactVerdict && f.Code == "not_started" && !w.bank.asked(rec.Claim.Token):
		case f.Kind == ledger.FactVerdict && !w.bank.answered(f, rec.Claim.Token):
			w.fault("put on record is a call that was %s (%s), and the bank answered none so", f.Verdict, f.Code)
		case f.Kind == ledger.FactLookUp && !w.bank.found(f, rec.Claim.Token):
			w.fault("put on record is a look-up that was %s (%s), and the bank answered none so", f.Verdict, f.Code)
		}
	}
	if result.Err != nil {
		return
	}
	for _, a := range w.bank.arrivals {
		kept := slices.ContainsFunc(r.facts, func(f ledger.Fact) bool { return f.Token == a.token && f.Verdict == answerOnRecord(a.answer) })
		if a.token == rec.Claim.Token && !kept {
			w.fault("the bank's answer to a call was %s, and the record of its claim says nothing of it", answerOnRecord(a.answer))
		}
	}
}

// asked reports whether anything was sent under a claim.
func (b *bank) asked(token uuid.UUID) bool {
	return slices.ContainsFunc(b.arrivals, func(a arrival) bool { return a.token == token })
}

// answered reports whether the bank answered a call under a claim with what a fact says.
func (b *bank) answered(f ledger.Fact, token uuid.UUID) bool {
	if f.Verdict == "not_executed" && slices.Contains(b.unsent, token) {
		return true
	}
	return slices.ContainsFunc(b.arrivals, func(a arrival) bool {
		return a.token == token && f.Verdict == answerOnRecord(a.answer) && f.TransferID == a.answer.TransferID && f.Authoritative == a.answer.Authoritative
	})
}

// found reports whether the bank answered a look-up under a claim with what a fact says.
func (b *bank) found(f ledger.Fact, token uuid.UUID) bool {
	return slices.ContainsFunc(b.lookUps, func(l lookedUp) bool {
		said := "no_answer"
		switch l.found.Answer {
		case bankclient.Found:
			said = answerOnRecord(l.found.Result)
		case bankclient.NotFound:
			said = "not_found"
		case bankclient.NoAnswer:
		}
		return l.token == token && f.Verdict == said && f.TransferID == l.found.Result.TransferID
	})
}

// answerOnRecord is the name under which an answer of the bank is to be on record.
func answerOnRecord(said bankclient.Result) string {
	switch said.Verdict {
	case bankclient.Authorized:
		return "authorized"
	case bankclient.Rejected:
		return "rejected"
	case bankclient.NotExecuted:
		return "not_executed"
	case bankclient.InFlight:
		return "in_flight"
	case bankclient.KeyReused:
		return "key_reused"
	case bankclient.Mismatch:
		return "mismatch"
	case bankclient.Unknown:
	}
	return "unknown"
}
