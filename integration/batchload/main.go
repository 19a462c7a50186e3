// Command batchload measures batch intake (P6): a CSV file is generated, then `paidonce batch submit` checks it and enqueues it, everything
// durable: a private Postgres with fsync on and a JetStream server that syncs as it does by default, each in its own process.
//
//	go run ./integration/batchload -rows 1000000
//
// It prints rows a second from the start of the command to its end, CPU of the command and of Postgres and WAL for each row, and the greatest
// resident set of the command; for the whole file, and for a tenth of it, since memory must not grow with the file. Each is run twice: into the
// ledger alone (-no-publish of the command), and with every job published and confirmed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
)

func main() {
	if stack.RunChild() {
		return
	}
	rows := flag.Int("rows", 1_000_000, "rows of the greater file")
	flag.Parse()
	if err := run(context.Background(), *rows); err != nil {
		fmt.Fprintln(os.Stderr, "batchload:", err)
		os.Exit(1)
	}
}

// load is what the measures share.
type load struct {
	dir, program, settings string
	owner                  string
	postgres               *stack.Postgres
	super                  *pgx.Conn
}

func run(ctx context.Context, rows int) (err error) {
	l := &load{}
	if l.dir, err = os.MkdirTemp("", "batchload"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	// A checkpoint in the middle would be another measure; max_wal_size is what P4 names.
	l.postgres, err = stack.StartPostgres(ctx, stack.PostgresOptions{Durable: true, Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.postgres.Stop()) }()
	broker, err := stack.StartNATSProcess(stack.NATSOptions{NoSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Shutdown()) }()
	urls, err := l.postgres.CreateDatabase(ctx, "paidonce")
	if err != nil {
		return err
	}
	l.owner = urls.Owner
	if l.super, err = pgx.Connect(ctx, urls.Superuser); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.super.Close(context.WithoutCancel(ctx))) }()
	if err := l.prepare(urls.Batch, broker.URL()); err != nil {
		return err
	}
	for _, n := range []int{rows / 10, rows} {
		for _, publish := range []bool{false, true} {
			if err := l.measure(ctx, n, publish); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare builds the program, provisions the broker and makes the one operator. Limits are out of the way: approval is not what is measured.
func (l *load) prepare(database, broker string) error {
	l.program, l.settings = filepath.Join(l.dir, "paidonce"), filepath.Join(l.dir, "paidonce.yaml")
	text := fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 8, accept_loss: true }
partners: { northbank: { adapter: reference, base_url: "http://127.0.0.1:1", credential_id: c1, token_file: %q } }
routes: { gbp-fps: { partner: northbank, currencies: [GBP] } }
sources: { payroll: { routes: [gbp-fps], token_file: %q } }
operator: { token_file: %q, batch_limit: 1000000000, amount_limits: ["90000000000.00 GBP"] }
health: { listen: "" }
`, broker, database, filepath.Join(l.dir, "bank"), filepath.Join(l.dir, "bank"), filepath.Join(l.dir, "token"))
	err := errors.Join(os.WriteFile(l.settings, []byte(text), 0o600), os.WriteFile(filepath.Join(l.dir, "bank"), []byte("unused-by-a-batch\n"), 0o600))
	if err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", l.program, "./cmd/paidonce")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build paidonce: %w", err)
	}
	for _, args := range [][]string{
		{"migrate", "up", "--config", l.settings},
		{"operators", "add", "adam", "--role", "admin", "--token-out", filepath.Join(l.dir, "token"), "--reason", "measures", "--config", l.settings, "--set", "operator.token_file="},
	} {
		cmd := exec.Command(l.program, args...)
		cmd.Env = append(os.Environ(), "PAIDONCE_DATABASE_URL="+l.owner)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// generate writes a file whose rows no other file has: the label is in their references.
func (l *load) generate(rows int, label string) (name string, err error) {
	name = filepath.Join(l.dir, label+".csv")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	_, _ = w.WriteString("row_ref,debtor_account,amount,currency,name,iban,reference\r\n")
	for i := range rows {
		_, _ = fmt.Fprintf(w, "e-%07d,cust-%d,%d.%02d,GBP,A N Example %d,GB33BUKB20201555555555,Salary %s %d\r\n", i, i%50_000, 1+i/100, i%100, i%9973, label, i) // no two amounts alike: equal rows would need a word
	}
	return name, w.Flush()
}

func (l *load) measure(ctx context.Context, rows int, publish bool) error {
	label := fmt.Sprintf("rows-%d", rows)
	args := []string{"batch", "submit", "--source", "payroll", "--route", "gbp-fps", "--reason", "measures", "--config", l.settings, "-o", "jsonl"}
	if publish {
		label += "-published"
	} else {
		args = append(args, "--no-publish")
	}
	name, err := l.generate(rows, label)
	if err != nil {
		return err
	}
	if _, err := l.super.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	var from string
	if err := l.super.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&from); err != nil {
		return err
	}
	busy := cpuOf(l.postgres.PID())
	cmd := exec.CommandContext(ctx, l.program, append(args, "--run", label, name)...)
	var said strings.Builder
	cmd.Stderr = &said
	began := time.Now()
	if out, err := cmd.Output(); err != nil {
		return fmt.Errorf("batch submit: %w: %s%s", err, out, said.String())
	}
	took := time.Since(began)
	busy = cpuOf(l.postgres.PID()) - busy
	var wal, recorded int64
	err = l.super.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1::text::pg_lsn)::int8, (SELECT count(*) FROM batch_rows b JOIN batch_runs r ON r.id = b.run_id WHERE run_key = $2)",
		from, label).Scan(&wal, &recorded)
	if err != nil {
		return err
	}
	if recorded != int64(rows) {
		return fmt.Errorf("%d of %d rows are operations", recorded, rows)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	own := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	perRow := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(rows) }
	fmt.Printf("%-24s %8.0f rows/s  (%.1fs)  command %.1f µs/row, postgres %.1f µs/row, WAL %d B/row, greatest resident set %d MB  load %s\n",
		label, float64(rows)/took.Seconds(), took.Seconds(), perRow(own), perRow(busy), wal/int64(rows), usage.Maxrss/1024, loadAverage())
	for line := range strings.SplitSeq(strings.TrimSpace(said.String()), "\n") {
		fmt.Println("    " + line)
	}
	return errors.Join(l.read(ctx, label), os.Remove(name))
}

// read says how long it takes to look at a run.
func (l *load) read(ctx context.Context, label string) error {
	for _, args := range [][]string{{"status", label}, {"report", label, "--reason", "measured", "--for", "machine", "--out", filepath.Join(l.dir, label+".report")}} {
		began := time.Now()
		cmd := exec.CommandContext(ctx, l.program, append(append([]string{"batch"}, args...), "--config", l.settings)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("batch %s: %w: %s", args[0], err, out)
		}
		usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		fmt.Printf("    batch %-7s %.1fs, greatest resident set %d MB\n", args[0], time.Since(began).Seconds(), usage.Maxrss/1024)
	}
	return os.Remove(filepath.Join(l.dir, label+".report"))
}

// loadAverage is what else the machine does.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:2], " ")
}
