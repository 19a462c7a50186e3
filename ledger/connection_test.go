package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

// commitMessage is how pgx asks for the end of a transaction.
const commitMessage = "Q\x00\x00\x00\x0bcommit\x00"

// warm gives a ledger of one connection by way of a proxy, on which everything was described before.
func warm(t *testing.T) (*database, *ledger.Ledger, *proxy) {
	t.Helper()
	db := makeDatabase(t, ledger.Options{})
	p, url := throughProxy(t, db.urls.Worker)
	l := db.as(url, ledger.Options{MaxConns: 1, Unprepared: true}) // so that the proxy reads the statement in every request
	w := newWish()
	mustRecord(t, l, ledger.Schedule(mustClaim(t, l, w), false, 0, verdict("not_executed")))
	work := sweepOne(t, l)
	wantAttempt(t, l, intend(work, w.Intention), ledger.AttemptCommitted)
	mustRecord(t, l, ledger.Park(work.Claim, "patience_over", true, verdict("unknown")))
	if r := l.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_0")}}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	return db, l, p
}

func wantLost(t *testing.T, l *loss) {
	t.Helper()
	if !l.happened() {
		t.Fatal("no reply was lost: the test proves nothing")
	}
}

func TestD1_TheReplyToAClaimIsLost(t *testing.T) {
	db, l, p := warm(t)
	w := newWish()
	lost := p.lose("INSERT INTO attempts", func() {
		db.wantCount(1, "operations committed before the cut", `SELECT count(*) FROM operations WHERE key = $1`, w.Key)
	})
	c := mustClaim(t, l, w)
	wantLost(t, lost)
	db.wantCount(1, "operations under our token and fence", `SELECT count(*) FROM operations WHERE (key, claim_token, fence, unobserved) = ($1, $2, 1, 1)`, w.Key, c.Token)
	db.wantCount(1, "attempts", `SELECT count(*) FROM attempts WHERE operation_id = $1`, c.OperationID)
	db.wantCount(1, "payloads", `SELECT count(*) FROM payloads WHERE operation_id = $1`, c.OperationID)
	wantAnswer(t, db.Ledger, w, ledger.Busy)
	mustRecord(t, l, ledger.Authorize(c, "tr_1", verdict("authorized")))
}

func TestD1_TheReplyToTheClaimOfAnOpenOperationIsLost(t *testing.T) {
	db, l, p := warm(t)
	w := newWish()
	w.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	w.NotBefore = time.Time{}
	lost := p.lose("INSERT INTO attempts", nil)
	c := mustClaim(t, l, w)
	wantLost(t, lost)
	db.wantCount(1, "operations under our token and fence", `SELECT count(*) FROM operations WHERE (key, claim_token, fence, unobserved) = ($1, $2, 1, 1)`, w.Key, c.Token)
	db.wantCount(1, "attempts", `SELECT count(*) FROM attempts WHERE operation_id = $1`, c.OperationID)
}

// TestD1_PausedBeforeTheClaimIsAskedForAgain: what was claimed may not start any more, so the caller is not told that it may.
func TestD1_PausedBeforeTheClaimIsAskedForAgain(t *testing.T) {
	db, l, p := warm(t)
	w := newWish()
	lost := p.lose("INSERT INTO attempts", func() {
		if err := db.Pause(context.Background(), ledger.ScopeAll, "", "stop", "ann"); err != nil {
			t.Error(err)
		}
	})
	wantAnswer(t, l, w, ledger.Busy)
	wantLost(t, lost)
	if e := explain(t, db.Ledger, w); e.State != ledger.StateClaimed || !e.InDoubt || len(e.Attempts) != 1 {
		t.Errorf("explained %+v", e)
	}
}

func TestD1_TheReplyToARecordIsLost(t *testing.T) {
	for _, record := range []func(ledger.Claim) ledger.Record{
		func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1", verdict("authorized")) },
		func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed", verdict("rejected")) },
		func(c ledger.Claim) ledger.Record { return ledger.Park(c, "mismatch", true, verdict("mismatch")) },
		func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, true, time.Hour, verdict("unknown")) },
	} {
		db, l, p := warm(t)
		w := newWish()
		r := record(mustClaim(t, l, w))
		t.Run(string(r.Next), func(t *testing.T) {
			lost := p.lose("INSERT INTO entries", nil)
			mustRecord(t, l, r)
			wantLost(t, lost)
			db.wantCount(1, "observations", `SELECT count(*) FROM observations WHERE operation_id = $1`, r.Claim.OperationID)
			db.wantCount(0, "late observations", `SELECT count(*) FROM observations WHERE kind = 'late'`)
			db.wantCount(0, "contradictions", `SELECT count(*) FROM operations WHERE contradicted_at IS NOT NULL`)
			wantEvents := int64(1)
			if r.Next == ledger.StateOpen {
				wantEvents = 0
			}
			db.wantCount(wantEvents, "events", `SELECT count(*) FROM outbox WHERE operation_id = $1`, r.Claim.OperationID)
			wantState(t, db.Ledger, w, r.Next)
		})
	}
}

func TestD1_TheReplyToARecordIsLostAndTheSweepComesBetween(t *testing.T) {
	db, l, p := warm(t)
	r := ledger.Schedule(mustClaim(t, l, newWish()), true, 0, verdict("unknown"))
	var work ledger.Work
	lost := p.lose("INSERT INTO entries", func() { work = sweepOne(t, db.Ledger) })
	if result := recordOne(t, l, r); result.Answer != ledger.Fenced || result.State != ledger.StateClaimed {
		t.Errorf("record: %+v, want fenced: it cannot be told apart from another's", result)
	}
	wantLost(t, lost)
	db.wantCount(1, "observations, as recorded", `SELECT count(*) FROM observations WHERE operation_id = $1 AND kind = 'verdict'`, r.Claim.OperationID)
	db.wantCount(1, "observations", `SELECT count(*) FROM observations WHERE operation_id = $1`, r.Claim.OperationID)
	mustRecord(t, db.Ledger, ledger.Authorize(work.Claim, "tr_1", verdict("authorized")))
}

func TestD1_TheReplyToCommitAttemptsIsLost(t *testing.T) {
	db, l, p := warm(t)
	w := newWish()
	mustRecord(t, l, ledger.Schedule(mustClaim(t, l, w), false, 0, verdict("not_executed")))
	work := sweepOne(t, l)
	lost := p.lose("WITH resend", nil)
	wantAttempt(t, l, intend(work, w.Intention), ledger.AttemptCommitted)
	wantLost(t, lost)
	db.wantCount(1, "attempts under the claim", `SELECT count(*) FROM attempts WHERE (operation_id, fence, claim_token) = ($1, 2, $2)`, work.Claim.OperationID, work.Claim.Token)
	db.wantCount(2, "attempts", `SELECT count(*) FROM attempts WHERE operation_id = $1`, work.Claim.OperationID)
}

func TestD1_TheReplyToAnAppendIsLost(t *testing.T) {
	db, l, p := warm(t)
	w := newWish()
	mustRecord(t, l, ledger.Park(mustClaim(t, l, w), "patience_over", true))
	lost := p.lose(commitMessage, nil)
	r := l.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]
	wantLost(t, lost)
	if r.Err != nil || r.State != ledger.StateAuthorized {
		t.Errorf("append: %+v", r)
	}
	db.wantCount(1, "observations", `SELECT count(*) FROM observations JOIN operations o ON o.id = operation_id WHERE key = $1`, w.Key)
	decided(t, db, w, 2)
	if e := explain(t, db.Ledger, w); !e.ContradictedAt.IsZero() {
		t.Error("its own evidence contradicted it")
	}
}

func TestD2_ACancelledQueryLeavesNothingBehind(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	super := connect(t, db.urls.Superuser)
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	old := c
	old.Fence++ // a stale one goes through the transaction of keepEvidence
	for name, call := range map[string]func(context.Context, *ledger.Ledger) error{
		"record": func(ctx context.Context, l *ledger.Ledger) error {
			return l.Record(ctx, []ledger.Record{ledger.Reject(c, "x")})[0].Err
		},
		"append": func(ctx context.Context, l *ledger.Ledger) error {
			return l.Append(ctx, []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{verdict("unknown")}}})[0].Err
		},
		"claim": func(ctx context.Context, l *ledger.Ledger) error { return l.Claim(ctx, []ledger.Wish{w})[0].Err },
		"renew": func(ctx context.Context, l *ledger.Ledger) error {
			_, err := l.Renew(ctx, []ledger.Claim{c})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := db.another(ledger.Options{MaxConns: 2, LockTimeout: time.Hour, StatementTimeout: time.Hour}) // nothing ends by itself
			tx, err := db.conn.Begin(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(context.Background(), `SELECT FROM operations FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(ctx, l) }()
			stack.Eventually(t, "waiting for the lock", func() bool {
				return countAs(t, super, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'paidonce_worker' AND wait_event_type = 'Lock'`) == 1
			})
			cancel()
			if err := <-done; err == nil {
				t.Error("no error after the context was cancelled")
			}
			stack.Eventually(t, "an end of the abandoned query", func() bool {
				return countAs(t, super, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'paidonce_worker' AND state <> 'idle'`) == 0
			})
			stack.Eventually(t, "an empty pool", func() bool { return l.Pool().Stat().AcquiredConns() == 0 })
			if err := tx.Rollback(context.Background()); err != nil {
				t.Fatal(err)
			}
			for range 4 { // more than the pool holds
				if _, err := l.Explain(context.Background(), w.Key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wantState(t, db.Ledger, w, ledger.StateClaimed)
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1"))
}

func countAs(t *testing.T, conn *pgx.Conn, sql string) int64 {
	t.Helper()
	var n int64
	if err := conn.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestD2_AFrozenClientHoldsNoLocks: whatever a client does after it began, Postgres ends its transaction.
func TestD2_AFrozenClientHoldsNoLocks(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for setting, want := range map[string]string{"idle_in_transaction_session_timeout": "5s", "lock_timeout": "5s", "statement_timeout": "30s"} {
		var got string
		if err := db.Pool().QueryRow(context.Background(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s of the worker's role: %q, err %v; want %s", setting, got, err, want)
		}
	}
	w := newWish()
	w.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	w.NotBefore = time.Time{}

	// What the role is set to, sooner, for connections to this database from now on.
	person := connect(t, db.urls.Superuser)
	if _, err := person.Exec(context.Background(), `DO $$ BEGIN
		EXECUTE format('ALTER ROLE paidonce_worker IN DATABASE %I SET idle_in_transaction_session_timeout = ''300ms''', current_database()); END $$`); err != nil {
		t.Fatal(err)
	}
	frozen := connect(t, db.urls.Worker)
	if _, err := frozen.Exec(context.Background(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	if n := countAs(t, frozen, `SELECT count(*) FROM (SELECT FROM operations WHERE key = '`+w.Key.String()+`' FOR UPDATE) AS locked`); n != 1 {
		t.Fatalf("%d rows are locked, want 1", n)
	}
	// It says nothing more. The claim waits for the row, and is tried again as a worker would if that is over first.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a := db.Claim(ctx, []ledger.Wish{w})[0]
	for a.Err != nil && ctx.Err() == nil {
		a = db.Claim(ctx, []ledger.Wish{w})[0]
	}
	if a.Err != nil || a.Answer != ledger.Claimed {
		t.Errorf("claim %+v beside a client that is frozen", a)
	}
	var ended *pgconn.PgError
	if _, err := frozen.Exec(context.Background(), `COMMIT`); !errors.As(err, &ended) || ended.Code != "25P03" {
		t.Errorf("the frozen one commits: %v, want that its session was ended", err)
	}
}

// TestD4_AConnectionInATransactionIsNotUsedAgain: it never returns to the pool, and what it has locked is free.
func TestD4_AConnectionInATransactionIsNotUsedAgain(t *testing.T) {
	db := newDatabase(t, ledger.Options{MaxConns: 1})
	c := mustClaim(t, db.Ledger, newWish())
	conn, err := db.Pool().Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(context.Background(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	left := countAs(t, conn.Conn(), `SELECT pg_backend_pid() FROM (SELECT FROM operations FOR UPDATE) AS locked`)
	conn.Release()
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
	var used int64
	if err := db.Pool().QueryRow(context.Background(), `SELECT pg_backend_pid()`).Scan(&used); err != nil || used == left {
		t.Errorf("connection %d is in use after it was given back in a transaction, err %v", used, err)
	}
}

func TestD7_APoolOfOneServesTwentyWorkers(t *testing.T) {
	db := newDatabase(t, ledger.Options{MaxConns: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var workers sync.WaitGroup
	for i := range 20 {
		workers.Go(func() {
			for n := range 5 {
				w := newWish()
				a := db.Claim(ctx, []ledger.Wish{w})[0]
				if a.Err != nil || a.Answer != ledger.Claimed {
					t.Errorf("worker %d: claim %+v", i, a)
					return
				}
				if _, err := db.Renew(ctx, []ledger.Claim{a.Claim}); err != nil {
					t.Errorf("worker %d: %v", i, err)
				}
				r := db.Record(ctx, []ledger.Record{ledger.Authorize(a.Claim, fmt.Sprintf("tr_%d_%d", i, n), verdict("authorized"))})[0]
				if r.Err != nil || r.Answer != ledger.Recorded {
					t.Errorf("worker %d: record %+v", i, r)
				}
				if r := db.Append(ctx, []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{verdict("in_flight")}}})[0]; r.Err != nil {
					t.Errorf("worker %d: %v", i, r.Err)
				}
				if _, err := db.Explain(ctx, w.Key); err != nil {
					t.Errorf("worker %d: %v", i, err)
				}
			}
		})
	}
	workers.Wait()
	db.wantCount(100, "authorized", `SELECT count(*) FROM operations WHERE state = 'authorized'`)
}

// TestC11_NothingReliesOnTheSession runs whole lives on connections that forget everything after every use, as behind a pooler.
func TestC11_NothingReliesOnTheSession(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	var releases, leftovers atomic.Int64
	l, err := ledger.OpenAltered(context.Background(), db.urls.Worker, ledger.Options{MaxConns: 2, Unprepared: true}, func(cfg *pgxpool.Config) {
		cfg.AfterRelease = func(conn *pgx.Conn) bool {
			releases.Add(1)
			var n int64
			err := conn.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM pg_prepared_statements)
				+ (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) + (SELECT count(*) FROM pg_settings WHERE source = 'session')
				+ (SELECT count(*) FROM pg_listening_channels()) + (SELECT count(*) FROM pg_cursors WHERE name <> '')`,
				pgx.QueryExecModeSimpleProtocol).Scan(&n)
			if err != nil {
				t.Error(err)
			}
			leftovers.Add(n)
			if _, err := conn.Exec(context.Background(), `DISCARD ALL`, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Error(err)
			}
			return true
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	ctx := context.Background()
	var lives sync.WaitGroup
	for range 4 {
		lives.Go(func() {
			for range 10 {
				w := newWish()
				a := l.Claim(ctx, []ledger.Wish{w})[0]
				if a.Answer != ledger.Claimed {
					t.Errorf("claim: %+v", a)
					continue
				}
				if r := l.Record(ctx, []ledger.Record{ledger.Schedule(a.Claim, true, time.Hour, verdict("unknown"))})[0]; r.Answer != ledger.Recorded {
					t.Errorf("record: %+v", r)
				}
				if r := l.Append(ctx, []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]; r.Answer != ledger.LateAuthorized {
					t.Errorf("append: %+v", r)
				}
				if e, err := l.Explain(ctx, w.Key); err != nil || e.State != ledger.StateAuthorized {
					t.Errorf("explain: %+v, err %v", e.Summary, err)
				}
			}
		})
	}
	lives.Wait()
	use := func(name string, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	events, err := l.Unpublished(ctx, 10)
	use("unpublished", err)
	use("mark published", l.MarkPublished(ctx, []int64{events[0].Ref}))
	use("pause", l.Pause(ctx, ledger.ScopeAll, "", "why", "ann"))
	use("resume", db.person().Resume(ctx, ledger.ScopeAll, "", "why", "ann"))
	_, err = l.Gauges(ctx)
	use("gauges", err)
	_, _, err = l.List(ctx, ledger.Filter{})
	use("list", err)
	use("check", l.Check(ctx))
	stack.Eventually(t, "the last release", func() bool { return l.Pool().Stat().AcquiredConns() == 0 })
	if releases.Load() < 160 || leftovers.Load() != 0 {
		t.Errorf("%d releases, %d things left on a session; want at least 160, none", releases.Load(), leftovers.Load())
	}
}

// TestPrepared_OnlyWhereTheConnectionIsDirect: plans are kept on a direct connection, and never where that was ruled out.
func TestPrepared_OnlyWhereTheConnectionIsDirect(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, c := range map[string]struct {
		options ledger.Options
		kept    bool
	}{"direct": {ledger.Options{}, true}, "behind a pooler": {ledger.Options{Unprepared: true}, false}} {
		l, err := ledger.Open(context.Background(), db.urls.Worker, c.options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		mustClaim(t, l, newWish())
		var prepared int
		err = l.Pool().QueryRow(context.Background(), `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO operations%'`,
			pgx.QueryExecModeSimpleProtocol).Scan(&prepared)
		if err != nil || (prepared > 0) != c.kept {
			t.Errorf("%s: %d prepared claims, err %v", name, prepared, err)
		}
	}
}

// TestBounds_AReadThatIsHeldUpEnds: whoever only looks is not held up for ever, and says so before its caller gives up.
func TestBounds_AReadThatIsHeldUpEnds(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	l := db.as(db.urls.Owner, ledger.Options{MaxConns: 1, LockTimeout: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	defer func() { cancel() }()
	parked := newWish()
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, parked), "unclear", false, verdict("not_executed")))
	retry := ledger.Resolution{Key: parked.Key, Fence: explain(t, db.Ledger, parked).Fence, To: ledger.StateOpen, Token: parked.Key, Said: "verdict not_executed"}
	looks := map[string]func() error{
		"a resolution":     func() error { return l.CheckResolution(ctx, retry) },
		"what was said":    func() error { _, err := l.Said(ctx, parked.Key); return err },
		"pauses":           func() error { _, err := l.Pauses(ctx); return err },
		"closures":         func() error { _, err := l.Closures(ctx); return err },
		"unpublished jobs": func() error { _, _, err := l.CountUnpublishedJobs(ctx); return err },
		"waiting":          func() error { _, err := l.Waiting(ctx); return err },
		"gauges":           func() error { _, err := l.Gauges(ctx); return err },
	}
	for name, look := range looks {
		if err := look(); err != nil { // from here on nothing is left to be prepared
			t.Errorf("%s: %v", name, err)
		}
	}
	db.exec(`BEGIN; LOCK TABLE pauses, closures, unpublished_jobs, due, operations IN ACCESS EXCLUSIVE MODE`)
	for name, look := range looks {
		ctx, cancel = context.WithTimeout(context.Background(), 4*time.Second) // the role's own limit is longer
		var pg *pgconn.PgError
		err := look()
		cancel()
		if !errors.As(err, &pg) || pg.Code != "55P03" {
			t.Errorf("%s: %v; want the lock's limit", name, err)
		}
	}
}
