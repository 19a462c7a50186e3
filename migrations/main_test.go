package migrations_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// empty gives a database that nothing was ever migrated into.
func empty(t *testing.T) (stack.DatabaseURLs, *pgx.Conn) {
	t.Helper()
	urls := stack.Databases(t)
	super := connect(t, urls.Superuser)
	exec(t, super, `DROP SCHEMA public CASCADE`)
	exec(t, super, `CREATE SCHEMA public AUTHORIZATION pg_database_owner`)
	exec(t, super, `GRANT USAGE ON SCHEMA public TO PUBLIC`)
	return urls, connect(t, urls.Owner)
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantCount(t *testing.T, conn *pgx.Conn, want int64, what, sql string) {
	t.Helper()
	var got int64
	if err := conn.QueryRow(context.Background(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}
