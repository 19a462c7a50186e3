package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// bulkLedger is a ledger under the role that batches are recorded under.
func bulkLedger(t *testing.T) (*database, *ledger.Ledger) {
	t.Helper()
	db := newDatabase(t, ledger.Options{})
	return db, db.as(db.urls.Batch, ledger.Options{})
}

func bulkOrders(n int) []ledger.Order {
	orders := make([]ledger.Order, n)
	for i := range orders {
		orders[i] = newOrder()
	}
	return orders
}

// mustBulk records orders or ends the test.
func mustBulk(t *testing.T, l *ledger.Ledger, bulk ledger.Bulk) []ledger.BulkRow {
	t.Helper()
	rows, done, err := l.AcceptBulk(context.Background(), bulk)
	if err != nil || !done || len(rows) != len(bulk.Orders) {
		t.Fatalf("%d rows, done %v, err %v; want all of %d", len(rows), done, err, len(bulk.Orders))
	}
	return rows
}

func wantAnswers(t *testing.T, rows []ledger.BulkRow, want ...ledger.AcceptAnswer) {
	t.Helper()
	got := make([]ledger.AcceptAnswer, len(rows))
	for i, row := range rows {
		got[i] = row.Answer
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}

// TestAcceptBulk_LeavesTheRowsThatAcceptLeaves compares every column of every table that an order is written to.
func TestAcceptBulk_LeavesTheRowsThatAcceptLeaves(t *testing.T) {
	db, l := bulkLedger(t)
	orders := bulkOrders(4)
	orders[1].NotBefore, orders[1].TraceParent = time.Now().Add(time.Hour).Truncate(time.Microsecond), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	orders[2].NotAfter = time.Now().Add(-time.Hour)
	orders[3].NotAfter = time.Now().Add(time.Hour)
	for _, a := range db.Accept(context.Background(), orders) {
		if a.Answer != ledger.Accepted {
			t.Fatalf("accept: %+v", a)
		}
	}
	twins := slices.Clone(orders)
	for i := range twins {
		twins[i].Key = uuid.Must(uuid.NewV7())
	}
	holder := uuid.New()
	rows := mustBulk(t, l, ledger.Bulk{Orders: twins, Holder: holder})
	wantAnswers(t, rows, ledger.Accepted, ledger.Accepted, ledger.Accepted, ledger.Accepted)
	for i := range twins {
		for table, sql := range map[string]string{
			"operations": `SELECT (to_jsonb(o) - 'id' - 'key' - 'created_at')::text FROM operations o WHERE key = $1`,
			"payloads":   `SELECT (to_jsonb(p) - 'operation_id')::text FROM operations o JOIN payloads p ON p.operation_id = o.id WHERE key = $1`,
			"due": `SELECT d.partner || d.parked || CASE WHEN d.due_at = p.not_before THEN 'then' ELSE round(extract(epoch FROM d.due_at - o.created_at))::text END
			          FROM operations o JOIN due d ON d.operation_id = o.id JOIN payloads p ON p.operation_id = o.id WHERE key = $1`,
			"outbox": `SELECT (to_jsonb(x) - 'id' - 'operation_id' - 'at')::text FROM operations o JOIN outbox x ON x.operation_id = o.id WHERE key = $1`,
			"jobs":   `SELECT 'one' FROM operations o JOIN unpublished_jobs u ON u.operation_id = o.id WHERE key = $1`,
		} {
			one, other := value[string](db, sql, orders[i].Key), value[string](db, sql, twins[i].Key)
			if one != other {
				t.Errorf("order %d, %s:\n%s\nby bulk:\n%s", i, table, one, other)
			}
		}
		if id := value[int64](db, `SELECT id FROM operations WHERE key = $1`, twins[i].Key); id != rows[i].Ref {
			t.Errorf("order %d is operation %d, told %d", i, id, rows[i].Ref)
		}
	}
	db.wantCount(4, "jobs of the holder", `SELECT count(*) FROM unpublished_jobs WHERE holder = $1`, holder)
}

func TestAcceptBulk_KeysOnRecordAreJudgedAndHoldNobodyUp(t *testing.T) {
	db, l := bulkLedger(t)
	orders := bulkOrders(5)
	db.Accept(context.Background(), orders[1:4])
	orders[2].Fingerprint.Sum = sha256.Sum256([]byte("another"))
	orders[3].Fingerprint.Version = 7
	rows := mustBulk(t, l, ledger.Bulk{Orders: orders})
	wantAnswers(t, rows, ledger.Accepted, ledger.AcceptedBefore, ledger.AcceptConflict, ledger.AcceptOtherVersion, ledger.Accepted)
	if stored := rows[3].Stored; stored.Version != 1 || stored.Sum != orders[3].Fingerprint.Sum {
		t.Errorf("stored %+v, want the fingerprint on record", stored)
	}
	db.wantCount(5, "operations", `SELECT count(*) FROM operations`)
	db.wantCount(5, "payloads", `SELECT count(*) FROM payloads`)
	db.wantCount(5, "jobs", `SELECT count(*) FROM unpublished_jobs`)
	again := mustBulk(t, l, ledger.Bulk{Orders: orders})
	wantAnswers(t, again, ledger.AcceptedBefore, ledger.AcceptedBefore, ledger.AcceptConflict, ledger.AcceptOtherVersion, ledger.AcceptedBefore)
	if again[0].Ref != rows[0].Ref {
		t.Errorf("operation %d, told %d before", again[0].Ref, rows[0].Ref)
	}
	db.wantCount(5, "operations", `SELECT count(*) FROM operations`)
}

func TestAcceptBulk_WhatMayHaveBeenSentIsInDoubt(t *testing.T) {
	db, l := bulkLedger(t)
	orders := bulkOrders(3)
	db.exec(`INSERT INTO strays (key, claim_token, n, kind, verdict) VALUES ($1, $2, 0, 'webhook', 'authorized')`, orders[1].Key, uuid.New())
	mustBulk(t, l, ledger.Bulk{Orders: orders})
	db.wantCount(1, "in doubt: evidence came before", `SELECT count(*) FROM operations WHERE in_doubt`)
	old := bulkOrders(2)
	db.exec(`UPDATE ledger_identity SET doubt_before = now() + interval '1 minute'`)
	mustBulk(t, l, ledger.Bulk{Orders: old})
	db.wantCount(3, "in doubt: keys older than the recovery", `SELECT count(*) FROM operations WHERE in_doubt AND first_sent_at < now()`)
	db.exec(`UPDATE ledger_identity SET doubt_before = '-infinity'`)
	db.exec(`UPDATE ledger_identity SET timeline = timeline + 1`)
	if _, done, err := l.AcceptBulk(context.Background(), ledger.Bulk{Orders: bulkOrders(1)}); done || !errors.Is(err, ledger.ErrMoved) {
		t.Errorf("done %v, err %v: want a ledger that is not at home", done, err)
	}
	db.wantCount(5, "operations", `SELECT count(*) FROM operations`)
}

// TestRecover_AnOrderThatLayHereIsAskedAfterFirst: its key tells a time that a clock in the future made, or none at all.
func TestRecover_AnOrderThatLayHereIsAskedAfterFirst(t *testing.T) {
	db, l := bulkLedger(t)
	db.exec(`UPDATE ledger_identity SET doubt_before = now() - interval '1 minute'`)
	before := value[time.Time](db, `SELECT doubt_before FROM ledger_identity`)
	accept := map[string]func(ledger.Order){
		"one by one": func(o ledger.Order) { wantAccepted(t, db.Ledger, o, ledger.Accepted) },
		"by bulk": func(o ledger.Order) {
			wantAnswers(t, mustBulk(t, l, ledger.Bulk{Orders: []ledger.Order{o}}), ledger.Accepted)
		},
	}
	for how, accept := range accept {
		for _, one := range []struct {
			recorded time.Time
			doubt    bool
		}{{before.Add(-time.Hour), true}, {before.Add(-time.Microsecond), true}, {before, false}, {time.Time{}, false}} {
			ahead, random := newOrder(), newOrder()
			ahead.Key[0], random.Key = 0x7f, uuid.New() // the first is of the year 6400 or so
			for _, o := range []ledger.Order{ahead, random} {
				o.RecordedAt = one.recorded
				accept(o)
				var doubt bool
				var sent *time.Time
				if err := db.conn.QueryRow(context.Background(), `SELECT in_doubt, first_sent_at FROM operations WHERE key = $1`, o.Key).Scan(&doubt, &sent); err != nil {
					t.Fatal(err)
				}
				if doubt != one.doubt || doubt && !sent.Equal(one.recorded.Add(-time.Millisecond)) {
					t.Errorf("%s, recorded at %v: in doubt %v since %v; want %v", how, one.recorded, doubt, sent, one.doubt)
				}
			}
		}
	}
}

func TestAcceptBulk_BeforeAndAfterShareTheTransaction(t *testing.T) {
	db, l := bulkLedger(t)
	ctx := context.Background()
	mark := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO leases (name, holder, until) VALUES ('dead/test', gen_random_uuid(), now())`)
		return err
	}
	_, done, err := l.AcceptBulk(ctx, ledger.Bulk{Orders: bulkOrders(2), Before: func(ctx context.Context, tx pgx.Tx) (bool, error) { return false, mark(ctx, tx) }})
	if done || err != nil {
		t.Errorf("done %v, err %v: Before did not want it", done, err)
	}
	failed := errors.New("after")
	_, done, err = l.AcceptBulk(ctx, ledger.Bulk{
		Orders: bulkOrders(2),
		Before: func(ctx context.Context, tx pgx.Tx) (bool, error) { return true, mark(ctx, tx) },
		After: func(context.Context, pgx.Tx, []ledger.BulkRow) error {
			return fmt.Errorf("%w: %w", failed, context.Canceled)
		},
	})
	if done || !errors.Is(err, failed) {
		t.Errorf("done %v, err %v: After failed", done, err)
	}
	db.wantCount(0, "rows of transactions that were given up", `SELECT (SELECT count(*) FROM operations) + (SELECT count(*) FROM leases)`)
	mustBulk(t, l, ledger.Bulk{Orders: bulkOrders(2), Before: func(ctx context.Context, tx pgx.Tx) (bool, error) { return true, mark(ctx, tx) }})
	db.wantCount(3, "rows", `SELECT (SELECT count(*) FROM operations) + (SELECT count(*) FROM leases)`)
}

func TestUnpublishedJobs_AnotherHoldersBacklogIsNotReadThrough(t *testing.T) {
	db, l := bulkLedger(t)
	ctx := context.Background()
	holder := uuid.New()
	rows := mustBulk(t, l, ledger.Bulk{Orders: bulkOrders(300), Holder: holder})
	if jobs := mustUnpublished(t, db.Ledger, 10, time.Minute); len(jobs) != 0 {
		t.Errorf("%d jobs of somebody who is at work were taken", len(jobs))
	}
	first, err := l.UnpublishedJobsOf(ctx, holder, 0, 200)
	if err != nil || len(first) != 200 || first[0].Ref != rows[0].Ref || first[199].Ref != rows[199].Ref {
		t.Fatalf("%d jobs, err %v", len(first), err)
	}
	rest, err := l.UnpublishedJobsOf(ctx, holder, first[199].Ref, 200)
	if err != nil || len(rest) != 100 || rest[99].Ref != rows[299].Ref || string(rest[99].Payload) == "" {
		t.Fatalf("%d jobs, err %v", len(rest), err)
	}
	db.exec(`UPDATE unpublished_jobs SET at = now() - interval '1 hour'`)
	if jobs := mustUnpublished(t, db.Ledger, 10, time.Minute); len(jobs) != 10 || jobs[0].Ref != rows[0].Ref {
		t.Errorf("%d jobs that were left behind were taken, want the ten oldest", len(jobs))
	}
	db.wantCount(290, "jobs that their holder keeps", `SELECT count(*) FROM unpublished_jobs WHERE holder = $1`, holder)
}
