package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// runbookCommands are the commands of every sh block of the runbook.
func runbookCommands(t *testing.T) []string {
	t.Helper()
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readTop(t, "deploy/RUNBOOK.md"), -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " #")
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "paidonce ") {
				commands = append(commands, line)
			} else if line != "" && !strings.HasPrefix(line, "export ") {
				t.Errorf("the runbook has a line that is no command of paidonce: %s", line)
			}
		}
	}
	return commands
}

// TestRunbook_EveryCommandParses: each is a command with flags and arguments that it takes, and so is each that stands between the lines.
func TestRunbook_EveryCommandParses(t *testing.T) {
	commands := runbookCommands(t)
	if len(commands) < 40 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, line := range commands {
		words := shellWords(line)
		found, rest, err := (&session{}).root().Find(words[1:])
		if err == nil {
			err = found.ParseFlags(rest)
		}
		if err == nil {
			err = found.ValidateArgs(found.Flags().Args())
		}
		if err == nil && found.HasSubCommands() {
			err = errors.New("is a group of commands")
		}
		if err == nil {
			err = found.ValidateFlagGroups()
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		changes := needs()[strings.TrimPrefix(found.CommandPath(), "paidonce ")] != "" && line != "paidonce pause" // which lists then
		if reason := found.Flags().Lookup("reason"); changes && !reason.Changed {
			t.Errorf("%s: a change without its reason", line)
		}
	}
	for _, span := range regexp.MustCompile("`paidonce ([a-z -]+)`").FindAllStringSubmatch(readTop(t, "deploy/RUNBOOK.md"), -1) {
		if _, _, err := (&session{}).root().Find(strings.Fields(span[1])); err != nil {
			t.Errorf("%s: %v", span[0], err)
		}
	}
}

// turn is how a line of the runbook is run: as a dry run where there is one, unless in earnest; it ends with 0, unless code says otherwise, and says why.
type turn struct {
	earnest bool
	before  func() // what a person would have seen before it
	words   [2]string
	code    cli.Code
	says    string
}

// turns are those of lines that are not simply run.
func (i *installation) turns(there *strings.Replacer) map[string]turn {
	batch := func(name string, words ...string) func() {
		return func() {
			if got := i.batch(name, words...); got.code != cli.OK {
				i.t.Fatalf("batch %v: %+v", words, got)
			}
		}
	}
	doctor := turn{code: cli.Failure, says: "paidonce: 3 of "} // of the tests' Postgres, which runs without fsync
	return map[string]turn{
		"paidonce doctor": doctor,
		"paidonce pause all --reason 'incident 812: looking'":      {earnest: true},
		"paidonce resume all --reason 'incident 812: cause found'": {earnest: true},
		"paidonce resume partner northbank --reason 'float filled up, ticket 4711'": {earnest: true, before: func() {
			i.okAs("olga", "pause", "partner", "northbank", "--reason", "our float is used up")
		}},
		"paidonce ops cancel KEY --reason 'the customer took it back'":                                          {earnest: true, words: [2]string{there.Replace("PARKED"), there.Replace("OPEN")}},
		"paidonce dead plan --dead-reason unknown_route --route gbp-fps --reason 'the route is configured now'": {earnest: true, before: i.buryUnrouted},
		"paidonce dead reindex --reason 'the database was restored'":                                            {earnest: true},
		"paidonce batch pause 2026-11-payroll --reason 'the bank asks us to wait'": {earnest: true, before: func() {
			batch("ada", "approve", runKey, "--reason", "totals agree")()
			batch("oscar", "resume", runKey, "--reason", "approved")()
		}},
		"paidonce batch resume 2026-11-payroll --reason 'go on'":      {earnest: true},
		"paidonce batch cancel 2026-11-payroll --reason 'wrong file'": {earnest: true},
		// Whoever is on this page works here already.
		"paidonce operators add adam --role admin --token-out adam.token --reason 'first operator'":           {words: [2]string{"adam", "alan"}},
		"paidonce operators add ada --role approver --token-out ada.token --reason 'second pair of eyes'":     {words: [2]string{"ada", "anna"}},
		"paidonce operators add olga --role operator --token-out olga.token --reason 'joins the night shift'": {words: [2]string{"olga", "otto"}},
	}
}

// buryUnrouted puts a letter there as a worker does for a route that it did not know.
func (i *installation) buryUnrouted() {
	body := fmt.Sprintf(`{"v":1,"key":%q,"debtor_account":%q,"amount":"47.00","currency":"GBP","beneficiary":{"name":%q,"iban":%q}}`, deadKey(9), canaryAccount, canaryName, canaryIBAN)
	letter := &nats.Msg{Subject: "withdrawals.dead.gbp-fps.wallet", Data: []byte(body), Header: nats.Header{"Paidonce-Reason": {"unknown_route"}, "Paidonce-Stream-Seq": {"9"}}}
	if _, err := i.witness().PublishMsg(i.t.Context(), letter); err != nil {
		i.t.Fatal(err)
	}
}

// TestRunbook_EveryCommandRuns, in the order of the page, on an installation that has what it speaks of, by somebody who may. What changes something
// is done in earnest where the page can still be read on after it, else tried.
func TestRunbook_EveryCommandRuns(t *testing.T) {
	i, there := everything(t)
	corrected := i.write(t.TempDir(), "corrected.json", `{"v":1,"debtor_account":"`+canaryAccount+`","amount":"48.00","currency":"GBP","beneficiary":{"name":"`+
		canaryName+`","iban":"`+canaryIBAN+`"}}`)
	names := strings.NewReplacer("KEY", there.Replace("PARKED"), "corrected.json", corrected, "17", there.Replace("DEAD"))
	people := map[string]string{"": "vera", "operator": "oscar", "approver": "ada", "admin": "adam", "owner": "adam"}
	turns := i.turns(there)
	lines := runbookCommands(t)
	for line := range turns {
		if !slices.Contains(lines, line) {
			t.Errorf("the runbook has no line %s", line)
		}
	}
	for _, line := range lines {
		words := shellWords(line)[1:]
		found, _, err := (&session{}).root().Find(words)
		if err != nil {
			t.Fatal(err)
		}
		path, how := strings.TrimPrefix(found.CommandPath(), "paidonce "), turns[line]
		for n := range words {
			if words[n] = there.Replace(names.Replace(words[n])); words[n] == how.words[0] {
				words[n] = how.words[1]
			}
		}
		if how.before != nil {
			how.before()
		}
		if !how.earnest && found.Flags().Lookup("dry-run") != nil && !slices.Contains(words, "--dry-run") && line != "paidonce pause" {
			words = append(words, "--dry-run")
		}
		who := people[needs()[path]]
		if slices.Contains(words, "--reveal") {
			who = "olga"
		}
		if got := i.wordsRun(who, path, words); got.code != how.code || !strings.Contains(got.out+got.errors, how.says) {
			t.Errorf("%s: code %d, want %d and %q\n%s%s", line, got.code, how.code, how.says, got.out, got.errors)
		}
	}
}
