package batch

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

func TestMain(m *testing.M) {
	if runChild() || stack.RunChild() {
		return
	}
	stack.Beside(4)
	stack.Main(m)
}

// world is a ledger with its desk and batches, as `paidonce batch` has it: olga and oscar submit, ada approves.
type world struct {
	*Service
	t      testing.TB
	urls   stack.DatabaseURLs
	pool   *pgxpool.Pool
	desk   *operate.Service
	owner  *pgx.Conn
	people map[string]operate.Operator
	tokens map[string]string
}

// limits let one person submit five rows and 1,000.00 GBP.
func limits() operate.Limits {
	return operate.Limits{Counts: map[string]int{ActSubmit: 5}, Amounts: map[string]int64{"GBP": 100_000, "JPY": 100_000}}
}

func newWorld(t testing.TB, opt operate.Options) *world {
	t.Helper()
	return newWorldAs(t, opt, Options{PartRows: 4, Workers: 2})
}

func newWorldAs(t testing.TB, opt operate.Options, batch Options) *world {
	t.Helper()
	if one, ok := t.(*testing.T); ok {
		one.Parallel() // each has a database of its own
	}
	w := &world{t: t, urls: stack.Databases(t), people: map[string]operate.Operator{}, tokens: map[string]string{}}
	if opt.Limits.Counts == nil {
		opt.Limits = limits()
	}
	l, err := ledger.Open(t.Context(), w.urls.Batch, ledger.Options{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	w.pool = w.connect(w.urls.Batch)
	w.desk = operate.New(l, w.pool, opt)
	batch.Partners = map[string]string{"gbp-fps": "northbank", "jpy-zengin": "eastbank"}
	w.Service = New(l, w.pool, w.desk, batch)
	w.hire(l, opt)
	if w.owner, err = pgx.Connect(t.Context(), w.urls.Owner); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.owner.Close(context.Background()) })
	return w
}

func (w *world) connect(url string) *pgxpool.Pool {
	w.t.Helper()
	pool, err := ledger.OpenPool(w.t.Context(), url, ledger.Options{MaxConns: 8})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *world) hire(l *ledger.Ledger, opt operate.Options) {
	w.t.Helper()
	ctx := w.t.Context()
	owner := operate.New(l, w.connect(w.urls.Owner), opt)
	by, err := owner.Owner(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	service := owner
	for _, p := range [][2]string{{"adam", "admin"}, {"ada", "approver"}, {"olga", "operator"}, {"oscar", "operator"}, {"vera", "viewer"}} {
		act, err := service.AddOperator(ctx, by, p[0], []operate.Role{operate.Role(p[1])})
		if err != nil {
			w.t.Fatal(err)
		}
		request := operate.Request{By: by, Reason: "joins", Act: act}
		done, err := service.Do(ctx, request)
		if done.Proposal != nil {
			if _, err := w.desk.Approve(ctx, w.people["ada"], done.Proposal.ID, done.Proposal.Digest, "known to me"); err != nil {
				w.t.Fatal(err)
			}
			_, err = service.Do(ctx, request)
		}
		if err != nil {
			w.t.Fatalf("add %s: %v", p[0], err)
		}
		if w.people[p[0]], err = w.desk.Identify(ctx, act.Token); err != nil {
			w.t.Fatal(err)
		}
		w.tokens[p[0]] = act.Token
		service, by = w.desk, w.people["adam"]
	}
}

const header = "row_ref,debtor_account,amount,currency,name,iban\n"

// csvRows are n rows of 1.00 GBP and a bit, no two alike.
func csvRows(n int) string {
	var b strings.Builder
	b.WriteString(header)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "r%d,cust-%d,%d.%02d,GBP,A N Example,GB33BUKB20201555555555\n", i, i, 1+i/100, i%100)
	}
	return b.String()
}

func (w *world) submission(runKey, text string) Submission {
	return Submission{
		RunKey: runKey, By: w.people["olga"], Reason: "payroll", File: strings.NewReader(text), Format: file.FormatCSV,
		Read: file.Options{Source: "payroll", Route: "gbp-fps"},
	}
}

// submit must come to a run that is released.
func (w *world) submit(runKey, text string) Run {
	w.t.Helper()
	out, err := w.Submit(w.t.Context(), w.submission(runKey, text))
	if err != nil || out.Run.State != Released {
		w.t.Fatalf("submit %s: state %q, err %v, faults %v", runKey, out.Run.State, err, out.Report.Faults)
	}
	return out.Run
}

func (w *world) enqueue(run Run) {
	w.t.Helper()
	if err := w.Enqueue(w.t.Context(), run, EnqueueOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// value reads one value as the owner of the database.
func value[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.owner.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (w *world) want(n int64, sql string, args ...any) {
	w.t.Helper()
	if got := value[int64](w, sql, args...); got != n {
		w.t.Errorf("%s: %d, want %d", sql, got, n)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// keys of a run's rows, by n: those that are operations, and those that wait in parts.
func (w *world) keys(run Run) map[int]uuid.UUID {
	w.t.Helper()
	keys := map[int]uuid.UUID{}
	err := w.Rows(w.t.Context(), run, nil, func(r RowOutcome) error { keys[r.N] = r.Key; return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	u, err := newUnpacker()
	if err != nil {
		w.t.Fatal(err)
	}
	defer u.decoder.Close()
	parts, err := w.partsOf(w.t.Context(), run.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range parts {
		items, err := u.unpack(value[[]byte](w, `SELECT body FROM batch_parts WHERE run_id = $1 AND part = $2`, run.ID, p.number), p.rows)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, i := range items[p.recorded:] {
			keys[i.n] = i.key
		}
	}
	return keys
}
