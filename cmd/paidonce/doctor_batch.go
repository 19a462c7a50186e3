package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/ledger"
)

// runGrace is how long a released run may stand still: nothing but its command enqueues it.
const runGrace = 10 * time.Minute

// runs looks for payout runs that are released and not enqueued to their end, while nobody is at it.
func (d *doctor) runs(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, `
SELECT r.run_key, s.since
  FROM batch_runs r
 CROSS JOIN LATERAL (SELECT greatest(r.changed_at, (SELECT o.created_at FROM batch_rows b JOIN operations o ON o.id = b.operation_id
                                                     WHERE b.run_id = r.id ORDER BY b.n DESC LIMIT 1)) AS since) s
 WHERE r.state = 'released' AND EXISTS (SELECT FROM batch_parts p WHERE p.run_id = r.id) AND s.since < now() - $1::int8 * interval '1 ms'
 ORDER BY s.since LIMIT 20`,
		runGrace.Milliseconds())
	if err != nil {
		return // as below
	}
	var found bool
	var key string
	var since time.Time
	if _, err := pgx.ForEachRow(rows, []any{&key, &since}, func() error {
		found = true
		d.judge(false, resultWarn, findingRow{
			Area: "ledger", Check: "run " + key, Wanted: "enqueued, paused or cancelled", Found: "released, and still since " + cli.Time(since),
			Advice: fmt.Sprintf("nobody enqueues it: `paidonce batch resume %s --reason ...` goes on where it was, and pays no row twice", key),
		})
		return nil
	}); err != nil {
		return // an older schema, or a role without the right
	}
	if !found {
		d.judge(true, resultWarn, findingRow{Area: "ledger", Check: "runs that nobody enqueues", Wanted: "none", Found: "none"})
	}
}

// heldRows looks for rows that a run holds which is paused no longer: whoever resumed or cancelled it died half-way, or was a program that knows of no
// held rows. No machine lets them go.
func (d *doctor) heldRows(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, `
WITH held AS MATERIALIZED (
  SELECT o.id FROM due d JOIN operations o ON o.id = d.operation_id WHERE NOT d.parked AND o.state = 'open' AND o.held AND o.code = $1
)
SELECT r.run_key, r.state, r.changed_at, count(*)
  FROM held h JOIN batch_rows b ON b.operation_id = h.id JOIN batch_runs r ON r.id = b.run_id
 WHERE r.state <> 'paused' AND r.changed_at < now() - $2::int8 * interval '1 ms'
 GROUP BY 1, 2, 3 ORDER BY 3 LIMIT 20`, ledger.HeldByRun, runGrace.Milliseconds())
	if err != nil {
		return // as below
	}
	var found bool
	var key string
	var state batch.State
	var since time.Time
	var held int
	if _, err := pgx.ForEachRow(rows, []any{&key, &state, &since, &held}, func() error {
		found = true
		advice := fmt.Sprintf("nobody lets them go: `paidonce batch resume %s --reason ...` does, at the rate of the partner", key)
		if state == batch.Cancelled {
			advice = fmt.Sprintf("nobody ends them: `paidonce batch cancel %s --reason ...` goes on where it was", key)
		}
		d.judge(false, resultWarn, findingRow{
			Area: "ledger", Check: "held rows of run " + key, Wanted: "none, or a run that is paused", Found: fmt.Sprintf("%d, %s since %s", held, state, cli.Time(since)), Advice: advice,
		})
		return nil
	}); err != nil {
		return // an older schema, or a role without the right
	}
	if !found {
		d.judge(true, resultWarn, findingRow{Area: "ledger", Check: "held rows that nobody lets go", Wanted: "none", Found: "none"})
	}
}
