package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// RecoveryFences is by how much a recovery raises the fence of what is unfinished: so a fence tells what was recorded before and after it. No operation
// is claimed so often.
const RecoveryFences = 1_000_000

// RecoveredFence is the least fence of what was recorded since the last recovery of an operation, whose fence is given; 0 = there was none.
func RecoveredFence(fence int32) int32 { return fence - fence%RecoveryFences }

// Loss is what is known of it besides the ledger itself. All of it may be zero.
type Loss struct {
	NewestJob time.Time   // when the broker has stamped its last job, or would stamp one now
	Since     time.Time   // the earliest moment at which something that is lost can have been sent; zero = the ledger finds out, if it stood still since it was put back
	Cancelled []uuid.UUID // operations that were told cancelled: nothing is sent for those that are not cancelled here
}

// Recovery is what Recover did.
type Recovery struct {
	From       Identity  `json:"from"`
	PutInDoubt int64     `json:"put_in_doubt"` // operations that may have been sent under a lost claim
	Before     time.Time `json:"doubt_before"` // jobs published before this are asked after before they are sent
	LostSince  time.Time `json:"lost_since"`   // the earliest moment at which something that is missing here can have been sent
}

// Recover accepts the place that the ledger was found in after a failover or a restore, as the owner's role. Claims and records that were
// acknowledged before may be missing here, so nothing that could have been sent is taken for fresh: every unfinished operation is put in doubt, and
// so will be every job published before now and a minute, or before the newest job and a minute where the broker's clock runs ahead, and every key
// that says nothing of its age until Settle. Ids jump ahead, so that none is issued twice.
func (l *Ledger) Recover(ctx context.Context, loss Loss, reason, by string) (Recovery, error) {
	id, err := l.Identity(ctx)
	if err != nil {
		return Recovery{}, err
	}
	r := Recovery{From: id}
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		// Everyone who claims reads the identity row; whoever read it before us has committed or will not commit here.
		if _, err := tx.Exec(ctx, `LOCK TABLE operations IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := rememberFastClocks(ctx, tx); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, acceptPlace, id.FoundSystem, id.FoundTimeline, id.FoundDatabase, id.FoundOperations, nullTime(loss.NewestJob), nullTime(loss.Since), id.Moved()).Scan(&r.Before, &r.LostSince)
		if err != nil {
			return err
		}
		if err := dropHolds(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO key_stops (key, code) SELECT key, 'told_cancelled' FROM unnest($1::uuid[]) AS key ON CONFLICT DO NOTHING`, loss.Cancelled); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			UPDATE operations o SET in_doubt = true, first_sent_at = least(o.first_sent_at, o.created_at) - interval '1 ms', fence = o.fence + `+strconv.Itoa(RecoveryFences)+`
			  FROM due d WHERE d.operation_id = o.id AND o.state IN ('open', 'claimed', 'parked')`)
		if err != nil {
			return err
		}
		r.PutInDoubt = tag.RowsAffected()
		if _, err := tx.Exec(ctx, `SELECT setval(pg_get_serial_sequence('operations', 'id'), nextval(pg_get_serial_sequence('operations', 'id')) + 10000000)`); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO recoveries (by, reason, from_system, from_timeline, to_system, to_timeline, put_in_doubt)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, by, reason, id.System, id.Timeline, id.FoundSystem, id.FoundTimeline, r.PutInDoubt)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("recover: %w", err)
	}
	return r, nil
}

// acceptPlace remembers where the ledger is now. What survives is everything up to some moment, so what was lost is younger than the newest record
// that was kept; a transaction's time is that of its beginning, hence the minute. Where the ledger looked at home, programs may have written since, and
// where people did, their records say nothing of it. A loss that nobody has settled is not forgotten for a later one.
const acceptPlace = `
UPDATE ledger_identity SET system_identifier = $1, timeline = $2, database_oid = $3, operations_oid = $4,
       doubt_before = greatest(now(), $5::timestamptz, (SELECT max(n.created_at) FROM (SELECT created_at FROM operations ORDER BY id DESC LIMIT 1000) n)) + interval '1 min',
       lost_since = least(lost_since, now(), coalesce($6::timestamptz, CASE WHEN $7 THEN (SELECT max(n.created_at) FROM (
         SELECT created_at, state, code FROM operations ORDER BY id DESC LIMIT 1000) n WHERE (n.state = 'cancelled' AND n.code IN ('corrected', 'discarded')) IS NOT TRUE) END,
         'epoch') - interval '1 min')
RETURNING doubt_before, lost_since`

// rememberFastClocks learns from the newest operations by how much the keys of a source are ahead of the ledger's clock when they come. One key in a
// hundred is no clock.
func rememberFastClocks(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
INSERT INTO fast_clocks AS f (source, ahead)
SELECT n.source, percentile_disc(0.99) WITHIN GROUP (ORDER BY n.ahead) FROM (
  SELECT w.source, `+madeAt+` - w.created_at AS ahead FROM (SELECT key, source, created_at FROM operations ORDER BY id DESC LIMIT 100000) w) n
 WHERE n.ahead IS NOT NULL GROUP BY n.source HAVING percentile_disc(0.99) WITHIN GROUP (ORDER BY n.ahead) > interval '1 s'
    ON CONFLICT (source) DO UPDATE SET ahead = greatest(f.ahead, excluded.ahead)`)
	return err
}

// Settle ends the doubt about keys that say nothing of their age: whoever calls it knows that no source will repeat what was lost. Recorded and
// delivered jobs stay in doubt as they are. It says since when something may have been lost; zero: nothing was open.
func (l *Ledger) Settle(ctx context.Context) (since time.Time, err error) {
	err = l.pool.QueryRow(ctx, `UPDATE ledger_identity n SET lost_since = NULL FROM ledger_identity o WHERE o.lost_since IS NOT NULL RETURNING o.lost_since`).Scan(&since)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("settle what a recovery left open: %w", err)
	}
	return since, nil
}

// dropHolds lets go what paused batch runs hold: about what is in doubt the partner is asked, whatever is paused, and the sweep takes it for that.
func dropHolds(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
WITH dropped AS (
  UPDATE operations o SET held = false, code = NULL FROM due d
   WHERE d.operation_id = o.id AND NOT d.parked AND o.state = 'open' AND o.held AND o.code = $1
  RETURNING o.id
)
UPDATE due d SET due_at = now() + random() * $2::int8 * interval '1 ms' FROM dropped o WHERE d.operation_id = o.id`, HeldByRun, resumeSpread.Milliseconds())
	return err
}
