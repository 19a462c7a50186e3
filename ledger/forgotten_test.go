package ledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// TestForgotten_ASnapshotThatWasPutBack: server, timeline and tables are the same; what was told since is not there.
func TestForgotten_ASnapshotThatWasPutBack(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	name := value[string](db, `SELECT ledger_id::text FROM ledger_identity`)
	done, claimed, unknown := newWish(), newWish(), newWish()
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, done), "tr_1", verdict("authorized")))
	mustClaim(t, db.Ledger, claimed)
	told := func(w ledger.Wish, kind string) ledger.Published {
		return ledger.Published{Ledger: name, Key: w.Key, Type: kind, At: time.Now()}
	}
	events, err := db.Unpublished(context.Background(), 10)
	if err != nil || len(events) != 1 || events[0].Ledger.String() != name {
		t.Errorf("events %+v, %v", events, err)
	}
	others, early := told(unknown, "accepted"), told(unknown, "authorized")
	others.Ledger = uuid.NewString()
	early.At = time.Now().Add(-time.Hour)
	db.move(`doubt_before = now() - interval '30 min'`) // a recovery knows that earlier ones are lost
	known := []ledger.Published{told(done, "accepted"), told(done, "authorized"), told(claimed, "accepted"), told(claimed, "parked"), others, early}
	forgotten := []ledger.Published{told(unknown, "accepted"), told(unknown, "authorized"), told(claimed, "authorized"), told(claimed, "cancelled"), told(done, "rejected")}
	for what, row := range map[string]struct{ events, want []ledger.Published }{
		"known": {known, nil}, "forgotten": {forgotten, forgotten}, "both": {slices.Concat(known, forgotten), forgotten}, "none": {nil, nil},
	} {
		got, err := db.Forgotten(context.Background(), row.events)
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, row.want)
		}
	}
	db.move(`timeline = timeline + 1`)
	if got, err := db.Forgotten(context.Background(), forgotten); err != nil || len(got) != 0 {
		t.Errorf("where nothing is claimed anyway: %+v, %v", got, err)
	}
}
