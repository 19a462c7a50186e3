package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/worker/job"
)

func newStrays(t *testing.T, r *rig) *Strays {
	t.Helper()
	s, err := NewStrays(r.sub, r.dead, StraysOptions{Every: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var strayCases = []string{
	"withdrawals.jobs.unknown.wallet",
	"withdrawals.jobs.gbp-fps",
	"withdrawals.jobs.gbp-fps.wallet.extra",
	"withdrawals.jobs.GBP.wallet",
}

func TestE14_WrongSubjectsBecomeDeadLettersOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.enqueue(3)
	for range 2 {
		for _, subject := range strayCases {
			r.rawPublish(subject, nats.Header{"Status": {"404"}}, nil)
		}
	}
	s := newStrays(t, r)
	stop := start(s.Run)
	eventually(t, "eight dead letters", func() bool { return len(r.deadLetters()) == 8 })
	r.rawPublish(strayCases[0], nil, []byte("late"))
	eventually(t, "the ninth", func() bool { return len(r.deadLetters()) == 9 })
	stays(t, "nine", 300*time.Millisecond, func() bool { return len(r.deadLetters()) == 9 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, l := range r.deadLetters() {
		if l.Reason != "unknown_route" {
			t.Errorf("reason %s", l.Reason)
		}
		seen[l.Route+"|"+l.Source]++
	}
	want := map[string]int{"unknown|wallet": 3, "gbp-fps|": 2, "gbp-fps|wallet.extra": 2, "GBP|wallet": 2}
	if !maps.Equal(seen, want) {
		t.Errorf("letters of %v, want %v", seen, want)
	}
	if n := r.stored(); n != 3+9 {
		t.Errorf("%d jobs stored, want all 12", n)
	}
}

// A source that is no name still has a consumer: its jobs are for the handler.
func TestE14_WrongSourceIsTheConsumers(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.rawPublish("withdrawals.jobs.gbp-fps.WALLET", nil, nil)
	if n, err := newStrays(t, r).Pass(ctxOf(t)); n != 0 || err != nil {
		t.Errorf("pass: %d, %v", n, err)
	}
	origins := make(chan job.Origin, 1)
	r.run(newSlots(1), func(_ context.Context, d *Delivery) { origins <- d.Origin(); d.Done() }, ConsumerOptions{AckWait: time.Second})
	if o := <-origins; o.Source != "WALLET" || o.Route != testRoute {
		t.Errorf("origin %+v", o)
	}
}

// The position survives: the window of the broker forgets, the last dead letter does not.
func TestStrays_PositionIsTheLastDeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	for range 300 { // more than a batch
		r.rawPublish(strayCases[0], nil, nil)
	}
	s := newStrays(t, r)
	var passes []int
	for range 3 {
		n, err := s.Pass(ctxOf(t))
		if err != nil {
			t.Fatal(err)
		}
		passes = append(passes, n)
	}
	if !slices.Equal(passes, []int{256, 44, 0}) {
		t.Errorf("passes stored %v, want 256, 44, 0", passes)
	}
	// A dead letter that a consumer made on the same subject is no position.
	if _, err := r.dead.add(ctxOf(t), corpse{subject: strayCases[0], sequence: 7_000, reason: job.ReasonInvalid}); err != nil {
		t.Fatal(err)
	}
	r.rawPublish(strayCases[0], nil, nil)
	if n, err := s.Pass(ctxOf(t)); n != 1 || err != nil {
		t.Errorf("pass stored %d, %v; want 1", n, err)
	}
}

// A position in a stream that is no more is none: the sequences are given out again.
func TestStrays_PositionOfAStreamThatIsNoMore(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"below the position": 1, "at the position": 3, "beyond the position": 5} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, TopologyOptions{})
			s := newStrays(t, r)
			for range 3 {
				r.rawPublish(strayCases[0], nil, nil)
			}
			if n, err := s.Pass(ctxOf(t)); n != 3 || err != nil {
				t.Fatalf("pass stored %d, %v; want 3", n, err)
			}
			stream, err := r.js.Stream(ctxOf(t), StreamJobs)
			if err != nil {
				t.Fatal(err)
			}
			config := stream.CachedInfo().Config
			if err := r.js.DeleteStream(ctxOf(t), StreamJobs); err != nil {
				t.Fatal(err)
			}
			if _, err := r.js.CreateStream(ctxOf(t), config); err != nil {
				t.Fatal(err)
			}
			for range again {
				r.rawPublish(strayCases[0], nil, nil)
			}
			for _, want := range []int{again, 0} {
				if n, err := s.Pass(ctxOf(t)); n != want || err != nil {
					t.Errorf("pass stored %d, %v; want %d", n, err, want)
				}
			}
			if n := len(r.deadLetters()); n != 3+again {
				t.Errorf("%d dead letters, want %d", n, 3+again)
			}
		})
	}
}

// judged says what becomes of a stray job by its payload: "owned", "reused", else unknown.
func judged(_ context.Context, _ []job.Origin, payloads [][]byte) ([]*job.Fault, error) {
	faults := make([]*job.Fault, len(payloads))
	for i, payload := range payloads {
		switch string(payload) {
		case "owned":
		case "reused":
			faults[i] = &job.Fault{Reason: job.ReasonKeyReused, Detail: "the key belongs to another job"}
		case "away":
			return nil, errors.New("the ledger is away")
		default:
			faults[i] = &job.Fault{Reason: job.ReasonUnknownRoute, Detail: "no consumer covers the subject"}
		}
	}
	return faults, nil
}

// A retired route leaves jobs behind whose operations are finished: they are no dead letters, and hold up nobody who is.
func TestStrays_WhatIsOnRecordGetsNoLetter(t *testing.T) {
	r := newRig(t, TopologyOptions{})
	for range 2*strayBatch + 7 {
		r.rawPublish(strayCases[0], nil, []byte("owned"))
	}
	for _, payload := range []string{"lost", "owned", "reused", "owned"} {
		r.rawPublish(strayCases[0], nil, []byte(payload))
	}
	var asked int
	newJudge := func() *Strays {
		s, err := NewStrays(r.sub, r.dead, StraysOptions{Judge: func(ctx context.Context, origins []job.Origin, payloads [][]byte) ([]*job.Fault, error) {
			asked += len(payloads)
			if origins[0].Route != "unknown" || origins[0].Source != "wallet" || origins[0].PublishedAt.IsZero() {
				t.Errorf("origin %+v", origins[0])
			}
			return judged(ctx, origins, payloads)
		}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := newJudge()
	for _, want := range []struct{ letters, asked int }{{2, 2*strayBatch + 11}, {0, 0}} { // what was passed over is remembered
		asked = 0
		if n, err := s.Pass(ctxOf(t)); n != want.letters || err != nil || asked != want.asked {
			t.Errorf("pass stored %d of %d judged, %v; want %d of %d", n, asked, err, want.letters, want.asked)
		}
	}
	asked = 0
	if n, err := newJudge().Pass(ctxOf(t)); n != 0 || err != nil || asked != 1 { // another process begins behind the last letter
		t.Errorf("pass of another process stored %d of %d judged, %v; want 0 of 1", n, asked, err)
	}
	reasons := map[job.Reason]int{}
	for _, l := range r.deadLetters() {
		reasons[l.Reason]++
	}
	if want := map[job.Reason]int{job.ReasonUnknownRoute: 1, job.ReasonKeyReused: 1}; !maps.Equal(reasons, want) {
		t.Errorf("letters %v, want %v", reasons, want)
	}
}

// While it cannot be said what is on record, a job waits. Those of other subjects do not wait for it.
func TestStrays_WithoutAJudgementNothingIsStored(t *testing.T) {
	r := newRig(t, TopologyOptions{})
	r.rawPublish("withdrawals.jobs.aaa.wallet", nil, []byte("away"))
	r.rawPublish("withdrawals.jobs.bbb.wallet", nil, nil)
	s, err := NewStrays(r.sub, r.dead, StraysOptions{Judge: judged})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Pass(ctxOf(t)); n != 1 || err == nil {
		t.Errorf("pass stored %d, %v; want one letter and an error", n, err)
	}
	if l := r.deadLetters(); len(l) != 1 || l[0].Route != "bbb" {
		t.Errorf("letters %v, want that of bbb", l)
	}
}
