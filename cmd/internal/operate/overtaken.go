package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// judges are of the desk's own acts.
func (s *Service) judges() map[string]func(context.Context, Proposal) (string, error) {
	return map[string]func(context.Context, Proposal) (string, error){
		"resolve": s.resolved, "operator_add": s.identified, "operator_rotate": s.identified,
	}
}

// resolved says what became of an operation since a resolution was proposed for it.
func (s *Service) resolved(ctx context.Context, p Proposal) (string, error) {
	var content struct {
		Key   string `json:"key"`
		Fence int32  `json:"fence"`
		Said  string `json:"said"`
	}
	key, err := uuid.Parse(p.Target)
	if err != nil || json.Unmarshal(p.Content, &content) != nil {
		return "", nil //nolint:nilerr // nothing can be said of it
	}
	var state ledger.State
	var fence int32
	var transfer, code, said string
	var outcome *time.Time
	err = s.db.QueryRow(ctx, `SELECT o.state::text, o.fence, coalesce(o.transfer_id, ''), coalesce(o.code, ''), o.outcome_at, coalesce(said_of(o.key), '')
  FROM operations o WHERE o.key = $1`, key).Scan(&state, &fence, &transfer, &code, &outcome, &said)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "the ledger has no such operation any more", nil
	case err != nil:
		return "", fmt.Errorf("ask what became of %s: %w", key, denied(err))
	case state.Finished():
		return fmt.Sprintf("the operation is %s (%s) since %s", state, cmp.Or(transfer, code), orZero(outcome).UTC().Format(time.RFC3339)), nil
	case state != ledger.StateParked:
		return fmt.Sprintf("the operation is %s and no longer waits for a person", state), nil
	case fence != content.Fence:
		return "the operation was worked since, and is parked again: look again", nil
	case said != content.Said:
		return "the partner has been heard of since: look again, with `paidonce ops explain " + key.String() + "`", nil
	}
	return "", nil
}

// identified says what became of the operator that an identity was proposed for.
func (s *Service) identified(ctx context.Context, p Proposal) (string, error) {
	var made time.Time
	var disabled *time.Time
	err := s.db.QueryRow(ctx, `SELECT made_at, disabled_at FROM operators WHERE name = $1`, p.Target).Scan(&made, &disabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for the operator: %w", denied(err))
	case p.Act == "operator_add":
		return fmt.Sprintf("there is an operator %s since %s", p.Target, made.UTC().Format(time.RFC3339)), nil
	case disabled != nil:
		return fmt.Sprintf("%s is disabled since %s", p.Target, disabled.UTC().Format(time.RFC3339)), nil
	}
	return "", nil
}
