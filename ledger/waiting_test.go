package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

func TestWaiting_ByPartner(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	none, err := db.Waiting(context.Background())
	if err != nil || len(none) != 0 {
		t.Errorf("of an empty ledger: %+v, %v", none, err)
	}
	authorized(t, db.Ledger)
	parked, open, elsewhere := newWish(), newWish(), newWish()
	elsewhere.Intention.Partner = "oldbank"
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, parked), "unclear", true, verdict("unknown")))
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, elsewhere), true, time.Hour, verdict("unknown")))
	db.aged("2 hours")
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, open), false, time.Hour, verdict("not_executed")))
	all, err := db.Waiting(context.Background())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v; want two partners", all, err)
	}
	if w := all[0]; w.Partner != "northbank" || w.Unfinished != 2 || w.Parked != 1 || w.Oldest > time.Hour {
		t.Errorf("northbank: %+v; want two, one parked, none old", w)
	}
	if w := all[1]; w.Partner != "oldbank" || w.Unfinished != 1 || w.Parked != 0 || w.Oldest < 2*time.Hour || w.Oldest > 3*time.Hour {
		t.Errorf("oldbank: %+v; want one that is two hours old", w)
	}
}
