package outage

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// standby makes a second server that follows the first one.
func (r *rig) standby(t *testing.T) *stack.Postgres {
	t.Helper()
	server, err := r.postgres.Standby(t.Context(), filepath.Join(t.TempDir(), "standby"),
		map[string]string{"synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "32MB"})
	check(t, err)
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// promote kills the first server, makes the second one the first, and leads everybody to it.
func (r *rig) promote(t *testing.T, server *stack.Postgres) {
	t.Helper()
	r.postgres.Kill()
	check(t, server.Promote(t.Context()))
	r.urls = stack.DatabaseURLs{Superuser: server.URL("paidonce", ""), Owner: server.URL("paidonce", "paidonce_owner"), Worker: server.URL("paidonce", "paidonce_worker")}
	r.toLedger.Lead("127.0.0.1:" + strconv.Itoa(server.Port()))
}

// recover does what `paidonce recover` does.
func (r *rig) recover(t *testing.T, since time.Time) {
	t.Helper()
	l, err := ledger.Open(t.Context(), r.urls.Owner, ledger.Options{})
	check(t, err)
	defer l.Close()
	if err := l.Check(t.Context()); !errors.Is(err, ledger.ErrMoved) {
		t.Errorf("the ledger does not notice that it has moved: %v", err)
	}
	_, err = l.Recover(t.Context(), ledger.Loss{}, "failover", "outage")
	check(t, err)
	nc, err := queue.Connect(r.brokerURL, queue.ConnectOptions{Role: queue.RoleOperator, NKeySeedFile: r.roles.Operator, Log: zerolog.Nop()})
	check(t, err)
	defer nc.Close()
	_, err = queue.Rewind(t.Context(), nc, time.Since(since))
	check(t, err)
}

// TestFailover_WithoutTheLastClaims: the standby had fallen behind. What the old server had acknowledged since is gone: claims, attempts,
// outcomes, and the operations of jobs that the broker will never deliver again by itself. The bank has paid them.
func TestFailover_WithoutTheLastClaims(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	standby := r.standby(t)
	r.start(t, quickPartner, nil)
	r.keysOnly(t, 7)
	eventually(t, patience, "the first ones are finished", func(context.Context) (bool, error) { return r.finished(t) == 7, nil })
	eventually(t, patience, "the standby has them", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()") == 1, nil
	})
	check(t, standby.Unfollow(t.Context())) // the line between them is cut
	eventually(t, patience, "it follows no more", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM pg_stat_replication") == 0, nil
	})
	cut := time.Now().Add(-5 * time.Second)
	r.keysOnly(t, 7)
	eventually(t, patience, "the lost ones are finished", func(context.Context) (bool, error) { return r.finished(t) == 14, nil })
	awhile(500 * time.Millisecond) // and acknowledged
	r.promote(t, standby)
	if known := r.count(t, "SELECT count(*) FROM operations"); known != 7 {
		t.Fatalf("the promoted server knows %d operations, want 7: nothing was lost", known)
	}
	arrived := r.arrived.Load()
	r.keysOnly(t, 7)
	awhile(3 * time.Second)
	if n := r.arrived.Load(); n != arrived || r.count(t, "SELECT count(*) FROM operations WHERE state = 'claimed'") != 0 {
		t.Errorf("claims went on before anybody had recovered the ledger: %d new requests", n-arrived)
	}
	r.recover(t, cut)
	j := r.prove(t)
	if j.Keys != 21 || j.Authorized != 21 {
		t.Errorf("%s", j)
	}
}

// TestFailover_WithSynchronousReplication loses nothing; the guard stops claims all the same.
func TestFailover_WithSynchronousReplication(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	standby := r.standby(t)
	r.execute(t, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	r.start(t, quickPartner, nil)
	end := r.loading(t)
	awhile(2 * time.Second)
	var known int
	eventually(t, patience, "some are authorized", func(context.Context) (bool, error) {
		known = r.count(t, "SELECT count(*) FROM operations WHERE state = 'authorized'")
		return known > 0, nil
	})
	r.promote(t, standby)
	if n := r.count(t, "SELECT count(*) FROM operations WHERE state = 'authorized'"); n < known {
		t.Errorf("%d outcomes, %d before the failover", n, known)
	}
	awhile(time.Second)
	r.recover(t, time.Now().Add(-time.Minute))
	awhile(time.Second)
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}
