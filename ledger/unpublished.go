package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// errNotOnRecord cannot happen on a database that keeps what it committed: a key was in the way, and then was not there.
var errNotOnRecord = errors.New("the order is neither new nor on record: repeat it")

// ErrNoIntake: the schema is older than the intake of orders.
var ErrNoIntake = errors.New("the database takes no orders yet: run `paidonce migrate up`")

// UnpublishedJob is a job that was recorded by Accept and has not been confirmed by the broker.
type UnpublishedJob struct {
	Ref         int64 // for JobsPublished
	Key         uuid.UUID
	Source      string
	Route       string
	Payload     []byte
	TraceParent string
}

// unpublishedJobs gives a holder its own jobs, and those that others have left behind for too long. Two holders may have one job in hand
// when a take-over is mistaken: both publish the same bytes under the same message id. Of every other holder only the first are looked at: a
// batch may have a million jobs here, which are no concern of a gateway.
//
// Every look-up is pinned. A holder is written as a range, ordered by holder: so only the index over holder and operation serves, while for one
// value Postgres would read the whole table in the order of operations. LIMIT 1 and arrays keep it from merging with tables as a whole.
const unpublishedJobs = `
WITH RECURSIVE holders AS (
  (SELECT holder FROM unpublished_jobs ORDER BY holder LIMIT 1)
  UNION ALL
  SELECT (SELECT u.holder FROM unpublished_jobs u WHERE u.holder > h.holder ORDER BY u.holder LIMIT 1) FROM holders h WHERE h.holder IS NOT NULL
), old AS MATERIALIZED (
  SELECT f.operation_id
    FROM holders h CROSS JOIN LATERAL (SELECT u.operation_id, u.at FROM unpublished_jobs u WHERE u.holder >= h.holder AND u.holder <= h.holder
                                        ORDER BY u.holder, u.operation_id LIMIT $2) f
   WHERE h.holder <> $1 AND f.at < now() - $3::int8 * interval '1 ms'
   ORDER BY f.operation_id LIMIT $2
), left_behind AS MATERIALIZED (
  SELECT operation_id FROM unpublished_jobs
   WHERE operation_id = ANY (ARRAY(SELECT operation_id FROM old)) AND holder <> $1 AND at < now() - $3::int8 * interval '1 ms'
   ORDER BY operation_id FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE unpublished_jobs SET holder = $1, at = now() WHERE operation_id = ANY (ARRAY(SELECT operation_id FROM left_behind)) RETURNING operation_id
), ours AS (
  SELECT operation_id FROM unpublished_jobs WHERE holder >= $1 AND holder <= $1 ORDER BY holder, operation_id LIMIT $2
), both_kinds AS (
  SELECT operation_id FROM ours UNION ALL SELECT operation_id FROM taken
)` + jobsOf + ` FROM (SELECT operation_id FROM both_kinds ORDER BY operation_id LIMIT $2) u` + jobTables

// unpublishedJobsOf is for one that holds many: it goes on behind what it had last time, so that what was just removed is not passed again.
const unpublishedJobsOf = jobsOf + `
  FROM (SELECT operation_id FROM unpublished_jobs WHERE holder >= $1 AND holder <= $1 AND operation_id > $2 ORDER BY holder, operation_id LIMIT $3) u` + jobTables

const (
	jobsOf = `
SELECT u.operation_id, o.key, o.source, o.route, coalesce(p.traceparent, ''), p.body`
	jobTables = `
 CROSS JOIN LATERAL (SELECT o.key, o.source, o.route FROM operations o WHERE o.id = u.operation_id LIMIT 1) AS o
 CROSS JOIN LATERAL (SELECT p.traceparent, p.body FROM payloads p WHERE p.operation_id = u.operation_id LIMIT 1) AS p
 ORDER BY u.operation_id`
)

// UnpublishedJobsOf returns up to limit jobs of a holder with a Ref above after, in the order of Ref. None is left when it returns none for 0.
func (l *Ledger) UnpublishedJobsOf(ctx context.Context, holder uuid.UUID, after int64, limit int) ([]UnpublishedJob, error) {
	return l.readUnpublished(ctx, unpublishedJobsOf, holder, after, limit)
}

// UnpublishedJobs returns up to limit jobs that this ledger's process has to publish: those it accepted, oldest first, and those that another
// process accepted and has not published for longer than patience.
func (l *Ledger) UnpublishedJobs(ctx context.Context, limit int, patience time.Duration) ([]UnpublishedJob, error) {
	return l.readUnpublished(ctx, unpublishedJobs, l.holder, limit, patience.Milliseconds())
}

func (l *Ledger) readUnpublished(ctx context.Context, statement string, args ...any) ([]UnpublishedJob, error) {
	var jobs []UnpublishedJob
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(statement, args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var j UnpublishedJob
				if err := rows.Scan(&j.Ref, &j.Key, &j.Source, &j.Route, &j.TraceParent, &j.Payload); err != nil {
					return err
				}
				jobs = append(jobs, j)
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read unpublished jobs: %w", err)
	}
	return jobs, nil
}

// JobsPublished removes what the broker has confirmed.
func (l *Ledger) JobsPublished(ctx context.Context, refs []int64) error {
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(soon)
		b.Queue(`DELETE FROM unpublished_jobs WHERE operation_id = ANY($1)`, refs)
	})
	if err != nil {
		return fmt.Errorf("mark %d jobs published: %w", len(refs), err)
	}
	return nil
}

// CountUnpublishedJobs says how many jobs wait for the broker, of all processes, and for how long the oldest has.
func (l *Ledger) CountUnpublishedJobs(ctx context.Context) (n int64, oldest time.Duration, err error) {
	var ms int64
	err = l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT count(*), coalesce((extract(epoch FROM now() - min(at)) * 1000)::int8, 0) FROM unpublished_jobs`).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n, &ms) })
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count unpublished jobs: %w", err)
	}
	return n, time.Duration(ms) * time.Millisecond, nil
}

// CheckIntake is Check for a process that accepts orders.
func (l *Ledger) CheckIntake(ctx context.Context) error {
	if err := l.Check(ctx); err != nil {
		return err
	}
	ctx, cancel := l.bound(ctx)
	defer cancel()
	var ready bool
	if err := l.pool.QueryRow(ctx, `SELECT to_regclass('unpublished_jobs') IS NOT NULL`).Scan(&ready); err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	if !ready {
		return fmt.Errorf("%w: %w", ErrSchema, ErrNoIntake)
	}
	return nil
}
