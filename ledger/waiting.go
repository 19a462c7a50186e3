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
// configured for has no sweep: what waits there waits for ever. The oldest is the one with the least id: of operations one row is read for
// each partner.
func (l *Ledger) Waiting(ctx context.Context) ([]Waiting, error) {
	var all []Waiting
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT d.partner, d.unfinished, d.parked,
			       coalesce((SELECT (extract(epoch FROM now() - o.created_at) * 1000)::int8 FROM operations o WHERE o.id = d.oldest), 0)
			  FROM (SELECT partner, count(*) AS unfinished, count(*) FILTER (WHERE parked) AS parked, min(operation_id) FILTER (WHERE NOT parked) AS oldest
			          FROM due GROUP BY partner) AS d ORDER BY d.partner`).Query(func(rows pgx.Rows) (err error) {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Waiting, err error) {
				var ms int64
				err = row.Scan(&w.Partner, &w.Unfinished, &w.Parked, &ms)
				w.Oldest = time.Duration(ms) * time.Millisecond
				return w, err
			})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count what waits: %w", err)
	}
	return all, nil
}
