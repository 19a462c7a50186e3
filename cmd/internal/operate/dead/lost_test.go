package dead_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// A broker that lost what it had confirmed (a leader without its last writes): the plan is run again, and publishes what is gone, once.
func TestReplay_WhatTheBrokerLostIsPublishedAgain(t *testing.T) {
	w := newWorld(t, dead.Options{})
	keys := []uuid.UUID{job.NewKey(), job.NewKey(), job.NewKey()}
	w.bury(letter{payload: payload(keys[0])}, letter{payload: payload(keys[0])}, letter{payload: payload(keys[1])}, letter{payload: payload(keys[2])})
	plan := w.freeze(dead.Filter{})
	again := func(what string, published int64, outcome string) {
		t.Helper()
		act, done, err := w.replay(plan)
		if err != nil || act.Tally.Published != published || act.Tally.Failed != 0 || act.Tally.Before != 3-published || done.Outcome != outcome {
			t.Fatalf("%s: %+v, %q, %v; want %d published", what, act.Tally, done.Outcome, err, published)
		}
	}
	again("first", 3, "done")
	again("while the jobs wait", 0, "no_effect")
	lose := func() {
		t.Helper()
		w.must(w.js.DeleteStream(t.Context(), queue.StreamJobs))
		topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{route}})
		w.must(err)
		w.must(queue.Provision(t.Context(), w.nc, topology))
	}
	lose()
	other := job.NewKey() // takes the place of the first
	_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: other, Payload: payload(other)})
	w.must(err)
	w.bury(letter{payload: payload(keys[2]), replays: 1}) // came back before the broker lost the rest
	act, done, err := w.replay(plan)
	if err != nil || act.Tally.Published != 2 || act.Tally.Before != 1 || done.Outcome != "done" {
		t.Fatalf("after the loss: %+v, %q, %v; want two published", act.Tally, done.Outcome, err)
	}
	if jobs := w.jobs(); len(jobs) != 3 {
		t.Errorf("%d jobs, want the other one and two replays", len(jobs))
	}
	b := w.work(nil)
	eventually(t, "paid", func() bool { return b.sends(keys[0]) == 1 && b.sends(keys[1]) == 1 && b.sends(other) == 1 })
	lose()
	again("when they are paid", 0, "no_effect")
	if b.sends(keys[2]) != 0 || len(w.jobs()) != 0 {
		t.Error("something was published twice")
	}
}
