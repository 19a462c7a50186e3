package ledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// unpublishedOf reads the outbox through one ledger.
func unpublishedOf(t *testing.T, l *ledger.Ledger, limit int) []ledger.Event {
	t.Helper()
	events, err := l.Unpublished(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func publish(t *testing.T, l *ledger.Ledger, events ...ledger.Event) {
	t.Helper()
	var refs []int64
	for _, e := range events {
		refs = append(refs, e.Ref)
	}
	if err := l.MarkPublished(context.Background(), refs); err != nil {
		t.Fatal(err)
	}
}

// TestI2I11_OnlyMarksOfWhatIsPublishedAreNotWaitedFor: claims, records and what they have to tell are on disk when the reply comes.
func TestI2I11_OnlyMarksOfWhatIsPublishedAreNotWaitedFor(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = on', current_database()); END $$`)
	db.exec(`CREATE TABLE waited (what text, for_it text)`)
	db.exec(`CREATE FUNCTION note_waited() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
		$$ BEGIN INSERT INTO waited VALUES (TG_OP || ' ' || TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$`)
	for _, table := range []string{"attempts", "entries", "outbox", "unpublished_jobs"} {
		db.exec(`CREATE TRIGGER note_waited AFTER INSERT OR DELETE ON ` + table + ` FOR EACH STATEMENT EXECUTE FUNCTION note_waited()`)
	}
	l := db.another(ledger.Options{MaxConns: 1}) // one session, so that a setting that outlives its transaction is seen
	for range 2 {
		acceptOne(t, l, newOrder())
		mustRecord(t, l, ledger.Authorize(mustClaim(t, l, newWish()), "tr_1"))
		publish(t, l, unpublishedOf(t, l, 10)...)
		jobs, err := l.UnpublishedJobs(context.Background(), 10, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.JobsPublished(context.Background(), []int64{jobs[0].Ref}); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := db.conn.Query(context.Background(), `SELECT DISTINCT what || ' ' || for_it FROM waited ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"DELETE outbox off", "DELETE unpublished_jobs off", "INSERT attempts on", "INSERT entries on", "INSERT outbox on", "INSERT unpublished_jobs on"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestInvariant11_TheEventSaysWhatWasRecorded(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.Key = uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11")
	w.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, w), "tr_1"))
	e := explain(t, db.Ledger, w)
	events := unpublishedOf(t, db.Ledger, 10)
	if len(events) != 1 || !events[0].OccurredAt.Equal(e.OutcomeAt) || events[0].Ref == 0 {
		t.Fatalf("events %+v", events)
	}
	got := events[0]
	got.Ref, got.OccurredAt, got.Ledger = 0, time.Time{}, uuid.Nil
	want := ledger.Event{ID: "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11.authorized", Type: "authorized", Key: w.Key, Source: "wallet", Route: "gbp-fps",
		Partner: "northbank", Amount: w.Amount, TransferID: "tr_1", TraceParent: w.TraceParent}
	if got != want {
		t.Errorf("event %+v, want %+v", got, want)
	}
	db.exec(`DELETE FROM payloads`)
	if again := unpublishedOf(t, db.Ledger, 10); len(again) != 1 || again[0].ID != want.ID {
		t.Errorf("again, after a purge: %+v", again)
	}
	publish(t, db.Ledger, events...)
	db.wantCount(0, "outbox", `SELECT count(*) FROM outbox`)
	publish(t, db.Ledger, events...) // twice does nothing
}

// TestOutbox_EarlierEventsTellNothingLater: what came before the outcome is published after it, when the broker was away, and must not say it.
func TestOutbox_EarlierEventsTellNothingLater(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "mismatch", true))
	db.exec(`UPDATE operations SET state = 'open', code = NULL WHERE key = $1`, w.Key) // as a resolution does
	db.exec(`UPDATE due SET parked = false, due_at = now() - interval '1 s'`)
	mustRecord(t, db.Ledger, ledger.Authorize(sweepOne(t, db.Ledger).Claim, "tr_1"))
	var got []string
	for events := unpublishedOf(t, db.Ledger, 10); len(events) > 0; events = unpublishedOf(t, db.Ledger, 10) {
		for _, e := range events {
			got = append(got, e.Type+" "+e.Partner+" "+e.Code+" "+e.TransferID)
		}
		publish(t, db.Ledger, events...)
	}
	if want := []string{"accepted   ", "parked northbank mismatch ", "authorized northbank  tr_1"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestOutbox_OneEventPerKeyOldestFirst(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	first, second := newWish(), newWish()
	parkAgain := func(w ledger.Wish, c ledger.Claim) {
		mustRecord(t, db.Ledger, ledger.Park(c, "mismatch", true))
		db.exec(`UPDATE operations SET state = 'open', code = NULL WHERE key = $1`, w.Key) // as a resolution does
		db.exec(`UPDATE due SET parked = false, due_at = now() - interval '1 s' FROM operations o WHERE o.id = operation_id AND o.key = $1`, w.Key)
	}
	parkAgain(first, mustClaim(t, db.Ledger, first))
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, second), "account_closed"))
	parkAgain(first, sweepOne(t, db.Ledger).Claim)
	mustRecord(t, db.Ledger, ledger.Authorize(sweepOne(t, db.Ledger).Claim, "tr_1"))
	var rounds [][]string
	ids := map[string]bool{}
	for events := unpublishedOf(t, db.Ledger, 10); len(events) > 0; events = unpublishedOf(t, db.Ledger, 10) {
		var round []string
		for _, e := range events {
			round = append(round, e.Type+map[uuid.UUID]string{first.Key: " first", second.Key: " second"}[e.Key])
			if ids[e.ID] {
				t.Errorf("event id %s came twice", e.ID)
			}
			ids[e.ID] = true
		}
		rounds = append(rounds, round)
		publish(t, db.Ledger, events...)
	}
	want := [][]string{{"parked first", "rejected second"}, {"parked first"}, {"authorized first"}}
	if !slices.EqualFunc(rounds, want, slices.Equal) {
		t.Errorf("rounds %v, want %v", rounds, want)
	}
}

func TestOutbox_LimitAndNothingWithoutPublication(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for range 5 {
		mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, newWish()), "account_closed"))
	}
	first, again := unpublishedOf(t, db.Ledger, 3), unpublishedOf(t, db.Ledger, 3)
	if len(first) != 3 || !slices.Equal(first, again) {
		t.Errorf("%d events, then %+v; want the same three", len(first), again)
	}
	publish(t, db.Ledger, first[1]) // out of order
	if left := unpublishedOf(t, db.Ledger, 10); len(left) != 4 || left[0].Ref != first[0].Ref {
		t.Errorf("%d left, want 4, the oldest first", len(left))
	}
}

// TestOutbox_ALateCommitIsNotSkipped: an event whose transaction commits after younger ones were published is found all the same.
// TestOutbox_ARowOfNobodyIsShown: one without an operation, which only raw SQL writes, must be held back and told of, not stop the relay without a word.
func TestOutbox_ARowOfNobodyIsShown(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.exec(`INSERT INTO outbox (operation_id, fence, type) VALUES (4711, 1, 'cancelled')`)
	events, err := db.Unpublished(context.Background(), 1)
	if err != nil || len(events) != 1 || events[0].Key != uuid.Nil || events[0].Ref == 0 {
		t.Errorf("%+v, %v; want the row under the nil key", events, err)
	}
}

func TestOutbox_ALateCommitIsNotSkipped(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	slow, fast := newWish(), newWish()
	c := mustClaim(t, db.Ledger, slow)
	tx, err := db.conn.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), `INSERT INTO outbox (operation_id, fence, type) VALUES ($1, 1, 'parked')`, c.OperationID); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, fast), "account_closed"))
	events := unpublishedOf(t, db.Ledger, 10)
	if len(events) != 1 || events[0].Key != fast.Key {
		t.Fatalf("events %+v", events)
	}
	publish(t, db.Ledger, events...)
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if events := unpublishedOf(t, db.Ledger, 10); len(events) != 1 || events[0].Key != slow.Key {
		t.Errorf("events %+v, want the late one", events)
	}
}

func TestOutbox_OneRelayAtATime(t *testing.T) {
	db := newDatabase(t, ledger.Options{RelayLease: 10 * time.Second})
	second := db.another(ledger.Options{RelayLease: 10 * time.Second})
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, newWish()), "account_closed"))
	for range 3 {
		if a, b := len(unpublishedOf(t, db.Ledger, 10)), len(unpublishedOf(t, second, 10)); a != 1 || b != 0 {
			t.Fatalf("%d events for the first relay, %d for the second; want 1 and 0", a, b)
		}
	}
	db.exec(`UPDATE leases SET until = now() - interval '1 ms'`) // the first one died
	if a, b := len(unpublishedOf(t, second, 10)), len(unpublishedOf(t, db.Ledger, 10)); a != 1 || b != 0 {
		t.Errorf("%d events for the second relay, %d for the first; want 1 and 0", a, b)
	}
	db.exec(`UPDATE leases SET until = now() + interval '1 s'`) // less than half of it: renewed in passing
	if got := len(unpublishedOf(t, second, 10)); got != 1 {
		t.Errorf("%d events, want 1", got)
	}
	db.wantCount(1, "renewed leases", `SELECT count(*) FROM leases WHERE name = 'relay' AND until > now() + interval '3 s'`)
}
