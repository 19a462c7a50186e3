package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// access is who may run a command, how a test runs it without an effect, and the code that it ends with for whoever may.
type access struct {
	role string // "" asks for no token, because it only shows, masked, or is the machine's own
	args string // DEAD, PLAN, PARKED, OPEN, PROPOSAL and RUN stand for what is there
	code cli.Code
}

// accesses says it of every command there is.
func accesses() map[string]access {
	const dry = " --dry-run --reason why"
	return map[string]access{
		// The machine's own, under the machine's credentials. They run until they are stopped, which they are from the beginning.
		"worker": {}, "gateway": {args: "--set sources.wallet.token_file=TOKEN"}, "run": {args: "--with worker"},
		"enqueue": {args: "--source wallet --route gbp-fps --debtor-account a --amount 1.00 --currency GBP --name N --iban " + canaryIBAN + " --dry-run"},
		// Under the database's owner or a reader, whose rights the database knows.
		"migrate up": {args: "--dry-run --no-nats"}, "migrate status": {args: "--no-nats"}, "recover": {args: "--dry-run"}, // in earnest: TestJourneyOfARecovery
		// Looking.
		"ops list": {}, "ops show": {args: "OPEN"}, "ops explain": {args: "OPEN"}, "dead list": {}, "dead show": {args: "DEAD"}, "events tail": {args: "--all --follow=false"},
		"operators list": {}, "proposals list": {}, "proposals show": {args: "PROPOSAL"}, "audit list": {}, "partners": {}, "prove": {args: "--patience 50ms"},
		"doctor":       {code: cli.Failure}, // the tests' Postgres runs without fsync
		"config check": {}, "config reference": {}, "version": {}, "completion": {args: "bash"}, "help": {args: "ops"},
		"batch check": {args: "FILE --source wallet --route gbp-fps"}, "batch status": {args: "RUN"},
		// Asking for a change.
		"pause": {role: "operator", args: "route gbp-fps" + dry}, "resume": {role: "operator", args: "source wallet" + dry},
		"ops lookup": {role: "operator", args: "PARKED" + dry}, "ops resolve": {role: "operator", args: "PARKED --retry" + dry}, "ops cancel": {role: "operator", args: "OPEN" + dry},
		"dead plan": {role: "operator"}, "dead replay": {role: "operator", args: "PLAN" + dry}, "dead discard": {role: "operator", args: "PLAN" + dry},
		"dead correct": {role: "operator", args: "DEAD --set amount=49.00" + dry}, "dead reindex": {role: "operator", args: dry},
		"purge":        {role: "operator", args: "--older-than 90d" + dry},
		"batch submit": {role: "operator", args: "FILE --run other --source wallet --route gbp-fps --again twice" + dry},
		"batch pause":  {role: "operator", args: "RUN" + dry, code: cli.Conflict}, // it waits
		"batch resume": {role: "operator", args: "RUN" + dry}, "batch cancel": {role: "operator", args: "RUN" + dry},
		"batch report": {role: "operator", args: "RUN --for people --reason why"},
		// Agreeing. Under a digest that is another one's nobody's word has an effect.
		"proposals approve": {role: "approver", args: "PROPOSAL --digest 00 --reason why", code: cli.Conflict},
		"proposals decline": {role: "approver", args: "PROPOSAL --digest 00 --reason why", code: cli.Conflict},
		"batch approve":     {role: "approver", args: "RUN" + dry},
		// Making operators.
		"operators add": {role: "admin", args: "zoe --role viewer" + dry}, "operators rotate": {role: "admin", args: "oscar" + dry}, "operators disable": {role: "admin", args: "oscar" + dry},
		// Under the login of the ledger's owner: by nobody, or by an admin.
		"operators limits show": {}, "operators limits set": {role: "owner", args: "GBP 1000.00" + dry}, "operators limits unset": {role: "owner", args: "discard" + dry},
	}
}

// holders are those who may act in a role.
func holders() map[string][]string {
	return map[string][]string{"": {"vera", "olga", "ada", "adam", ""}, "operator": {"olga", "adam"}, "approver": {"ada", "adam"}, "admin": {"adam"}, "owner": {"adam", ""}}
}

// revealing are the commands that show masked to everybody, and in full to an operator.
func revealing() map[string]string {
	return map[string]string{"ops list": "", "ops show": "OPEN", "ops explain": "OPEN", "dead show": "DEAD"}
}

// commands lists the commands of the tree that do something.
func commands() (all []string) {
	walk((&session{}).root(), func(c *cobra.Command) {
		if !c.HasSubCommands() && c.HasParent() {
			all = append(all, strings.TrimPrefix(c.CommandPath(), "paidonce "))
		}
	})
	return all
}

// TestEveryCommand runs each command of the tree, and fails for one that accesses does not know.
func TestEveryCommand(t *testing.T) {
	for _, path := range commands() {
		if _, known := accesses()[path]; !known {
			t.Errorf("nobody has said who may run %q", path)
		}
	}
	i, there := everything(t)
	t.Run("a dry run changes nothing", func(t *testing.T) { i.dryRuns(t, there) })
	t.Run("every format is what it says, and shows nobody", func(t *testing.T) { i.formats(t, there) })
	t.Run("every role", func(t *testing.T) { i.everyRole(t, there) })
}

// everyRole runs each command as each person and as nobody: who lacks the role is refused with code 4, and who has it is not.
func (i *installation) everyRole(t *testing.T, there *strings.Replacer) {
	table := accesses()
	for _, path := range commands() {
		a := table[path]
		for _, who := range []string{"vera", "olga", "ada", "adam", ""} {
			want := a.code
			args := a.args
			if !slices.Contains(holders()[a.role], who) {
				want, args = cli.NotAllowed, strings.ReplaceAll(args, "--digest 00", "")
			}
			if got := i.roleRun(who, path, there.Replace(args)); got.code != want {
				t.Errorf("%s by %q: code %d, want %d\n%s%s", path, who, got.code, want, got.out, got.errors)
			}
		}
	}
	for path, args := range revealing() {
		for _, who := range []string{"vera", "olga", "ada", "adam", ""} {
			want := cli.OK
			if !slices.Contains(holders()["operator"], who) {
				want = cli.NotAllowed
			}
			got := i.roleRun(who, path, there.Replace(args)+" --reveal --reason why")
			if got.code != want || want != cli.OK && got.out != "" {
				t.Errorf("%s --reveal by %q: code %d, want %d\n%s%s", path, who, got.code, want, got.out, got.errors)
			}
		}
	}
}

// dryRuns: whatever changes something can be tried.
func (i *installation) dryRuns(t *testing.T, there *strings.Replacer) {
	without := []string{"dead plan", "batch report"} // a list that is kept, and the line of who has seen names
	before := i.dump()
	walk((&session{}).root(), func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "paidonce ")
		a, known := accesses()[path]
		tries := c.Flags().Lookup("dry-run") != nil
		switch {
		case !known:
		case tries == slices.Contains(without, path) && (tries || a.role != ""):
			t.Errorf("%s: has a dry run: %v", path, tries)
		case tries:
			args := there.Replace(a.args)
			if !strings.Contains(args, "--dry-run") {
				args += " --dry-run"
			}
			if got := i.roleRun("adam", path, args); got.code == cli.Usage {
				t.Errorf("%s %s: %+v", path, args, got)
			}
			if now := i.dump(); now != before {
				t.Errorf("%s %s changes something", path, args)
				before = now
			}
		}
	})
}

// dump is all that the installation keeps, in the database and in the streams.
func (i *installation) dump() string {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), i.databases.Superuser)
	if err != nil {
		i.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(i.t.Context(), `SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1`)
	if err != nil {
		i.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		i.t.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		if _, err := conn.PgConn().CopyTo(i.t.Context(), &all, "COPY "+pgx.Identifier{table}.Sanitize()+" TO STDOUT"); err != nil {
			i.t.Fatal(err)
		}
	}
	js := i.witness()
	for _, name := range []string{"WITHDRAWALS", "WITHDRAWAL_DEAD", "WITHDRAWAL_EVENTS"} {
		stream, err := js.Stream(i.t.Context(), name)
		if err != nil {
			i.t.Fatal(err)
		}
		_, _ = fmt.Fprintln(&all, name, stream.CachedInfo().State.Msgs, stream.CachedInfo().State.LastSeq)
	}
	return all.String()
}

// formats runs each command that ends by itself in each format, without --reveal, and reads what it says.
func (i *installation) formats(t *testing.T, there *strings.Replacer) {
	own := []string{"completion", "help", "config reference", "events tail", "worker", "gateway", "run", "batch report"} // have one form of their own
	readable := map[string]func(string) error{
		"table": func(string) error { return nil },
		"json":  func(text string) error { var v any; return json.Unmarshal([]byte(text), &v) },
		"jsonl": func(text string) error {
			for line := range strings.Lines(text) {
				var v map[string]any
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					return err
				}
			}
			return nil
		},
		"csv": func(text string) error { _, err := csv.NewReader(strings.NewReader(text)).ReadAll(); return err },
	}
	for _, path := range commands() {
		a := accesses()[path]
		for format, read := range readable {
			if path == "batch report" {
				continue // for those who may see names
			}
			got := i.roleRun("adam", path, there.Replace(a.args)+" -o "+format)
			if path == "events tail" && (format == "json" || format == "csv") {
				a.code = cli.Usage // it has one form
			} else {
				a.code = accesses()[path].code
			}
			err := read(got.out)
			if got.code != cli.OK && got.out == "" {
				err = nil // an error is no data
			}
			if err != nil && !slices.Contains(own, path) || got.code != a.code || strings.Contains(got.out, "\x1b") {
				t.Errorf("%s -o %s: code %d, %v\n%s%s", path, format, got.code, err, got.out, got.errors)
			}
			for _, canary := range i.canaries() {
				if shown := linesWith(got.out+got.errors, canary); shown != "" && path != "enqueue" {
					t.Errorf("%s -o %s shows %q:\n%s", path, format, canary, shown)
				}
			}
		}
	}
	i.showsNoCanary() // what was said on the way here: by the worker's log, its metrics, and whatever made all this
}

// roleRun runs a command under the database role that it is for.
func (i *installation) roleRun(who, path, args string) said {
	i.t.Helper()
	return i.wordsRun(who, path, append(strings.Fields(path), strings.Fields(args)...))
}

// wordsRun is the same for words that may hold spaces.
func (i *installation) wordsRun(who, path string, words []string) said {
	i.t.Helper()
	env := i.inNameOf(who, i.databases.Desk)
	ctx := i.t.Context()
	switch path {
	case "worker", "gateway", "run":
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	case "migrate up", "migrate status", "recover", "operators limits set", "operators limits unset":
		env["PAIDONCE_DATABASE_URL"] = i.databases.Owner
	}
	if strings.HasPrefix(path, "batch ") {
		env["PAIDONCE_DATABASE_URL"] = i.databases.Batch
		words = append(words, "--set", "nats.nkey_seed_file="+i.roles.Publishers["wallet"])
	}
	return commandIn(ctx, "", env, words...)
}

// everything is an installation with one of everything that a command can be about, and the words that stand for it.
func everything(t *testing.T) (*installation, *strings.Replacer) {
	t.Helper()
	i := install(t)
	i.migrate()
	i.hire()
	stop := i.work()
	i.bury("300000.00", "49.0")
	if status, metrics := i.get("/metrics"); status != http.StatusOK {
		t.Errorf("metrics: %d", status)
	} else {
		i.said.WriteString(metrics)
	}
	if code := stop(); code != cli.OK {
		t.Fatalf("the worker ends with code %d", code)
	}
	o := &office{installation: i, worker: openLedger(t, i.databases.Worker)}
	parked, open := o.operation(inDoubt), o.operation(untouched)
	proposal := proposalIn(t, i.as("oscar", "ops", "resolve", parked, "--retry", "--reason", "why", "-o", "json"))
	i.okAs("olga", "pause", "source", "wallet", "--reason", "test")
	plan := decoded[deadPlanRow](t, i.okAs("olga", "dead", "plan", "--reason", "to see", "-o", "json")).Plan
	file := i.write(t.TempDir(), "november.csv", payroll)
	if got := i.batch("oscar", "submit", file, "--run", runKey, "--source", "wallet", "--route", "gbp-fps", "--reason", "payroll"); got.code != cli.Waiting {
		t.Fatalf("submit: %+v", got)
	}
	return i, strings.NewReplacer("DEAD", "2", "PLAN", plan, "PARKED", parked, "OPEN", open, "PROPOSAL", proposal, "RUN", runKey, "FILE", file,
		"TOKEN", i.write(t.TempDir(), "wallet.token", strings.Repeat("w", 40)))
}

// needs says of a command the role that it asks for.
func needs() map[string]string {
	table := map[string]string{}
	for path, a := range accesses() {
		table[path] = a.role
	}
	return table
}
