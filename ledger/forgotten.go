package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Published is an event that the broker has, and the ledger that told it, as it names itself.
type Published struct {
	Ledger string
	Key    uuid.UUID
	Type   string
	At     time.Time // by the broker's clock
}

// forgotten are published events of this ledger that it does not know. An event is published after its fact was committed, and a fact is never taken
// back: so the ledger was put back to an earlier moment. What was published before the last recovery is known to be lost. Where the ledger is not at
// home it stands still anyway, until it is recovered.
const forgotten = `
SELECT w.n FROM ledger_identity g
 CROSS JOIN unnest($1::text[], $2::uuid[], $3::text[], $4::timestamptz[]) WITH ORDINALITY AS w(ledger, key, type, at, n)
  LEFT JOIN LATERAL (SELECT o.state FROM operations o WHERE o.key = w.key LIMIT 1) o ON true
 WHERE ` + AtHome + ` AND w.ledger = g.ledger_id::text AND w.at >= g.doubt_before
   AND (o.state IS NULL OR (w.type IN ('authorized', 'rejected', 'cancelled') AND o.state::text <> w.type))
 ORDER BY w.n`

// Forgotten gives those of the events that the ledger has told and does not know any more.
func (l *Ledger) Forgotten(ctx context.Context, events []Published) ([]Published, error) {
	ledgers, keys, types, at := make([]string, len(events)), make([]uuid.UUID, len(events)), make([]string, len(events)), make([]time.Time, len(events))
	for i, e := range events {
		ledgers[i], keys[i], types[i], at[i] = e.Ledger, e.Key, e.Type, e.At
	}
	var found []Published
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(forgotten, ledgers, keys, types, at).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var n int
				if err := rows.Scan(&n); err != nil {
					return err
				}
				found = append(found, events[n-1])
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look for %d published events: %w", len(events), err)
	}
	return found, nil
}
