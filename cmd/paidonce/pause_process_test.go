package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/job"
)

// workAlone runs a worker in a process of its own, until the test ends.
func (i *installation) workAlone() {
	t := i.t
	t.Helper()
	log := &stack.Log{}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), asProgram+"=worker", "PAIDONCE_CONFIG="+i.config)
	child.Stderr = log
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill() // what it has under way at the end is nobody's here
		_ = child.Wait()
		if t.Failed() {
			t.Logf("the worker said\n%s", log)
		}
	})
	stack.Eventually(t, "ready", func() bool { code, _ := i.get("/readyz"); return code == http.StatusOK })
}

// publish gives jobs to a route, and their keys.
func (i *installation) publish(route, source string, n int) (keys []string) {
	i.t.Helper()
	js := i.witness()
	for range n {
		key := job.NewKey().String()
		body := fmt.Appendf(nil, `{"v":1,"key":%q,"debtor_account":%q,"amount":"49.00","currency":"GBP","beneficiary":{"name":%q,"iban":%q}}`, key, canaryAccount, canaryName, canaryIBAN)
		if _, err := js.Publish(i.t.Context(), "withdrawals.jobs."+route+"."+source, body); err != nil {
			i.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// attempts counts those of operations under these keys that began behind a moment of the database's clock.
func (i *installation) attempts(keys []string, behind time.Time) (n int) {
	i.t.Helper()
	i.read(&n, `SELECT count(*) FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE o.key::text = ANY ($1) AND a.at > $2`, keys, behind)
	return n
}

// standing counts the operations under these keys that are in a state.
func (i *installation) standing(keys []string, state string) (n int) {
	i.t.Helper()
	i.read(&n, `SELECT count(*) FROM operations WHERE key::text = ANY ($1) AND state || CASE WHEN held THEN ', held' ELSE '' END = $2`, keys, state)
	return n
}

// TestPause_HoldsInAnotherProcess: once the command has ended, no worker anywhere begins what the pause covers, and goes on with what it does not. The
// claim itself reads the pause: an attempt that began behind the end of the command, by the one clock of the database, is one too many.
func TestPause_HoldsInAnotherProcess(t *testing.T) {
	i := install(t)
	text, err := os.ReadFile(i.config)
	if err != nil {
		t.Fatal(err)
	}
	i.write(filepath.Dir(i.config), "paidonce.yaml", strings.NewReplacer(
		"routes:\n", "  southbank:\n    { adapter: reference, base_url: \""+i.bank.URL+"\", credential_id: \"2026-11\", token_file: "+filepath.Join(filepath.Dir(i.config), "token")+", max_in_flight: 16 }\n"+
			"routes:\n  gbp-chaps: { partner: northbank, currencies: [GBP] }\n  gbp-south: { partner: southbank, currencies: [GBP] }\n",
		"wallet: { routes: [gbp-fps] }", "wallet: { routes: [gbp-fps] }\n  payroll: { routes: [gbp-fps, gbp-chaps, gbp-south] }").Replace(string(text)))
	i.migrate()
	i.hire()
	i.workAlone()
	// paused stops a scope while its jobs come in, and says when that was done by the database's clock.
	paused := func(words ...string) (before []string, at time.Time) {
		t.Helper()
		before = i.publish("gbp-fps", "wallet", 20)
		stack.Eventually(t, "some are begun", func() bool { return i.attempts(before, time.Time{}) > 0 })
		i.okAs("olga", append(append([]string{"pause"}, words...), "--reason", "incident 812")...)
		i.read(&at, `SELECT clock_timestamp()`)
		return before, at
	}
	held := func(what string, behind time.Time, before, after []string) {
		t.Helper()
		all := append(before, after...)
		stack.Eventually(t, what+": all is paid or held", func() bool { return i.standing(all, "open, held")+i.standing(all, "authorized") == len(all) })
		if n := i.standing(after, "open, held"); n != len(after) {
			t.Errorf("%s: of %d that came behind the pause %d are held", what, len(after), n)
		}
		if n := i.attempts(all, behind); n != 0 {
			t.Errorf("%s: %d attempts began behind the pause", what, n)
		}
	}
	for _, one := range []struct{ scope, name, freeRoute, freeSource string }{
		{"partner", "northbank", "gbp-south", "payroll"}, {"route", "gbp-fps", "gbp-chaps", "payroll"}, {"source", "wallet", "gbp-fps", "payroll"},
	} {
		before, at := paused(one.scope, one.name)
		after := i.publish("gbp-fps", "wallet", 10)
		free := i.publish(one.freeRoute, one.freeSource, 1)
		held(one.scope, at, before, after)
		stack.Eventually(t, one.scope+": what it does not cover is paid", func() bool { return i.standing(free, "authorized") == 1 })
		i.okAs("olga", "resume", one.scope, one.name, "--reason", "over")
	}
	// All, and what the sweep takes by itself: without the broker.
	before, at := paused("all")
	if err := i.nats.Shutdown(); err != nil {
		t.Fatal(err)
	}
	after := i.accepted(10)
	stack.Eventually(t, "the sweep was there, and put it off", func() bool {
		var put int
		i.read(&put, `SELECT count(*) FROM due d JOIN operations o ON o.id = d.operation_id WHERE o.key::text = ANY ($1) AND d.due_at > now() + interval '10 s'`, after)
		return put == len(after) || i.standing(after, "authorized") > 0
	})
	if n := i.attempts(append(before, after...), at); n != 0 {
		t.Errorf("without the broker: %d attempts began behind the pause", n)
	}
}
