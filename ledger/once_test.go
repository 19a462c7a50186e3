package ledger_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

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

// TestFailover_ThePartnerKeyIsKept: an operation whose attempts were lost is found at the partner, by its holder, by one from before the
// failover, or while it is parked. The key under which money moved is on record afterwards, not that nobody knows it.
func TestFailover_ThePartnerKeyIsKept(t *testing.T) {
	for name, record := range map[string]func(*database, ledger.Claim, ledger.Work){
		"by its holder": func(db *database, _ ledger.Claim, now ledger.Work) {
			r := ledger.Authorize(now.Claim, "tr_1", ledger.Fact{Kind: ledger.FactLookUp, Verdict: "authorized", TransferID: "tr_1"})
			r.PartnerKey = "pk-known"
			mustRecord(t, db.Ledger, r)
		},
		"by one from before": func(db *database, old ledger.Claim, _ ledger.Work) {
			r := ledger.Authorize(old, "tr_1", verdict("authorized"))
			r.Facts[0].TransferID, r.PartnerKey = "tr_1", "pk-known"
			if got := recordOne(t, db.Ledger, r); got.Answer != ledger.LateAuthorized {
				t.Errorf("late: %+v", got)
			}
		},
		"by a look at what is parked": func(db *database, _ ledger.Claim, now ledger.Work) {
			mustRecord(t, db.Ledger, ledger.Park(now.Claim, "in_doubt", true))
			late := ledger.Late{Key: now.Claim.Key, Facts: []ledger.Fact{authorizedLate("tr_1")}, PartnerKey: "pk-known"}
			if got := db.Append(context.Background(), []ledger.Late{late})[0]; got.Answer != ledger.LateAuthorized {
				t.Errorf("late: %+v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := makeDatabase(t, ledger.Options{})
			w, old, now := stale(t, db)
			// As the sweep finds it after a failover that lost the attempt, and what it had pinned.
			super := connect(t, db.urls.Superuser)
			if _, err := super.Exec(context.Background(), `SET session_replication_role = replica; DELETE FROM attempts; UPDATE operations SET partner_key = NULL`,
				pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			record(db, old, now)
			db.wantCount(1, "operations that name the key", `SELECT count(*) FROM operations WHERE key = $1 AND state = 'authorized' AND partner_key = 'pk-known'`, w.Key)
		})
	}
}
