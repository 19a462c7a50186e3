package ledger_test

import (
	"context"
	"testing"
	"time"

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
