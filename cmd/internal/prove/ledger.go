package prove

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const pageSize = 5000

// operation is a row of operations with what hangs on it.
type operation struct {
	id         int64
	key        id
	amount     int64
	currency   string
	source     string
	route      string
	state      string
	settlement string
	partner    string
	transferID string
	epoch      int16
	createdAt  time.Time
	outcomeAt  time.Time

	contradicted bool
	due          []dueRow
	attempts     []attempt
	journal      map[string]*journalEvent
	outbox       map[string]bool
}

type dueRow struct {
	parked  bool
	partner string
}

type attempt struct{ partner, partnerKey, endToEnd string }

// journalEvent is what the journal says of one event of an operation.
type journalEvent struct {
	credits, debits uint64
	lines           int
	otherCurrency   bool
}

func (o *operation) keyText() string { return uuid.UUID(o.key).String() }

func (o *operation) finished() bool {
	return o.state == "authorized" || o.state == "rejected" || o.state == "cancelled"
}

// readLedger reads the whole ledger in one snapshot, judges what the ledger alone shows, and spills the rest.
func (r *run) readLedger(ctx context.Context) (err error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("open a snapshot of the ledger: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has written nothing
	var last int64
	var standby bool
	err = tx.QueryRow(ctx, `SELECT now(), coalesce((SELECT max(id) FROM operations), 0), pg_is_in_recovery()`).Scan(&r.cut, &last, &standby)
	if err != nil {
		return fmt.Errorf("open a snapshot of the ledger: %w", err)
	}
	r.cutSeen, r.book.CheckedAt = time.Now(), r.cut
	if standby {
		r.note("the ledger was read from a standby: transfers of operations that it did not have yet look like orphans")
	}
	if err := r.makeSpills(last); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DECLARE pending NO SCROLL CURSOR FOR SELECT operation_id, type::text FROM outbox ORDER BY operation_id, id`); err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	p := &pages{run: r, tx: tx}
	if err := tx.QueryRow(ctx, `SELECT to_regclass('unpublished_jobs') IS NOT NULL`).Scan(&p.takesOrders); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	if err := p.all(ctx); err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if err := r.readStrays(ctx, tx); err != nil {
		return fmt.Errorf("read the strays: %w", err)
	}
	if err := r.readCorrections(ctx, tx); err != nil {
		return fmt.Errorf("read the corrections: %w", err)
	}
	return nil
}

// readCorrections spills the new keys of corrections that are no operations: their jobs are in the queue, or dead letters again, or were never
// published, and then the correction owns the withdrawal.
func (r *run) readCorrections(ctx context.Context, tx pgx.Tx) error {
	var there, may bool
	err := tx.QueryRow(ctx, `SELECT c IS NOT NULL, coalesce(has_column_privilege(c, 'new_key', 'SELECT') AND has_column_privilege(c, 'route', 'SELECT')
		  AND has_column_privilege(to_regclass('dead_letter_acts'), 'act', 'SELECT'), false)
		FROM to_regclass('corrections') c`).Scan(&there, &may)
	if err != nil || !there {
		return err
	}
	if !may {
		r.note("corrections of dead letters were not read, this role may not: connect as paidonce_app, paidonce_reader or paidonce_operator, after `paidonce migrate up`")
		return nil
	}
	rows, err := tx.Query(ctx, `
		SELECT c.new_key, c.route, EXISTS (SELECT FROM dead_letter_acts a WHERE a.stream_at = c.stream_at AND a.sequence = c.sequence AND a.act = 'published')
		  FROM corrections c WHERE c.at >= $1 AND NOT EXISTS (SELECT FROM operations o WHERE o.key = c.new_key)`, r.Since)
	if err != nil {
		return err
	}
	var key pgtype.UUID
	var route string
	var published bool
	_, err = pgx.ForEachRow(rows, []any{&key, &route, &published}, func() error {
		if !r.wantsRoute(route) {
			return nil
		}
		return r.byKey.add(key.Bytes, fields{recordCorrection}.boolean(published))
	})
	return err
}

// pages reads operations page by page, each with its rows of the other tables.
type pages struct {
	*run
	tx   pgx.Tx
	read int64

	takesOrders bool // the schema has the jobs that are not published yet

	outbox     []outboxRow // fetched and not yet handed out
	outboxDone bool
}

type outboxRow struct {
	operation int64
	kind      string
}

func (p *pages) all(ctx context.Context) error {
	for after := int64(math.MinInt64); ; {
		page, err := p.operations(ctx, after)
		if err != nil {
			return err
		}
		upTo := int64(math.MaxInt64)
		if len(page) == pageSize {
			upTo = page[len(page)-1].id
		}
		if err := p.children(ctx, page, after, upTo); err != nil {
			return err
		}
		for i := range page {
			if err := p.spillOperation(&page[i]); err != nil {
				return err
			}
		}
		p.read += int64(len(page))
		p.Progress("operations", p.read)
		if len(page) < pageSize {
			return nil
		}
		after = upTo
	}
}

func (p *pages) operations(ctx context.Context, after int64) ([]operation, error) {
	rows, err := p.tx.Query(ctx, `
		SELECT id, key, amount_minor, currency, source, route, state::text, coalesce(settlement::text, ''), coalesce(partner, ''),
		       coalesce(transfer_id, ''), epoch, created_at, outcome_at, contradicted_at IS NOT NULL
		  FROM operations WHERE id > $1 ORDER BY id LIMIT $2`, after, pageSize)
	if err != nil {
		return nil, err
	}
	page := make([]operation, 0, pageSize)
	for rows.Next() {
		var o operation
		var key pgtype.UUID
		var outcomeAt *time.Time
		err := rows.Scan(&o.id, &key, &o.amount, &o.currency, &o.source, &o.route, &o.state, &o.settlement, &o.partner, &o.transferID, &o.epoch,
			&o.createdAt, &outcomeAt, &o.contradicted)
		if err != nil {
			return nil, err
		}
		o.key = key.Bytes
		if outcomeAt != nil {
			o.outcomeAt = *outcomeAt
		}
		page = append(page, o)
	}
	return page, rows.Err()
}

// children reads what hangs on the operations of a page. What hangs on none is lost.
func (p *pages) children(ctx context.Context, page []operation, after, upTo int64) error {
	at := make(map[int64]*operation, len(page))
	for i := range page {
		at[page[i].id] = &page[i]
	}
	gone := map[int64]string{}
	owner := func(of int64, what string) *operation {
		o := at[of]
		if o == nil && gone[of] == "" {
			gone[of] = what
		}
		return o
	}
	if err := p.due(ctx, after, upTo, owner); err != nil {
		return err
	}
	if err := p.attempts(ctx, after, upTo, owner); err != nil {
		return err
	}
	if err := p.entries(ctx, after, upTo, owner); err != nil {
		return err
	}
	if err := p.pending(ctx, upTo, owner); err != nil {
		return err
	}
	if err := p.unpublishedJobs(ctx, after, upTo, owner); err != nil {
		return err
	}
	for _, of := range slices.Sorted(maps.Keys(gone)) {
		p.book.find(Finding{Kind: KindLost, Text: fmt.Sprintf("the ledger has %s of operation %d, and the operation is gone", gone[of], of)})
	}
	return nil
}

// unpublishedJobs counts operations whose jobs the broker does not have yet. Such an operation is judged like any other: its due row says that
// the sweep owns it, whether or not its message ever comes.
func (p *pages) unpublishedJobs(ctx context.Context, after, upTo int64, owner ownerFunc) error {
	if !p.takesOrders {
		return nil
	}
	rows, err := p.tx.Query(ctx, `SELECT operation_id FROM unpublished_jobs WHERE operation_id > $1 AND operation_id <= $2`, after, upTo)
	if err != nil {
		return err
	}
	var of int64
	_, err = pgx.ForEachRow(rows, []any{&of}, func() error {
		if o := owner(of, "an unpublished job"); o != nil && p.wantsPartner(p.partnerOf(o)) {
			p.book.JobsPending++
		}
		return nil
	})
	return err
}

type ownerFunc func(operation int64, what string) *operation

func (p *pages) due(ctx context.Context, after, upTo int64, owner ownerFunc) error {
	rows, err := p.tx.Query(ctx, `SELECT operation_id, parked, partner FROM due WHERE operation_id > $1 AND operation_id <= $2`, after, upTo)
	if err != nil {
		return err
	}
	var of int64
	var d dueRow
	_, err = pgx.ForEachRow(rows, []any{&of, &d.parked, &d.partner}, func() error {
		if o := owner(of, "a due row"); o != nil {
			o.due = append(o.due, d)
		}
		return nil
	})
	return err
}

func (p *pages) attempts(ctx context.Context, after, upTo int64, owner ownerFunc) error {
	rows, err := p.tx.Query(ctx, `
		SELECT operation_id, partner, partner_key, end_to_end_id FROM attempts
		 WHERE operation_id > $1 AND operation_id <= $2 ORDER BY operation_id, fence`, after, upTo)
	if err != nil {
		return err
	}
	var of int64
	var a attempt
	_, err = pgx.ForEachRow(rows, []any{&of, &a.partner, &a.partnerKey, &a.endToEnd}, func() error {
		o := owner(of, "attempts")
		if o != nil && (len(o.attempts) == 0 || o.attempts[len(o.attempts)-1] != a) {
			o.attempts = append(o.attempts, a) // nearly all attempts of an operation are alike (I7)
		}
		return nil
	})
	return err
}

func (p *pages) entries(ctx context.Context, after, upTo int64, owner ownerFunc) error {
	rows, err := p.tx.Query(ctx, `
		SELECT operation_id, event::text, amount_minor, currency FROM entries
		 WHERE operation_id > $1 AND operation_id <= $2`, after, upTo)
	if err != nil {
		return err
	}
	var of, amount int64
	var event, code string
	_, err = pgx.ForEachRow(rows, []any{&of, &event, &amount, &code}, func() error {
		o := owner(of, "entries")
		if o == nil {
			return nil
		}
		if o.journal == nil {
			o.journal = map[string]*journalEvent{}
		}
		e := o.journal[event]
		if e == nil {
			e = &journalEvent{}
			o.journal[event] = e
		}
		e.lines++
		e.otherCurrency = e.otherCurrency || code != o.currency
		if amount > 0 {
			e.credits += uint64(amount)
		} else {
			e.debits += -uint64(amount) //nolint:gosec // the magnitude, also of the smallest number
		}
		return nil
	})
	return err
}

// pending hands out the outbox's rows, whose cursor runs beside the pages in the order of the operations.
func (p *pages) pending(ctx context.Context, upTo int64, owner ownerFunc) error {
	for {
		for i, row := range p.outbox {
			if row.operation > upTo {
				p.outbox = p.outbox[i:]
				return nil
			}
			o := owner(row.operation, "an outbox row")
			if o == nil {
				continue
			}
			if o.outbox == nil {
				o.outbox = map[string]bool{}
			}
			o.outbox[row.kind] = true
			if p.wantsPartner(p.partnerOf(o)) {
				p.book.OutboxPending++
			}
		}
		p.outbox = p.outbox[:0]
		if p.outboxDone {
			return nil
		}
		rows, err := p.tx.Query(ctx, `FETCH 5000 FROM pending`)
		if err != nil {
			return err
		}
		var row outboxRow
		_, err = pgx.ForEachRow(rows, []any{&row.operation, &row.kind}, func() error {
			p.outbox = append(p.outbox, row)
			return nil
		})
		if err != nil {
			return err
		}
		p.outboxDone = len(p.outbox) < 5000
	}
}

// partnerOf is who an operation belongs to, also before its first attempt.
func (r *run) partnerOf(o *operation) string {
	switch {
	case o.partner != "":
		return o.partner
	case len(o.due) > 0:
		return o.due[0].partner
	}
	return r.Routes[o.route]
}

func (r *run) readStrays(ctx context.Context, tx pgx.Tx) error {
	for after := int64(math.MinInt64); ; {
		rows, err := tx.Query(ctx, `SELECT id, key, verdict, coalesce(transfer_id, '') FROM strays WHERE id > $1 ORDER BY id LIMIT $2`, after, pageSize)
		if err != nil {
			return err
		}
		n := 0
		var key pgtype.UUID
		var verdict, transfer string
		_, err = pgx.ForEachRow(rows, []any{&after, &key, &verdict, &transfer}, func() error {
			n++
			if !key.Valid {
				r.book.find(Finding{Kind: KindStray, TransferID: transfer, Text: fmt.Sprintf("stray %d (%s) names no key", after, orNothing(verdict))})
				return nil
			}
			return r.byKey.add(key.Bytes, fields{recordStray}.number(after).text(verdict).text(transfer))
		})
		if err != nil || n < pageSize {
			return err
		}
	}
}

func orNothing(verdict string) string {
	if verdict == "" {
		return "no verdict"
	}
	return verdict
}
