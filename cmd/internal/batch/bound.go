package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// bound ends the wait for a reply, a little after the server would end the statement: a network that swallows bytes tells nobody.
func (s *Service) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opt.Patience+s.opt.Patience/8)
}

// inTx runs a transaction of few and short statements. It may wait for a lock less long than for a statement: others queue behind it.
func (s *Service) inTx(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
			set_config('idle_in_transaction_session_timeout', '5000', true)`, millis(min(s.opt.Patience/2, 5*time.Second)), millis(s.opt.Patience))
		if err != nil {
			return fmt.Errorf("set the limits of a transaction: %w", err)
		}
		return do(ctx, tx)
	})
}

// tries is how often a transaction begins that waits for the locks of others, who may hold them for long.
const tries = 4

// inTxAgain is inTx for what tells the same when it is done once more. What lost against another transaction begins again.
func (s *Service) inTxAgain(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := s.inTx(ctx, do)
		var pg *pgconn.PgError
		if try == tries || !errors.As(err, &pg) || !slices.Contains([]string{"55P03", "40001", "40P01"}, pg.Code) {
			return err
		}
		s.at(ctx, pointLost)
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// exec runs one statement in a transaction of its own.
func (s *Service) exec(ctx context.Context, sql string, args ...any) error {
	return s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// read collects the rows of a query. Nothing is done with them before all are there: whoever takes them may be slow.
func read[T any](ctx context.Context, s *Service, db querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// readOne reads the one row of a query, or pgx.ErrNoRows.
func readOne[T any](ctx context.Context, s *Service, scan pgx.RowToFunc[T], sql string, args ...any) (one T, err error) {
	found, err := read(ctx, s, s.db, scan, sql, args...)
	if err == nil && len(found) == 0 {
		err = pgx.ErrNoRows
	}
	if err == nil {
		one = found[0]
	}
	return one, err
}
