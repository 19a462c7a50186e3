package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// ErrOldSchema: the state of the run has changed, and what is enqueued of it could not be held or let go.
var ErrOldSchema = errors.New("the schema is older than this program, so operations of the run are neither held nor let go: bring it up to date with " +
	"`paidonce migrate up`, and do this again")

// WalkOptions say how a pause or a resume goes through the rows of a run. The zero value works.
type WalkOptions struct {
	Rate     int                  // with a resume: rows a second that come back; 0 = all within half a minute
	DryRun   bool                 // the same, but nothing is changed
	Progress func(walked, of int) // nil = none
}

// freeSpread is over how long rows come back where no rate is said, as after other pauses.
const freeSpread = 30 * time.Second

// Walked says what a pause or a resume came to.
type Walked struct {
	Run   Run
	Moved int // operations that are held now and were not, or the other way round; with a dry run those that would be
	Begun int // with a dry run: operations that are neither, since they were begun, are in doubt or have their outcome
	Left  int // with a dry run: rows that are no operations
}

// walkAct pauses or resumes a run: its enqueueing, and what of it is enqueued and neither under way nor in doubt.
type walkAct struct {
	s        *Service
	run      Run
	name     string
	from, to State
	opt      WalkOptions
	ahead    int // of a resume that goes on with another: rows that come back still
	moved    int
}

// Name implements operate.Act.
func (a *walkAct) Name() string { return a.name }

// Role implements operate.Act.
func (a *walkAct) Role() operate.Role { return operate.RoleOperator }

// Target implements operate.Act.
func (a *walkAct) Target() string { return a.run.RunKey }

// Content implements operate.Act.
func (a *walkAct) Content() ([]byte, error) { return contentOf(&a.run) }

// Weight implements operate.Act.
func (a *walkAct) Weight() operate.Weight { return operate.Weight{} }

// Check implements operate.Checker.
func (a *walkAct) Check(ctx context.Context, _ operate.Operator) error {
	return a.s.refuseState(ctx, a.run.RunKey, a.from, a.to)
}

// Run implements operate.Act. The state changes first: from then on nothing is recorded, or held, any more, and every page of rows asks for it.
func (a *walkAct) Run(ctx context.Context, by operate.Operator) (string, error) {
	outcome, err := a.s.setState(ctx, a.run, by, a.from, a.to)
	if err != nil {
		return "", err
	}
	a.s.at(ctx, pointState)
	for after := 0; ; {
		seen, last, moved, err := a.page(ctx, by, after)
		if err != nil {
			return operate.OutcomePartial, err
		}
		a.moved += moved
		if a.opt.Progress != nil {
			a.opt.Progress(min(last, a.run.Rows), a.run.Rows)
		}
		if seen == 0 {
			break
		}
		a.s.at(ctx, pointWalked)
		after = last
	}
	if a.moved > 0 {
		outcome = operate.OutcomeDone
	}
	return outcome, nil
}

// page holds, or lets go, rows behind n in the order of the rows, with the proof of the operator.
func (a *walkAct) page(ctx context.Context, by operate.Operator, n int) (seen, last, moved int, err error) {
	statement, args := `SELECT seen, coalesce(last, 0), moved FROM hold_run_rows($1, $2, $3)`, []any{a.run.ID, n, a.s.opt.PageRows}
	if a.to == Released {
		from, to := time.Duration(0), freeSpread
		if a.opt.Rate > 0 {
			from = time.Duration(a.ahead+a.moved) * time.Second / time.Duration(a.opt.Rate)
			to = from + time.Duration(a.s.opt.PageRows)*time.Second/time.Duration(a.opt.Rate)
		}
		statement, args = `SELECT seen, coalesce(last, 0), moved FROM free_run_rows($1, $2, $3, $4, $5)`, append(args, from.Milliseconds(), to.Milliseconds())
	}
	err = a.s.inTxAgain(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := by.Present(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, statement, args...).Scan(&seen, &last, &moved)
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42883" {
		err = ErrOldSchema
	}
	if err != nil {
		return 0, 0, 0, fmt.Errorf("%s: go through the rows of %s: %w", a.name, a.run.RunKey, err)
	}
	return seen, last, moved, nil
}

// Pause stops a run that is released: nothing more of it is enqueued, and what is neither under way nor in doubt is held. It can be repeated.
func (s *Service) Pause(ctx context.Context, runKey string, by operate.Operator, reason string, opt WalkOptions) (Walked, error) {
	run, err := s.Run(ctx, runKey)
	if err != nil {
		return Walked{}, err
	}
	return s.walk(ctx, &walkAct{s: s, run: run, name: ActPause, from: Released, to: Paused, opt: opt}, by, reason)
}

func (s *Service) walk(ctx context.Context, act *walkAct, by operate.Operator, reason string) (Walked, error) {
	_, err := s.desk.Do(ctx, operate.Request{By: by, Reason: reason, Act: act, DryRun: act.opt.DryRun})
	if act.opt.DryRun {
		return s.tryWalk(ctx, act, err)
	}
	run, read := s.Run(ctx, act.run.RunKey)
	return Walked{Run: run, Moved: act.moved}, errors.Join(err, read)
}

// tryWalk says what a walk would come to that nothing stands in the way of.
func (s *Service) tryWalk(ctx context.Context, act *walkAct, err error) (Walked, error) {
	if err != nil {
		return Walked{}, err
	}
	e, err := s.effectOn(ctx, act.run)
	out := Walked{Run: act.run, Moved: e.holds, Begun: e.recorded - e.holds - e.frees, Left: act.run.Rows - e.recorded}
	if act.to == Released {
		out.Moved = e.frees
	}
	return out, err
}

// Release goes on with a run that is on record: it releases what a second person has agreed to meanwhile, and ends a pause, also one whose end was
// interrupted.
func (s *Service) Release(ctx context.Context, runKey string, by operate.Operator, reason string, opt WalkOptions) (Submitted, error) {
	run, err := s.Run(ctx, runKey)
	if err != nil {
		return Submitted{}, err
	}
	out := Submitted{Run: run, Found: true}
	walk, ahead := run.State == Paused, 0
	if run.State == Released {
		if walk, err = s.anyHeld(ctx, run); err != nil {
			return out, err
		}
	}
	if walk && run.State == Released {
		if ahead, err = s.comingBack(ctx, run); err != nil {
			return out, err
		}
	}
	if !walk {
		err = s.release(ctx, Submission{By: by, Reason: reason, DryRun: opt.DryRun}, &out)
		if err == nil && opt.DryRun {
			err = s.foresee(ctx, &out)
		}
		return out, err
	}
	walked, err := s.walk(ctx, &walkAct{s: s, run: run, name: ActResume, from: Paused, to: Released, opt: opt, ahead: ahead}, by, reason)
	if walked.Run.ID != uuid.Nil {
		out.Run = walked.Run
	}
	out.Freed, out.Enqueues = walked.Moved, walked.Left
	return out, err
}

// anyHeld says whether rows of a run are held still: those of one that was paused once, and let go not to its end.
func (s *Service) anyHeld(ctx context.Context, run Run) (bool, error) {
	held, err := readOne(ctx, s, pgx.RowTo[bool], `SELECT EXISTS (SELECT FROM audit WHERE act = '`+ActPause+`' AND target = $2) AND EXISTS (
		SELECT FROM batch_rows b JOIN operations o ON o.id = b.operation_id WHERE b.run_id = $1 AND o.state = 'open' AND `+markedHeld+`)`, run.ID, run.RunKey)
	if err != nil {
		return false, fmt.Errorf("look for held rows of %s: %w", run.RunKey, err)
	}
	return held, nil
}

// comingBack counts the rows of a run that were let go and have their time ahead: what follows must not come at the same times. What was tried, or has
// a not_before, keeps its own time.
func (s *Service) comingBack(ctx context.Context, run Run) (int, error) {
	n, err := readOne(ctx, s, pgx.RowTo[int], `SELECT count(*) FROM batch_rows b JOIN operations o ON o.id = b.operation_id JOIN due d ON d.operation_id = o.id
		LEFT JOIN payloads p ON p.operation_id = o.id
		WHERE b.run_id = $1 AND o.state = 'open' AND NOT o.held AND o.fence = 0 AND d.due_at > now() AND (p.not_before IS NULL OR p.not_before < d.due_at)`, run.ID)
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s that come back: %w", run.RunKey, err)
	}
	return n, nil
}

// Routes are those of the rows of a run that are enqueued, and of all its rows where the run names one.
func (s *Service) Routes(ctx context.Context, run Run) ([]string, error) {
	if run.Route != "" {
		return []string{run.Route}, nil
	}
	routes, err := read(ctx, s, s.db, pgx.RowTo[string], `SELECT DISTINCT o.route FROM batch_rows b JOIN operations o ON o.id = b.operation_id
		WHERE b.run_id = $1 ORDER BY 1`, run.ID)
	if err != nil {
		return nil, fmt.Errorf("read the routes of %s: %w", run.RunKey, err)
	}
	return routes, nil
}
