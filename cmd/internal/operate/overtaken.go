package operate

import (
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
	said, err := s.ledger.Said(ctx, key)
	if err != nil {
		return "", denied(err)
	}
	e, err := s.ledger.Explain(ctx, key)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return "the ledger has no such operation any more", nil
	case err != nil:
		return "", denied(err)
	case e.State.Finished():
		return fmt.Sprintf("the operation is %s%s since %s", e.State, detail(e), e.OutcomeAt.UTC().Format(time.RFC3339)), nil
	case e.State != ledger.StateParked:
		return fmt.Sprintf("the operation is %s and no longer waits for a person", e.State), nil
	case e.Fence != content.Fence:
		return "the operation was worked since, and is parked again: look again", nil
	case said != content.Said:
		return "the partner has been heard of since: look again, with `paidonce ops explain " + key.String() + "`", nil
	}
	return "", nil
}

func detail(e ledger.Explanation) string {
	switch {
	case e.TransferID != "":
		return ", transfer " + e.TransferID + ","
	case e.Code != "":
		return ", " + e.Code + ","
	}
	return ""
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
