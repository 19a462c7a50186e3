package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/migrations"
)

// Sentinels of this package.
var (
	// ErrNotFound: the ledger has no operation under that key.
	ErrNotFound = errors.New("no operation under this key")
	// ErrMoved: the database is on another server or timeline than the ledger remembers, is another one, or has its tables made anew: committed claims may
	// be missing.
	ErrMoved = errors.New("the database is not where the ledger was (another server, timeline or database, or restored): claims stop until `paidonce recover` has run")
	// ErrNotPaused: there is no such pause.
	ErrNotPaused = errors.New("not paused")
	// ErrSchema: the schema is not one this program knows.
	ErrSchema = errors.New("schema not known")
)

// Options bound what the ledger does. The zero value works.
type Options struct {
	Lease            time.Duration // how long a claim lasts by the database clock. Default 60 s
	MaxConns         int32         // connections in the pool. Default 16
	MaxBatch         int           // rows per statement. Default 256
	LockTimeout      time.Duration // per statement. Default 2 s
	StatementTimeout time.Duration // per statement. Default 10 s
	Unprepared       bool          // never prepare statements, as behind a pooler. Default: prepare where a connection is direct
	RelayLease       time.Duration // how long one relay keeps the outbox to itself, so how long events wait when it dies. Default 4 s
}

func (o Options) withDefaults() Options {
	o.Lease = orElse(o.Lease, 60*time.Second)
	o.MaxConns = orElse(o.MaxConns, 16)
	o.MaxBatch = orElse(o.MaxBatch, 256)
	o.LockTimeout = orElse(o.LockTimeout, 2*time.Second)
	o.StatementTimeout = orElse(o.StatementTimeout, 10*time.Second)
	o.RelayLease = orElse(o.RelayLease, 4*time.Second)
	return o
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Ledger is safe for concurrent use.
type Ledger struct {
	pool    *pgxpool.Pool
	opt     Options
	holder  uuid.UUID // who we are among relays
	limits  [2]any    // parameters of setLimits
	trips   atomic.Int64
	watched watched

	unanswered unanswered
}

// Open connects lazily: it fails on a URL that does not parse, not on a server that is away. Check says whether claims can be made.
func Open(ctx context.Context, url string, opt Options) (*Ledger, error) {
	opt = opt.withDefaults()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of pgx quotes the URL, which may carry a password.
		return nil, errors.New("parse database url: not a valid Postgres URL (expected postgres://user@host:5432/database)")
	}
	return openPool(ctx, cfg, opt)
}

// OpenPool gives connections by the rules of a ledger, for those who keep tables of their own beside it.
func OpenPool(ctx context.Context, url string, opt Options) (*pgxpool.Pool, error) {
	l, err := Open(ctx, url, opt)
	if err != nil {
		return nil, err
	}
	return l.pool, nil
}

func openPool(ctx context.Context, cfg *pgxpool.Config, opt Options) (*Ledger, error) {
	cfg.MaxConns = opt.MaxConns
	// Described once per connection, not prepared under a name: nothing on the server outlives a transaction.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	cfg.ConnConfig.ConnectTimeout = orElse(cfg.ConnConfig.ConnectTimeout, 5*time.Second)
	cfg.BeforeConnect = func(ctx context.Context, one *pgx.ConnConfig) error {
		if !opt.Unprepared {
			if err := prepareWhereDirect(ctx, one); err != nil {
				return err
			}
		}
		boundFarewell(one) // after the connection that is made to ask
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	return &Ledger{pool: pool, opt: opt, holder: uuid.New(), limits: [2]any{millis(opt.LockTimeout), millis(opt.StatementTimeout)}}, nil
}

// prepareWhereDirect lets a new connection keep its plans, which is a third of what a batch costs, if nothing stands between it and its
// backend. A pooler gives every client a process number of its own, so one connection is made to ask: a direct one is told the number of
// the very backend that answers.
func prepareWhereDirect(ctx context.Context, cfg *pgx.ConnConfig) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cfg.ConnectTimeout) // the pool waits for us without a bound
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // it has told what it was made for
	var backend uint32
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&backend); err != nil {
		return fmt.Errorf("ask whether the connection is direct: %w", err)
	}
	if backend == conn.PgConn().PID() {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	}
	return nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Close waits for connections in use and closes all. Those that were given up go within two farewells.
func (l *Ledger) Close() { l.pool.Close() }

// Lease is how long a claim lasts.
func (l *Ledger) Lease() time.Duration { return l.opt.Lease }

// setLimits goes first in every transaction. The planner settings pin what a young, never analysed table makes it get wrong: it would
// read the whole of operations to update 256 rows of it. A plan is made once and for any size of batch, whether it is kept or not, so that
// it is the same everywhere. All of it ends with the transaction. What it gives back first is the number of the trip.
const setLimits = `SELECT $3::int8, set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
	set_config('idle_in_transaction_session_timeout', '5000', true),
	set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`

// Check says whether claims can be made on this database: the schema is one this program knows, and server and timeline are those the
// ledger remembers. The error says which command to run.
func (l *Ledger) Check(ctx context.Context) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	var known bool
	if err := l.pool.QueryRow(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&known); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	var version int64
	if known {
		err := l.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&version)
		if err != nil {
			return fmt.Errorf("read schema version: %w", err)
		}
	}
	if version < migrations.Oldest {
		return fmt.Errorf("%w: the database is at version %d, this program needs %d or newer: run `paidonce migrate up`",
			ErrSchema, version, migrations.Oldest)
	}
	if version > migrations.Current {
		if err := l.checkReach(ctx, version); err != nil {
			return err
		}
	}
	id, err := l.Identity(ctx)
	if err != nil {
		return err
	}
	if id.Moved() {
		return fmt.Errorf("%w (remembered %s, found %s)", ErrMoved, id.Remembered(), id.Found())
	}
	return nil
}

// checkReach asks a schema that is newer than this program whether the program may run on it.
func (l *Ledger) checkReach(ctx context.Context, version int64) error {
	var oldest int64
	if err := l.pool.QueryRow(ctx, `SELECT oldest_program FROM schema_reach`).Scan(&oldest); err != nil {
		return fmt.Errorf("read which programs may run on schema version %d: %w", version, err)
	}
	if oldest > migrations.Current {
		return fmt.Errorf("%w: the database is at version %d, which needs a program written for %d or newer, and this one was for %d: deploy a newer paidonce",
			ErrSchema, version, oldest, migrations.Current)
	}
	return nil
}
