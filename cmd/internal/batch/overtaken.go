package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// Overtaken says in words what became of a run whose release was proposed, and waits for nobody any more; "" = it still waits.
func Overtaken(ctx context.Context, db operate.DB, p operate.Proposal) (string, error) {
	var state State
	var by string
	var at time.Time
	err := db.QueryRow(ctx, `SELECT state, changed_by, changed_at FROM batch_runs WHERE run_key = $1`, p.Target).Scan(&state, &by, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "the run is not on record any more", nil
	case err != nil:
		return "", fmt.Errorf("ask what became of run %s: %w", p.Target, err)
	case state == Waiting:
		return "", nil
	}
	return fmt.Sprintf("the run is %s, by %s, since %s", state, by, stamp(at)), nil
}
