package outage

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/outage/proxy"
)

// hostile is a bank that misbehaves a little and answers soon.
func hostile() banksim.Options {
	return banksim.Options{Seed: 5, Hostility: 0.1, MaxDelay: 300 * time.Millisecond}
}

// awhile lets the load run on for so long.
func awhile(d time.Duration) { <-time.After(d) }

// noDeadLettersBut: an outage makes no dead letters; those of the mixture are all that there are.
func (r *rig) noDeadLettersBut(t *testing.T, dead int) {
	t.Helper()
	want := len(r.all.Malformed)
	for _, k := range r.all.Keys {
		want += len(k.Conflicting)
	}
	if dead != want {
		t.Errorf("%d dead letters, want %d", dead, want)
	}
}

// full makes outages as long as the cases say that are named after a time.
var full = flag.Bool("full", false, "Postgres is away for the 60 s of case E6, not for 6")

// TestE6_PostgresAwayForAWhile: for 60 s by `go test ./integration/outage -run E6 -full`; for a tenth of that otherwise, which is four leases here.
func TestE6_PostgresAwayForAWhile(t *testing.T) {
	away := 6 * time.Second
	if *full {
		away = time.Minute
	}
	r := newRig(t, setup{bank: hostile()})
	r.start(t, "", nil)
	end := r.loading(t)
	awhile(time.Second)
	r.postgres.Kill() // immediate shutdown: no session is asked
	awhile(away)
	check(t, r.postgres.Restart(t.Context()))
	awhile(time.Second)
	end()
	j := r.prove(t)
	r.noDeadLettersBut(t, j.Dead)
	if failed := r.count(t, "SELECT count(*) FROM operations WHERE state = 'rejected' AND code IS NULL"); failed != 0 {
		t.Errorf("%d operations were filed as failed", failed)
	}
}

func TestC10_PostgresCrashesAgainAndAgain(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.start(t, "", nil)
	r.start(t, "", nil)
	end := r.loading(t)
	for range 4 {
		awhile(700 * time.Millisecond)
		r.postgres.Kill()
		check(t, r.postgres.Restart(t.Context()))
	}
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

// says counts how often the workers' log names something.
func (r *rig) says(t *testing.T, what string) int {
	t.Helper()
	text, err := os.ReadFile(r.log.Name())
	check(t, err)
	return strings.Count(string(text), what)
}

// struck waits until the workers have met an error of the database: an outage that nobody has met shows nothing.
func (r *rig) struck(t *testing.T, code string, more int) {
	t.Helper()
	eventually(t, patience, "the workers meet "+code, func(context.Context) (bool, error) { return r.says(t, code) > more, nil })
}

func TestD1_BackendsAreTerminatedUnderLoad(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.start(t, "", nil)
	r.start(t, "", nil)
	end := r.loading(t)
	for n := 0; n < 20 || n < 1000 && r.says(t, "57P01") == 0; n++ { // until one of them was in the middle of something
		awhile(100 * time.Millisecond)
		r.execute(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'paidonce_worker'")
	}
	r.struck(t, "57P01", 0)
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

func TestPostgres_ReadOnlyForAWhile(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.start(t, "", nil)
	end := r.loading(t)
	awhile(time.Second)
	r.execute(t, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	awhile(2 * time.Second)
	r.struck(t, "25006", 0)
	r.execute(t, "ALTER SYSTEM SET default_transaction_read_only = off", "SELECT pg_reload_conf()")
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

// TestPostgres_DiskFull has each table in turn answer 53100, as a full disk does, to what is inserted and to what is changed: claims, attempts and
// records, each on its own.
func TestPostgres_DiskFull(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.execute(t, `CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'could not extend file of %: No space left on device', TG_TABLE_NAME USING ERRCODE = '53100'; END $$`)
	r.start(t, "", nil)
	end := r.loading(t)
	for _, full := range []struct{ table, on string }{
		{"operations", "INSERT OR UPDATE"}, {"operations", "UPDATE"}, {"due", "INSERT OR UPDATE"}, {"attempts", "INSERT OR UPDATE"},
		{"observations", "INSERT OR UPDATE"}, {"outbox", "INSERT OR UPDATE"}, {"entries", "INSERT OR UPDATE"},
	} {
		awhile(300 * time.Millisecond)
		refusal := "could not extend file of " + full.table + ": No space left on device (SQLSTATE 53100)"
		met := r.says(t, refusal)
		r.execute(t, "CREATE TRIGGER full_disk BEFORE "+full.on+" ON "+full.table+" FOR EACH STATEMENT EXECUTE FUNCTION no_space()")
		awhile(500 * time.Millisecond)
		r.struck(t, refusal, met)
		r.execute(t, "DROP TRIGGER full_disk ON "+full.table)
	}
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

// TestNetwork_LedgerFallsSilent: the connections that stand lose what comes back, and nobody resets them, as when a firewall forgets them.
// New connections work. The worker must not wait for the old ones for ever.
func TestNetwork_LedgerFallsSilent(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}, settings: settingsOf(2)})
	r.start(t, "", nil)
	r.load(t, 20)
	eventually(t, patience, "the first load is finished", func(context.Context) (bool, error) { return r.finished(t) >= 20, nil })
	r.toLedger.Set(proxy.Way{Deaf: true})
	r.load(t, 20)
	awhile(2 * time.Second)
	r.toLedger.Set(proxy.Way{}) // for new ones; whatever the old ones swallowed is gone
	r.load(t, 20)
	r.prove(t)
}
