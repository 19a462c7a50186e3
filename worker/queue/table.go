package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/worker/job"
)

// Tx is what [Table] needs of the caller's transaction. *sql.Tx is one; see [ExecFunc] for others.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExecFunc makes a Tx of a transaction that is not one of database/sql, for example of pgx:
//
//	queue.ExecFunc(func(ctx context.Context, query string, args ...any) error {
//		_, err := tx.Exec(ctx, query, args...)
//		return err
//	})
type ExecFunc func(ctx context.Context, query string, args ...any) error

// ExecContext implements Tx.
func (f ExecFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return nil, f(ctx, query, args...)
}

// Table is a table in the caller's own Postgres where withdrawals wait for the broker, so that "balance debited" and "withdrawal enqueued"
// commit together or not at all. The caller owns it: [Table.Schema] goes into a migration of theirs. A [JobRelay] empties it.
type Table struct {
	name string
}

// NewTable names a table: letters, digits and underscores, perhaps with a schema before a dot.
func NewTable(name string) (Table, error) {
	if !regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$`).MatchString(name) {
		return Table{}, errors.New("table name: want lower-case letters, digits and underscores, perhaps behind a schema and a dot")
	}
	return Table{name: name}, nil
}

// Schema is the statement that creates the table. It may be run again.
func (t Table) Schema() string {
	return `CREATE TABLE IF NOT EXISTS ` + t.name + ` (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    key     uuid NOT NULL UNIQUE,
    source  text NOT NULL,
    route   text NOT NULL,
    payload bytea NOT NULL
)`
}

// Enqueue stores a job in the caller's transaction and gives its key. A job without a key gets one; it is the identity of the withdrawal
// from now on, so store it with your own record in the same transaction. A key that waits in the table already is an error of the
// database's unique index. Nothing is published before the transaction commits; wake the relay then.
func (t Table) Enqueue(ctx context.Context, tx Tx, j job.Job) (uuid.UUID, error) {
	if j.Key == uuid.Nil {
		j.Key = job.NewKey()
	}
	payload, err := job.Encode(j)
	if err != nil {
		return j.Key, fmt.Errorf("encode job %s: %w", j.Key, err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO `+t.name+` (key, source, route, payload) VALUES ($1::uuid, $2, $3, $4)`,
		j.Key.String(), j.Source, j.Route, payload)
	if err != nil {
		return j.Key, fmt.Errorf("store job %s: %w", j.Key, err)
	}
	return j.Key, nil
}

// Store gives the table to a JobRelay. Any driver of database/sql for Postgres will do.
func (t Table) Store(db *sql.DB) JobStore { return tableStore{t, db} }

type tableStore struct {
	table Table
	db    *sql.DB
}

// Stored reads the oldest rows. It walks no cursor: a transaction that commits late is simply found later.
func (s tableStore) Stored(ctx context.Context, most int) ([]StoredJob, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, key::text, source, route, payload FROM `+s.table.name+` ORDER BY id LIMIT $1`, most)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // its error is that of rows.Err
	var jobs []StoredJob
	for rows.Next() {
		var j StoredJob
		var key string
		if err := rows.Scan(&j.Ref, &key, &j.Source, &j.Route, &j.Payload); err != nil {
			return nil, err
		}
		if j.Key, err = job.ParseKey(key); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, rows.Err()
}

// MarkPublished removes rows by the text of their ids, which every driver can carry.
func (s tableStore) MarkPublished(ctx context.Context, refs []int64) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM `+s.table.name+` WHERE id = ANY($1::bigint[])`, int64Array(refs))
	return err
}

// int64Array writes an array as Postgres reads it.
func int64Array(refs []int64) string {
	text := []byte{'{'}
	for i, ref := range refs {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "%d", ref)
	}
	return string(append(text, '}'))
}
