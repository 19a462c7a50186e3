package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// TestClaimDue_LostRepliesAreNoPoison: claims of the sweep that nobody learned of are handed back and not counted, however many in a row.
func TestClaimDue_LostRepliesAreNoPoison(t *testing.T) {
	for name, marker := range map[string]string{
		"the reply to the claim is lost": "AS MATERIALIZED ( -- what a pause covers takes nobody's place",
		"the history cannot be read":     "FROM attempts WHERE operation_id",
	} {
		t.Run(name, func(t *testing.T) {
			db, l, p := warm(t)
			w := newWish()
			mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), false, 0, verdict("not_executed")))
			for range 4 {
				db.exec(`UPDATE due SET due_at = now() + interval '1 hour'`)
				sweep(t, l) // so that the next one is described already, and asked for at once
				db.dueNow()
				lost := p.lose(marker, func() {
					db.wantCount(1, "claimed before the cut", `SELECT count(*) FROM operations WHERE key = $1 AND state = 'claimed'`, w.Key)
				})
				if work, err := l.ClaimDue(context.Background(), "northbank", 10); err == nil || len(work) != 0 {
					t.Fatalf("swept %d, err %v; want an error", len(work), err)
				}
				wantLost(t, lost)
				db.wantCount(1, "open again", `SELECT count(*) FROM operations WHERE key = $1 AND state = 'open' AND lease_until IS NULL`, w.Key)
			}
			work := sweepOne(t, l)
			if work.UnobservedClaims != 0 || work.Claim.Fence != 6 || work.InDoubt {
				t.Errorf("swept %+v, want no unobserved claim under fence 6", work)
			}
			mustRecord(t, l, ledger.Schedule(work.Claim, false, 0))
		})
	}
}

// TestClaimDue_WhatTheWorkerDiedUnderStillCounts: handing back takes back one claim, not those before it, and touches nobody else's.
func TestClaimDue_WhatTheWorkerDiedUnderStillCounts(t *testing.T) {
	db, l, p := warm(t)
	w, others := newWish(), newWish()
	mustClaim(t, db.Ledger, w)
	db.dueNow()
	held := mustClaim(t, db.Ledger, others)
	lost := p.lose("AS MATERIALIZED ( -- what a pause covers takes nobody's place", nil)
	if _, err := l.ClaimDue(context.Background(), "northbank", 10); err == nil {
		t.Fatal("no error")
	}
	wantLost(t, lost)
	work := sweepOne(t, l)
	if work.Claim.Key != w.Key || work.UnobservedClaims != 1 || !work.InDoubt {
		t.Errorf("swept %+v, want one unobserved claim, in doubt", work)
	}
	mustRecord(t, db.Ledger, ledger.Authorize(held, "tr_1", verdict("authorized")))
}

// TestClaimDue_HandsBackWhenTheLedgerIsThereAgain: as long as it is away, it cannot be handed back; the next sweep does.
func TestClaimDue_HandsBackWhenTheLedgerIsThereAgain(t *testing.T) {
	db, l, p := warm(t)
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), false, 0, verdict("not_executed")))
	ctx, cancel := context.WithCancel(context.Background())
	lost := p.lose("AS MATERIALIZED ( -- what a pause covers takes nobody's place", cancel) // nothing can be asked any more
	if _, err := l.ClaimDue(ctx, "northbank", 10); err == nil {
		t.Fatal("no error")
	}
	<-lost.lost
	db.wantCount(1, "claimed", `SELECT count(*) FROM operations WHERE key = $1 AND state = 'claimed' AND unobserved = 1`, w.Key)
	work := sweepOne(t, l)
	if work.UnobservedClaims != 0 || work.Claim.Fence != 3 {
		t.Errorf("swept %+v, want no unobserved claim", work)
	}
}

// TestClaimDue_HandsBackWhatItCannotRead: the database refuses to tell what is on record, after the claim was committed.
func TestClaimDue_HandsBackWhatItCannotRead(t *testing.T) {
	db := newDatabase(t, ledger.Options{LockTimeout: 50 * time.Millisecond})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), false, 0, verdict("not_executed")))
	ctx := context.Background()
	tx, err := db.conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE attempts`); err != nil {
		t.Fatal(err)
	}
	if work, err := db.ClaimDue(ctx, "northbank", 10); err == nil || len(work) != 0 {
		t.Errorf("swept %d, err %v; want an error", len(work), err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if work := sweepOne(t, db.Ledger); work.UnobservedClaims != 0 || work.Claim.Fence != 3 {
		t.Errorf("swept %+v, want no unobserved claim under fence 3", work)
	}
}
