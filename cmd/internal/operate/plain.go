package operate

import (
	"context"

	"github.com/go-json-experiment/json"
)

// Plain is an Act that one person does alone, whose doing lies with the caller.
type Plain struct {
	Act  string
	By   Role
	On   string                                                             // its target
	What any                                                                // its content, as JSON
	Does func(ctx context.Context, by Operator) (outcome string, err error) // nil: nothing beyond the line in the log, as for what is shown
}

// Name is the act's.
func (p Plain) Name() string { return p.Act }

// Role is the one set.
func (p Plain) Role() Role { return p.By }

// Target is the one set.
func (p Plain) Target() string { return p.On }

// Content is What as JSON.
func (p Plain) Content() ([]byte, error) { return json.Marshal(p.What, json.Deterministic(true)) }

// Weight is none.
func (p Plain) Weight() Weight { return Weight{} }

// Run does it.
func (p Plain) Run(ctx context.Context, by Operator) (string, error) {
	if p.Does == nil {
		return OutcomeDone, nil
	}
	return p.Does(ctx, by)
}

// Reveal lets somebody see names and account numbers of a target, after the log says so.
func Reveal(target string) Plain {
	return Plain{Act: "reveal", By: RoleOperator, On: target}
}
