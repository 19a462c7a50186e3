package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/ledger"
)

// PauseAct stops or resumes what a scope covers.
type PauseAct struct {
	s      *Service
	scope  ledger.Scope
	name   string
	reason string
	resume bool
}

// Pause stops claims within a scope at once, everywhere. Stopping needs nobody's approval.
func (s *Service) Pause(scope ledger.Scope, name, reason string) *PauseAct {
	return &PauseAct{s: s, scope: scope, name: name, reason: reason}
}

// Resume ends a pause. One that a program has set because money is in doubt is ended by an approver or an admin.
func (s *Service) Resume(scope ledger.Scope, name, reason string) *PauseAct {
	return &PauseAct{s: s, scope: scope, name: name, reason: reason, resume: true}
}

// Name is pause or resume.
func (p *PauseAct) Name() string {
	if p.resume {
		return "resume"
	}
	return "pause"
}

// Role is operator; Check asks for more where money is in doubt.
func (p *PauseAct) Role() Role { return RoleOperator }

// Target is the scope and its name.
func (p *PauseAct) Target() string { return strings.TrimSpace(string(p.scope) + " " + p.name) }

// Weight is none.
func (p *PauseAct) Weight() Weight { return Weight{} }

// Content is the scope.
func (p *PauseAct) Content() ([]byte, error) {
	return json.Marshal(struct {
		Scope ledger.Scope `json:"scope"`
		Name  string       `json:"name,omitempty"`
	}{p.scope, p.name}, json.Deterministic(true))
}

// Check asks for an approver where a program has paused because money is in doubt, also beneath a pause that a person set before.
func (p *PauseAct) Check(ctx context.Context, by Operator) error {
	if !p.resume || by.Has(RoleApprover) {
		return nil
	}
	doubts, err := p.s.ledger.PausedForDoubt(ctx, p.scope, p.name)
	if err != nil {
		return denied(err)
	}
	if len(doubts) > 0 {
		return fmt.Errorf("%w: money is in doubt there (%s): resuming needs the role %s, and %s has %v", ErrNotPermitted, strings.Join(doubts, ", "),
			RoleApprover, by.Name, by.Roles)
	}
	return nil
}

// Run pauses or resumes.
func (p *PauseAct) Run(ctx context.Context, by Operator) (string, error) {
	if !p.resume {
		return OutcomeDone, denied(p.s.ledger.PauseUnder(ctx, lineOn(ctx, by), p.scope, p.name, p.reason, by.Name))
	}
	if err := p.Check(ctx, by); err != nil { // again: a program may have paused since
		return "", err
	}
	err := p.s.ledger.ResumeUnder(ctx, lineOn(ctx, by), p.scope, p.name, p.reason, by.Name)
	if errors.Is(err, ledger.ErrNotPaused) {
		return OutcomeNoEffect, err
	}
	return OutcomeDone, denied(err)
}
