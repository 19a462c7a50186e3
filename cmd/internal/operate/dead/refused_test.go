package dead_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
)

// classes are those of a plan with what they come to.
func classes(p *dead.Plan) (list []string) {
	for _, c := range p.Classes {
		list = append(list, fmt.Sprint(c.Class, " ", c.Count, " ", c.Amounts, " ", c.Class.Refused()))
	}
	return list
}

// TestPlan_WhatTheSettingsWouldRefuseAgainIsNotReplayed: each under the code of its refusal, with its money; and what they let through is.
func TestPlan_WhatTheSettingsWouldRefuseAgainIsNotReplayed(t *testing.T) {
	bounded := policy()
	bounded.Routes[route]["GBP"] = 5000
	w := newWorld(t, dead.Options{Policy: bounded})
	taken := job.NewKey()
	w.bury(
		letter{payload: payload(taken, "49.00", "50.00")},
		letter{payload: payload(job.NewKey(), "49.00", "50.01")},
		letter{payload: payload(job.NewKey(), "49.00", "70.00")},
		letter{payload: payload(job.NewKey(), `"GBP"`, `"EUR"`)},
		letter{payload: payload(job.NewKey()), subject: "gbp-fps.payroll"},
		letter{payload: payload(job.NewKey()), subject: "eur-sct.wallet", reason: job.ReasonUnknownRoute},
		letter{payload: payload(job.NewKey(), "49.00", "70.0")},
	)
	p := w.freeze(dead.Filter{})
	want := []string{
		"replayable 1 [{GBP 5000}] false", "malformed 1 [] false", "unroutable 1 [{GBP 4900}] false", "amount_over_limit 2 [{GBP 12001}] true",
		"currency_not_on_route 1 [{EUR 4900}] true", "route_not_allowed 1 [{GBP 4900}] true",
	}
	if got := classes(p); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if s, err := w.desk.Show(t.Context(), 2); err != nil || s.Class != dead.ClassOverLimit {
		t.Errorf("show: %s, %v", s.Class, err)
	}

	// A plan holds to what the settings say when it is begun, and so does each letter when its turn comes.
	raised := policy()
	raised.Routes[route]["GBP"] = 7000
	if act, err := dead.New(w.letters, w.publish, w.pool, dead.Options{Policy: raised}).Replay(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	} else if _, err := w.do(w.olga, act); !errors.Is(err, operate.ErrRefused) || len(w.jobs()) != 0 {
		t.Errorf("a plan from before the limit was raised: %v, %d jobs", err, len(w.jobs()))
	}
	// Who has no settings cannot say that they let something through now: the plan is the same to it.
	blind, err := dead.New(w.letters, w.publish, w.pool, dead.Options{}).Replay(t.Context(), p, 0)
	w.must(err)
	if err := blind.Check(t.Context(), operate.Operator{}); err != nil {
		t.Errorf("where no settings are known: %v", err)
	}
	act, done, err := w.replay(p)
	if err != nil || done.Outcome != "done" || act.Tally != (dead.Tally{Published: 1}) {
		t.Errorf("replay: %+v, %+v, %v", done, act.Tally, err)
	}
	if jobs := w.jobs(); len(jobs) != 1 || jobs[0].Header.Get("Nats-Msg-Id") != taken.String()+":r1" {
		t.Errorf("%d jobs", len(jobs))
	}

	// Raised: it is replayable now. What may be corrected is what nobody would take as it is.
	w.desk = dead.New(w.letters, w.publish, w.pool, dead.Options{Policy: raised})
	if got := classes(w.freeze(dead.Filter{From: 2, To: 3})); !slices.Equal(got, []string{"replayable 2 [{GBP 12001}] false"}) {
		t.Errorf("raised: %q", got)
	}
	correction, err := w.desk.Correct(t.Context(), 4, dead.Edit{Set: map[string]string{"currency": "GBP"}})
	w.must(err)
	if _, err := w.agreed(correction); err != nil {
		t.Errorf("a correction of what the route does not take: %v", err)
	}
	// Whoever does not know the settings of the workers says nothing of them.
	for name, known := range map[string]*dead.Policy{"nothing": nil, "no source": {Routes: map[string]map[string]int64{route: {"GBP": dead.NoLimit, "EUR": dead.NoLimit}}}} {
		w.desk = dead.New(w.letters, w.publish, w.pool, dead.Options{Policy: known})
		if got := classes(w.freeze(dead.Filter{From: 2, To: 5})); !slices.Equal(got[:1], []string{"replayable 3 [{GBP 16901}] false"}) {
			t.Errorf("where %s is known: %q", name, got)
		}
	}
}
