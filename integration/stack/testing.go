package stack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// serverVariable tells tests, and the programs they start, where Main's server is. It is an environment variable because
	// tests find what TestMain made only through something global, and this one reaches child processes too.
	serverVariable   = "PAIDONCE_TEST_POSTGRES"
	templateDatabase = "paidonce_template"
	testTimeout      = time.Minute
)

// Main runs a package's tests beside one private Postgres with a migrated template database. It does not return.
func Main(m *testing.M) {
	if RunChild() {
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	flag.Parse()
	if os.Getenv(serverVariable) != "" || isFuzzWorker() {
		return m.Run() // a child of a test that has its server, or one of many fuzz workers
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := StartPostgres(ctx, PostgresOptions{Settings: map[string]string{"shared_buffers": "64MB", "checkpoint_timeout": "1h"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the tests' postgres:", err)
		return 1
	}
	_, err = server.CreateDatabase(ctx, templateDatabase)
	if err = errors.Join(err, os.Setenv(serverVariable, server.URL("", ""))); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the tests' template database:", errors.Join(err, server.Stop()))
		return 1
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the tests' postgres:", err)
		return 1
	}
	return code
}

func isFuzzWorker() bool {
	worker := flag.Lookup("test.fuzzworker")
	return worker != nil && worker.Value.String() == "true"
}

// Database is the URL of a fresh, migrated database, seen as the worker's restricted role; it is dropped at the end of the test.
func Database(t testing.TB) string {
	t.Helper()
	return Databases(t).Worker
}

// Databases makes a fresh, migrated database for this test.
func Databases(t testing.TB) DatabaseURLs {
	t.Helper()
	server := os.Getenv(serverVariable)
	if server == "" {
		t.Fatal("no postgres for tests: the package needs  func TestMain(m *testing.M) { stack.Main(m) }")
	}
	name := "test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	superuse(t, server, "CREATE DATABASE "+name+" TEMPLATE "+templateDatabase+" OWNER "+ownerRole)
	t.Cleanup(func() { superuse(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	// A copy is no home of the ledger, until it is told so.
	superuse(t, into(t, server, name, "postgres"), "UPDATE ledger_identity SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())")
	return DatabaseURLs{Owner: into(t, server, name, ownerRole), Worker: into(t, server, name, workerRole), Desk: into(t, server, name, deskRole),
		Batch: into(t, server, name, batchRole), Superuser: into(t, server, name, "postgres")}
}

func superuse(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to the tests' postgres: %v", err)
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Errorf("leave the tests' postgres: %v", err)
	}
}

func into(t testing.TB, server, database, user string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("parse %s: it is not a URL", serverVariable)
	}
	password, _ := u.User.Password()
	u.User, u.Path = url.UserPassword(user, password), "/"+database
	return u.String()
}
