package main

import (
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// TestJourneyOfARecovery: by whom it is done, what it says when the broker is away, and again.
func TestJourneyOfARecovery(t *testing.T) {
	i := install(t)
	i.migrate()
	force := []string{"recover", "--force", "--reason", "the disk was put back", "-o", "json"}
	nobody := append([]string{"recover", "--settled", "--reason", "nobody is hired yet", "-o", "json"}, "--config", i.config)
	wantCode(t, i.asOwner("", nobody...), cli.OK, "nothing is open from a recovery")
	i.hire()
	if got := i.enqueueJourney(); got.code != cli.OK {
		t.Fatalf("%+v", got)
	}
	away := make(chan said, 1)
	go func() { // it waits five seconds for the broker
		away <- commandIn(t.Context(), "", i.inNameOf("", i.databases.Owner), append(force, "--as-owner", "--nats-url", "nats://127.0.0.1:1")...)
	}()
	wantCode(t, i.as("olga", force...), cli.NotAllowed, "paidonce_desk does not own the ledger")
	wantCode(t, i.as("olga", append(force, "--as-owner")...), cli.NotAllowed, "paidonce_desk does not own the ledger")
	wantCode(t, i.asOwner("", force...), cli.NotAllowed, "--operator-token-file", "--as-owner")
	wantCode(t, i.asOwner("vera", force...), cli.NotAllowed, "needs the role operator")
	wantCode(t, i.asOwner("olga", "recover", "--reason", "nothing has moved"), cli.OK, "nothing to recover")
	var n int
	i.read(&n, `SELECT count(*) FROM audit WHERE act = 'recover' AND by <> 'database:paidonce_owner' AND by <> 'vera'`)
	if n != 0 {
		t.Errorf("%d recoveries begun by those who may not, or for nothing", n)
	}

	got := i.keep(<-away)
	wantCode(t, got, cli.Partial, "run it again with --force", `"doubt_before": "20`, `"deliver_from": 0`)
	wantCode(t, i.asOwner("olga", force...), cli.OK, `"deliver_from": 1`, `"dry_run": false`)
	wantCode(t, i.asOwner("olga", force...), cli.OK, `"deliver_from": 1`)
	wantCode(t, i.asOwner("olga", "recover", "--settled", "--reason", "the wallet has asked"), cli.OK)
	wantCode(t, i.asOwner("olga", "recover", "--settled", "--reason", "the wallet has asked"), cli.OK, "nothing is open from a recovery")
	log := i.okAs("vera", "audit", "list", "-o", "csv")
	for _, line := range []string{",database:paidonce_owner,recover,", ",olga,recover,", ",vera,recover,", ",olga,recover_settled,"} {
		if !strings.Contains(log, line) {
			t.Errorf("the log has no %q:\n%s", line, log)
		}
	}
	var by string
	i.read(&by, `SELECT string_agg(by, ' ' ORDER BY at) FROM recoveries`)
	if by != "database:paidonce_owner olga olga" {
		t.Errorf("recovered by %q", by)
	}
	i.showsNoCanary()
}

// TestBelieved: one job that a wrong clock has stamped with a year to come would put every key in doubt until then.
func TestBelieved(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for stamped, want := range map[time.Time]time.Time{
		{}:                        {},
		now.Add(-time.Hour):       now.Add(-time.Hour),
		now.Add(24 * time.Hour):   now.Add(24 * time.Hour),
		now.Add(24*time.Hour + 1): now.Add(24 * time.Hour),
		now.AddDate(4, 0, 0):      now.Add(24 * time.Hour),
	} {
		if got := believed(stamped, now); !got.Equal(want) {
			t.Errorf("stamped %v: %v, want %v", stamped, got, want)
		}
	}
}
