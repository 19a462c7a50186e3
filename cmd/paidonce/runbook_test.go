package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

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
		changes := needs()[strings.TrimPrefix(found.CommandPath(), "paidonce ")] != "" && len(found.Flags().Args()) > 0
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

// TestRunbook_EveryCommandRuns, on an installation that has what it speaks of: what changes something as a dry run where there is one, by somebody
// who may. Each ends with 0, or with the code that says how things stand here.
func TestRunbook_EveryCommandRuns(t *testing.T) {
	i, there := everything(t)
	corrected := i.write(t.TempDir(), "corrected.json", `{"v":1,"debtor_account":"`+canaryAccount+`","amount":"48.00","currency":"GBP","beneficiary":{"name":"`+
		canaryName+`","iban":"`+canaryIBAN+`"}}`)
	stands := map[string]cli.Code{
		"doctor": cli.Failure, "prove": cli.Failure, // as in accesses
		"resume": cli.NotFound, "operators add": cli.Conflict, // is not paused; is hired
		"batch pause": cli.Conflict,                            // nobody has agreed to the run
		"ops cancel":  cli.Conflict, "dead plan": cli.NotFound, // was sent; for another reason
	}
	names := strings.NewReplacer("KEY", there.Replace("PARKED"), "corrected.json", corrected, "17", there.Replace("DEAD"))
	people := map[string]string{"": "vera", "operator": "oscar", "approver": "ada", "admin": "adam", "owner": "adam"}
	for _, line := range runbookCommands(t) {
		words := shellWords(line)[1:]
		found, _, err := (&session{}).root().Find(words)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(found.CommandPath(), "paidonce ")
		for n := range words {
			words[n] = there.Replace(names.Replace(words[n]))
		}
		if found.Flags().Lookup("dry-run") != nil && !slices.Contains(words, "--dry-run") && line != "paidonce pause" {
			words = append(words, "--dry-run")
		}
		who := people[needs()[path]]
		if slices.Contains(words, "--reveal") {
			who = "olga"
		}
		got := i.wordsRun(who, path, words)
		if want := stands[path]; got.code != want && got.code != cli.OK {
			t.Errorf("%s: code %d\n%s%s", line, got.code, got.out, got.errors)
		}
	}
}
