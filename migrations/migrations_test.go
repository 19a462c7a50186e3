package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/migrations"
)

func TestUp_TwiceIsOnce(t *testing.T) {
	urls, owner := empty(t)
	var steps []migrations.Step
	progress := func(s migrations.Step, _ time.Duration) { steps = append(steps, s) }
	for range 2 {
		if err := migrations.Up(context.Background(), urls.Owner, progress); err != nil {
			t.Fatal(err)
		}
	}
	if int64(len(steps)) != migrations.Current || steps[0].Version != 1 || steps[0].Name != "00001_ledger.sql" || !steps[0].Applied {
		t.Errorf("steps %+v, want each migration once", steps)
	}
	wantCount(t, owner, migrations.Current, "applied versions", `SELECT count(*) FROM goose_db_version WHERE version_id > 0`)
	wantCount(t, owner, 1, "identities", `SELECT count(*) FROM ledger_identity`)
	wantCount(t, owner, 0, "session locks", `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	check(t, urls.Worker, nil)
}

func TestUp_ByFourProcessesAtOnce(t *testing.T) {
	urls, owner := empty(t)
	var applied atomic.Int64
	var ups sync.WaitGroup
	for range 4 {
		ups.Go(func() {
			if err := migrations.Up(context.Background(), urls.Owner, func(migrations.Step, time.Duration) { applied.Add(1) }); err != nil {
				t.Error(err)
			}
		})
	}
	ups.Wait()
	if applied.Load() != migrations.Current {
		t.Errorf("%d steps were applied, want %d", applied.Load(), migrations.Current)
	}
	wantCount(t, owner, migrations.Current, "applied versions", `SELECT count(*) FROM goose_db_version WHERE version_id > 0`)
	check(t, urls.Worker, nil)
}

// TestUp_TakesBackWhatEarlierVersionsGranted, also by column, and what is granted today stays.
func TestUp_TakesBackWhatEarlierVersionsGranted(t *testing.T) {
	urls, owner := empty(t)
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	granted := `SELECT count(*) FROM information_schema.role_column_grants WHERE grantee LIKE 'paidonce%' AND table_schema = 'public' AND grantor <> grantee`
	var before, after int
	if err := owner.QueryRow(context.Background(), granted).Scan(&before); err != nil || before < 100 {
		t.Fatalf("%d granted, %v", before, err)
	}
	exec(t, owner, `GRANT UPDATE (state, code) ON operations TO paidonce_operator; GRANT INSERT ON entries TO paidonce_operator; GRANT DELETE ON pauses TO paidonce_app;
		GRANT SELECT ON payloads TO paidonce_reader; GRANT EXECUTE ON FUNCTION owner_speaks(text) TO paidonce_operator`)
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	if err := owner.QueryRow(context.Background(), granted).Scan(&after); err != nil || after != before {
		t.Errorf("%d granted, %v; want the %d of before", after, err, before)
	}
	wantCount(t, owner, 0, "rights of before", `SELECT count(*) FROM (VALUES (has_column_privilege('paidonce_desk', 'operations', 'state', 'UPDATE')),
		(has_any_column_privilege('paidonce_desk', 'entries', 'INSERT')), (has_table_privilege('paidonce_worker', 'pauses', 'DELETE')),
		(has_any_column_privilege('paidonce_reader', 'payloads', 'SELECT')), (has_function_privilege('paidonce_desk', 'owner_speaks(text)', 'EXECUTE'))) AS v(has) WHERE has`)
	check(t, urls.Worker, nil)
}

func TestUp_KeepsTheServerThatIsRemembered(t *testing.T) {
	urls, owner := empty(t)
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, `UPDATE ledger_identity SET timeline = 7`)
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	wantCount(t, owner, 7, "remembered timeline: only recover may accept another", `SELECT timeline FROM ledger_identity`)
	check(t, urls.Worker, ledger.ErrMoved, "`paidonce recover`")
}

func TestStatus_BeforeAndAfter(t *testing.T) {
	urls, owner := empty(t)
	before, err := migrations.Status(context.Background(), urls.Owner)
	if err != nil || int64(len(before)) != migrations.Current || before[0].Applied || !before[0].AppliedAt.IsZero() || before[0].Version != 1 {
		t.Errorf("before: %+v, err %v", before, err)
	}
	wantCount(t, owner, 0, "tables made by asking", `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	after, err := migrations.Status(context.Background(), urls.Worker) // the worker's role may ask
	if err != nil || !after[0].Applied || time.Since(after[0].AppliedAt).Abs() > time.Hour {
		t.Errorf("after: %+v, err %v", after, err)
	}
}

func TestUp_TheWorkersRoleMayNot(t *testing.T) {
	urls, owner := empty(t)
	if err := migrations.Up(context.Background(), urls.Worker, nil); err == nil {
		t.Error("the worker's role migrated")
	}
	wantCount(t, owner, 0, "tables", `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
}

func TestUp_AnErrorDoesNotShowThePassword(t *testing.T) {
	for _, url := range []string{"postgres://ann:hunter2@[::1", "postgres://ann:hunter2@host:port/db"} {
		if err := migrations.Up(context.Background(), url, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v: want one without the password", err)
		}
		if _, err := migrations.Status(context.Background(), url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v: want one without the password", err)
		}
		if _, err := ledger.Open(context.Background(), url, ledger.Options{}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v: want one without the password", err)
		}
	}
}

func TestCheck_OldSchemaIsRefusedWithTheCommand(t *testing.T) {
	urls, owner := empty(t)
	check(t, urls.Worker, ledger.ErrSchema, "`paidonce migrate up`")
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, `DELETE FROM ledger_identity`)
	check(t, urls.Worker, ledger.ErrSchema, "`paidonce migrate up`")
	exec(t, owner, `DELETE FROM goose_db_version WHERE version_id > 0`)
	check(t, urls.Worker, ledger.ErrSchema, "`paidonce migrate up`")
}

func TestCheck_ANewerSchemaSaysWhichProgramsMayRun(t *testing.T) {
	urls, owner := empty(t)
	if err := migrations.Up(context.Background(), urls.Owner, nil); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, true)`, migrations.Current+5))
	check(t, urls.Worker, nil) // old programs run on a newer schema
	exec(t, owner, fmt.Sprintf(`UPDATE schema_reach SET oldest_program = %d`, migrations.Current))
	check(t, urls.Worker, nil)
	exec(t, owner, fmt.Sprintf(`UPDATE schema_reach SET oldest_program = %d`, migrations.Current+1))
	check(t, urls.Worker, ledger.ErrSchema, "newer paidonce")
}

// check asks a ledger whether claims can be made.
func check(t *testing.T, url string, want error, says ...string) {
	t.Helper()
	l, err := ledger.Open(context.Background(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = l.Check(context.Background())
	if !errors.Is(err, want) || (want != nil && !strings.Contains(err.Error(), says[0])) {
		t.Errorf("check: %v, want %v that says %v", err, want, says)
	}
}
