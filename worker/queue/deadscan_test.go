package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/worker/job"
)

// bury stores n letters at once, as workers would have.
func (r *rig) bury(n int, payload func(i int) []byte) {
	r.t.Helper()
	const atOnce = 5000
	for start := 0; start < n; start += atOnce {
		var msgs []*nats.Msg
		for i := start; i < min(start+atOnce, n); i++ {
			msgs = append(msgs, corpse{subject: job.Subject([]string{testRoute, "eur-sct"}[i%2], testSource), payload: payload(i), sequence: uint64(i + 1),
				firstSeen: time.Unix(1796040000, int64(i)), deliveries: 1, reason: job.ReasonInvalid, detail: "test"}.msg())
		}
		for _, c := range r.dead.confirm.publishAll(ctxOf(r.t), msgs) {
			if c.err != nil {
				r.t.Fatal(c.err)
			}
		}
	}
}

func (r *rig) scan(f DeadFilter) (sequences []uint64) {
	r.t.Helper()
	for l, err := range r.dead.Scan(ctxOf(r.t), f) {
		if err != nil {
			r.t.Fatal(err)
		}
		sequences = append(sequences, l.Sequence)
	}
	return sequences
}

func TestE18_ScanningTwiceConsumesNothing(t *testing.T) {
	r := newRig(t, TopologyOptions{Routes: []string{testRoute, "eur-sct"}})
	if got := r.scan(DeadFilter{}); got != nil {
		t.Errorf("an empty stream gives %v", got)
	}
	r.bury(6, func(int) []byte { return nil })
	tests := []struct {
		filter DeadFilter
		want   []uint64
	}{
		{DeadFilter{}, []uint64{1, 2, 3, 4, 5, 6}},
		{DeadFilter{Route: "eur-sct"}, []uint64{2, 4, 6}},
		{DeadFilter{Source: testSource, Limit: 2}, []uint64{1, 2}},
		{DeadFilter{From: 4}, []uint64{4, 5, 6}},
		{DeadFilter{From: 7}, nil},
		{DeadFilter{Source: "nobody"}, nil},
	}
	for range 2 {
		for _, test := range tests {
			if got := r.scan(test.filter); !slices.Equal(got, test.want) {
				t.Errorf("%+v gives %v, want %v", test.filter, got, test.want)
			}
		}
	}
	for range r.dead.Scan(ctxOf(t), DeadFilter{}) {
		break // a reader that leaves early
	}
	s, err := r.js.Stream(ctxOf(t), StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	if info := s.CachedInfo().State; info.Msgs != 6 || info.Consumers != 0 {
		t.Errorf("%d letters and %d consumers, want 6 and 0", info.Msgs, info.Consumers)
	}
	state, err := r.dead.State(ctxOf(t))
	if err != nil || state.First != 1 || state.Last != 6 || state.Letters != 6 || !state.Created.Equal(s.CachedInfo().Created) {
		t.Errorf("state %+v, %v", state, err)
	}
	if err := s.DeleteMsg(ctxOf(t), 3); err != nil {
		t.Fatal(err)
	}
	if got := r.scan(DeadFilter{}); !slices.Equal(got, []uint64{1, 2, 4, 5, 6}) {
		t.Errorf("with one letter gone: %v", got)
	}
	letters, err := r.dead.Read(ctxOf(t), []uint64{5, 3, 1})
	if err != nil || letters[0].StreamSequence != 5 || letters[1].Sequence != 0 || letters[2].StreamSequence != 1 {
		t.Errorf("read %v, %v", letters, err)
	}
}

// A scan whose consumer is taken away begins again where it was.
func TestE18_ScanGoesOnWithoutItsConsumer(t *testing.T) {
	r := newRig(t, TopologyOptions{})
	r.bury(3000, func(int) []byte { return make([]byte, 500) })
	want := uint64(1)
	for l, err := range r.dead.Scan(ctxOf(t), DeadFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Sequence != want {
			t.Fatalf("letter %d, want %d", l.Sequence, want)
		}
		want++
		if l.Sequence == 700 {
			stream, err := r.js.Stream(ctxOf(t), StreamDead)
			if err != nil {
				t.Fatal(err)
			}
			for name := range stream.ConsumerNames(ctxOf(t)).Name() {
				if err := r.js.DeleteConsumer(ctxOf(t), StreamDead, name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if want != 3001 {
		t.Errorf("ends before %d", want)
	}
}

func TestF5_TheCountOfReplaysReachesTheNextDeadLetter(t *testing.T) {
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.run(newSlots(4), func(_ context.Context, d *Delivery) { d.Dead(job.ReasonInvalid, "again") }, ConsumerOptions{})
	m := message(keyOne)
	if _, err := r.publish.Publish(ctxOf(t), m); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if _, err := r.publish.Replay(ctxOf(t), m, n); err != nil {
			t.Fatal(err)
		}
	}
	for _, forged := range []string{"-1", "1e9", "999999", "", "x1"} {
		r.rawPublish(job.Subject(testRoute, testSource), nats.Header{"Paidonce-Replays": {forged}}, []byte("x"))
	}
	eventually(t, "all are dead letters", func() bool { return len(r.deadLetters()) == 8 })
	var counts []string
	for _, l := range r.deadLetters() {
		counts = append(counts, fmt.Sprint(l.Replays))
	}
	slices.Sort(counts)
	if got := strings.Join(counts, " "); got != "0 0 0 0 0 0 1 2" {
		t.Errorf("replays %s", got)
	}
}

// After a failover what was published before it is looked up before it is sent: a replay is as old as its job, and so is its dead letter.
func TestA_ReplayIsAsOldAsItsJob(t *testing.T) {
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	seen := make(chan time.Time, 8)
	r.run(newSlots(4), func(_ context.Context, d *Delivery) {
		seen <- d.Origin().PublishedAt
		d.Dead(job.ReasonInvalid, "again")
	}, ConsumerOptions{})
	long := time.Date(2026, 11, 2, 12, 0, 0, 7, time.UTC)
	m := message(keyOne)
	m.FirstSeen = long
	if _, err := r.publish.Replay(ctxOf(t), m, 1); err != nil {
		t.Fatal(err)
	}
	if at := <-seen; !at.Equal(long) {
		t.Errorf("published at %s, want %s", at, long)
	}
	eventually(t, "a dead letter", func() bool { return len(r.deadLetters()) == 1 })
	if l := r.deadLetters()[0]; !l.FirstSeen.Equal(long) || l.Header.Get("Nats-Msg-Id") == fmt.Sprintf("WITHDRAWALS:1:%d", long.UnixNano()) {
		t.Errorf("the letter is first seen %s, under %s", l.FirstSeen, l.Header.Get("Nats-Msg-Id"))
	}
	for _, forged := range []string{"2099-01-01T00:00:00Z", "x", "0001-01-01T00:00:00Z"} {
		start := time.Now()
		r.rawPublish(job.Subject(testRoute, testSource), nats.Header{"Paidonce-First-Seen": {forged}}, []byte("x"))
		if at := <-seen; at.Sub(start).Abs() > time.Minute {
			t.Errorf("%s: published at %s", forged, at)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	r := newRig(b, TopologyOptions{})
	r.bury(100_000, func(int) []byte { return make([]byte, 400) })
	b.ResetTimer()
	for range b.N {
		if n := len(r.scan(DeadFilter{})); n != 100_000 {
			b.Fatalf("%d letters", n)
		}
	}
	b.ReportMetric(float64(100_000*b.N)/b.Elapsed().Seconds(), "letters/s")
}
