package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

func TestCodeOf(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want cli.Code
	}{
		{"nothing", nil, 0},
		{"anything", errors.New("x"), 1},
		{"problems of the configuration", fmt.Errorf("load: %w", config.Problems{{Text: "x"}}), 2},
		{"explicit and wrapped", fmt.Errorf("show: %w", cli.Exit(cli.NotFound, errors.New("x"))), 3},
		{"explicit wins over its cause", cli.Exit(cli.Conflict, context.Canceled), 5},
		{"unknown schema", fmt.Errorf("%w: at 9", ledger.ErrSchema), 2},
		{"nothing provisioned", fmt.Errorf("stream X: %w", queue.ErrNotProvisioned), 2},
		{"unfit consumer", fmt.Errorf("consume: %w", &queue.UnfitError{}), 2},
		{"no operation", fmt.Errorf("explain: %w", ledger.ErrNotFound), 3},
		{"no dead letter", fmt.Errorf("show: %w", queue.ErrNoDeadLetter), 3},
		{"moved database", fmt.Errorf("%w: x", ledger.ErrMoved), 8},
		{"interrupted", fmt.Errorf("wait: %w", context.Canceled), 130},
		{"deadline", fmt.Errorf("wait: %w", context.DeadlineExceeded), 75},
		{"a file that is there", fmt.Errorf("open: %w", &fs.PathError{Op: "open", Path: "x", Err: syscall.EEXIST}), 1},
		{"no broker", fmt.Errorf("connect: %w", nats.ErrNoServers), 75},
		{"postgres is shutting down", &pgconn.PgError{Code: "57P01"}, 75},
		{"postgres refuses the right", &pgconn.PgError{Code: "42501"}, 1},
		{"postgres refuses an odd code", &pgconn.PgError{Code: ""}, 1},
	}
	for _, c := range cases {
		if got := cli.CodeOf(c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

type row struct {
	Key   string `json:"key"`
	State string `json:"state"`
}

func table(rows ...row) cli.Table[row] {
	return cli.Table[row]{
		Columns: []string{"key", "state"},
		Cells:   func(r row) []string { return []string{r.Key, r.State} },
		Rows:    rows,
	}
}

func TestListFormats(t *testing.T) {
	rows := []row{{"k1", "open"}, {"k,2", "parked\x1b[2J"}}
	cases := map[cli.Format]string{
		cli.FormatTable: "KEY  STATE\nk1   open\nk,2  parked\\u001b[2J\n",
		cli.FormatJSONL: "{\"key\":\"k1\",\"state\":\"open\"}\n{\"key\":\"k,2\",\"state\":\"parked\\u001b[2J\"}\n",
		cli.FormatCSV:   "key,state\nk1,open\n\"k,2\",parked\x1b[2J\n",
		cli.FormatJSON: "[\n  {\n    \"key\": \"k1\",\n    \"state\": \"open\"\n  },\n" +
			"  {\n    \"key\": \"k,2\",\n    \"state\": \"parked\\u001b[2J\"\n  }\n]\n",
	}
	for format, want := range cases {
		var out bytes.Buffer
		if err := cli.List(cli.Printer{Out: &out, Format: format}, table(rows...)); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s:\n%q\nwant\n%q", format, out.String(), want)
		}
	}
}

func TestListOfNothing(t *testing.T) {
	cases := map[cli.Format]string{cli.FormatTable: "", cli.FormatJSON: "[]\n", cli.FormatJSONL: "", cli.FormatCSV: "key,state\n"}
	for format, want := range cases {
		var out bytes.Buffer
		if err := cli.List(cli.Printer{Out: &out, Format: format}, table()); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", format, out.String(), err, want)
		}
	}
}

func TestOne(t *testing.T) {
	cases := map[cli.Format]string{
		cli.FormatTable: "key    k1\nstate  open\n",
		cli.FormatJSON:  "{\n  \"key\": \"k1\",\n  \"state\": \"open\"\n}\n",
	}
	for format, want := range cases {
		var out bytes.Buffer
		if err := cli.One(cli.Printer{Out: &out, Format: format}, table(row{"k1", "open"})); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", format, out.String(), err, want)
		}
	}
}

func TestColourKeepsTheTableAligned(t *testing.T) {
	var plain, painted bytes.Buffer
	rows := table(row{"a", "authorized"}, row{"b", "open"}, row{"c", "parked"}, row{"d", "odd"})
	if err := cli.List(cli.Printer{Out: &plain}, rows); err != nil {
		t.Fatal(err)
	}
	if err := cli.List(cli.Printer{Out: &painted, Color: true}, rows); err != nil {
		t.Fatal(err)
	}
	stripped := painted.String()
	for _, code := range []string{"\x1b[39m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"} {
		stripped = strings.ReplaceAll(stripped, code, "")
	}
	if stripped != plain.String() || painted.String() == plain.String() {
		t.Errorf("painted:\n%q\nplain:\n%q", painted.String(), plain.String())
	}
}

// TestTable_ForPeople: no column that says nothing, and no table that has no rows. Machines get every column.
func TestTable_ForPeople(t *testing.T) {
	var out, aside, machine bytes.Buffer
	if err := cli.List(cli.Printer{Out: &out, Aside: &aside, Format: cli.FormatTable}, table(row{"", "open"}, row{"", "parked"})); err != nil {
		t.Fatal(err)
	}
	if err := cli.List(cli.Printer{Out: &machine, Aside: &aside, Format: cli.FormatCSV}, table(row{"", "open"})); err != nil {
		t.Fatal(err)
	}
	if out.String() != "STATE\nopen\nparked\n" || machine.String() != "key,state\n,open\n" || aside.String() != "" {
		t.Errorf("table %q, csv %q, aside %q", &out, &machine, &aside)
	}
	if err := cli.List(cli.Printer{Out: &out, Aside: &aside, Format: cli.FormatTable}, table()); err != nil || aside.String() != "none\n" {
		t.Errorf("of nothing: %q, %v", &aside, err)
	}
}

// TestColored: only a terminal, and not where NO_COLOR is set (to anything but nothing) or the terminal is dumb.
func TestColored(t *testing.T) {
	of := func(env map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { text, ok := env[name]; return text, ok }
	}
	if cli.Colored(&bytes.Buffer{}, of(nil)) {
		t.Error("a buffer is no terminal")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true}, {map[string]string{"NO_COLOR": ""}, true}, {map[string]string{"NO_COLOR": "1"}, false}, {map[string]string{"NO_COLOR": "0"}, false},
		{map[string]string{"TERM": "dumb"}, false}, {map[string]string{"TERM": "xterm"}, true},
	} {
		if got := cli.Colored(terminal, of(c.env)); got != c.want {
			t.Errorf("%v: %v, want %v", c.env, got, c.want)
		}
	}
}

func TestParseKey(t *testing.T) {
	for _, good := range []string{"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11"} {
		key, err := cli.ParseKey(good)
		if err != nil || key.String() != "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11" {
			t.Errorf("%s: %s, %v", good, key, err)
		}
	}
	for _, bad := range []string{
		"", "88104", "{01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11}", "urn:uuid:01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11",
		"01939e1c7a527c3e9b6e2f6f0b0f4a11", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	} {
		if _, err := cli.ParseKey(bad); cli.CodeOf(err) != cli.Usage {
			t.Errorf("%q: %v, want a usage error", bad, err)
		}
	}
}

func TestMaskAccount(t *testing.T) {
	for text, want := range map[string]string{"": "", "1234": "****", "cust-4471": "*******71", "äöüßé": "***ßé"} {
		if got := cli.MaskAccount(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
