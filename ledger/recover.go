package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Recovery is what Recover did.
type Recovery struct {
	From       Identity  `json:"from"`
	PutInDoubt int64     `json:"put_in_doubt"` // operations that may have been sent under a lost claim
	Before     time.Time `json:"doubt_before"` // jobs published before this are asked after before they are sent
}

// Recover accepts the server that the ledger was found on after a failover or a restore, as the owner's role. Claims and records that the
// old server had acknowledged may be missing here, so nothing that could have been sent is taken for fresh: every unfinished operation
// is put in doubt, and so will be every job published before now and a minute, since the broker's clock may differ. Ids jump ahead, so that none is issued twice.
func (l *Ledger) Recover(ctx context.Context, reason, by string) (Recovery, error) {
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
		err := tx.QueryRow(ctx, `UPDATE ledger_identity SET system_identifier = $1, timeline = $2, doubt_before = now() + interval '1 min' RETURNING doubt_before`,
			id.FoundSystem, id.FoundTimeline).Scan(&r.Before)
		if err != nil {
			return err
		}
		if err := dropHolds(ctx, tx); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			UPDATE operations o SET in_doubt = true, first_sent_at = least(o.first_sent_at, o.created_at) - interval '1 ms', fence = o.fence + 1000000
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
