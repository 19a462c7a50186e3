package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// Ended says what a cancellation came to.
type Ended struct {
	Run       Run // with a dry run as it is
	Never     int // rows that are never enqueued
	Cancelled int // operations that were neither under way nor in doubt, ended by the cancellation
	Left      int // rows whose operations were begun, or are in doubt, or had their outcome before
}

type cancelAct struct {
	s     *Service
	run   Run
	ended Ended
}

// Name implements operate.Act.
func (a *cancelAct) Name() string { return ActCancel }

// Role implements operate.Act.
func (a *cancelAct) Role() operate.Role { return operate.RoleOperator }

// Target implements operate.Act.
func (a *cancelAct) Target() string { return a.run.RunKey }

// Content implements operate.Act.
func (a *cancelAct) Content() ([]byte, error) { return contentOf(&a.run) }

// Weight implements operate.Act: money that stays needs no second person.
func (a *cancelAct) Weight() operate.Weight { return operate.Weight{} }

// Check implements operate.Checker: what a ledger that is not at home would cancel, nobody knows.
func (a *cancelAct) Check(ctx context.Context, _ operate.Operator) error {
	return a.s.ledger.Check(ctx)
}

// Run implements operate.Act.
func (a *cancelAct) Run(ctx context.Context, by operate.Operator) (string, error) {
	if err := a.s.endRun(ctx, a.run.ID, by); err != nil {
		return "", err
	}
	// Nothing is recorded any more: whoever records looks at the run under its lock. Of a run that may have been enqueued on a server that was lost,
	// the parts stay: nobody else knows the keys under which it may have been paid.
	if err := a.s.exec(ctx, `DELETE FROM batch_parts p USING batch_runs r WHERE p.run_id = $1 AND r.id = $1 AND NOT (`+mayHaveBeenLost+`)`, a.run.ID); err != nil {
		return "", fmt.Errorf("remove the parts: %w", err)
	}
	if err := a.s.stopKeys(ctx, a.run.ID, by); err != nil {
		return operate.OutcomePartial, err
	}
	a.s.at(ctx, pointEnded)
	recorded := 0
	for after := 0; ; {
		page, err := a.s.cancelRows(ctx, a.run.ID, by, after)
		if err != nil {
			return operate.OutcomePartial, err
		}
		if page.seen == 0 {
			break
		}
		a.s.at(ctx, pointWalked)
		a.ended.Cancelled += page.ended
		recorded += page.seen
		after = page.last
	}
	a.ended.Never, a.ended.Left = a.run.Rows-recorded, recorded-a.ended.Cancelled
	if a.ended.Left > 0 {
		return operate.OutcomePartial, nil
	}
	return operate.OutcomeDone, nil
}

// mayHaveBeenLost is true of a run r that was there before a recovery: what was enqueued of it may be missing here.
const mayHaveBeenLost = `r.at < (SELECT doubt_before FROM ledger_identity)`

// stopKeys stops what may have been lost of a cancelled run: the keys in the parts that stayed, whose jobs may come again. Once more, it changes nothing.
func (s *Service) stopKeys(ctx context.Context, run uuid.UUID, by operate.Operator) error {
	return s.eachPart(ctx, run, func(p part, items []item) error {
		keys := make([]uuid.UUID, len(items))
		for n := range items {
			keys[n] = items[n].key
		}
		err := s.inTxAgain(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if err := by.Present(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT stop_run_keys($1, $2)`, run, keys)
			return err
		})
		if err != nil {
			return fmt.Errorf("stop the rows of part %d: %w", p.number, err)
		}
		return nil
	})
}

// endRun cancels a run under its lock. A run of which nothing was enqueued has paid nothing, so its content is free for another. Whether nothing was,
// only a ledger that is at home knows, and only of runs that began there.
func (s *Service) endRun(ctx context.Context, id uuid.UUID, by operate.Operator) error {
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := by.Present(ctx, tx); err != nil {
			return err
		}
		if err := lockRun(ctx, tx, id, false); err != nil {
			return err
		}
		// Asked here, so that a transaction that began on another server is found out.
		if err := s.ledger.Check(ctx); err != nil {
			return err
		}
		// With a snapshot of its own, which holds what was recorded while we waited for the lock.
		_, err := tx.Exec(ctx, `UPDATE batch_runs r SET state = 'cancelled', changed_at = now(), changed_by = $2,
			content_guard = CASE WHEN `+mayHaveBeenLost+` OR EXISTS (SELECT FROM batch_rows WHERE run_id = $1) THEN content_guard END
			WHERE id = $1 AND state <> 'cancelled'`, id, by.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel the run: %w", err)
	}
	return nil
}

// lockRun is taken shared by whoever records rows, and alone by whoever changes the state of a run: nothing is recorded after that. It is not the
// lock of the row, which those who share it may hold among them for ever, while this one has a queue.
func lockRun(ctx context.Context, tx pgx.Tx, id uuid.UUID, shared bool) error {
	statement := `SELECT pg_advisory_xact_lock(hashtextextended('paidonce batch run ' || $1, 0))`
	if shared {
		statement = `SELECT pg_advisory_xact_lock_shared(hashtextextended('paidonce batch run ' || $1, 0))`
	}
	_, err := tx.Exec(ctx, statement, id.String())
	return err
}

// cancelledPage says what became of some rows of a cancelled run.
type cancelledPage struct{ seen, last, ended int }

// cancelRows ends the operations of rows behind n that nobody works on, in the order of the rows, with the proof of whoever cancels. Once more, it
// tells the same.
func (s *Service) cancelRows(ctx context.Context, run uuid.UUID, by operate.Operator, n int) (page cancelledPage, err error) {
	var last *int
	err = s.inTxAgain(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := by.Present(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT seen, last, ended FROM cancel_run_rows($1, $2, $3, $4)`, run, n, s.opt.PageRows, uuid.New()).Scan(&page.seen, &last, &page.ended)
	})
	if err != nil {
		return page, fmt.Errorf("cancel operations of a run: %w", err)
	}
	if last != nil {
		page.last = *last
	}
	return page, nil
}

// Cancel ends a run: what is not enqueued never will be, and what is neither under way nor in doubt ends. It can be repeated. With a dry run it says what
// it would end.
func (s *Service) Cancel(ctx context.Context, runKey string, by operate.Operator, reason string, dryRun bool) (Ended, error) {
	run, err := s.Run(ctx, runKey)
	if err != nil {
		return Ended{}, err
	}
	act := &cancelAct{s: s, run: run}
	_, err = s.desk.Do(ctx, operate.Request{By: by, Reason: reason, Act: act, DryRun: dryRun})
	if dryRun {
		if err != nil {
			return Ended{}, err
		}
		e, err := s.effectOn(ctx, run)
		return Ended{Run: run, Never: run.Rows - e.recorded, Cancelled: e.ends, Left: e.recorded - e.ends}, err
	}
	var read error
	act.ended.Run, read = s.Run(ctx, runKey)
	return act.ended, errors.Join(err, read)
}
