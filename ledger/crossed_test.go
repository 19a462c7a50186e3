package ledger_test

import (
	"net/url"
	"testing"

	between "github.com/paidonce/paidonce/integration/outage/proxy"
	"github.com/paidonce/paidonce/ledger"
)

// TestD1_TheReplyToARepeatedRequestIsNotTakenForTheNextOnes: a network repeats the bytes of one trip inside its connection, and the server answers twice.
// The next trip on that connection finds the second answer before its own.
func TestD1_TheReplyToARepeatedRequestIsNotTakenForTheNextOnes(t *testing.T) {
	db := makeDatabase(t, ledger.Options{})
	network, address := db.behindANetwork()
	l := db.as(address, ledger.Options{MaxConns: 1, Unprepared: true})                                                    // a statement that is prepared twice is refused
	described := func() { mustRecord(t, l, ledger.Authorize(mustClaim(t, l, newWish()), "tr_0", verdict("authorized"))) } // all statements, on this connection
	described()
	repeat := func(again bool) { network.Set(between.Way{Duplicate: again}) }
	repeat(true)
	first := newWish()
	a := mustClaim(t, l, first)
	repeat(false)
	second := newWish()
	b := mustClaim(t, l, second)
	if a.Key != first.Key || b.Key != second.Key || a.OperationID == b.OperationID {
		t.Fatalf("claimed %+v and %+v for %s and %s", a, b, first.Key, second.Key)
	}
	described()
	repeat(true)
	mustRecord(t, l, ledger.Authorize(a, "tr_1", verdict("authorized")))
	repeat(false)
	mustRecord(t, l, ledger.Reject(b, "account_closed", verdict("rejected")))
	wantState(t, db.Ledger, first, ledger.StateAuthorized)
	wantState(t, db.Ledger, second, ledger.StateRejected)
	db.wantCount(4, "observations", `SELECT count(*) FROM observations`)
	db.wantCount(0, "late observations", `SELECT count(*) FROM observations WHERE kind = 'late'`)
	db.wantCount(4, "outcomes published", `SELECT count(*) FROM outbox WHERE type IN ('authorized', 'rejected')`)
}

// behindANetwork gives a network before the database, and the worker's URL through it.
func (db *database) behindANetwork() (*between.Proxy, string) {
	db.t.Helper()
	to, err := url.Parse(db.urls.Worker)
	if err != nil {
		db.t.Fatal(err)
	}
	network, err := between.Start(to.Host, between.Options{})
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(network.Close)
	to.Host = network.Addr()
	return network, to.String()
}

// TestD1_NoReplyToARepeatedRequestSaysThatTheLedgerIsAtHomeOrPaused: what was asked once is asked again after something has changed, and the first try finds
// the second answer to the earlier question, or to another.
func TestD1_NoReplyToARepeatedRequestSaysThatTheLedgerIsAtHomeOrPaused(t *testing.T) {
	db := makeDatabase(t, ledger.Options{})
	network, address := db.behindANetwork()
	l := db.as(address, ledger.Options{MaxConns: 1, Unprepared: true})
	identity := func() (moved bool, err error) {
		id, err := l.Identity(t.Context())
		return id.Moved(), err
	}
	doubted := func() (bool, error) {
		reasons, err := l.PausedForDoubt(t.Context(), ledger.ScopePartner, "northbank")
		return len(reasons) > 0, err
	}
	pause := func(scope ledger.Scope) func() (bool, error) {
		return func() (bool, error) {
			return false, l.Pause(t.Context(), scope, "southbank", "mismatch", ledger.ByWorker)
		}
	}
	for _, row := range []struct {
		what          string
		before, after func() (bool, error)
		change        string
	}{
		{"where the ledger is", identity, identity, `UPDATE ledger_identity SET timeline = timeline + 1`},
		{"why it is paused", doubted, doubted, `INSERT INTO pause_log (scope, name, act, reason, by) VALUES ('partner', 'northbank', 'pause', 'mismatch', 'worker')`},
		{"a pause that is refused", pause(ledger.ScopePartner), pause("nowhere"), `SELECT`},
	} {
		if told, err := row.before(); told || err != nil { // described now, on this connection
			t.Fatalf("%s: %t, %v", row.what, told, err)
		}
		network.Set(between.Way{Duplicate: true})
		if told, err := row.before(); told || err != nil {
			t.Fatalf("%s, repeated: %t, %v", row.what, told, err)
		}
		network.Set(between.Way{})
		db.exec(row.change)
		if told, err := row.after(); !told && err == nil {
			t.Errorf("%s: the earlier answer was taken for this one's", row.what)
		}
	}
}
