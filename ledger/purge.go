package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Purge says which payloads go, and how gently.
type Purge struct {
	OlderThan time.Duration // since the outcome, by the database clock; needed
	Batch     int           // payloads looked at per transaction. Default 1,000
	Limit     int64         // most payloads to delete. Default: all
	Ease      int           // after each batch it rests this many times as long as the batch took, at most a second. Default 3; below 0: no rest
	DryRun    bool          // count, and delete nothing
	// Archive gets the payloads of a batch before they are deleted, and returns when they are as durable as they are going to be. An error
	// ends the purge with that batch not deleted. Default: none
	Archive func([]PurgedPayload) error
	// Progress is told after each batch. Default: nobody
	Progress func(Purged)
}

// PurgedPayload is one payload on its way into an archive, with what it takes to find it again and to check it.
type PurgedPayload struct {
	Key         uuid.UUID
	Source      string
	Route       string
	State       State
	OutcomeAt   time.Time
	Fingerprint Fingerprint
	PublishedAt time.Time // zero = not known
	TraceParent string
	Body        []byte
}

// Purged is what a purge came to so far.
type Purged struct {
	Examined int64
	Deleted  int64 // with DryRun: would be
	Bytes    int64 // of their bodies
	Kept     int64 // older than asked for, but unfinished, contradicted, or not published to the broker yet
}

// errPurgeAge keeps a forgotten option from purging everything.
var errPurgeAge = errors.New("purge payloads: the age is missing")

// examine looks at the next payloads in the order of their internal ids, which is that of their arrival. Those of an unfinished operation are
// still needed to send, those of a contradicted one by the person who looks at it, and those not published yet by the job relay. Old says
// that the operation could be older than asked for at all: where nothing of a batch is, nothing after it is.
const examine = `
SELECT p.operation_id, o.created_at < x.cutoff, octet_length(p.body),
       o.state IN ('authorized', 'rejected', 'cancelled') AND o.outcome_at < x.cutoff AND o.contradicted_at IS NULL
       AND NOT EXISTS (SELECT FROM unpublished_jobs u WHERE u.operation_id = p.operation_id),
       o.key, o.source, o.route, o.state, o.outcome_at, o.fingerprint_version, o.fingerprint, p.published_at, coalesce(p.traceparent, ''),
       CASE WHEN $4 THEN p.body END
  FROM (SELECT now() - $2::int8 * interval '1 ms' AS cutoff) AS x
 CROSS JOIN (SELECT operation_id, published_at, traceparent, body FROM payloads WHERE operation_id > $1::int8 ORDER BY operation_id LIMIT $3) AS p
 CROSS JOIN LATERAL (SELECT o.state, o.outcome_at, o.contradicted_at, o.created_at, o.key, o.source, o.route, o.fingerprint_version, o.fingerprint
                       FROM operations o WHERE o.id = p.operation_id OFFSET 0) AS o -- row by row: a plan for any limit would read all of operations
 ORDER BY p.operation_id`

// deletePayloads decides again, by the row: an operation may have been contradicted while its payload was being archived.
const deletePayloads = `
WITH gone AS (
  DELETE FROM payloads p USING operations o
   WHERE p.operation_id = ANY($1::int8[]) AND o.id = p.operation_id AND o.state IN ('authorized', 'rejected', 'cancelled') AND o.contradicted_at IS NULL
  RETURNING octet_length(p.body) AS bytes
)
SELECT count(*), coalesce(sum(bytes), 0)::int8 FROM gone`

// PurgePayloads deletes the payloads of operations that have had an outcome for longer than asked for, in small transactions with rests between
// them. Keys, fingerprints, outcomes, attempts, evidence and entries stay (I10), so a job that comes again is judged as before. It can be
// stopped at any time and run again. It needs the right to delete payloads, which the workers' role does not have.
func (l *Ledger) PurgePayloads(ctx context.Context, p Purge) (Purged, error) {
	p.Batch, p.Ease = orElse(p.Batch, 1000), orElse(p.Ease, 3)
	var total Purged
	if p.OlderThan <= 0 {
		return total, errPurgeAge
	}
	for after := int64(0); p.Limit == 0 || total.Deleted < p.Limit; {
		began := time.Now()
		batch, err := l.examinePayloads(ctx, p, after, p.Limit-total.Deleted)
		if err == nil {
			err = l.purgeBatch(ctx, p, batch)
		}
		if err != nil {
			return total, fmt.Errorf("purge payloads: %w", err)
		}
		total.add(batch.Purged)
		if p.Progress != nil {
			p.Progress(total)
		}
		if !batch.old || batch.Examined < int64(p.Batch) {
			return total, nil
		}
		after = batch.last
		if err := rest(ctx, min(time.Duration(max(p.Ease, 0))*time.Since(began), time.Second)); err != nil {
			return total, err
		}
	}
	return total, nil
}

func (t *Purged) add(b Purged) {
	t.Examined += b.Examined
	t.Deleted += b.Deleted
	t.Bytes += b.Bytes
	t.Kept += b.Kept
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// purgeStep is one batch of a purge.
type purgeStep struct {
	Purged
	ids      []int64
	payloads []PurgedPayload
	last     int64
	old      bool // something in it could be older than asked for
}

func (l *Ledger) examinePayloads(ctx context.Context, p Purge, after, most int64) (*purgeStep, error) {
	step := &purgeStep{last: after}
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(examine, after, p.OlderThan.Milliseconds(), p.Batch, p.Archive != nil && !p.DryRun).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var old, may bool
				var bytes int64
				var sum []byte
				var one PurgedPayload
				err := rows.Scan(&step.last, &old, &bytes, &may, &one.Key, &one.Source, &one.Route, &one.State, timeOrZero{&one.OutcomeAt},
					&one.Fingerprint.Version, &sum, timeOrZero{&one.PublishedAt}, &one.TraceParent, &one.Body)
				if err != nil {
					return err
				}
				step.Examined++
				step.old = step.old || old
				switch {
				case may && (p.Limit == 0 || step.Deleted < most):
					copy(one.Fingerprint.Sum[:], sum)
					step.ids, step.payloads = append(step.ids, step.last), append(step.payloads, one)
					step.Deleted, step.Bytes = step.Deleted+1, step.Bytes+bytes
				case old && !may:
					step.Kept++
				}
			}
			return rows.Err()
		})
	})
	return step, err
}

func (l *Ledger) purgeBatch(ctx context.Context, p Purge, step *purgeStep) error {
	if p.DryRun || len(step.ids) == 0 {
		return nil
	}
	if p.Archive != nil {
		if err := p.Archive(step.payloads); err != nil {
			return fmt.Errorf("archive %d payloads: %w", len(step.payloads), err)
		}
	}
	_, err := onceMore(ctx, step.ids, func(ctx context.Context, ids []int64) ([]int64, error) {
		return nil, l.inOneTrip(ctx, func(b *pgx.Batch) {
			b.Queue(deletePayloads, ids).QueryRow(func(row pgx.Row) error { return row.Scan(&step.Deleted, &step.Bytes) })
		})
	})
	return err
}
