package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Waiting is what one partner's sweep has to drive.
type Waiting struct {
	Partner    string
	Unfinished int64
	Parked     int64         // of them
	Oldest     time.Duration // age of the oldest that is not parked; zero = none
}

// Waiting counts unfinished operations by the partner whose sweep drives them, in the order of their names. A partner that no worker is
// configured for has no sweep: what waits there waits for ever.
func (l *Ledger) Waiting(ctx context.Context) ([]Waiting, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	rows, err := l.pool.Query(ctx, `SELECT d.partner, count(*), count(*) FILTER (WHERE d.parked),
		coalesce((extract(epoch FROM now() - min(o.created_at) FILTER (WHERE NOT d.parked)) * 1000)::int8, 0)
		FROM due d JOIN operations o ON o.id = d.operation_id GROUP BY d.partner ORDER BY d.partner`)
	if err != nil {
		return nil, fmt.Errorf("count what waits: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Waiting, err error) {
		var ms int64
		err = row.Scan(&w.Partner, &w.Unfinished, &w.Parked, &ms)
		w.Oldest = time.Duration(ms) * time.Millisecond
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("count what waits: %w", err)
	}
	return all, nil
}
