package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
)

// deadKey is the nth operation key of these tests.
func deadKey(n int) string { return fmt.Sprintf("01939e1c-7a52-7c3e-9b6e-2f6f0b0f5%03d", n) }

// bury publishes jobs with the amounts given, each under a key of its own, and waits until all of them are dead letters.
func (i *installation) bury(amounts ...string) {
	t := i.t
	t.Helper()
	js := i.witness()
	for n, amount := range amounts {
		body := fmt.Sprintf(`{"v":1,"key":%q,"debtor_account":%q,"amount":%q,"currency":"GBP","beneficiary":{"name":%q,"iban":%q},"reference":%q}`,
			deadKey(n+1), canaryAccount, amount, canaryName, canaryIBAN, canaryReference)
		message := &nats.Msg{Subject: "withdrawals.jobs.gbp-fps.wallet", Data: []byte(body), Header: nats.Header{"Nats-Msg-Id": {deadKey(n + 1)}}}
		if _, err := js.PublishMsg(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		stack.Eventually(t, "a dead letter, in the order of the jobs", func() bool {
			return strings.Count(i.run("", "dead", "list", "-o", "jsonl").out, "\n") == n+1
		})
	}
}

func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// raise lets the route take more.
func (i *installation) raise() {
	i.t.Helper()
	text, err := os.ReadFile(i.config)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(i.config, bytes.Replace(text, []byte("250000.00"), []byte("900000.00"), 1), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// TestJourneyOfDeadLetters finds the cause of failures, cures it, replays, corrects, discards, and pays each once.
func TestJourneyOfDeadLetters(t *testing.T) {
	i := install(t)
	i.migrate()
	i.hire()
	stop := i.work()
	i.bury("300000.00", "300001.00", "300002.00", "49.0", "400000.00")

	groups := decoded[[]deadGroupRow](t, i.okAs("olga", "dead", "list", "--group", "-o", "json"))
	if len(groups) != 2 || groups[0].Count != 4 || groups[0].Amounts["GBP"] != "1300003.00" || *groups[0].Undecided != 4 || groups[1].Unread != 1 {
		t.Errorf("groups %+v", groups)
	}
	if again := i.okAs("olga", "dead", "list", "--group"); again != i.okAs("olga", "dead", "list", "--group") || strings.Count(again, "\n") != 3 {
		t.Errorf("groups as a table:\n%s", again)
	}
	shown := i.okAs("vera", "dead", "show", "1")
	if !strings.Contains(shown, "amount: 300000.00 GBP") || !strings.Contains(shown, "beneficiary.iban: [masked]") || !strings.Contains(shown, "amount_over_limit") || !strings.Contains(shown, "would be refused again") {
		t.Errorf("show:\n%s", shown)
	}
	i.readsWithoutPostgres()
	i.replaysOnce(stop)
	i.correctsOnce()
	i.tellsOfBothKeys()

	i.showsNoCanary()
}

// tellsOfBothKeys: the story of a key names what replaced it and what it replaces, and its job once more where it was published again.
func (i *installation) tellsOfBothKeys() {
	t := i.t
	t.Helper()
	old := decoded[explanationRow](t, i.okAs("vera", "ops", "explain", deadKey(4), "-o", "json"))
	if old.NewKey == "" || old.OldKey != "" {
		t.Fatalf("the corrected key: %+v", old)
	}
	made := decoded[explanationRow](t, i.okAs("vera", "ops", "explain", old.NewKey, "-o", "json"))
	if made.OldKey != deadKey(4) || made.NewKey != "" {
		t.Errorf("the new key: %+v", made)
	}
	has(t, i.okAs("vera", "ops", "explain", deadKey(4)), "olga: dead letter 4 is replaced by "+old.NewKey+", and this key is closed", "(`paidonce ops explain "+old.NewKey+"`)",
		"4: a job under this key was refused", deadKey(4)+".cancelled published: message ")
	has(t, i.okAs("vera", "ops", "explain", old.NewKey), "made in place of dead letter 4 of "+deadKey(4), "(`paidonce ops explain "+deadKey(4)+"`)",
		"what was decided about", "is message 9 of the stream of jobs")
	has(t, i.okAs("vera", "ops", "explain", deadKey(1)), "message 1 of the stream of jobs, as "+deadKey(1)+"; delivered, and ", "olga had dead letter 1 published again, as "+deadKey(1)+":r1",
		"what was decided about dead letter 1 is message 6 of the stream of jobs", "replay 1 of the job: message 6 of the stream of jobs, as "+deadKey(1)+":r1", deadKey(1)+".authorized published: message ")
	has(t, i.okAs("vera", "ops", "explain", deadKey(5)), "oscar decided that dead letter 5 is not replayed (the customer withdrew it)")
}

// showsWhoIsPaid: whoever is to agree to a correction sees what was and what would be, masked, and whole once the log says so.
func (i *installation) showsWhoIsPaid(id string) {
	t := i.t
	t.Helper()
	const masked = "beneficiary.iban: [masked, ends in 55] -> [masked, ends in 00]"
	has(t, i.okAs("vera", "proposals", "show", id), "amount: 49.0 GBP -> 49.00 GBP; "+masked)
	has(t, i.okAs("abel", "proposals", "approve", id, "--reason", "x", "--dry-run"), masked)
	const nowhere = "--nats-url=nats://127.0.0.1:1"
	if got := i.as("abel", "proposals", "approve", id, "--reason", "x", nowhere); got.code != cli.TryAgain {
		t.Errorf("agreed to without its letter: %+v", got)
	}
	reveal := []string{"proposals", "show", id, "--reveal", "-o", "json"}
	if got := i.as("abel", reveal...); got.code != cli.Usage {
		t.Errorf("revealed without a reason: %+v", got)
	}
	reveal = append(reveal, "--reason", "ticket 812")
	if got := i.as("vera", reveal...); got.code != cli.NotAllowed {
		t.Errorf("revealed to a viewer: %+v", got)
	}
	got := command(t, "", i.inNameOf("abel", i.databases.Desk), reveal...) // not kept: it shows what nothing else may
	row := decoded[proposalRow](t, got.out)
	if len(row.Changes) != 2 || row.Changes[1].Old != canaryIBAN || row.Changes[1].New != "DE89370400440532013000" || !row.Revealed {
		t.Errorf("revealed: %+v", got)
	}
	has(t, i.okAs("vera", "audit", "list", "--act", "reveal", "-o", "csv"), "abel,reveal,proposal "+id, "vera,reveal,proposal "+id)
}

// events counts those of one type.
func (i *installation) events(kind string) int {
	return strings.Count(i.ok("", "events", "tail", "--all", "--follow=false", "--type", kind), "\n")
}

func (i *installation) readsWithoutPostgres() {
	t := i.t
	t.Helper()
	const nowhere = "--database-url=postgres://nobody@127.0.0.1:1/none?connect_timeout=1"
	for _, args := range [][]string{{"dead", "list", nowhere}, {"dead", "list", "--group", nowhere}, {"dead", "show", "1", nowhere}} {
		if got := i.run("", args...); got.code != cli.OK || !strings.Contains(got.out, "amount_over_limit") || !strings.Contains(got.errors, "by the stream alone") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := i.run("", "dead", "list", "--state", "new", nowhere); got.code != cli.TryAgain || got.out != "" {
		t.Errorf("by state: %+v", got)
	}
}

// replaysOnce plans and replays what a limit has refused, after the limit was raised.
func (i *installation) replaysOnce(stop func() cli.Code) {
	t := i.t
	t.Helper()
	selected := []string{"dead", "plan", "--dead-reason", "invalid", "--to", "4", "--reason", "ticket 812", "-o", "json"}
	plan := decoded[deadPlanRow](t, i.okAs("olga", selected...))
	if plan.Letters != 4 || plan.Replays != 0 || plan.Refused != 3 || len(plan.Classes) != 2 || plan.Classes[1].Class != "refused" ||
		plan.Classes[1].Refused != "amount_over_limit" || plan.Classes[1].Amounts["GBP"] != "900003.00" {
		t.Errorf("what the limit would refuse again: %+v", plan)
	}
	has(t, i.okAs("vera", "audit", "list", "--act", "plan", "-o", "csv"), ",olga,plan,dead letters,done,", "ticket 812")
	if all := i.okAs("olga", "dead", "list", "--reason", "invalid", "-o", "csv"); all != i.okAs("olga", "dead", "list", "--dead-reason", "invalid", "-o", "csv") || strings.Count(all, "\n") != 6 {
		t.Errorf("letters by their reason:\n%s", all)
	}
	if got := i.as("olga", "dead", "plan", "--dead-reason", "undecodable"); got.code != cli.NotFound || !strings.Contains(got.errors, "no dead letter is selected") {
		t.Errorf("a plan of nothing: %+v", got)
	}
	if done := decoded[deadDoneRow](t, i.okAs("olga", "dead", "replay", plan.Plan, "--reason", "before anything is cured", "-o", "json")); done.Outcome != "no_effect" {
		t.Errorf("a replay of what would be refused again: %+v", done)
	}
	stop()
	i.raise()
	plan = decoded[deadPlanRow](t, i.okAs("olga", selected...))
	if plan.Letters != 4 || plan.Replays != 3 || plan.Refused != 0 || len(plan.Classes) != 2 || plan.Classes[1].Class != "malformed" {
		t.Errorf("plan %+v", plan)
	}
	stop = i.work()
	t.Cleanup(func() { stop() })
	args := []string{"dead", "replay", plan.Plan, "--reason", "the limit was raised", "-o", "json"}
	if got := i.as("vera", args...); got.code != cli.NotAllowed {
		t.Errorf("a viewer: %+v", got)
	}
	if got := i.as("olga", append(args, "--dry-run")...); got.code != cli.OK || !strings.Contains(got.out, "approval by another person") || !strings.Contains(got.out, `"about": "900003.00 GBP, 3 letters"`) || i.bank.Summary().Executions != 0 {
		t.Errorf("dry run: %+v", got)
	}
	waiting := i.as("olga", args...)
	i.approve("ada", waiting)
	if done := decoded[deadDoneRow](t, i.okAs("olga", args...)); done.Outcome != "done" || done.Published != 3 || done.Left != 0 {
		t.Errorf("replay %+v", done)
	}
	stack.Eventually(t, "three are paid", func() bool { return i.bank.Summary().Executions == 3 })
	if done := decoded[deadDoneRow](t, i.okAs("olga", args...)); done.Outcome != "no_effect" || done.Before != 3 {
		t.Errorf("again %+v", done)
	}
	if all := i.okAs("olga", "dead", "list", "--state", "replayed", "-o", "csv"); strings.Count(all, "\n") != 4 {
		t.Errorf("replayed:\n%s", all)
	}
	stack.Eventually(t, "three events", func() bool { return i.events("authorized") == 3 })
}

// correctsOnce makes a new withdrawal of a letter that is no job, and discards the last one.
func (i *installation) correctsOnce() {
	t := i.t
	t.Helper()
	if got := i.as("olga", "dead", "replay", decoded[deadPlanRow](t, i.okAs("olga", "dead", "plan", "--from", "4", "--to", "4", "--reason", "to see", "-o", "json")).Plan, "--reason", "x"); got.code != cli.OK {
		t.Errorf("a replay of nothing: %+v", got)
	}
	args := []string{"dead", "correct", "4", "--set", "amount=49.00", "--set", "beneficiary.iban=DE89370400440532013000", "--reason", "ticket 812", "-o", "json"}
	waiting := i.as("olga", args...)
	i.showsWhoIsPaid(proposalIn(t, waiting))
	i.approve("abel", waiting)
	done := decoded[deadCorrectRow](t, i.okAs("olga", args...))
	if done.Outcome != "done" || !done.Closed || done.OldKey != deadKey(4) {
		t.Errorf("correct %+v", done)
	}
	stack.Eventually(t, "the correction is paid", func() bool {
		return strings.Contains(i.run("", "ops", "show", done.NewKey, "-o", "json").out, `"state": "authorized"`)
	})
	if old := i.ok("", "ops", "show", deadKey(4), "-o", "json"); !strings.Contains(old, `"state": "cancelled"`) || !strings.Contains(old, `"code": "corrected"`) {
		t.Errorf("the old key:\n%s", old)
	}
	if again := decoded[deadCorrectRow](t, i.okAs("oscar", args...)); again.Outcome != "no_effect" || again.NewKey != done.NewKey {
		t.Errorf("again %+v", again)
	}
	if got := i.as("olga", "dead", "correct", "5", "--set", "beneficiary.iban="+canaryIBAN+"1", "--reason", "x"); got.code != cli.Usage || !strings.Contains(got.errors, "iban") {
		t.Errorf("a correction that is no job: %+v", got)
	}
	args = []string{"dead", "discard", "5", "--reason", "the customer withdrew it", "-o", "json"}
	i.approve("ada", i.as("oscar", args...))
	if done := decoded[deadDoneRow](t, i.okAs("oscar", args...)); done.Discarded != 1 || done.Closed != 1 || done.Open != 0 {
		t.Errorf("discard %+v", done)
	}
	if got := i.as("olga", "dead", "correct", "5", "--set", "amount=1.00", "--reason", "x"); got.code != cli.Conflict || !strings.Contains(got.errors, "discarded") {
		t.Errorf("a correction of what was discarded: %+v", got)
	}
	if got := i.as("olga", "dead", "replay", deadKey(1), "--reason", "x"); got.code != cli.NotFound {
		t.Errorf("no plan: %+v", got)
	}
	i.okAs("olga", "dead", "reindex", "--reason", "to see that it can be done")
	if got := i.ok("", "prove", "-o", "json"); !strings.Contains(got, `"lost": 0`) || !strings.Contains(got, `"mismatched": 0`) {
		t.Errorf("prove:\n%s", got)
	}
	stack.Eventually(t, "the events of the closed keys", func() bool { return i.events("cancelled") == 2 })
	if n := i.events("authorized"); n != 4 { // F7
		t.Errorf("%d events of authorized operations, want 4", n)
	}
	if n := i.bank.Summary().Executions; n != 4 {
		t.Errorf("the bank executed %d times, want 4", n)
	}
}
