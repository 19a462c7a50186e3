package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// retries bounds how often one batch is run again from the start before its rows are told that it could not be found out.
const retries = 6

// settle runs one batch to an end: from the start again on errors that pass (every batch is safe to repeat under its token), in halves
// where the database refuses it for what a row says, until the bad row stands alone.
func settle[T, R any](ctx context.Context, rows []T, once func(context.Context, []T) ([]R, error), failed func(error) R) []R {
	results, err := onceMore(ctx, rows, once)
	if err == nil {
		return results
	}
	if len(rows) > 1 && blamesRow(err) {
		half := len(rows) / 2
		return append(settle(ctx, rows[:half:half], once, failed), settle(ctx, rows[half:], once, failed)...)
	}
	results = make([]R, len(rows))
	for i := range results {
		results[i] = failed(err)
	}
	return results
}

func onceMore[T, R any](ctx context.Context, rows []T, once func(context.Context, []T) ([]R, error)) (results []R, err error) {
	for try := range retries {
		if results, err = once(ctx, rows); err == nil || !passes(err) || ctx.Err() != nil {
			return results, err
		}
		pause := time.Duration(1<<try) * 4 * time.Millisecond
		pause += rand.N(pause)
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
	return nil, err
}

// blamesRow reports whether the database refused what a row says, so that the others may go without it.
func blamesRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "PO": // cardinality, data, integrity, our own refusals
		return true
	}
	return false
}

// passes reports whether the same batch may succeed if it is run again. An error that is not Postgres' own is a lost connection: then
// the reply may be lost while the commit is not, which the token resolves.
func passes(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "55P03", "40001", "40P01", // lock timeout, serialization failure, deadlock
			"57P01", "57P02", "57P03", "53300", // shutting down, crashed, starting up, too many connections
			"0A000": // a plan that was kept does not fit the schema any more: it is dropped and made again
			return true
		}
		return len(pg.Code) == 5 && pg.Code[:2] == "08"
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrMoved)
}

// silence is how much longer than its statement may take a reply is waited for.
const silence = 5 * time.Second

// bound ends the wait for a reply. The server bounds each statement, but a network that swallows bytes tells nobody: without a bound of our
// own a connection that fell silent would be waited for until the process ends. The reply is lost then, which the token resolves.
func (l *Ledger) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.opt.StatementTimeout+silence)
}

// errCrossed says that what came, if anything, is not the reply to what was asked. A middlebox that repeats bytes inside a connection without TLS
// makes the server answer twice, and the second answer would be taken for that of the next request: another's operation for ours.
var errCrossed = errors.New("no reply to what was asked")

// inOneTrip sends statements as one pipelined implicit transaction: setLimits, then what queue adds; read gets their results in order. A
// connection on which replies are crossed is closed, and nothing of the crossed reply is read.
func (l *Ledger) inOneTrip(ctx context.Context, queue func(*pgx.Batch)) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	l.queueLimits(b)
	queue(b)
	err = conn.SendBatch(ctx, b).Close()
	return hangUpCrossed(ctx, conn.Conn(), err)
}

// queueLimits queues setLimits, whose reply says to which trip it belongs.
func (l *Ledger) queueLimits(b *pgx.Batch) {
	trip := l.trips.Add(1)
	b.Queue(setLimits, l.limits[0], l.limits[1], trip).QueryRow(func(row pgx.Row) error { return ownReply(row, trip) })
}

// limit is queueLimits in a transaction of several trips.
func (l *Ledger) limit(ctx context.Context, tx pgx.Tx) error {
	trip := l.trips.Add(1)
	err := ownReply(tx.QueryRow(ctx, setLimits, l.limits[0], l.limits[1], trip), trip)
	return hangUpCrossed(ctx, tx.Conn(), err)
}

func ownReply(row pgx.Row, trip int64) error {
	var told int64
	err := row.Scan(&told, nil, nil, nil, nil, nil, nil)
	var refused *pgconn.PgError
	switch {
	case err == nil && told == trip:
		return nil
	case err == nil:
		return errCrossed
	case errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("%w: %w", errCrossed, err) // of another shape, or none
}

func hangUpCrossed(ctx context.Context, conn *pgx.Conn, err error) error {
	if errors.Is(err, errCrossed) {
		_ = conn.Close(ctx) // nobody uses it again
	}
	return err
}

// uuids is a column of keys or tokens. pgx knows []uuid.UUID only by reflection and through its text, which costs twenty times as much.
type uuids = pgtype.FlatArray[pgtype.UUID]

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// nullTime is the pointer that pgx sends as NULL for a zero time.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// timeOrZero scans a timestamp that may be NULL.
type timeOrZero struct{ t *time.Time }

// Scan implements sql.Scanner.
func (z timeOrZero) Scan(v any) error {
	t, _ := v.(time.Time)
	*z.t = t
	return nil
}
