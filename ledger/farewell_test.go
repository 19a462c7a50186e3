package ledger_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	between "github.com/paidonce/paidonce/integration/outage/proxy"
	"github.com/paidonce/paidonce/ledger"
)

// TestD12_AConnectionThatWasGivenUpGoesSoon: the network swallows a statement, and the request to cancel it. The connection gives back its place in
// the pool, for which Close waits, long before pgx would have hung up by itself, which takes 15 s.
func TestD12_AConnectionThatWasGivenUpGoesSoon(t *testing.T) {
	db := makeDatabase(t, ledger.Options{})
	network, address := db.behindANetwork()
	for _, unprepared := range []bool{false, true} {
		l := db.as(address, ledger.Options{MaxConns: 1, Unprepared: unprepared})
		if err := l.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		network.Set(between.Way{BlackHole: true})
		brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if l.Check(brief) == nil {
			t.Fatal("nothing was swallowed: the test proves nothing")
		}
		cancel()
		closed := make(chan struct{})
		go func() { defer close(closed); l.Close() }()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("unprepared %t: the ledger is not closed", unprepared)
			<-closed
		}
		network.Set(between.Way{})
	}
}

// TestD12_AConnectionInUseHasNoDeadline: what bounds a farewell bounds nothing else. Every connection of a pool, not only its first, answers and takes
// statements for longer than a farewell, also where a caller that it had served gave up as the reply came.
func TestD12_AConnectionInUseHasNoDeadline(t *testing.T) {
	db := makeDatabase(t, ledger.Options{})
	pool, err := ledger.OpenPool(t.Context(), db.urls.Worker, ledger.Options{MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var conns []*pgxpool.Conn
	for range 3 { // one after the other: each is made when another stands
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	var all sync.WaitGroup
	for _, conn := range conns {
		all.Go(func() {
			defer conn.Release()
			outlasts := func(when string) {
				if _, err := conn.Exec(t.Context(), `SELECT pg_sleep(1.2)`); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
			outlasts("new")
			brief, cancel := context.WithCancel(t.Context())
			defer cancel()
			rows, err := conn.Query(brief, `SELECT 1`)
			if err != nil {
				t.Error(err)
			}
			for rows.Next() {
				cancel() // beside the end of the reply, which is here
			}
			outlasts("used")
		})
	}
	all.Wait()
}
