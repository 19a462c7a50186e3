package ledger_test

import (
	"context"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// TestInvariant1_OneAuthorizedOutcomePerKey: whoever says that it is authorized, and by which transfer, the first one is the outcome.
func TestInvariant1_OneAuthorizedOutcomePerKey(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w, old, takeover := stale(t, db)
	mustRecord(t, db.Ledger, ledger.Authorize(takeover.Claim, "tr_1", verdict("authorized")))
	for _, again := range []ledger.RecordResult{
		recordOne(t, db.Ledger, ledger.Authorize(old, "tr_2", verdict("authorized"))),
		recordOne(t, db.Ledger, ledger.Authorize(takeover.Claim, "tr_3", verdict("authorized"))),
		db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_4")}}})[0],
	} {
		if again.Err != nil || again.State != ledger.StateAuthorized {
			t.Errorf("%+v, want that it stays authorized", again)
		}
	}
	db.wantCount(1, "outcomes, by the first transfer", `SELECT count(*) FROM operations WHERE state = 'authorized' AND transfer_id = 'tr_1'`)
	db.wantCount(2, "entries", `SELECT count(*) FROM entries`)
	db.wantCount(1, "events that say so", `SELECT count(*) FROM outbox WHERE type = 'authorized'`)
}
