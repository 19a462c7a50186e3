package ledger_test

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestHistory_FactsNameTheClaimTheyWereMadeUnder: in time or late, so that each is matched to its own attempt.
func TestHistory_FactsNameTheClaimTheyWereMadeUnder(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	first := mustClaim(t, db.Ledger, w)
	db.dueNow()
	second := sweepOne(t, db.Ledger).Claim
	if r := recordOne(t, db.Ledger, ledger.Schedule(first, true, time.Hour, verdict("unknown"))); r.Answer != ledger.Fenced {
		t.Fatalf("record under the stale claim: %s", r.Answer)
	}
	mustRecord(t, db.Ledger, ledger.Schedule(second, true, time.Hour, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "no_answer"}))
	db.dueNow()
	facts := sweepOne(t, db.Ledger).Facts
	if len(facts) != 2 || facts[0].Kind != ledger.FactLate || facts[0].Token != first.Token || facts[1].Token != second.Token {
		t.Errorf("facts %+v, want one under %s and one under %s", facts, first.Token, second.Token)
	}
	if e := explain(t, db.Ledger, w); len(e.Facts) != 2 || e.Facts[0].Token != first.Token || e.Facts[1].Token != second.Token {
		t.Errorf("explained facts %+v", e.Facts)
	}
}
