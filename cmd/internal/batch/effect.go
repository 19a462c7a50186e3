package batch

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// effect says of the rows of a run what would become of them, under the conditions by which the database takes them.
type effect struct {
	recorded int // rows that are operations
	holds    int // operations that a pause would hold
	frees    int // that a resume would let go
	ends     int // that a cancellation would end, or has ended
}

// effectOn changes nothing, and locks nothing: what it tells is true of the moment.
func (s *Service) effectOn(ctx context.Context, run Run) (effect, error) {
	scan := func(row pgx.CollectableRow) (e effect, err error) {
		return e, row.Scan(&e.recorded, &e.holds, &e.frees, &e.ends)
	}
	e, err := readOne(ctx, s, scan, `
SELECT count(*), count(*) FILTER (WHERE startable AND NOT held), count(*) FILTER (WHERE held), count(*) FILTER (WHERE startable OR ended)
  FROM (SELECT o.source = $2 AND o.state = 'open' AND NOT o.in_doubt AS startable, o.source = $2 AND o.state = 'open' AND coalesce(`+markedHeld+`, false) AS held,
               o.state = 'cancelled' AND o.code = 'run_cancelled' AS ended
          FROM batch_rows b JOIN operations o ON o.id = b.operation_id WHERE b.run_id = $1) r`, run.ID, run.Source)
	if err != nil {
		return e, fmt.Errorf("count what would become of the rows of %s: %w", run.RunKey, err)
	}
	return e, nil
}

// foresee completes what a dry run of a release tells.
func (s *Service) foresee(ctx context.Context, out *Submitted) error {
	if out.Run.State == Waiting {
		asked, digest, err := s.asked(ctx, out.Run)
		if err != nil {
			return err
		}
		out.Proposal, out.Waits = asked, (out.Waits || asked != nil) && !agreed(asked, digest)
	}
	e, err := s.effectOn(ctx, out.Run)
	if err != nil {
		return err
	}
	out.Freed = e.frees
	if !out.Waits {
		out.Enqueues = out.Run.Rows - e.recorded
	}
	return nil
}
