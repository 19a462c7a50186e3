package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// BulkRow says what became of one order of a Bulk. Its Answer is never NotAccepted.
type BulkRow struct {
	Answer AcceptAnswer
	Ref    int64 // for JobsPublished; with Accepted only
	// With AcceptOtherVersion: the fingerprint on record, for whoever can compare under its version.
	Stored Fingerprint
}

// Bulk is many orders that become operations in one transaction, all of them or none.
type Bulk struct {
	Orders []Order
	Holder uuid.UUID // whose jobs to publish they are; Nil = this ledger's
	// Before and After run in the same transaction, around the orders; both may run again from the start. Before says whether to go on: if not,
	// nothing is recorded, and nothing of what it did stays. Nil = nothing.
	Before func(context.Context, pgx.Tx) (bool, error)
	After  func(context.Context, pgx.Tx, []BulkRow) error
}

// AcceptBulk records what Accept records, by COPY: a third of its cost. What needs a closer look (a key that is on record, or may have been on a
// server that was lost) goes through Accept's own statement, in the same transaction, so that both judge alike. False: Before said so.
func (l *Ledger) AcceptBulk(ctx context.Context, bulk Bulk) (rows []BulkRow, done bool, err error) {
	if bulk.Holder == uuid.Nil {
		bulk.Holder = l.holder
	}
	_, err = onceMore(ctx, []struct{}{{}}, func(ctx context.Context, _ []struct{}) ([]struct{}, error) {
		rows, done, err = l.acceptBulkOnce(ctx, bulk)
		return nil, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("accept %d orders at once: %w", len(bulk.Orders), err)
	}
	return rows, done, nil
}

var (
	errNotWanted = errors.New("not wanted")                            // rolls back what Before began
	errNotLetIn  = errors.New("the ledger does not live where it did") // checkAtHome says more
)

func (l *Ledger) acceptBulkOnce(ctx context.Context, bulk Bulk) (rows []BulkRow, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*(l.opt.StatementTimeout+silence))
	defer cancel()
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		if err := l.limit(ctx, tx); err != nil {
			return err
		}
		if bulk.Before != nil {
			if wanted, err := bulk.Before(ctx, tx); err != nil {
				return err
			} else if !wanted {
				return errNotWanted
			}
		}
		if rows, err = acceptIn(ctx, tx, bulk); err == nil && bulk.After != nil {
			err = bulk.After(ctx, tx, rows)
		}
		return err
	})
	switch {
	case err == errNotWanted: //nolint:errorlint // joined with another error it is that error
		return nil, false, nil
	case errors.Is(err, errNotLetIn):
		return nil, false, errors.Join(l.checkAtHome(ctx), err)
	}
	return rows, err == nil, err
}

func acceptIn(ctx context.Context, tx pgx.Tx, bulk Bulk) ([]BulkRow, error) {
	plain, at, err := bulkGuard(ctx, tx, bulk.Orders)
	if err != nil {
		return nil, err
	}
	if plain {
		rows, err := copyBulk(ctx, tx, bulk, at)
		if !isKeyOnRecord(err) {
			return rows, err
		}
	}
	return acceptSlowly(ctx, tx, bulk)
}

// bulkGuard says whether all orders are plainly new to what Accept asks before it inserts, and what time it is. It lets nothing in where the
// ledger is not at home.
func bulkGuard(ctx context.Context, tx pgx.Tx, orders []Order) (plain bool, at time.Time, err error) {
	keys, sources, recorded := make(uuids, len(orders)), make([]string, len(orders)), make([]*time.Time, len(orders))
	for i := range orders {
		keys[i], sources[i], recorded[i] = pgUUID(orders[i].Key), orders[i].Source, nullTime(orders[i].RecordedAt)
	}
	err = tx.QueryRow(ctx, `
		SELECT now(), NOT EXISTS (SELECT FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS w(key, source, recorded_at)
		                               WHERE `+KeyMayBeLost+`
		                                  OR coalesce(w.recorded_at < g.doubt_before, false) OR EXISTS (SELECT FROM strays s WHERE s.key = w.key))
		  FROM ledger_identity g WHERE `+AtHome, keys, sources, recorded).Scan(&at, &plain)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNotLetIn
	}
	return plain, at, err
}

func isKeyOnRecord(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == "operations_key"
}

// copyBulk writes every table by COPY under a savepoint, so that a key that is on record leaves the transaction usable.
func copyBulk(ctx context.Context, tx pgx.Tx, bulk Bulk, at time.Time) ([]BulkRow, error) {
	ids, err := reserveIDs(ctx, tx, len(bulk.Orders))
	if err != nil {
		return nil, err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := copyTables(ctx, inner.Conn().PgConn(), bulk, ids, at); err != nil {
		return nil, errors.Join(err, inner.Rollback(ctx))
	}
	rows := make([]BulkRow, len(ids))
	for i, id := range ids {
		rows[i] = BulkRow{Answer: Accepted, Ref: id}
	}
	return rows, inner.Commit(ctx)
}

func reserveIDs(ctx context.Context, tx pgx.Tx, n int) ([]int64, error) {
	rows, err := tx.Query(ctx, `SELECT nextval('operations_id_seq') FROM generate_series(1, $1)`, n)
	if err != nil {
		return nil, err
	}
	return pgx.AppendRows(make([]int64, 0, n), rows, pgx.RowTo[int64])
}

func copyTables(ctx context.Context, conn *pgconn.PgConn, bulk Bulk, ids []int64, at time.Time) error {
	var w copyWriter
	for _, table := range []struct {
		into string
		row  func(*Order, int64)
	}{
		{`operations (id, key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)`, func(o *Order, id int64) {
			w.row(10)
			w.int8(id)
			w.bytes(o.Key[:])
			w.int8(o.Amount.Minor)
			w.int2(o.Fingerprint.Version)
			w.bytes(o.Fingerprint.Sum[:])
			w.text(o.Amount.Currency)
			w.text(o.Source)
			w.text(o.Route)
			w.text(o.DebtorAccount)
			w.text(string(StateOpen))
		}},
		{`payloads (operation_id, not_before, not_after, traceparent, body)`, func(o *Order, id int64) {
			w.row(5)
			w.int8(id)
			w.time(o.NotBefore)
			w.time(o.NotAfter)
			w.textOrNull(o.TraceParent)
			w.bytes(o.Payload)
		}},
		{`due (operation_id, due_at, partner)`, func(o *Order, id int64) {
			w.row(3)
			w.int8(id)
			w.time(firstLook(o, at))
			w.text(o.Partner)
		}},
		{`outbox (operation_id, fence, type)`, func(_ *Order, id int64) {
			w.row(3)
			w.int8(id)
			w.int4(0)
			w.text("accepted")
		}},
		{`unpublished_jobs (operation_id, holder)`, func(_ *Order, id int64) {
			w.row(2)
			w.int8(id)
			w.bytes(bulk.Holder[:])
		}},
	} {
		w.begin()
		for i := range bulk.Orders {
			table.row(&bulk.Orders[i], ids[i])
		}
		w.end()
		if _, err := conn.CopyFrom(ctx, bytes.NewReader(w.b), "COPY "+table.into+" FROM STDIN (FORMAT binary)"); err != nil {
			return err
		}
	}
	return nil
}

// firstLook is when the sweep looks at an order that its own message did not bring; the twin of what accept computes.
func firstLook(o *Order, now time.Time) time.Time {
	if !o.NotAfter.IsZero() && !o.NotAfter.After(now) {
		return now
	}
	look := now.Add(o.Grace.Truncate(time.Millisecond))
	if o.NotBefore.After(look) {
		return o.NotBefore
	}
	return look
}

// acceptSlowly lets Accept's statement decide, and tells those who were not new what is on record.
func acceptSlowly(ctx context.Context, tx pgx.Tx, bulk Bulk) ([]BulkRow, error) {
	rows := make([]BulkRow, len(bulk.Orders))
	place := make(map[uuid.UUID]int, len(bulk.Orders)) // the same key twice: the second is judged after the first
	c := &orderArrays{}
	for i := range bulk.Orders {
		if _, twice := place[bulk.Orders[i].Key]; !twice {
			place[bulk.Orders[i].Key] = i
			c.add(&bulk.Orders[i])
		}
	}
	accepted, err := tx.Query(ctx, accept, append(c.all(), bulk.Holder)...)
	if err != nil {
		return nil, err
	}
	var key uuid.UUID
	if _, err := pgx.ForEachRow(accepted, []any{&key, nil, nil}, func() error {
		rows[place[key]].Answer = Accepted
		return nil
	}); err != nil {
		return nil, err
	}
	return rows, judgeBulk(ctx, tx, bulk.Orders, rows)
}

// judgeBulk has a snapshot of its own, which holds what the statement before it met.
func judgeBulk(ctx context.Context, tx pgx.Tx, orders []Order, rows []BulkRow) error {
	keys, sums := make(uuids, len(orders)), make([][]byte, len(orders))
	for i := range orders {
		keys[i], sums[i] = pgUUID(orders[i].Key), orders[i].Fingerprint.Sum[:]
	}
	found, err := tx.Query(ctx, `SELECT w.n, o.id, o.fingerprint_version, o.fingerprint
		FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS w(key, fingerprint, n) JOIN operations o ON o.key = w.key`, keys, sums)
	if err != nil {
		return err
	}
	var n int
	var id int64
	var version int16
	var sum []byte
	if _, err := pgx.ForEachRow(found, []any{&n, &id, &version, &sum}, func() error {
		row := &rows[n-1]
		switch {
		case row.Answer == Accepted:
			row.Ref = id
		case version != orders[n-1].Fingerprint.Version:
			row.Answer, row.Ref, row.Stored = AcceptOtherVersion, id, Fingerprint{Version: version, Sum: [32]byte(sum)}
		case !bytes.Equal(sum, orders[n-1].Fingerprint.Sum[:]):
			row.Answer = AcceptConflict
		default:
			row.Answer, row.Ref = AcceptedBefore, id
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range rows {
		if rows[i].Answer == NotAccepted {
			return errNotOnRecord
		}
	}
	return nil
}
