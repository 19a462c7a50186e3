package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

// database is one fresh database seen from all sides: a ledger under the worker's role, and the owner beside it.
type database struct {
	*ledger.Ledger
	t    testing.TB
	urls stack.DatabaseURLs
	conn *pgx.Conn // the owner's
	desk *ledger.Ledger
}

func newDatabase(t testing.TB, opt ledger.Options) *database {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		test.Parallel() // each has a database of its own
	}
	return makeDatabase(t, opt)
}

// makeDatabase leaves it to the test whether others run beside it: it may make several.
func makeDatabase(t testing.TB, opt ledger.Options) *database {
	t.Helper()
	db := &database{t: t, urls: stack.Databases(t)}
	db.Ledger = db.another(opt)
	db.conn = connect(t, db.urls.Owner)
	return db
}

// another opens one more ledger on the same database, as another process would.
func (db *database) another(opt ledger.Options) *ledger.Ledger {
	db.t.Helper()
	return db.as(db.urls.Worker, opt)
}

// person opens the ledger as who owns the tables, and so needs no line of the audit log for what else only people do.
func (db *database) person() *ledger.Ledger {
	db.t.Helper()
	if db.desk == nil {
		db.desk = db.as(db.urls.Owner, ledger.Options{MaxConns: 2})
	}
	return db.desk
}

// as opens one more ledger under another role, or through a proxy.
func (db *database) as(url string, opt ledger.Options) *ledger.Ledger {
	db.t.Helper()
	l, err := ledger.Open(context.Background(), url, opt)
	if err != nil {
		db.t.Fatal(err)
	}
	db.t.Cleanup(l.Close)
	return l
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec runs a statement as the owner.
func (db *database) exec(sql string, args ...any) {
	db.t.Helper()
	if _, err := db.conn.Exec(context.Background(), sql, args...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

// value reads one value as the owner.
func value[T any](db *database, sql string, args ...any) T {
	db.t.Helper()
	var v T
	if err := db.conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// wantCount compares a count that the owner reads.
func (db *database) wantCount(want int64, what, sql string, args ...any) {
	db.t.Helper()
	if got := value[int64](db, sql, args...); got != want {
		db.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// refused runs a statement that must fail with code; nothing of it stays.
func refused(t testing.TB, conn *pgx.Conn, code, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(context.Background(), sql, args...)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code {
		t.Errorf("%s: error %v, want one with code %s", sql, err, code)
	}
}

// claimOne claims one wish and returns the whole answer.
func claimOne(t testing.TB, l *ledger.Ledger, w ledger.Wish) ledger.ClaimAnswer {
	t.Helper()
	a := l.Claim(context.Background(), []ledger.Wish{w})[0]
	if a.Err != nil {
		t.Fatalf("claim: %v", a.Err)
	}
	return a
}

// wantAnswer claims one wish and compares the answer.
func wantAnswer(t testing.TB, l *ledger.Ledger, w ledger.Wish, want ledger.Answer) {
	t.Helper()
	if a := claimOne(t, l, w); a.Answer != want {
		t.Errorf("claim: answer %s, want %s", a.Answer, want)
	}
}

// recordOne records one and returns the whole result.
func recordOne(t testing.TB, l *ledger.Ledger, r ledger.Record) ledger.RecordResult {
	t.Helper()
	result := l.Record(context.Background(), []ledger.Record{r})[0]
	if result.Err != nil {
		t.Fatalf("record: %v", result.Err)
	}
	return result
}

// mustRecord records one under its own claim or ends the test.
func mustRecord(t testing.TB, l *ledger.Ledger, r ledger.Record) {
	t.Helper()
	if result := recordOne(t, l, r); result.Answer != ledger.Recorded || result.State != r.Next {
		t.Fatalf("record: answer %s, state %s; want recorded, %s", result.Answer, result.State, r.Next)
	}
}

// dueNow makes everything due, lapsing every lease.
func (db *database) dueNow() {
	db.t.Helper()
	db.exec(`UPDATE operations SET lease_until = now() - interval '1 ms' WHERE state = 'claimed'`)
	db.exec(`UPDATE due SET due_at = now() - interval '1 ms'`)
}

// sweep claims everything that is due at northbank.
func sweep(t testing.TB, l *ledger.Ledger) []ledger.Work {
	t.Helper()
	work, err := l.ClaimDue(context.Background(), "northbank", 1000)
	if err != nil {
		t.Fatal(err)
	}
	return work
}

// sweepOne claims the one operation that is due.
func sweepOne(t testing.TB, l *ledger.Ledger) ledger.Work {
	t.Helper()
	work := sweep(t, l)
	if len(work) != 1 {
		t.Fatalf("%d operations were due, want 1", len(work))
	}
	return work[0]
}

// explain reads one operation.
func explain(t testing.TB, l *ledger.Ledger, w ledger.Wish) ledger.Explanation {
	t.Helper()
	e, err := l.Explain(context.Background(), w.Key)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wantState compares where an operation stands.
func wantState(t testing.TB, l *ledger.Ledger, w ledger.Wish, want ledger.State) {
	t.Helper()
	if e := explain(t, l, w); e.State != want {
		t.Errorf("state %s, want %s", e.State, want)
	}
}

// intend is the sweep's intention to send what the first attempt sent.
func intend(w ledger.Work, in ledger.Intention) ledger.Resend {
	return ledger.Resend{Claim: w.Claim, Intention: in}
}

// wantAttempt compares the answer to one resend.
func wantAttempt(t testing.TB, l *ledger.Ledger, r ledger.Resend, want ledger.AttemptAnswer) {
	t.Helper()
	got := l.CommitAttempts(context.Background(), []ledger.Resend{r})[0]
	if got.Err != nil || got.Answer != want {
		t.Errorf("commit attempt: answer %d, err %v; want %d", got.Answer, got.Err, want)
	}
}

// noErrors fails on any error in a list of answers.
func noErrors(t testing.TB, answers []ledger.ClaimAnswer) {
	t.Helper()
	for i, a := range answers {
		if a.Err != nil {
			t.Fatal(fmt.Errorf("answer %d: %w", i, a.Err))
		}
	}
}
