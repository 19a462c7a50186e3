package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/worker/job"
)

// orphanAge is how old parts without a run must be before somebody else removes them: no check of a file takes so long.
const orphanAge = "1 day"

// staging writes the rows of a file as parts, beside the check that reads them. The parts belong to no run until register says so.
type staging struct {
	s      *Service
	run    uuid.UUID // that it may become
	rows   []file.Row
	first  int // row of the next part, from 1
	parts  int
	counts map[string]int // rows by currency
	own    *ownSums
	todo   chan stagedRows
	group  *errgroup.Group
	ctx    context.Context //nolint:containedctx // of the group, whose end must end add
}

type stagedRows struct {
	part, first int
	rows        []file.Row
}

// stage begins, and gathers in own what is written. Whoever called it calls close or discard.
func (s *Service) stage(ctx context.Context, own *ownSums) *staging {
	group, ctx := errgroup.WithContext(ctx)
	st := &staging{s: s, run: job.NewKey(), first: 1, counts: map[string]int{}, own: own, todo: make(chan stagedRows, 1), group: group, ctx: ctx}
	for range s.opt.Workers {
		group.Go(st.write)
	}
	return st
}

// add takes one row. Its N is not kept: the rows of a run are numbered among those that it has.
func (st *staging) add(row *file.Row) error {
	if st.rows == nil {
		st.rows = make([]file.Row, 0, st.s.opt.PartRows)
	}
	st.counts[row.Job.Amount.Currency]++
	if st.rows = append(st.rows, *row); len(st.rows) < st.s.opt.PartRows {
		return nil
	}
	return st.flush()
}

func (st *staging) flush() error {
	if len(st.rows) == 0 {
		return nil
	}
	for i := range st.rows { // here, where the order of the rows is: keys rise with it
		st.rows[i].Job.Key = job.NewKey()
	}
	select {
	case st.todo <- stagedRows{part: st.parts, first: st.first, rows: st.rows}:
	case <-st.ctx.Done():
		return context.Cause(st.ctx)
	}
	st.first += len(st.rows)
	st.parts++
	st.rows = nil
	return nil
}

// close writes what is left and waits for all of it.
func (st *staging) close() error {
	err := st.flush()
	close(st.todo)
	return errors.Join(st.group.Wait(), err)
}

// discard removes what was written. It is for a caller whose context may have ended.
func (st *staging) discard(ctx context.Context) error {
	err := st.s.exec(context.WithoutCancel(ctx), `WITH sums AS (DELETE FROM batch_sums WHERE run_id = $1) DELETE FROM batch_parts WHERE run_id = $1`, st.run)
	if err != nil && !belongToARun(err) {
		return fmt.Errorf("remove the parts of a run that does not come: %w", err)
	}
	return nil
}

// belongToARun: the parts are on record with a run, although whoever staged them was not told so. They stay, and the same submission goes on.
func belongToARun(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "PO022"
}

func (st *staging) write() error {
	p, err := newPacker()
	if err != nil {
		return err
	}
	for todo := range st.todo {
		items, err := itemsOf(todo)
		if err != nil {
			return err
		}
		sums := sumsOf(todo.rows)
		err = st.s.exec(st.ctx, `WITH sums AS (INSERT INTO batch_sums (run_id, part, sums) SELECT $1, $2, $6::bytea WHERE octet_length($6::bytea) > 0)
			INSERT INTO batch_parts (run_id, part, first_n, rows, body) VALUES ($1, $2, $3, $4, $5)`, st.run, todo.part, todo.first, len(items), p.pack(items), packSums(sums))
		if err != nil {
			return fmt.Errorf("write part %d: %w", todo.part, err)
		}
		st.own.add(sums)
		st.s.at(st.ctx, pointStaged)
	}
	return nil
}

func itemsOf(todo stagedRows) ([]item, error) {
	items := make([]item, len(todo.rows))
	for i := range todo.rows {
		row := &todo.rows[i]
		j := &row.Job
		payload, err := job.Encode(*j)
		if err != nil {
			return nil, fmt.Errorf("encode the job of line %d: %w", row.Line, err)
		}
		items[i] = item{n: todo.first + i, line: row.Line, key: j.Key, print: j.Fingerprint(), route: j.Route, debtor: j.DebtorAccount.Reveal(), amount: j.Amount,
			notBefore: j.NotBefore, notAfter: j.NotAfter, rowRef: row.RowRef, payload: payload}
	}
	return items, nil
}

// removeOrphans removes parts that a program which died has left.
func (s *Service) removeOrphans(ctx context.Context) error {
	err := s.exec(ctx, `WITH p AS (DELETE FROM batch_parts p WHERE p.at < now() - interval '`+orphanAge+`'
		AND NOT EXISTS (SELECT FROM batch_runs r WHERE r.id = p.run_id) RETURNING p.run_id, p.part)
		DELETE FROM batch_sums s USING p WHERE s.run_id = p.run_id AND s.part = p.part`)
	if err != nil && !belongToARun(err) { // one that took a day to come on record; the rest is removed next time
		return fmt.Errorf("remove parts that belong to nobody: %w", err)
	}
	return nil
}
