package operate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// act is one whose every property a test sets.
type act struct {
	name, target, content string
	role                  operate.Role
	weight                operate.Weight
	check                 error
	run                   func() (string, error)
}

func (a *act) Name() string                                  { return a.name }
func (a *act) Role() operate.Role                            { return a.role }
func (a *act) Target() string                                { return a.target }
func (a *act) Content() ([]byte, error)                      { return []byte(a.content), nil }
func (a *act) Weight() operate.Weight                        { return a.weight }
func (a *act) Check(context.Context, operate.Operator) error { return a.check }
func (a *act) Run(context.Context, operate.Operator) (string, error) {
	if a.run == nil {
		return operate.OutcomeDone, nil
	}
	return a.run()
}

// heavy is an act that always needs a second person.
func heavy() *act {
	return &act{name: "replay", target: "plan-1", content: `{"plan":"1"}`, role: operate.RoleOperator, weight: operate.Weight{Count: 3, Always: true}}
}

func (d *desk) lines(f operate.AuditFilter) []operate.AuditLine {
	d.t.Helper()
	var lines []operate.AuditLine
	for l, err := range d.Audit(d.t.Context(), f) {
		if err != nil {
			d.t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestDo_LineBeforeTheActAndResultAfter(t *testing.T) {
	d := newDesk(t, operate.Options{})
	a := &act{name: "look_up", target: "k1", content: `{}`, role: operate.RoleOperator}
	a.run = func() (string, error) {
		if lines := d.lines(operate.AuditFilter{Act: "look_up"}); len(lines) != 1 || lines[0].Outcome != operate.OutcomeBegun {
			t.Errorf("during the act: %+v, want one line that is begun", lines)
		}
		return "", nil
	}
	if _, err := d.Do(t.Context(), operate.Request{By: d.people["olga"], Reason: "asked by the customer", Act: a}); err != nil {
		t.Fatal(err)
	}
	lines := d.lines(operate.AuditFilter{Act: "look_up"})
	if len(lines) != 1 || lines[0].Outcome != "done" || lines[0].By != "olga" || lines[0].Reason != "asked by the customer" || lines[0].Target != "k1" {
		t.Errorf("afterwards: %+v", lines)
	}
}

func TestDo_FourEyes(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx, a := t.Context(), heavy()
	ran := 0
	a.run = func() (string, error) { ran++; return "done", nil }
	r := operate.Request{By: d.people["olga"], Reason: "fixed", Act: a}
	first, err := d.Do(ctx, r)
	if !errors.Is(err, operate.ErrWaiting) || first.Proposal == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := d.Do(ctx, r)
	if !errors.Is(err, operate.ErrWaiting) || again.Proposal.ID != first.Proposal.ID {
		t.Errorf("asked twice: %+v, %v, want the same proposal", again.Proposal, err)
	}
	p, err := d.Approve(ctx, d.people["ada"], first.Proposal.ID, first.Proposal.Digest, "looked at it")
	if err != nil || p.State != operate.ProposalApproved {
		t.Fatalf("%+v, %v", p, err)
	}
	if ran != 0 {
		t.Error("ran before it was asked for again")
	}
	if done, err := d.Do(ctx, r); err != nil || done.Outcome != "done" || ran != 1 {
		t.Errorf("%+v, %v, ran %d times", done, err, ran)
	}
	if p, _ := d.Proposal(ctx, p.ID); p.State != operate.ProposalExecuted {
		t.Errorf("afterwards %s", p.State)
	}
	if next, err := d.Do(ctx, r); !errors.Is(err, operate.ErrWaiting) || next.Proposal.ID == p.ID || ran != 1 {
		t.Errorf("an approval was used twice: %+v, %v", next, err)
	}
}
