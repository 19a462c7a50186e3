package dead

import (
	"context"
	"errors"
	"iter"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// Errors of this package, besides those of operate and queue.
var (
	ErrNoPlan  = errors.New("there is no such plan")
	ErrNothing = operate.Refuse("nothing_selected", "no dead letter is selected")
	ErrNeedsDB = errors.New("the stream alone does not tell: Postgres is needed")
)

// Letters is what the desk reads of the stream; *queue.DeadLetters is it.
type Letters interface {
	State(ctx context.Context) (queue.DeadState, error)
	Scan(ctx context.Context, f queue.DeadFilter) iter.Seq2[queue.DeadLetter, error]
	Show(ctx context.Context, sequence uint64) (queue.DeadLetter, error)
	Read(ctx context.Context, sequences []uint64) ([]queue.DeadLetter, error)
}

// Publisher publishes what is replayed or corrected; *queue.Publisher is it.
type Publisher interface {
	PublishMany(ctx context.Context, ms []queue.Message) []queue.Result
	Holds(ctx context.Context, sequence uint64, m queue.Message) (bool, error)
}

// Options bound what the desk does. The zero value works.
type Options struct {
	Policy   *Policy                   // what the settings let through; nil = not known, and then no letter is said to be refused again
	Allowed  func(*job.Job) *job.Fault // the policy of routes and sources, for corrections; default all
	PlanTTL  time.Duration             // how long a plan may be begun; default 24h
	Lease    time.Duration             // how long a replay that died keeps others out; default 15s
	Chunk    int                       // letters that are decided, published and recorded together; default 256
	Progress func(what string, done, of int64)
}

// Policy is what the settings let through, as a worker judges a job.
type Policy struct {
	Routes  map[string]map[string]int64 `json:"routes"`            // the currencies of each, with the most of one operation in minor units
	Sources map[string][]string         `json:"sources,omitempty"` // the routes of each; nil = not known
}

// NoLimit is the most of a route that has none.
const NoLimit = math.MaxInt64

// Desk is safe for concurrent use.
type Desk struct {
	letters Letters
	publish Publisher
	db      operate.DB
	opt     Options
}

// New makes the desk. Without a publisher nothing can be replayed or corrected, without a database only looked at.
func New(letters Letters, publish Publisher, db operate.DB, opt Options) *Desk {
	if opt.PlanTTL <= 0 {
		opt.PlanTTL = 24 * time.Hour
	}
	if opt.Lease <= 0 {
		opt.Lease = 15 * time.Second
	}
	if opt.Chunk <= 0 {
		opt.Chunk = 256
	}
	if opt.Allowed == nil {
		opt.Allowed = func(*job.Job) *job.Fault { return nil }
	}
	if opt.Progress == nil {
		opt.Progress = func(string, int64, int64) {}
	}
	return &Desk{letters: letters, publish: publish, db: db, opt: opt}
}

// HasDB reports whether there is a database to ask.
func (d *Desk) HasDB() bool { return d.db != nil }

// micros is a time as Postgres keeps it.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// setLimits goes first in every transaction. The planner settings pin what young, never analysed tables make it get wrong: it would read and sort
// all of a plan for each page of it. Every statement here finds its rows by a key, in the order of that key.
const setLimits = `SELECT set_config('lock_timeout', '5000', true), set_config('statement_timeout', '60000', true), set_config('jit', 'off', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// collect reads rows under these settings.
func collect[T any](ctx context.Context, d *Desk, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	err = d.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// inTx runs body in one transaction. Nothing in it may wait for anything but Postgres.
func (d *Desk) inTx(ctx context.Context, body func(pgx.Tx) error) (err error) {
	tx, err := d.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx)) // err says why; after a failed commit there is nothing to roll back
		}
	}()
	if _, err := tx.Exec(ctx, setLimits); err != nil {
		return err
	}
	if err := body(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// inTxOf is inTx in the name of an operator.
func (d *Desk) inTxOf(ctx context.Context, by operate.Operator, body func(pgx.Tx) error) error {
	return d.inTx(ctx, func(tx pgx.Tx) error {
		if err := by.Present(ctx, tx); err != nil {
			return err
		}
		return body(tx)
	})
}
