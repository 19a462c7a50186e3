package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// The caller's own database holds balances and the withdrawals that wait for the broker: both change in one transaction.
func ExampleTable() {
	url, stop := broker()
	defer stop()
	db, stopPostgres := postgres()
	defer stopPostgres()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	table, err := queue.NewTable("withdrawal_outbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, migration := range []string{table.Schema(),
		`CREATE TABLE balances (customer text PRIMARY KEY, minor bigint NOT NULL CHECK (minor >= 0))`, `INSERT INTO balances VALUES ('cust-4471', 10000)`,
		`CREATE TABLE withdrawals (key uuid PRIMARY KEY, customer text NOT NULL, minor bigint NOT NULL)`,
	} {
		if _, err := db.ExecContext(ctx, migration); err != nil {
			fmt.Println(err)
			return
		}
	}

	withdraw := func(minor int64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after a commit it does nothing
		key, err := table.Enqueue(ctx, tx, job.Job{
			Source: "wallet", Route: "gbp-fps", DebtorAccount: "cust-4471", Amount: money.Amount{Minor: minor, Currency: "GBP"},
			Beneficiary: job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"},
		})
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO withdrawals VALUES ($1, 'cust-4471', $2)`, key, minor); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE balances SET minor = minor - $1 WHERE customer = 'cust-4471'`, minor); err != nil {
			return err // not enough money: nothing is enqueued either
		}
		return tx.Commit()
	}
	fmt.Println("first accepted:", withdraw(4900) == nil)
	fmt.Println("second accepted:", withdraw(9900) == nil)

	nc, err := queue.Connect(url, queue.ConnectOptions{Role: queue.RolePublisher, Source: "wallet"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	relay, err := queue.NewJobRelay(nc, table.Store(db), queue.JobRelayOptions{Poll: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	relaying, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(relaying) }()
	for waiting := 1; waiting > 0 && ctx.Err() == nil; {
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM withdrawal_outbox`).Scan(&waiting); err != nil {
			fmt.Println(err)
			break
		}
	}
	end()
	fmt.Println("relay ended:", <-ended)
	var balance int64
	if err := db.QueryRowContext(ctx, `SELECT minor FROM balances`).Scan(&balance); err != nil {
		fmt.Println(err)
	}
	fmt.Println("balance:", balance)
	// Output:
	// first accepted: true
	// second accepted: false
	// relay ended: <nil>
	// balance: 5100
}

// postgres starts a private server.
func postgres() (db *sql.DB, stop func()) {
	server, err := stack.StartPostgres(context.Background(), stack.PostgresOptions{})
	if err != nil {
		panic(err)
	}
	if db, err = sql.Open("pgx", server.URL("", "")); err != nil {
		panic(err)
	}
	return db, func() { _ = db.Close(); _ = server.Stop() }
}

func TestTable_WithPgxAndWithoutATransaction(t *testing.T) {
	t.Parallel()
	db, stop := postgres()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	table, err := queue.NewTable("withdrawal_outbox")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := db.ExecContext(ctx, table.Schema()); err != nil {
			t.Fatal(err)
		}
	}
	withdrawal := job.Job{Source: "wallet", Route: "gbp-fps", DebtorAccount: "cust-4471", Amount: money.Amount{Minor: 4900, Currency: "GBP"},
		Beneficiary: job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"}}
	withdrawal.Key = job.NewKey()
	for _, commit := range []bool{false, true} {
		inPgx(t, db, func(tx pgx.Tx) error {
			key, err := table.Enqueue(ctx, queue.ExecFunc(func(ctx context.Context, query string, args ...any) error {
				_, err := tx.Exec(ctx, query, args...)
				return err
			}), withdrawal)
			if err != nil || key != withdrawal.Key {
				t.Errorf("%s, %v", key, err)
			}
			if !commit {
				return errors.New("roll back")
			}
			return nil
		})
		jobs, err := table.Store(db).Stored(ctx, 10)
		if err != nil || (len(jobs) == 1) != commit {
			t.Fatalf("committed %v: %d jobs, %v", commit, len(jobs), err)
		}
	}
	if _, err := table.Enqueue(ctx, db, withdrawal); err == nil {
		t.Error("the same key twice in the table")
	}
	bad := withdrawal
	bad.Key, bad.Amount = job.NewKey(), money.Amount{Minor: -1, Currency: "GBP"}
	if _, err := table.Enqueue(ctx, db, bad); err == nil {
		t.Error("a job that the contract refuses was stored")
	}
	store := table.Store(db)
	jobs, err := store.Stored(ctx, 10)
	if err != nil || len(jobs) != 1 || jobs[0].Key != withdrawal.Key || jobs[0].Source != "wallet" || jobs[0].Route != "gbp-fps" {
		t.Fatalf("%v, %v", jobs, err)
	}
	if back, err := job.Decode("wallet", "gbp-fps", jobs[0].Payload); err != nil || back.Fingerprint() != withdrawal.Fingerprint() {
		t.Errorf("another job: %v", err)
	}
	if err := store.MarkPublished(ctx, []int64{jobs[0].Ref, 99}); err != nil {
		t.Fatal(err)
	}
	if jobs, err = store.Stored(ctx, 10); err != nil || len(jobs) != 0 {
		t.Errorf("%d jobs are left, %v", len(jobs), err)
	}
	for _, name := range []string{"", "a b", "x;DROP TABLE y", "A", "a.b.c", `"a"`} {
		if _, err := queue.NewTable(name); err == nil {
			t.Errorf("%q is no table name", name)
		}
	}
}

// inPgx runs body in a transaction of pgx itself.
func inPgx(t *testing.T, db *sql.DB, body func(pgx.Tx) error) {
	t.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(driver any) error {
		return pgx.BeginFunc(context.Background(), driver.(*stdlib.Conn).Conn(), body)
	})
	if err != nil && err.Error() != "roll back" {
		t.Fatal(err)
	}
}
