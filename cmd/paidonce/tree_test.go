package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// said is what one command line came to.
type said struct {
	code        cli.Code
	out, errors string
}

// command runs one command line in this process.
func command(t *testing.T, stdin string, env map[string]string, args ...string) said {
	t.Helper()
	return commandIn(t.Context(), stdin, env, args...)
}

// commandIn is the same until ctx ends.
func commandIn(ctx context.Context, stdin string, env map[string]string, args ...string) said {
	var out, errs bytes.Buffer
	code := run(ctx, world{
		args: args, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs,
		lookup: func(name string) (string, bool) { text, ok := env[name]; return text, ok },
	})
	return said{code, out.String(), errs.String()}
}

// walk visits every command.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		walk(below, visit)
	}
}

func TestEveryCommandHasExamplesThatStartWithItself(t *testing.T) {
	s := &session{}
	n := 0
	walk(s.root(), func(c *cobra.Command) {
		n++
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: has no short text or no example", c.CommandPath())
		}
		if !strings.Contains(c.Example, c.CommandPath()) && c.HasParent() {
			t.Errorf("%s: no example shows it:\n%s", c.CommandPath(), c.Example)
		}
		got := command(t, "", nil, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if got.code != cli.OK || !strings.Contains(got.out, "Examples:") && !strings.Contains(got.out, "Usage:") || got.errors != "" {
			t.Errorf("%s --help: code %d, %q", c.CommandPath(), got.code, got.errors)
		}
	})
	if n < 25 {
		t.Errorf("%d commands walked, there are more", n)
	}
}

func TestExamplesParse(t *testing.T) {
	s := &session{}
	walk(s.root(), func(c *cobra.Command) {
		for line := range strings.SplitSeq(strings.ReplaceAll(c.Example, "\\\n", " "), "\n") {
			words := shellWords(line)
			if len(words) == 0 || words[0] != "paidonce" {
				continue
			}
			root := (&session{}).root()
			found, rest, err := root.Find(words[1:])
			if err != nil {
				t.Errorf("%q: %v", line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%q: %v", line, err)
				continue
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
	})
}

// shellWords splits as a shell would, as far as the examples need it; a redirection ends the command.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	quote := ' ' // none
	for _, r := range strings.TrimSpace(line) + " " {
		switch {
		case r == quote && r != ' ':
			quote = ' '
		case (r == '\'' || r == '"') && quote == ' ':
			quote = r
		case r == ' ' && quote == ' ':
			if word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
		case (r == '<' || r == '>') && quote == ' ':
			return words
		default:
			word.WriteRune(r)
		}
	}
	return words
}

func TestUsageErrors(t *testing.T) {
	key := "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	cases := []struct {
		name string
		args []string
		want string
	}{
		{"no such command", []string{"pay"}, `"pay" is not a command`},
		{"group alone", []string{"ops"}, "paidonce ops needs one of: cancel, explain, list, lookup, resolve, show"},
		{"no such subcommand", []string{"dead", "bury"}, "paidonce dead bury does not exist; there are: correct, discard, list, plan, reindex, replay, show"},
		{"replay of no plan", []string{"dead", "replay", "7"}, "a plan is named by its id"},
		{"replay without reason", []string{"dead", "replay", key}, "a change needs --reason"},
		{"discard of nothing", []string{"dead", "discard", "--reason", "x"}, "takes one plan, or sequences"},
		{"discard of two plans", []string{"dead", "discard", key, key, "--reason", "x"}, "named by its sequence"},
		{"correction of nothing", []string{"dead", "correct", "1", "--set", "amount", "--reason", "x"}, "--set takes member=value"},
		{"reveal without reason", []string{"dead", "show", "1", "--reveal"}, "a change needs --reason"},
		{"state of a letter", []string{"dead", "list", "--state", "open"}, "there is no state"},
		{"time of a letter", []string{"dead", "plan", "--since", "yesterday"}, "--since takes a time"},
		{"reason of a letter as one's own", []string{"dead", "plan", "--reason", "invalid"}, "letters are selected by --dead-reason invalid"},
		{"no such flag", []string{"ops", "list", "--bogus"}, "unknown flag: --bogus"},
		{"no such format", []string{"ops", "list", "-o", "xml"}, "-o must be one of table, json, jsonl, csv"},
		{"no key", []string{"ops", "show"}, "takes one operation key"},
		{"key is none", []string{"ops", "show", "88104"}, `"88104" is not an operation key`},
		{"nil key", []string{"ops", "explain", "00000000-0000-0000-0000-000000000000"}, "is never an operation key"},
		{"state", []string{"ops", "list", "--state", "stuck"}, "--state stuck: there are open, claimed"},
		{"limit", []string{"ops", "list", "--limit", "0"}, "--limit must be at least 1"},
		{"sequence", []string{"dead", "show", "x"}, "named by its sequence"},
		{"other process", []string{"run", "--with", "console"}, "--with console: there is no such process; there is: worker, gateway"},
		{"no process", []string{"run"}, "run needs --with; there is: worker, gateway"},
		{"pause of nothing", []string{"pause", "bank", "x"}, "takes: all, partner NAME, route NAME or source NAME"},
		{"change without reason", []string{"pause", "all"}, "a change needs --reason"},
		{"approval without reason", []string{"proposals", "approve", key}, "a change needs --reason"},
		{"proposal", []string{"proposals", "show", "7"}, "a proposal is named by its id"},
		{"operator without reason", []string{"operators", "add", "olga"}, "a change needs --reason"},
		{"recover without reason", []string{"recover"}, "a change needs --reason"},
		{"shell", []string{"completion", "tcsh"}, "invalid argument"},
		{"enqueue without source", []string{"enqueue"}, "enqueue needs --source and --route"},
		{"enqueue argument", []string{"enqueue", "file.json"}, "takes no argument but -"},
		{"report without reason", []string{"batch", "report", "r"}, "the report names people and accounts, so it needs --reason"},
		{"report as JSON", []string{"batch", "report", "r", "--reason", "x", "-o", "json"}, "the report is CSV: -o json is not taken here"},
		{"events as CSV", []string{"events", "tail", "-o", "csv"}, "events are one JSON object a line: -o csv is not taken here"},
		{"no file", []string{"ops", "show", key}, "No file of settings was read: neither --config nor PAIDONCE_CONFIG names one."},
		{"worker without settings", []string{"worker"}, "database.url: is missing"},
		{"ops without database", []string{"ops", "show", key}, "database.url: is missing"},
		{"set without value", []string{"partners", "--set", "worker.lease"}, "--set takes name=value"},
		{"set of nothing", []string{"partners", "--set", "worker.leas=1s"}, "worker.leas: is not a setting; did you mean worker.lease?"},
		{"timing rules", []string{"partners", "--set", "worker.ack_wait=2m"}, "ack wait (2m0s) must be shorter than the lease (1m0s)"},
		{"secret as a flag", []string{"partners", "--database-url", "postgres://u:canary@h/db"}, "carries a secret"},
	}
	for _, c := range cases {
		got := command(t, "", nil, c.args...)
		if got.code != cli.Usage || !strings.Contains(got.errors, c.want) || got.out != "" {
			t.Errorf("%s: code %d, out %q, errors:\n%s\nwant code 2 and %q", c.name, got.code, got.out, got.errors, c.want)
		}
		if strings.Contains(got.errors, "canary") {
			t.Errorf("%s: shows a secret", c.name)
		}
	}
}

func TestVersion(t *testing.T) {
	if got := command(t, "", nil, "--version"); got.code != cli.OK || !strings.HasPrefix(got.out, "paidonce version ") {
		t.Errorf("%+v", got)
	}
	got := command(t, "", nil, "version", "-o", "json")
	if got.code != cli.OK || !strings.Contains(got.out, `"go": "go1.`) || !strings.Contains(got.out, `"schema": `) {
		t.Errorf("%+v", got)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := command(t, "", nil, "completion", shell); got.code != cli.OK || !strings.Contains(got.out, "paidonce") || got.errors != "" {
			t.Errorf("%s: code %d, %d bytes, %q", shell, got.code, len(got.out), got.errors)
		}
	}
}

// TestCompletion_OfEveryCommand: each completes its words and its flags, without settings and services, and says nothing else.
func TestCompletion_OfEveryCommand(t *testing.T) {
	walk((&session{}).root(), func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		words := command(t, "", nil, append(append([]string{"__complete"}, path...), "")...)
		flags := command(t, "", nil, append(append([]string{"__complete"}, path...), "--")...)
		if words.code != cli.OK || flags.code != cli.OK || c.HasAvailableFlags() && c.Name() != "help" && !strings.HasPrefix(flags.out, "--") {
			t.Errorf("%s: %+v, %+v", c.CommandPath(), words, flags)
		}
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() && !strings.Contains(words.out, below.Name()) {
				t.Errorf("%s does not complete %s:\n%s", c.CommandPath(), below.Name(), words.out)
			}
		}
	})
	for line, want := range map[string]string{
		"ops list --state": "parked", "ops list --sort": "risk", "dead list --state": "planned", "dead plan --dead-reason": "key_reused", "prove -o": "jsonl",
	} {
		if got := command(t, "", nil, append(append([]string{"__complete"}, strings.Fields(line)...), "")...); !strings.Contains(got.out, want) {
			t.Errorf("%s does not complete %s:\n%s", line, want, got.out)
		}
	}
}

func TestInterruptedBeforeItStarts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, world{
		args: []string{"migrate", "status", "--no-nats", "--database-url", "postgres://nobody@127.0.0.1:1/none"}, stdin: strings.NewReader(""),
		stdout: &out, stderr: &errs, lookup: func(string) (string, bool) { return "", false },
	})
	if code != cli.Interrupted {
		t.Errorf("code %d, %s", code, errs.String())
	}
}

func TestServicesAway(t *testing.T) {
	key := "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	for _, args := range [][]string{
		{"ops", "show", key, "--database-url", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"},
		{"migrate", "status", "--no-nats", "--database-url", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"},
		{"dead", "list", "--nats-url", "nats://127.0.0.1:1"},
	} {
		if got := command(t, "", nil, args...); got.code != cli.TryAgain || got.out != "" {
			t.Errorf("%v: code %d, out %q, %s", args, got.code, got.out, got.errors)
		}
	}
}

// TestDoctor_ProblemsStandOnOneLine: what is wrong with the settings is a cell of a table.
func TestDoctor_ProblemsStandOnOneLine(t *testing.T) {
	if got := command(t, "", nil, "doctor", "--nats-url", "nats://127.0.0.1:1"); !strings.Contains(got.out, "the configuration has 1 problem; default: database.url: is missing ") || strings.Contains(got.out, `\u000a`) {
		t.Errorf("%+v", got)
	}
}

// TestConfigCheck_FilesToo: a setting out of its bounds hides no secret file that is not there.
func TestConfigCheck_FilesToo(t *testing.T) {
	got := command(t, "", nil, "config", "check", "--set", "worker.in_flight=0", "--set", "nats.nkey_seed_file=/nowhere/seed")
	if got.code != cli.Usage || !strings.Contains(got.out, "worker.in_flight") || !strings.Contains(got.out, "nats.nkey_seed_file") {
		t.Errorf("%+v", got)
	}
}

func TestWeightSaysOfWhat(t *testing.T) {
	weight := operate.Weight{Count: 2, Amounts: map[string]int64{"GBP": 395551}}
	for act, want := range map[string]string{batch.ActSubmit: "3955.51 GBP, 2 rows", "replay": "3955.51 GBP, 2 letters", "else": "3955.51 GBP, 2"} {
		if got := weightText(act, weight); got != want {
			t.Errorf("%s: %q, want %q", act, got, want)
		}
	}
	if got := weightText("resolve", operate.Weight{Count: 1}); got != "1 operation" {
		t.Errorf("%q", got)
	}
}
