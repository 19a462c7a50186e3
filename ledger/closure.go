package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Closure is a partner that workers start nothing at for now, because too many calls in a row came to nothing. It needs no person: the
// workers try again by themselves.
type Closure struct {
	Partner string
	Workers int // how many of them say so
	Since   time.Time
}

// ReportClosed says which partners this process has closed its intake for; it holds for a while, so that what a dead worker said is forgotten.
func (l *Ledger) ReportClosed(ctx context.Context, partners []string, holds time.Duration) error {
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`
WITH opened AS (
  DELETE FROM closures WHERE holder = $1 AND NOT partner = ANY($2::text[])
)
INSERT INTO closures (partner, holder, until) SELECT p, $1, now() + $3::int8 * interval '1 ms' FROM unnest($2::text[]) AS p
ON CONFLICT (partner, holder) DO UPDATE
   SET until = excluded.until, since = CASE WHEN closures.until < now() THEN now() ELSE closures.since END`, l.holder, partners, holds.Milliseconds())
	})
	if err != nil {
		return fmt.Errorf("report closed partners: %w", err)
	}
	return nil
}

// Closures lists what workers have closed by themselves.
func (l *Ledger) Closures(ctx context.Context) ([]Closure, error) {
	var list []Closure
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT partner, count(*), min(since) FROM closures WHERE until > now() GROUP BY partner ORDER BY partner`).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Closure])
			return err
		})
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" {
		return nil, nil // the schema of the version before: nobody reports
	}
	if err != nil {
		return nil, fmt.Errorf("list closed partners: %w", err)
	}
	return list, nil
}

// Violates reports that the database has refused a row because it would break an invariant: what no program may do was tried.
func Violates(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "PO004", "PO006", "PO009", // the guards of I4, I6, I9 and I10
		"23514", "23505": // a CHECK, and a key that stands once
		return true
	}
	return false
}
