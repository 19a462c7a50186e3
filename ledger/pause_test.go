package ledger_test

import (
	"context"
	"slices"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// TestPause_ForDoubtByAnOlderProgram: it named itself otherwise where evidence spoke against an outcome, and its pauses still stand.
func TestPause_ForDoubtByAnOlderProgram(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	for _, one := range []struct {
		reason string
		doubt  bool
	}{{"contradicted outcome", true}, {"mismatch", false}} { // the second is no word that it wrote
		if err := db.Pause(ctx, ledger.ScopePartner, one.reason, one.reason, "paidonce"); err != nil {
			t.Fatal(err)
		}
		got, err := db.PausedForDoubt(ctx, ledger.ScopePartner, one.reason)
		if err != nil || slices.Contains(got, one.reason) != one.doubt {
			t.Errorf("%s: %v, %v; want it there: %v", one.reason, got, err, one.doubt)
		}
		if p := (ledger.Pause{Reason: one.reason, By: "paidonce"}); p.ForDoubt() != one.doubt {
			t.Errorf("%s: for doubt %v, want %v", one.reason, p.ForDoubt(), one.doubt)
		}
	}
}
