package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
)

// aged moves everything on record into the past, as time would.
func (db *database) aged(by string) {
	db.t.Helper()
	db.exec(`ALTER TABLE operations DISABLE TRIGGER USER`)
	db.exec(`UPDATE operations SET created_at = created_at - $1::interval, outcome_at = outcome_at - $1::interval`, by)
	db.exec(`ALTER TABLE operations ENABLE TRIGGER USER`)
}

// purge runs as the role that may: operators.
func (db *database) purge(p ledger.Purge) ledger.Purged {
	db.t.Helper()
	done, err := db.as(db.urls.Desk, ledger.Options{}).PurgePayloads(context.Background(), p)
	if err != nil {
		db.t.Fatal(err)
	}
	return done
}

// authorized is an operation that went well.
func authorized(t testing.TB, l *ledger.Ledger) ledger.Wish {
	t.Helper()
	w := newWish()
	fact := verdict("authorized")
	fact.TransferID = "tr_1"
	mustRecord(t, l, ledger.Authorize(mustClaim(t, l, w), "tr_1", fact))
	return w
}

// TestB17_RedeliveryAfterAPurgeIsNotSent: six hours after completion, the payload gone, the same job comes again.
func TestB17_RedeliveryAfterAPurgeIsNotSent(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := authorized(t, db.Ledger)
	db.aged("6 hours")
	if done := db.purge(ledger.Purge{OlderThan: 5 * time.Hour}); done.Deleted != 1 || done.Bytes != int64(len(w.Payload)) {
		t.Fatalf("purged %+v, want one payload of %d bytes", done, len(w.Payload))
	}
	db.wantCount(0, "payloads", `SELECT count(*) FROM payloads`)
	wantAnswer(t, db.Ledger, w, ledger.Finished)
	other := w
	other.Fingerprint.Sum[0]++
	wantAnswer(t, db.Ledger, other, ledger.Conflict)
	if work := sweep(t, db.Ledger); len(work) != 0 {
		t.Errorf("the sweep found %d operations", len(work))
	}
	e := explain(t, db.Ledger, w)
	if e.State != ledger.StateAuthorized || e.TransferID != "tr_1" || len(e.Attempts) != 1 || len(e.Facts) != 1 || len(e.Entries) != 2 || e.Payload != nil {
		t.Errorf("after the purge: %+v", e)
	}
	db.wantCount(1, "operations", `SELECT count(*) FROM operations WHERE key = $1 AND fingerprint = $2 AND fence = 1`, w.Key, w.Fingerprint.Sum[:])
}

func TestInvariant10_PurgeTakesOnlyWhatIsFinishedAndOld(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	old := authorized(t, db.Ledger)
	rejected := newWish()
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, rejected), "account_closed", verdict("rejected")))
	contradicted := newWish()
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, contradicted), "account_closed", verdict("rejected")))
	db.exec(`UPDATE operations SET contradicted_at = now() WHERE key = $1`, contradicted.Key)
	parked, claimed, open, unpublished := newWish(), newWish(), newWish(), newWish()
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, parked), "unclear", true, verdict("unknown")))
	mustClaim(t, db.Ledger, claimed)
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, open), false, time.Hour, verdict("not_executed")))
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, unpublished), "tr_2", verdict("authorized")))
	db.exec(`INSERT INTO unpublished_jobs (operation_id, holder) SELECT id, key FROM operations WHERE key = $1`, unpublished.Key)
	db.aged("100 days")
	young := authorized(t, db.Ledger)

	purge := ledger.Purge{OlderThan: 90 * 24 * time.Hour, Batch: 2, Ease: -1}
	purge.DryRun = true
	if would := db.purge(purge); would.Deleted != 2 || would.Kept != 5 {
		t.Errorf("would purge %+v, want 2 and keep 5", would)
	}
	db.wantCount(8, "payloads after a dry run", `SELECT count(*) FROM payloads`)
	purge.DryRun = false
	if done := db.purge(purge); done.Deleted != 2 || done.Kept != 5 {
		t.Errorf("purged %+v, want 2 and 5 kept", done)
	}
	for _, w := range []ledger.Wish{old, rejected} {
		db.wantCount(0, "payloads of what is finished", `SELECT count(*) FROM payloads JOIN operations ON id = operation_id WHERE key = $1`, w.Key)
	}
	for _, w := range []ledger.Wish{contradicted, parked, claimed, open, unpublished, young} {
		db.wantCount(1, "payloads of what is still needed", `SELECT count(*) FROM payloads JOIN operations ON id = operation_id WHERE key = $1`, w.Key)
	}
	db.wantCount(8, "operations", `SELECT count(*) FROM operations`)
	if again := db.purge(purge); again.Deleted != 0 || again.Kept != 5 {
		t.Errorf("purged again %+v, want nothing", again)
	}
}

func TestPurge_ArchivesBeforeItDeletes(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	wishes := []ledger.Wish{authorized(t, db.Ledger), authorized(t, db.Ledger), authorized(t, db.Ledger)}
	db.aged("100 days")
	var kept []ledger.PurgedPayload
	full := errors.New("disk full")
	purge := ledger.Purge{OlderThan: 90 * 24 * time.Hour, Batch: 2, Ease: -1}
	purge.Archive = func(batch []ledger.PurgedPayload) error {
		db.wantCount(int64(len(wishes)-len(kept)), "payloads while a batch is archived", `SELECT count(*) FROM payloads`)
		if len(kept) > 0 {
			return full
		}
		kept = append(kept, batch...)
		return nil
	}
	done, err := db.as(db.urls.Desk, ledger.Options{}).PurgePayloads(context.Background(), purge)
	if !errors.Is(err, full) || done.Deleted != 2 {
		t.Errorf("purged %+v, error %v; want two, then the archive's error", done, err)
	}
	db.wantCount(1, "payloads that were not archived", `SELECT count(*) FROM payloads`)
	for i, p := range kept {
		w := wishes[i]
		if p.Key != w.Key || string(p.Body) != `{"v":1}` || p.Source != "wallet" || p.Route != "gbp-fps" || p.State != ledger.StateAuthorized ||
			p.Fingerprint != w.Fingerprint || p.OutcomeAt.IsZero() || p.PublishedAt.IsZero() {
			t.Errorf("archived %+v", p)
		}
	}
	purge.Archive = func(batch []ledger.PurgedPayload) error {
		kept = append(kept, batch...)
		return nil
	}
	if done := db.purge(purge); done.Deleted != 1 || len(kept) != 3 || kept[2].Key != wishes[2].Key {
		t.Errorf("resumed: purged %+v, %d archived", done, len(kept))
	}
}

func TestPurge_LimitAgeAndRights(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for range 3 {
		authorized(t, db.Ledger)
	}
	db.aged("100 days")
	_, err := db.PurgePayloads(context.Background(), ledger.Purge{OlderThan: 90 * 24 * time.Hour})
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != insufficientRight {
		t.Errorf("purge as a worker: %v, want a refusal", err)
	}
	if _, err := db.PurgePayloads(context.Background(), ledger.Purge{}); err == nil {
		t.Error("a purge without an age was begun")
	}
	var told []int64
	purge := ledger.Purge{OlderThan: 90 * 24 * time.Hour, Limit: 2, Batch: 1, Ease: -1, Progress: func(p ledger.Purged) { told = append(told, p.Deleted) }}
	if done := db.purge(purge); done.Deleted != 2 || !slices.Equal(told, []int64{1, 2}) {
		t.Errorf("purged %+v, told %v; want 1, then 2", done, told)
	}
	db.wantCount(1, "payloads", `SELECT count(*) FROM payloads`)
}

// TestInvariant10_TheOwnerCannotDeleteAPayloadThatIsNeeded: what the purge's own statement leaves out, the database refuses.
func TestInvariant10_TheOwnerCannotDeleteAPayloadThatIsNeeded(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	finished := authorized(t, db.Ledger)
	ofKey := `DELETE FROM payloads USING operations o WHERE o.id = operation_id AND o.key = $1`
	for what, spoil := range map[string]func(ledger.Wish){
		"claimed": func(w ledger.Wish) { mustClaim(t, db.Ledger, w) },
		"open": func(w ledger.Wish) {
			mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), false, time.Hour, verdict("not_executed")))
		},
		"parked": func(w ledger.Wish) {
			mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "unclear", true, verdict("unknown")))
		},
		"contradicted": func(w ledger.Wish) {
			mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, w), "account_closed", verdict("rejected")))
			db.exec(`UPDATE operations SET contradicted_at = now() WHERE key = $1`, w.Key)
		},
		"unpublished": func(w ledger.Wish) {
			mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, w), "tr_2", verdict("authorized")))
			db.exec(`INSERT INTO unpublished_jobs (operation_id, holder) SELECT id, key FROM operations WHERE key = $1`, w.Key)
		},
	} {
		w := newWish()
		spoil(w)
		refused(t, db.conn, refusedErasure, ofKey, w.Key)
		db.wantCount(1, "payloads of what is "+what, `SELECT count(*) FROM payloads JOIN operations o ON o.id = operation_id WHERE o.key = $1`, w.Key)
	}
	refused(t, db.conn, refusedErasure, `DELETE FROM payloads`)
	refused(t, db.conn, refusedErasure, `TRUNCATE payloads`)
	db.exec(ofKey, finished.Key)
	db.wantCount(5, "payloads", `SELECT count(*) FROM payloads`)
}
