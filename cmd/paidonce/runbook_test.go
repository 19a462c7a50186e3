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

// TestRunbook_WhatOnlyLooksRuns, on an installation with a parked operation and a proposal; and so does every dry run.
func TestRunbook_WhatOnlyLooksRuns(t *testing.T) {
	i := install(t)
	i.migrate()
	o := &office{installation: i, worker: openLedger(t, i.databases.Worker)}
	i.hire()
	key := o.operation(inDoubt)
	proposal := proposalIn(t, i.as("oscar", "ops", "resolve", key, "--retry", "--reason", "why", "-o", "json"))
	ran := 0
	for _, line := range runbookCommands(t) {
		words := shellWords(line)[1:]
		dry := slices.Contains(words, "--dry-run") && words[0] != "dead"
		found, _, err := (&session{}).root().Find(words)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(found.CommandPath(), "paidonce ")
		looks := needs()[path] == "" && path != "recover" && path != "dead reindex" || line == "paidonce pause"
		if !looks && !dry {
			continue
		}
		ran++
		for n := range words {
			words[n] = strings.NewReplacer("KEY", key, "PROPOSAL", proposal).Replace(words[n])
		}
		as := "olga"
		if path == "recover" {
			as = ""
		}
		got := i.as(as, words...)
		// The tests' Postgres runs without fsync, which doctor says; there is no dead letter 17, no run, and nothing to prove but one operation that nobody owns.
		fine := got.code == cli.OK || path == "doctor" && got.code == cli.Failure || path == "dead show" && got.code == cli.NotFound || path == "prove" && got.code != cli.Usage
		if !fine {
			t.Errorf("%s: code %d\n%s%s", line, got.code, got.out, got.errors)
		}
	}
	if ran < 20 {
		t.Errorf("%d commands ran", ran)
	}
}
