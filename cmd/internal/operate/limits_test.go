package operate_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// limited are the limits as the list shows them: what, holds, settings, owner.
func (d *desk) limited() (rows [][4]string, kept bool) {
	d.t.Helper()
	list, kept, err := d.Limits(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, l := range list {
		rows = append(rows, [4]string{l.What, l.Text(l.Holds), l.Text(l.Settings), l.Text(l.Owner)})
	}
	return rows, kept
}

// TestLimits: the owner of the ledger keeps them, in its own name or in that of an admin; they hold beside the settings, from the next act on.
func TestLimits(t *testing.T) {
	opt := operate.Options{Limits: operate.Limits{Counts: map[string]int{"replay": 3}, Amounts: map[string]int64{"GBP": 5000, "JPY": 900}}}
	d := newDesk(t, opt)
	ctx := t.Context()
	owner := d.as(d.urls.Owner, opt)
	change := func(by operate.Operator, act *operate.LimitAct, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		dry, err := owner.Do(ctx, operate.Request{By: by, Reason: "agreed", Act: act, DryRun: true})
		if err != nil || dry.Outcome != "dry_run" || dry.Waits {
			t.Fatalf("dry: %+v, %v", dry, err)
		}
		done, err := owner.Do(ctx, operate.Request{By: by, Reason: "agreed", Act: act})
		if err != nil {
			t.Fatal(err)
		}
		return done.Outcome
	}
	set := func(by operate.Operator, what, most string) string {
		t.Helper()
		act, err := owner.SetLimit(what, most)
		return change(by, act, err)
	}
	waits := func(n int64) bool {
		t.Helper()
		a := heavy()
		a.name, a.weight = "replay", operate.Weight{Count: 2, Amounts: map[string]int64{"GBP": n}}
		done, err := d.Do(ctx, operate.Request{By: d.people["olga"], Reason: "fixed", Act: a, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		return done.Waits
	}
	if rows, kept := d.limited(); kept || !slices.Equal(rows, [][4]string{{"replay", "3", "3", ""}, {"GBP", "50.00", "50.00", ""}, {"JPY", "900", "900", ""}}) || waits(5000) {
		t.Errorf("none is kept: %v", rows)
	}
	if got := set(d.owner(owner), "GBP", "49.99"); got != "done" || !waits(5000) || waits(4999) {
		t.Errorf("%s; above waits: %v, as much: %v", got, waits(5000), waits(4999))
	}
	if got := set(d.people["adam"], "GBP", "49.99"); got != "no_effect" {
		t.Errorf("the same again: %s", got)
	}
	if got := set(d.people["adam"], "GBP", "900.00"); got != "done" || !waits(5001) || waits(5000) {
		t.Errorf("%s; a wider one does not widen the settings", got)
	}
	if got := set(d.people["adam"], "replay", "1"); got != "done" || !waits(1) {
		t.Errorf("%s; two at once, of which one: %v", got, waits(1))
	}
	if got := set(d.people["adam"], "resolve", "0"); got != "done" {
		t.Error(got)
	}
	want := [][4]string{{"replay", "1", "3", "1"}, {"resolve", "0", "", "0"}, {"GBP", "50.00", "50.00", "900.00"}, {"JPY", "0", "900", ""}}
	if rows, kept := d.limited(); !kept || !slices.Equal(rows, want) {
		t.Errorf("%v", rows)
	}
	unset, err := owner.UnsetLimit("replay")
	if got := change(d.people["adam"], unset, err); got != "done" || waits(1) {
		t.Error(got)
	}
	if got := change(d.people["adam"], unset, nil); got != "no_effect" {
		t.Errorf("unset twice: %s", got)
	}
	var said []string
	for _, l := range d.lines(operate.AuditFilter{}) {
		if l.Act == "limit_set" || l.Act == "limit_unset" {
			said = append(said, l.By+" "+l.Act+" "+l.Target+": "+l.Reason+", "+l.Outcome)
		}
	}
	slices.Reverse(said)
	if !slices.Equal(said, []string{"database:paidonce_owner limit_set GBP 49.99: agreed, done", "adam limit_set GBP 49.99: agreed, no_effect", "adam limit_set GBP 900.00: agreed, done",
		"adam limit_set replay 1: agreed, done", "adam limit_set resolve 0: agreed, done", "adam limit_unset replay: agreed, done", "adam limit_unset replay: agreed, no_effect"}) {
		t.Errorf("the log: %q", said)
	}
}

// TestLimits_AreNotTheDesksToChange: not an admin's at the desk, not an operator's at the owner's login, and the database refuses the rest.
func TestLimits_AreNotTheDesksToChange(t *testing.T) {
	d := newDesk(t, operate.Options{})
	owner := d.as(d.urls.Owner, operate.Options{})
	for name, s := range map[string]*operate.Service{"adam": d.Service, "olga": owner, "ada": owner, "vera": owner} {
		for _, act := range []func() (*operate.LimitAct, error){
			func() (*operate.LimitAct, error) { return s.SetLimit("GBP", "1000000.00") }, func() (*operate.LimitAct, error) { return s.UnsetLimit("GBP") },
		} {
			a, err := act()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Do(t.Context(), operate.Request{By: d.people[name], Reason: "mine", Act: a}); !errors.Is(err, operate.ErrNotPermitted) {
				t.Errorf("%s by %s: %v", a.Name(), name, err)
			}
		}
		if lines := d.lines(operate.AuditFilter{By: name, Outcome: "refused"}); len(lines) != 2 {
			t.Errorf("%d lines of the log say that %s was refused, want 2", len(lines), name)
		}
	}
	d.refusedAs("adam", "42501", `INSERT INTO operator_limits (what, most) VALUES ('GBP', 1)`)
	for _, bad := range [][2]string{{"GBP", "1000"}, {"GBP", "-1.00"}, {"JPY", "1.00"}, {"XXX", "1.00"}, {"gbp", "1.00"}, {"pause", "1"}, {"replay", "-1"}, {"replay", "1.5"}, {"replay", ""}, {"", "1"}} {
		if a, err := owner.SetLimit(bad[0], bad[1]); err == nil {
			t.Errorf("%v is taken for %s", bad, a.Target())
		}
	}
	if _, err := owner.UnsetLimit("gbp"); err == nil {
		t.Error("a limit of nothing is unset")
	}
	for _, zero := range [][2]string{{"GBP", "0.00"}, {"JPY", "0"}, {"replay", "0"}} {
		if a, err := owner.SetLimit(zero[0], zero[1]); err != nil || a.Target() != zero[0]+" "+zero[1] {
			t.Errorf("%v: %v", zero, err)
		}
	}
}
