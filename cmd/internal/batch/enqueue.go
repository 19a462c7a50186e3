package batch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// EnqueueOptions say how a run is enqueued. The zero value records as fast as it can, and publishes nothing.
type EnqueueOptions struct {
	Rate      int                    // rows a second; 0 = as fast as it goes
	Rates     map[string]int         // rows a second of each partner beside that; one that is not there has no limit
	Publisher *Publisher             // nil = the jobs are left to a gateway, or to the sweep
	Progress  func(recorded, of int) // called from several goroutines; nil = none
}

// part is one part of a run that is not recorded, or not to its end.
type part struct {
	number, firstN, rows, recorded int
	at                             time.Time // when it was written, by the clock of the database
}

// Enqueue makes operations of the rows of a released run, those that are none yet. It can be repeated, and run by two at once. ErrPaused,
// ErrCancelled: somebody said so meanwhile. ErrRowsMissing: what is left of it was lost.
func (s *Service) Enqueue(ctx context.Context, run Run, opt EnqueueOptions) error {
	e := &enqueuer{s: s, run: run, opt: opt, pace: newPaces(s.opt.Partners, opt)}
	var err error
	if e.unpacker, err = newUnpacker(); err != nil {
		return err
	}
	defer e.unpacker.decoder.Close()
	for {
		parts, err := s.partsOf(ctx, run.ID)
		if err != nil {
			return err
		}
		if len(parts) == 0 {
			return s.refuseUnfinished(ctx, run)
		}
		e.begin(parts)
		if err := e.recordAll(ctx, parts); err != nil {
			return err
		}
	}
}

// refuseUnfinished tells a run that is recorded from one whose parts were taken away.
func (s *Service) refuseUnfinished(ctx context.Context, run Run) error {
	now, err := s.Run(ctx, run.RunKey)
	if err != nil {
		return err
	}
	if err := stopped(&now); err != nil {
		return err
	}
	rows, err := readOne(ctx, s, pgx.RowTo[int], `SELECT count(*) FROM batch_rows WHERE run_id = $1`, run.ID)
	if err != nil {
		return fmt.Errorf("count the rows of %s: %w", run.RunKey, err)
	}
	if rows < now.Rows {
		return fmt.Errorf("%w: %s has %d rows, and %d of them are operations", ErrRowsMissing, run.RunKey, now.Rows, rows)
	}
	return nil
}

// stopped is the error of a run that is not to be enqueued.
func stopped(run *Run) error {
	switch run.State {
	case Paused:
		return fmt.Errorf("%w by %s at %s", ErrPaused, run.ChangedBy, stamp(run.ChangedAt))
	case Cancelled:
		return fmt.Errorf("%w by %s at %s", ErrCancelled, run.ChangedBy, stamp(run.ChangedAt))
	case Released:
		return nil
	}
	return ErrNotReleased
}

func (s *Service) partsOf(ctx context.Context, run uuid.UUID) ([]part, error) {
	parts, err := read(ctx, s, s.db, func(row pgx.CollectableRow) (p part, err error) {
		return p, row.Scan(&p.number, &p.firstN, &p.rows, &p.recorded, &p.at)
	}, `SELECT part, first_n, rows, recorded, at FROM batch_parts WHERE run_id = $1 ORDER BY part`, run)
	if err != nil {
		return nil, fmt.Errorf("list the parts of a run: %w", err)
	}
	return parts, nil
}

// eachPart reads the rows of a run that lie in parts still, part by part. What leaves meanwhile is passed over.
func (s *Service) eachPart(ctx context.Context, run uuid.UUID, do func(p part, items []item) error) error {
	parts, err := s.partsOf(ctx, run)
	if err != nil || len(parts) == 0 {
		return err
	}
	u, err := newUnpacker()
	if err != nil {
		return err
	}
	defer u.decoder.Close()
	for _, p := range parts {
		body, err := readOne(ctx, s, pgx.RowTo[[]byte], bodyOfPart, run, p.number)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read part %d: %w", p.number, err)
		}
		items, err := u.unpack(body, p.rows)
		if err != nil {
			return fmt.Errorf("read part %d: %w", p.number, err)
		}
		if err := do(p, items[p.recorded:]); err != nil {
			return err
		}
	}
	return nil
}

const bodyOfPart = `SELECT body FROM batch_parts WHERE run_id = $1 AND part = $2`

type enqueuer struct {
	s        *Service
	run      Run
	opt      EnqueueOptions
	pace     *paces
	unpacker *unpacker
	recorded atomic.Int64
}

func (e *enqueuer) begin(parts []part) {
	left := 0
	for _, p := range parts {
		left += p.rows - p.recorded
	}
	e.recorded.Store(int64(e.run.Rows - left))
	e.tell()
}

func (e *enqueuer) tell() {
	if e.opt.Progress != nil {
		e.opt.Progress(int(e.recorded.Load()), e.run.Rows)
	}
}

func (e *enqueuer) recordAll(ctx context.Context, parts []part) error {
	group, ctx := errgroup.WithContext(ctx)
	todo := make(chan part)
	group.Go(func() error {
		defer close(todo)
		for _, p := range parts {
			select {
			case todo <- p:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range e.s.opt.Workers {
		group.Go(func() error {
			for p := range todo {
				if err := e.recordPart(ctx, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// recordPart records what is left of one part: at once, or in slices where the rate is low, so that a pause or a cancellation is heard.
func (e *enqueuer) recordPart(ctx context.Context, p part) error {
	body, err := readOne(ctx, e.s, pgx.RowTo[[]byte], bodyOfPart, e.run.ID, p.number)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // somebody else recorded it
	}
	if err != nil {
		return fmt.Errorf("read part %d: %w", p.number, err)
	}
	items, err := e.unpacker.unpack(body, p.rows)
	if err != nil {
		return fmt.Errorf("read part %d: %w", p.number, err)
	}
	for p.recorded < p.rows {
		slice, err := e.pace.wait(ctx, items[p.recorded:])
		if err != nil {
			return err
		}
		done, err := e.recordSlice(ctx, p, slice)
		if err != nil || !done {
			return err
		}
		p.recorded += len(slice)
	}
	return nil
}

// recordSlice makes operations of rows, and moves the part on, in one transaction. False: somebody else has done so.
func (e *enqueuer) recordSlice(ctx context.Context, p part, items []item) (bool, error) {
	orders, err := e.orders(p, items)
	if err != nil {
		return false, err
	}
	e.s.at(ctx, pointBefore)
	var found Run
	rows, done, err := e.s.ledger.AcceptBulk(ctx, ledger.Bulk{
		Orders: orders, Holder: e.run.ID,
		Before: func(ctx context.Context, tx pgx.Tx) (bool, error) {
			found = Run{}
			if err := lockRun(ctx, tx, e.run.ID, true); err != nil {
				return false, err
			}
			err := tx.QueryRow(ctx, `SELECT state, changed_at, changed_by FROM batch_runs WHERE id = $1`, e.run.ID).
				Scan(&found.State, &found.ChangedAt, &found.ChangedBy)
			if err != nil || found.State != Released {
				return false, err
			}
			return movePart(ctx, tx, e.run.ID, p, len(items))
		},
		After: func(ctx context.Context, tx pgx.Tx, rows []ledger.BulkRow) error {
			e.s.at(ctx, pointInside)
			return e.writeRows(ctx, tx, items, rows)
		},
	})
	e.s.at(ctx, pointAfter)
	switch {
	case err != nil:
		return false, err
	case found.State != Released:
		return false, stopped(&found)
	case !done:
		return false, nil
	}
	e.recorded.Add(int64(len(items)))
	e.tell()
	if e.opt.Publisher != nil {
		e.opt.Publisher.add(e.run, items, rows)
	}
	return true, nil
}

// movePart says that rows of a part are operations, once: whoever comes second finds that it has moved. A part that is through goes.
func movePart(ctx context.Context, tx pgx.Tx, run uuid.UUID, p part, rows int) (bool, error) {
	statement := `UPDATE batch_parts SET recorded = recorded + $4 WHERE run_id = $1 AND part = $2 AND recorded = $3`
	args := []any{run, p.number, p.recorded, rows}
	if p.recorded+rows == p.rows {
		statement, args = `DELETE FROM batch_parts WHERE run_id = $1 AND part = $2 AND recorded = $3`, args[:3]
	}
	tag, err := tx.Exec(ctx, statement, args...)
	return tag.RowsAffected() == 1, err
}

func (e *enqueuer) orders(p part, items []item) ([]ledger.Order, error) {
	orders := make([]ledger.Order, len(items))
	for i := range items {
		row := &items[i]
		partner, ok := e.s.opt.Partners[row.route]
		if !ok {
			return nil, fmt.Errorf("%w: %s, which row %d goes by", ErrRoute, row.route, row.n)
		}
		orders[i] = ledger.Order{
			Key: row.key, Fingerprint: row.print, Source: e.run.Source, Route: row.route, Partner: partner, DebtorAccount: row.debtor, Amount: row.amount,
			NotBefore: row.notBefore, NotAfter: row.notAfter, Payload: row.payload, Grace: e.s.opt.Grace,
			RecordedAt: p.at, // the key tells the time of the submitter, whose clock may be fast
		}
	}
	return orders, nil
}

// writeRows says which operation each row became, in the binary form of COPY.
func (e *enqueuer) writeRows(ctx context.Context, tx pgx.Tx, items []item, rows []ledger.BulkRow) error {
	b := append(make([]byte, 0, 96*len(items)), "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for i := range items {
		if err := e.judge(&items[i], rows[i]); err != nil {
			return err
		}
		b = append(binary.BigEndian.AppendUint16(b, 5), 0, 0, 0, 16)
		b = append(b, e.run.ID[:]...)
		for _, n := range []int{items[i].n, items[i].line} {
			b = binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(n)) //nolint:gosec // at most the rows of a run, which the database bounds
		}
		b = binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(rows[i].Ref)) //nolint:gosec // a number of the database
		if ref := items[i].rowRef; ref == "" {
			b = append(b, 0xff, 0xff, 0xff, 0xff) // NULL
		} else {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(ref))), ref...) //nolint:gosec // at most a line
		}
	}
	b = append(b, 0xff, 0xff)
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(b), `COPY batch_rows (run_id, n, line, operation_id, row_ref) FROM STDIN (FORMAT binary)`)
	return err
}

// judge refuses a row whose key is on record for something else. The keys are made here, by chance: only a mistake brings it about.
func (e *enqueuer) judge(row *item, found ledger.BulkRow) error {
	switch found.Answer {
	case ledger.Accepted, ledger.AcceptedBefore:
		return nil
	case ledger.AcceptOtherVersion:
		j, err := job.Decode(e.run.Source, row.route, row.payload)
		if print, known := j.FingerprintAs(found.Stored.Version); err == nil && known && print == found.Stored {
			return nil
		}
	}
	return fmt.Errorf("row %d: %w: %s", row.n, ErrKeyTaken, row.key)
}
