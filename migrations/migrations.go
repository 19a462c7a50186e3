// Package migrations brings the ledger's schema up to date and says which schema this program knows.
//
// Migrations are forward only, small and embedded. Old programs run on a newer schema unless it says otherwise (schema_reach), and new programs
// on the last one alone, so that two versions can work side by side while programs are replaced: the schema goes first. Up holds a lock row in a
// table, never a session lock, so it is safe behind a transaction-mode pooler.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Current is the schema version that this program was written for. Oldest is the oldest one it can work on.
const (
	Current int64 = 17
	Oldest  int64 = 17
)

// Step is one migration and when it was applied.
type Step struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Up applies what is missing, then the rights of grants.sql, then remembers the server if none is remembered yet. progress (may be nil)
// is called once for each step applied. It is safe to run by several processes at once.
func Up(ctx context.Context, url string, progress func(Step, time.Duration)) error {
	db, err := open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("apply migrations: %w", err)
	}
	for _, r := range results {
		if progress != nil {
			progress(Step{Version: r.Source.Version, Name: r.Source.Path, Applied: true}, r.Duration)
		}
	}
	return grantAndRemember(ctx, db)
}

// grantAndRemember runs under a lock that ends with its transaction: two processes that grant at once fail each other.
func grantAndRemember(ctx context.Context, db *sql.DB) (err error) {
	grants, err := files.ReadFile("grants.sql")
	if err != nil {
		panic("grants.sql is embedded: " + err.Error())
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("apply grants: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // err says why; after a failed commit there is nothing to roll back
		}
	}()
	if _, err := tx.ExecContext(ctx, `LOCK TABLE goose_db_version IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return fmt.Errorf("lock the migrations: %w", err)
	}
	if _, err := tx.ExecContext(ctx, string(grants)); err != nil {
		return fmt.Errorf("apply grants: %w", err)
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO ledger_identity AS i (system_identifier, timeline, database_oid, operations_oid)
		SELECT system_identifier::text, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int,
		       (SELECT oid FROM pg_database WHERE datname = current_database()), 'public.operations'::regclass
		  FROM pg_control_system()
		ON CONFLICT (one) DO UPDATE SET database_oid = excluded.database_oid, operations_oid = excluded.operations_oid
		 WHERE i.database_oid IS NULL -- remembered before migration 15`)
	if err != nil {
		return fmt.Errorf("remember the server: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("apply grants: %w", err)
	}
	return nil
}

// Status lists every migration this program knows and whether it was applied. It changes nothing.
func Status(ctx context.Context, url string) ([]Step, error) {
	db, err := open(url)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	applied, err := appliedVersions(ctx, db)
	if err != nil {
		return nil, err
	}
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, s := range provider.ListSources() {
		at, ok := applied[s.Version]
		steps = append(steps, Step{Version: s.Version, Name: s.Path, Applied: ok, AppliedAt: at})
	}
	return steps, nil
}

func appliedVersions(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&exists); err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	applied := map[int64]time.Time{}
	if !exists {
		return applied, nil
	}
	rows, err := db.QueryContext(ctx, `SELECT version_id, max(tstamp) FROM goose_db_version WHERE is_applied AND version_id > 0 GROUP BY version_id`)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var at time.Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, fmt.Errorf("read migration status: %w", err)
		}
		applied[version] = at
	}
	return applied, rows.Err()
}

// open uses the simple protocol: nothing is prepared, so a pooler in transaction mode may stand between.
func open(url string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("parse database url: not a valid Postgres URL (expected postgres://user@host:5432/database)")
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return stdlib.OpenDB(*cfg), nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresTableLocker()
	if err != nil {
		return nil, fmt.Errorf("make migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithLocker(locker), goose.WithExcludeNames([]string{"grants.sql"}), goose.WithVerbose(false), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	return p, nil
}
