package outage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
)

// held is what an operation's row says of the claim on it.
type held struct {
	ID    int64
	State string
	Fence int32
	Token uuid.UUID
}

// holding reads the claim on a key.
func (r *rig) holding(t *testing.T, key uuid.UUID) held {
	t.Helper()
	conn := r.dial(t)
	defer func() { _ = conn.Close(context.Background()) }()
	var h held
	check(t, conn.QueryRow(t.Context(), "SELECT id, state::text, fence, claim_token FROM operations WHERE key = $1", key).Scan(&h.ID, &h.State, &h.Fence, &h.Token))
	return h
}

// TestFailover_AClaimInFlightIsIssuedAgain: with a call at the bank the ledger fails over to a standby that knows nothing of the claim. Its id and its
// fence are issued again, to another worker. The first one, which was frozen meanwhile, comes back under the same id and the same fence: it changes
// nothing, and what it knows is kept under its own token.
func TestFailover_AClaimInFlightIsIssuedAgain(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}, settings: arena.Settings{Lease: time.Minute, Timeout: 20 * time.Second, Grace: 25 * time.Second}})
	standby := r.standby(t)
	first := r.start(t, quickPartner, nil)
	r.keysOnly(t, 3)
	eventually(t, patience, "the first ones are finished", func(context.Context) (bool, error) { return r.finished(t) == 3, nil })
	eventually(t, patience, "the standby has them", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()") == 1, nil
	})
	check(t, standby.Unfollow(t.Context()))
	eventually(t, patience, "it follows no more", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM pg_stat_replication") == 0, nil
	})

	// The call is executed at the bank and answered with an error, and the worker is frozen before it can read that.
	_, err := r.bank.SetFault(banksim.Fault{Name: "error_after_commit", Next: 1})
	check(t, err)
	published := time.Now()
	r.atFirst(t, func() { r.keysOnly(t, 1) }, first.Freeze)
	key := r.all.Keys[3].Key
	eventually(t, patience, "the bank has executed it", func(context.Context) (bool, error) {
		history, _ := r.bank.History(bankclient.PartnerKey(key, partner, "create", 0).String())
		return history.Executions == 1, nil
	})
	lost := r.holding(t, key)

	r.promote(t, standby)
	if n := r.count(t, "SELECT count(*) FROM operations"); n != 3 {
		t.Fatalf("%d operations are known, want 3: the claim was not lost", n)
	}
	r.recover(t, published) // what came before would take up ids of its own
	// As if ids did not jump ahead, as recovering has them do.
	r.execute(t, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('operations', 'id'), %d, false)", lost.ID))
	frozen := make(chan string, 1)
	second := r.start(t, freezeBeforeLookUp, func(line string) { frozen <- line })
	await(t, "another worker has claimed it and is frozen", frozen)
	again := r.holding(t, key)
	if again.ID != lost.ID || again.Fence != lost.Fence || again.State != "claimed" || again.Token == lost.Token {
		t.Errorf("claimed as %+v, and before the failover as %+v: the test proves nothing", again, lost)
	}

	first.Thaw()
	eventually(t, patience, "what the first one knows is kept under its token", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM observations b JOIN operations o ON o.id = b.operation_id WHERE b.claim_token = $1 AND o.key = $2", lost.Token, key) > 0, nil
	})
	if now := r.holding(t, key); now != again {
		t.Errorf("the stale one changed %+v into %+v", again, now)
	}
	second.Thaw()
	if j := r.prove(t); j.Keys != 4 || j.Authorized != 4 {
		t.Errorf("%s", j)
	}
}
