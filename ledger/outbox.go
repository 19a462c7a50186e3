package ledger

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger/money"
)

// Event is one fact to publish, as the outbox row written with it says. Its ID is a function of the fact alone, so that it is the same on
// every publication, also after a failover.
type Event struct {
	Ref         int64 // of the outbox row, for MarkPublished
	ID          string
	Type        string
	Ledger      uuid.UUID // the ledger that tells it
	Key         uuid.UUID // the nil UUID: the row has no operation, which no program of ours writes
	Source      string
	Route       string
	Partner     string
	Amount      money.Amount
	TransferID  string
	Code        string
	OccurredAt  time.Time
	TraceParent string
}

// unpublished takes the oldest events, at most one per operation, so that a failed publication never lets a later event of the same key
// overtake it, and each with what was known when its fact was, so that a late publication and a repeated one say the same. It walks no cursor: a
// row that commits late is simply found later. Nothing is locked while the relay publishes. LIMIT 1 pins the look-up of each operation by its id:
// left to itself, Postgres merges with the whole of operations while that is young, and keeps that plan.
const unpublished = `
WITH ours AS MATERIALIZED (
  SELECT FROM leases WHERE name = 'relay' AND holder = $1 AND until > now() + $2::int8 * interval '0.5 ms'
), lease AS (
  INSERT INTO leases (name, holder, until) SELECT 'relay', $1, now() + $2 * interval '1 ms' WHERE NOT EXISTS (SELECT FROM ours)
  ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until WHERE leases.until < now() OR leases.holder = excluded.holder
  RETURNING true
), oldest AS MATERIALIZED (
  SELECT id, operation_id, fence, type, at, code FROM outbox
   WHERE EXISTS (SELECT FROM ours) OR EXISTS (SELECT FROM lease)
   ORDER BY id LIMIT $3
), first AS (
  SELECT DISTINCT ON (operation_id) id, operation_id, fence, type, at, code FROM oldest ORDER BY operation_id, id
)
SELECT f.id, f.type::text, f.fence, f.at, coalesce(f.code, ''), coalesce(o.key, '00000000-0000-0000-0000-000000000000'), coalesce(o.source, ''), coalesce(o.route, ''),
       CASE f.type WHEN 'accepted' THEN '' ELSE coalesce(o.partner, '') END, coalesce(o.amount_minor, 0), coalesce(o.currency, ''),
       CASE WHEN f.type IN ('accepted', 'parked') THEN '' ELSE coalesce(o.transfer_id, '') END, coalesce(p.traceparent, ''), i.ledger_id
  FROM first f CROSS JOIN ledger_identity i
  LEFT JOIN LATERAL (SELECT o.key, o.source, o.route, o.partner, o.amount_minor, o.currency, o.transfer_id
                       FROM operations o WHERE o.id = f.operation_id LIMIT 1) AS o ON true
  LEFT JOIN LATERAL (SELECT p.traceparent FROM payloads p WHERE p.operation_id = f.operation_id LIMIT 1) AS p ON true
 ORDER BY f.id`

// Unpublished returns up to limit events for the relay, or none while another relay holds the outbox.
func (l *Ledger) Unpublished(ctx context.Context, limit int) ([]Event, error) {
	var events []Event
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(unpublished, l.holder, l.opt.RelayLease.Milliseconds(), limit).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var e Event
				var fence int32
				err := rows.Scan(&e.Ref, &e.Type, &fence, &e.OccurredAt, &e.Code, &e.Key, &e.Source, &e.Route, &e.Partner,
					&e.Amount.Minor, &e.Amount.Currency, &e.TransferID, &e.TraceParent, &e.Ledger)
				if err != nil {
					return err
				}
				e.ID = EventID(e.Key, e.Type, fence)
				events = append(events, e)
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read outbox: %w", err)
	}
	return events, nil
}

// EventID names a fact, in the outbox and as the message id in the stream: each type happens once per key, but an operation can be parked again after it was opened.
func EventID(key uuid.UUID, kind string, fence int32) string {
	id := key.String() + "." + kind
	if kind == string(StateParked) {
		id += "." + strconv.Itoa(int(fence))
	}
	return id
}

// soon lets this one transaction commit without waiting for the disk or a standby. It is for marks of what was published and nothing else: a
// mark lost in a crash has its message published again under the same id, while a flush for each would delay every claim behind it.
const soon = `SELECT set_config('synchronous_commit', 'off', true)`

// MarkPublished removes what the broker has confirmed.
func (l *Ledger) MarkPublished(ctx context.Context, refs []int64) error {
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(soon)
		b.Queue(`DELETE FROM outbox WHERE id = ANY($1)`, refs)
	})
	if err != nil {
		return fmt.Errorf("mark %d events published: %w", len(refs), err)
	}
	return nil
}
