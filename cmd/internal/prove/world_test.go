package prove_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/prove"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/integration/stack/bank"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func TestMain(m *testing.M) { stack.Main(m) }

// What no report may show.
const (
	canaryAccount   = "cust-canary-4471"
	canaryName      = "Canary Beneficiary"
	canaryIBAN      = "GB33BUKB20201555555555"
	canaryReference = "Canary reference"
)

// world is real services on which a real worker has worked.
type world struct {
	t         *testing.T
	bank      *bank.Bank
	partner   *bankclient.Partner
	databases stack.DatabaseURLs
	config    *config.Config
	nc        *nats.Conn
	js        jetstream.JetStream
	jobs      jetstream.Stream
	last      uint64 // sequence of the job published last
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := stack.Broker(t, stack.NATSOptions{Dir: t.TempDir()})
	simulator := bank.Calm(t)
	w := &world{t: t, bank: simulator, databases: stack.Databases(t)}
	w.config = w.load(server.URL())
	banks, err := app.Banks(w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.partner = banks[0].Partner
	if w.nc, err = nats.Connect(server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	topology, err := app.Topology(w.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Provision(t.Context(), w.nc, topology); err != nil {
		t.Fatal(err)
	}
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	if w.jobs, err = w.js.Stream(t.Context(), "WITHDRAWALS"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) load(broker string) *config.Config {
	dir := w.t.TempDir()
	health := stack.FreeAddress(w.t)
	for name, text := range map[string]string{"token": "secret\n", "paidonce.yaml": fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 4, accept_loss: true }
worker: { in_flight: 64, sweep_every: 50ms }
partners:
  northbank: { adapter: reference, base_url: %q, credential_id: "2026-11", token_file: %q, timeout: 5s, max_in_flight: 32 }
routes:
  gbp-fps: { partner: northbank, currencies: [GBP], max_amount: "250000.00" }
  jpy-wire: { partner: northbank, currencies: [JPY] }
sources:
  wallet: { routes: [gbp-fps, jpy-wire] }
health: { listen: %q }
`, broker, w.databases.Worker, w.bank.URL, filepath.Join(dir, "token"), health)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	c, err := config.Load(config.Input{
		File: filepath.Join(dir, "paidonce.yaml"), Lookup: func(string) (string, bool) { return "", false }, Rules: app.Rules(), Stdin: strings.NewReader(""),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// key is the n-th operation key.
func key(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("01939e1c-7a52-7c3e-9b6e-%012d", n))
}

func partnerKey(n int) string {
	return bankclient.PartnerKey(key(n), "northbank", "create", 0).String()
}

// The keys of a usual world; the others from 1 to 6 are authorized.
const (
	keyRejected  = 7
	keyCancelled = 8
	keyParked    = 9
	keyOpen      = 10
	keyNew       = 11
	keyYen       = 2
)

func usualJob(n int) job.Job {
	j := job.Job{
		Key: key(n), Source: "wallet", Route: "gbp-fps", DebtorAccount: canaryAccount, Amount: money.Amount{Minor: 4900 + int64(n), Currency: "GBP"},
		Beneficiary: job.Beneficiary{Name: canaryName, IBAN: canaryIBAN}, Reference: canaryReference,
	}
	switch n {
	case keyYen:
		j.Route, j.Amount = "jpy-wire", money.Amount{Minor: 500, Currency: "JPY"}
	case keyCancelled:
		j.NotAfter = time.Now().Add(-time.Minute).UTC()
	case keyOpen:
		j.NotBefore = time.Now().Add(24 * time.Hour).UTC()
	}
	return j
}

func (w *world) publish(j job.Job) {
	w.t.Helper()
	payload, err := job.Encode(j)
	if err != nil {
		w.t.Fatal(err)
	}
	w.publishBytes(job.Subject(j.Route, j.Source), payload)
}

func (w *world) publishBytes(subject string, payload []byte) {
	w.t.Helper()
	ack, err := w.js.Publish(w.t.Context(), subject, payload)
	if err != nil {
		w.t.Fatal(err)
	}
	w.last = ack.Sequence
}

func (w *world) fault(f banksim.Fault) {
	w.t.Helper()
	if _, err := w.bank.SetFault(f); err != nil {
		w.t.Fatal(err)
	}
}

// usual is a world in which six withdrawals were authorized, one was rejected, one cancelled, one parked, and one is open; with two dead
// letters: one is no job, the other another job under the key of the first.
func usual(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := newWorld(t)
	w.fault(banksim.Fault{Name: "reject", Key: partnerKey(keyRejected)})
	w.fault(banksim.Fault{Name: "echo_differs", Key: partnerKey(keyParked)})
	for n := 1; n <= keyOpen; n++ {
		if n != keyParked {
			w.publish(usualJob(n))
		}
	}
	stop := w.work()
	defer stop()
	w.until(9)
	w.publish(usualJob(keyParked)) // last, because a mismatch pauses the partner
	w.until(10)
	other := usualJob(1)
	other.Amount.Minor++
	w.publish(other)
	w.publishBytes("withdrawals.jobs.gbp-fps.wallet", []byte(`{"v":1,"debtor_account":"`+canaryAccount+`"`))
	w.until(10)
	return w
}

// work runs a worker until the returned function is called.
func (w *world) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- app.RunWorker(ctx, w.config, zerolog.Nop()) }()
	return func() {
		w.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the worker ended: %v", err)
		}
	}
}

// until waits until so many operations stand where nothing moves them, all jobs are acknowledged, and all events published.
func (w *world) until(operations int) {
	w.t.Helper()
	conn := w.superuser(w.databases.Superuser)
	defer func() { _ = conn.Close(context.Background()) }()
	deadline := time.Now().Add(2 * time.Minute) // a bound on hanging, not on speed
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		var still, waiting int
		err := conn.QueryRow(w.t.Context(), `SELECT count(*) FILTER (WHERE o.state <> 'claimed' AND (o.state <> 'open' OR d.due_at > now() + interval '1 hour')),
			(SELECT count(*) FROM outbox) FROM operations o LEFT JOIN due d ON d.operation_id = o.id`).Scan(&still, &waiting)
		if err != nil {
			w.t.Fatal(err)
		}
		queued := 0
		for _, route := range []string{"gbp-fps", "jpy-wire"} {
			consumer, err := w.jobs.Consumer(w.t.Context(), "route_"+route)
			if err != nil {
				w.t.Fatal(err)
			}
			queued += int(consumer.CachedInfo().NumPending) + consumer.CachedInfo().NumAckPending
		}
		if still == operations && waiting == 0 && queued == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not in time: %d of %d operations, %d jobs queued, %d events waiting: %s", still, operations, queued, waiting, w.standing(conn))
		}
		<-ticker.C
	}
}

// standing tells about what is under way, for the person who has to find out why.
func (w *world) standing(conn *pgx.Conn) string {
	rows, err := conn.Query(w.t.Context(), `SELECT concat_ws(' ', o.key, o.state, 'fence', o.fence, 'doubt', o.in_doubt, 'due in', d.due_at - now(), o.code,
		(SELECT string_agg(b.kind || ' ' || b.verdict, ', ' ORDER BY b.at) FROM observations b WHERE b.operation_id = o.id))
		FROM operations o LEFT JOIN due d ON d.operation_id = o.id WHERE o.state IN ('open', 'claimed')`)
	if err != nil {
		return err.Error()
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	return strings.Join(lines, "; ")
}

func (w *world) superuser(url string) *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), url)
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// damage writes past everything that protects the ledger.
func (w *world) damage(database string, statements ...string) {
	w.t.Helper()
	conn := w.superuser(database)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, s := range append([]string{`SELECT set_config('session_replication_role', 'replica', false)`}, statements...) {
		tag, err := conn.Exec(w.t.Context(), s)
		if err != nil {
			w.t.Fatalf("%s: %v", s, err)
		}
		if tag.RowsAffected() == 0 {
			w.t.Fatalf("%s: nothing was damaged", s)
		}
	}
}

// testBank is the partner, whose statement may be edited on its way.
type testBank struct {
	*bankclient.Partner
	bound time.Duration // the simulator shows at once what it has done
	edit  func([]bankclient.Seen) []bankclient.Seen
	err   error
}

func (b *testBank) Profile() bankclient.Profile {
	profile := b.Partner.Profile()
	profile.VisibilityBound = b.bound
	return profile
}

func (b *testBank) Statement(ctx context.Context, from, to time.Time, cursor string) ([]bankclient.Seen, string, error) {
	page, next, err := b.Partner.Statement(ctx, from, to, cursor)
	if b.edit != nil {
		page = b.edit(page)
	}
	if b.err != nil {
		err = b.err
	}
	return page, next, err
}

func (w *world) options() prove.Options {
	w.t.Helper()
	return prove.Options{
		DatabaseURL: w.databases.Worker, Broker: w.js, Banks: []prove.Bank{&testBank{Partner: w.partner}},
		Routes: map[string]string{"gbp-fps": "northbank", "jpy-wire": "northbank"}, Dir: w.t.TempDir(), Retries: 1,
	}
}

func (w *world) prove(options prove.Options) prove.Report {
	w.t.Helper()
	report, err := prove.Run(w.t.Context(), options)
	if err != nil {
		w.t.Fatal(err)
	}
	if left, err := os.ReadDir(options.Dir); err != nil || len(left) > 0 {
		w.t.Errorf("left behind: %v, %v", left, err)
	}
	text := fmt.Sprintf("%+v", report)
	for _, canary := range []string{canaryAccount, canaryName, canaryIBAN, canaryReference, "secret"} {
		if strings.Contains(text, canary) {
			w.t.Errorf("the report shows %q", canary)
		}
	}
	return report
}

// clone makes a copy of the ledger to damage, and options that read it.
func (w *world) clone() (superuser string, options prove.Options) {
	w.t.Helper()
	name := "clone_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	original, rename := w.renamed(name)
	server := w.superuser(os.Getenv("PAIDONCE_TEST_POSTGRES"))
	defer func() { _ = server.Close(context.Background()) }()
	deadline := time.Now().Add(2 * time.Minute) // a bound on hanging, not on speed
	for {
		_, err := server.Exec(w.t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+original)
		if err == nil {
			break
		}
		if time.Now().After(deadline) { // sessions that have just ended are still counted
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), os.Getenv("PAIDONCE_TEST_POSTGRES"))
		if err != nil {
			w.t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err := conn.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			w.t.Error(err)
		}
	})
	options = w.options()
	options.DatabaseURL = rename(w.databases.Worker)
	return rename(w.databases.Superuser), options
}

func (w *world) renamed(name string) (original string, rename func(string) string) {
	w.t.Helper()
	c, err := pgx.ParseConfig(w.databases.Superuser)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.Database, func(url string) string { return strings.Replace(url, "/"+c.Database, "/"+name, 1) }
}

// counts are the numbers of a report that must be zero.
func counts(r prove.Report) map[prove.Kind]int64 {
	all := map[prove.Kind]int64{
		prove.KindTwice: r.Twice, prove.KindLost: r.Lost, prove.KindOrphanOurs: r.OrphansOurs, prove.KindOrphanTheirs: r.OrphansTheirs,
		prove.KindMismatch: r.Mismatched, prove.KindUnbalanced: r.Unbalanced, prove.KindMisplaced: r.Misplaced, prove.KindUnannounced: r.Unannounced,
		prove.KindContradicted: r.Contradicted, prove.KindStray: r.Strays, prove.KindUnproved: r.Unproved,
	}
	for k, n := range all {
		if n == 0 {
			delete(all, k)
		}
	}
	return all
}

// finds checks that a report has exactly these findings, each as "kind key: text", with TRANSFER for ids of transfers.
func (w *world) finds(r prove.Report, want ...string) {
	w.t.Helper()
	var got []string
	var total int64
	for _, f := range r.Findings {
		if f.Advice == "" {
			w.t.Errorf("no advice: %+v", f)
		}
		got = append(got, strings.TrimSpace(string(f.Kind)+" "+f.Key)+": "+transferIDs.ReplaceAllString(f.Text, "TRANSFER"))
	}
	for _, n := range counts(r) {
		total += n
	}
	if !slices.Equal(got, want) || total != int64(len(want)) || r.Held != (len(want) == 0) {
		w.t.Errorf("%d counted, held %v, notes %v; found\n  %s\nwant\n  %s", total, r.Held, r.Notes, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
