package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// accepted records jobs as a gateway does: nobody has begun them, and they are the sweep's to take now.
func (i *installation) accepted(n int) (keys []string) {
	i.t.Helper()
	l := openLedger(i.t, i.databases.Worker)
	orders := make([]ledger.Order, n)
	for k := range orders {
		key := job.NewKey()
		body := fmt.Appendf(nil, `{"v":1,"key":%q,"debtor_account":%q,"amount":"49.00","currency":"GBP","beneficiary":{"name":%q,"iban":%q}}`,
			key, canaryAccount, canaryName, canaryIBAN)
		j, err := job.Decode("wallet", "gbp-fps", body)
		if err != nil {
			i.t.Fatal(err)
		}
		orders[k] = ledger.Order{Key: key, Fingerprint: j.Fingerprint(), Source: j.Source, Route: j.Route, Partner: "northbank", DebtorAccount: canaryAccount,
			Amount: j.Amount, Payload: body}
		keys = append(keys, key.String())
	}
	for _, one := range l.Accept(i.t.Context(), orders) {
		if one.Answer != ledger.Accepted {
			i.t.Fatalf("%+v", one)
		}
	}
	return keys
}

// read reads one value as the owner of the database.
func (i *installation) read(into any, sql string, args ...any) {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), i.databases.Superuser)
	if err != nil {
		i.t.Fatal(err)
	}
	defer func() { _ = conn.Close(i.t.Context()) }()
	if err := conn.QueryRow(i.t.Context(), sql, args...).Scan(into); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) state(key string) (state string) {
	i.t.Helper()
	i.read(&state, `SELECT state || CASE WHEN held THEN ', held' ELSE '' END FROM operations WHERE key = $1`, key)
	return state
}

// TestPause_HoldsAtOnceAlsoWithoutTheBroker: a pause is read by the claim itself, whoever claims. It is made while a call is under way and the broker
// is gone; the call ends and is recorded, the sweep starts nothing more, and what was held comes back spread over its time.
func TestPause_HoldsAtOnceAlsoWithoutTheBroker(t *testing.T) {
	i := install(t)
	text, err := os.ReadFile(i.config)
	if err != nil {
		t.Fatal(err)
	}
	i.write(filepath.Dir(i.config), "paidonce.yaml", strings.Replace(string(text), "timeout: 5s", "timeout: 35s", 1)) // the call outlasts what is done meanwhile
	i.migrate()
	i.hire()
	stop := i.work()
	defer func() { _ = stop() }()
	if _, err := i.bank.SetFault(banksim.Fault{Name: "late_answer", On: "create", DelayMS: time.Hour.Milliseconds(), Next: 1}); err != nil {
		t.Fatal(err)
	}
	i.enqueueJourney()
	stack.Eventually(t, "under way", func() bool { return i.bank.Summary().Executions == 1 })
	if err := i.nats.Shutdown(); err != nil {
		t.Fatal(err)
	}
	i.okAs("olga", "pause", "all", "--reason", "incident 812")
	if state := i.state(journeyKey); state != "claimed" {
		t.Errorf("the call under way: %s", state)
	}
	// Others, which the sweep of that worker, and a delivery anywhere, would start at once.
	held := i.accepted(40)
	i.bank.Advance(time.Hour) // by its clock: now it answers
	stack.Eventually(t, "the call under way ends and is recorded", func() bool { return i.state(journeyKey) == "authorized" })
	stack.Eventually(t, "the sweep was there", func() bool {
		var put int
		i.read(&put, `SELECT count(*) FROM due WHERE due_at > now() + interval '10 s'`)
		return put == len(held)
	})
	var attempts int
	i.read(&attempts, `SELECT count(*) FROM attempts`)
	if n := i.bank.Summary().Executions; attempts != 1 || n != 1 { // the one from before the pause
		t.Errorf("%d attempts; the bank executed %d", attempts, n)
	}
	has(t, i.okAs("vera", "ops", "show", held[0], "-o", "json"), `"state": "open"`, `"held_reason": "paused"`)

	i.okAs("olga", "resume", "all", "--reason", "over")
	var spread float64
	i.read(&spread, `SELECT extract(epoch FROM max(due_at) - min(due_at)) FROM due d JOIN operations o ON o.id = d.operation_id WHERE o.state = 'open'`)
	if spread < 10 || spread > 30 {
		t.Errorf("what was held comes back within %.1f s of each other", spread)
	}
	stack.Eventually(t, "all are paid, each once, and still without the broker", func() bool {
		return !slices.ContainsFunc(held, func(key string) bool { return i.state(key) != "authorized" })
	})
	if n := i.bank.Summary().Executions; n != 41 {
		t.Errorf("the bank executed %d times, want 41", n)
	}
}

// TestPause_ShowsAnOpenBreaker, which pauses by itself, with its reason, and needs no person.
func TestPause_ShowsAnOpenBreaker(t *testing.T) {
	i := install(t)
	i.migrate()
	i.hire()
	if _, err := i.bank.SetFault(banksim.Fault{Name: "unauthorized"}); err != nil {
		t.Fatal(err)
	}
	i.accepted(10)
	stop := i.work()
	defer func() { _ = stop() }()
	stack.Eventually(t, "an open breaker", func() bool {
		got := i.okAs("vera", "pause", "-o", "csv")
		return strings.Contains(got, "partner,northbank,breaker open,") && strings.Contains(got, "try again by themselves")
	})
	if got := i.as("adam", "resume", "partner", "northbank", "--reason", "x"); got.code != cli.NotFound {
		t.Errorf("a breaker is nobody's to resume: %+v", got)
	}
	if err := i.bank.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	stack.Eventually(t, "the first are paid, by nobody's doing", func() bool { return i.bank.Summary().Executions > 0 })
}
