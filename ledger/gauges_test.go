package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

// watcher is a ledger of one connection, so that what it has read can be counted.
func watcher(t *testing.T, db *database) *ledger.Ledger {
	t.Helper()
	l, err := ledger.OpenAltered(context.Background(), db.urls.Worker, ledger.Options{}, func(c *pgxpool.Config) { c.MaxConns = 1 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// operationsRead counts the rows of operations that do reads.
func operationsRead(t *testing.T, db *database, l *ledger.Ledger, do func()) int64 {
	t.Helper()
	read := func() int64 {
		if _, err := l.Pool().Exec(context.Background(), `SELECT pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
		return value[int64](db, `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_all_tables WHERE relid = 'operations'::regclass`)
	}
	before := read()
	do()
	return read() - before
}

func mustGauges(t *testing.T, l *ledger.Ledger) ledger.Gauges {
	t.Helper()
	g, err := l.Gauges(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGauges_WhatOnlyWaitsIsNotRead: a payroll that waits for its day costs one look at each of its operations, however often the numbers are read.
func TestGauges_WhatOnlyWaitsIsNotRead(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	const waiting = 3000
	writer := db.as(db.urls.Batch, ledger.Options{})
	orders := bulkOrders(waiting)
	for i := range orders {
		orders[i].NotBefore = time.Now().Add(time.Hour)
	}
	mustBulk(t, writer, ledger.Bulk{Orders: orders, Holder: uuid.New()})
	writer.Close() // what it has read is counted now
	l := watcher(t, db)
	var g ledger.Gauges
	var w []ledger.Waiting
	first := operationsRead(t, db, l, func() { g = mustGauges(t, l) })
	if first < waiting || g.Unfinished[ledger.StateOpen] != waiting || g.InDoubt != 0 || g.OldestUnfinished <= 0 {
		t.Errorf("first: %d rows read, %+v", first, g)
	}
	stack.Eventually(t, "a look that reads only what changed", func() bool { // other tests' transactions on the server may be as old as the orders
		return operationsRead(t, db, l, func() { g = mustGauges(t, l) }) <= 10
	})
	if g.Unfinished[ledger.StateOpen] != waiting {
		t.Errorf("again: %+v", g)
	}
	read := operationsRead(t, db, l, func() { w, _ = l.Waiting(context.Background()) })
	if read > 10 || len(w) != 1 || w[0].Unfinished != waiting || w[0].Oldest <= 0 {
		t.Errorf("waiting: %d rows read, %+v", read, w)
	}
}

// TestGauges_SeeEveryWayIntoDoubt: a ledger that has looked before sees what one sees that looks for the first time.
func TestGauges_SeeEveryWayIntoDoubt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	l := watcher(t, db)
	same := func(when string, inDoubt, claimed int64) {
		t.Helper()
		for range 2 { // the second look has nothing that changed
			g := mustGauges(t, l)
			fresh := mustGauges(t, watcher(t, db))
			if g.InDoubt != inDoubt || g.Unfinished[ledger.StateClaimed] != claimed || fresh.InDoubt != inDoubt || fresh.Unfinished[ledger.StateClaimed] != claimed {
				t.Errorf("%s: in doubt %d, claimed %d; fresh %d, %d; want %d, %d", when, g.InDoubt, g.Unfinished[ledger.StateClaimed], fresh.InDoubt,
					fresh.Unfinished[ledger.StateClaimed], inDoubt, claimed)
			}
		}
	}
	same("nothing", 0, 0)
	late := connect(t, db.urls.Owner) // a transaction that is open during a look is seen in the next
	tx, err := late.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	accepted, swept := newWish(), newWish()
	wantAccepted(t, db.Ledger, orderOf(accepted), ledger.Accepted)
	wantAccepted(t, db.Ledger, orderOf(swept), ledger.Accepted)
	if _, err := tx.Exec(ctx, `UPDATE operations SET in_doubt = true, first_sent_at = now() WHERE key = $1`, swept.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `UPDATE due SET due_at = now() WHERE operation_id = (SELECT id FROM operations WHERE key = $1)`, swept.Key); err != nil {
		t.Fatal(err)
	}
	same("accepted", 0, 0)
	claim := mustClaim(t, db.Ledger, accepted)
	same("its message came", 0, 1)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	same("committed late", 1, 1)
	mustRecord(t, db.Ledger, ledger.Schedule(claim, true, time.Hour, verdict("unknown")))
	same("no answer", 2, 0)
	db.dueNow()
	work := sweep(t, db.Ledger)
	same("swept", 0, 2)
	for _, one := range work {
		mustRecord(t, db.Ledger, ledger.Park(one.Claim, "unclear", one.Claim.Key == swept.Key, verdict("not_executed")))
	}
	same("parked", 1, 0)
	if _, err := db.as(db.urls.Owner, ledger.Options{}).Recover(ctx, ledger.Loss{}, "a test", "ann"); err != nil {
		t.Fatal(err)
	}
	same("recovered", 2, 0)
	db.Append(ctx, []ledger.Late{{Key: swept.Key, Facts: []ledger.Fact{authorizedLate("tr_1")}}})
	same("decided", 1, 0)
}
