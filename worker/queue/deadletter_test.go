package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/worker/job"
)

func TestE14_DeadLettersKeepTheJobAndSayWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	header := nats.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "X-Order": {"a", "b"}}
	bad := [][]byte{nil, []byte("not json"), []byte(`{"v":1}`), bytes.Repeat([]byte("x"), 65<<10)}
	for _, payload := range bad {
		r.rawPublish(job.Subject(testRoute, testSource), header, payload)
	}
	var seen tally
	r.run(newSlots(4), func(_ context.Context, d *Delivery) {
		seen.saw(d)
		_, err := job.Decode(d.Origin().Source, d.Origin().Route, d.Payload())
		var fault *job.Fault
		if !errors.As(err, &fault) {
			t.Errorf("decode gives %v", err)
			return
		}
		d.Dead(fault.Reason, fault.Code)
	}, ConsumerOptions{AckWait: 30 * time.Second})
	eventually(t, "terminated", r.settled)
	stays(t, "no loop", 1500*time.Millisecond, func() bool { _, n := seen.counts(); return n == len(bad) })

	letters := r.deadLetters()
	if len(letters) != len(bad) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(bad))
	}
	slices.SortFunc(letters, func(a, b DeadLetter) int { return int(a.StreamSequence) - int(b.StreamSequence) })
	reasons := []job.Reason{"undecodable", "undecodable", "key_missing", "too_large"}
	for i, l := range letters {
		if l.Reason != reasons[i] && i != 2 { // which member is missed first is not ours to say
			t.Errorf("letter %d: reason %s, want %s", i, l.Reason, reasons[i])
		}
		if !bytes.Equal(l.Payload, bad[i]) || l.Route != "gbp-fps" || l.Source != "wallet" || l.Deliveries != 1 ||
			l.StreamSequence != uint64(i+1) || l.FirstSeen.IsZero() || l.At.Before(l.FirstSeen) || l.Detail == "" {
			t.Errorf("letter %d is not whole: %+v", i, l.Header)
		}
		if !slices.Equal(l.Header["X-Order"], []string{"a", "b"}) || l.Header["traceparent"] == nil {
			t.Errorf("letter %d has lost headers: %v", i, slices.Collect(maps.Keys(l.Header)))
		}
	}
}

// Headers that the server obeys must not act on the dead letter, and ours must not be forged.
func TestE14_HeadersOfAHostileJobDoNoHarm(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.rawPublish(job.Subject(testRoute, testSource), nats.Header{
		"Nats-Expected-Stream": {"WITHDRAWALS"}, "Nats-Msg-Id": {"mine"}, "X-Nats-Msg-Id": {"forged"}, "Status": {"404"},
		"Paidonce-Reason": {"forged"}, "paidonce-detail": {"forged"}, "Paidonce-Stray": {"1"},
	}, nil)
	r.run(newSlots(1), func(_ context.Context, d *Delivery) {
		d.Dead(job.ReasonInvalid, "line\r\nNats-TTL: 1\r\n"+strings.Repeat("é", 900))
	},
		ConsumerOptions{})
	eventually(t, "terminated", r.settled)
	letters := r.deadLetters()
	if len(letters) != 1 {
		t.Fatalf("%d dead letters, want 1", len(letters))
	}
	want := nats.Header{
		"Was-Expected-Stream": {"WITHDRAWALS"}, "Was-Paidonce-Reason": {"forged"}, "Was-paidonce-detail": {"forged"}, "Was-Paidonce-Stray": {"1"},
		"Was-Status": {"404"}, "Paidonce-Reason": {"invalid"},
	}
	want["Nats-Msg-Id"] = []string{fmt.Sprintf("WITHDRAWALS:1:%d", letters[0].FirstSeen.UnixNano())}
	for name, values := range want {
		if !slices.Equal(letters[0].Header[name], values) {
			t.Errorf("header %s is %v, want %v", name, letters[0].Header[name], values)
		}
	}
	ids := slices.Sorted(slices.Values(letters[0].Header["Was-Msg-Id"]))
	if !slices.Equal(ids, []string{"forged", "mine"}) || letters[0].Header["Nats-Ttl"] != nil || len(letters[0].Detail) > 500 {
		t.Errorf("headers %v", letters[0].Header)
	}
}

func TestE14_JobOfNothingButHeadersFits(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	header := nats.Header{}
	for i := range 3900 {
		header["Nats-"+strings.Repeat("x", i%7+1)+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676))] = []string{""}
	}
	r.rawPublish(job.Subject(testRoute, testSource), header, nil)
	r.run(newSlots(1), func(_ context.Context, d *Delivery) { d.Dead(job.ReasonUndecodable, "empty") }, ConsumerOptions{})
	eventually(t, "terminated", r.settled)
	if n := len(r.deadLetters()); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

func TestF8_CrashBetweenDeadLetterAndTerminationGivesOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.enqueue(1)
	var seen tally
	r.run(newSlots(1), func(_ context.Context, d *Delivery) {
		if seen.saw(d) == 1 {
			// Stored, and then the process is gone: no termination, no heartbeat.
			if d.settle() {
				if _, err := r.dead.add(ctxOf(t), corpse{subject: d.msg.Subject, header: d.msg.Header, payload: d.msg.Data,
					sequence: d.origin.Sequence, deliveries: 1, firstSeen: d.origin.PublishedAt, reason: job.ReasonInvalid}); err != nil {
					t.Error(err)
				}
			}
			return
		}
		d.Dead(job.ReasonInvalid, "again")
	}, ConsumerOptions{})
	eventually(t, "terminated", r.settled)
	if _, n := seen.counts(); n < 2 { // the second one may have taken an ack wait too
		t.Errorf("%d deliveries, want 2", n)
	}
	if n := len(r.deadLetters()); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

// A broker that lost the end of its stream gives the same sequences out again: the next bad job is no repetition of the last one.
func TestF8_ASequenceGivenOutAgainIsAnotherDeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	stored := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{stored, stored.Add(time.Nanosecond), stored} {
		c := corpse{subject: job.Subject(testRoute, testSource), sequence: 1, firstSeen: at, reason: job.ReasonInvalid}
		if _, err := r.dead.add(ctxOf(t), c); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.deadLetters()); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}

// A dead letter that cannot be stored must not terminate its job.
func TestF8_JobLivesUntilItsDeadLetterIsStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	if err := r.js.DeleteStream(ctxOf(t), StreamDead); err != nil {
		t.Fatal(err)
	}
	r.enqueue(1)
	var seen tally
	r.run(newSlots(1), func(_ context.Context, d *Delivery) { seen.saw(d); d.Dead(job.ReasonInvalid, "") }, ConsumerOptions{})
	eventually(t, "it comes again", func() bool { _, n := seen.counts(); return n >= 2 })
	if r.settled() {
		t.Fatal("terminated without a dead letter")
	}
	topology, err := NewTopology(TopologyOptions{Routes: []string{testRoute}})
	if err != nil {
		t.Fatal(err)
	}
	topology.Consumers = nil
	if err := Provision(ctxOf(t), r.pub, topology); err != nil {
		t.Fatal(err)
	}
	eventually(t, "terminated", r.settled)
	if n := len(r.deadLetters()); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

func TestE18_ListingTwiceConsumesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{Routes: []string{testRoute, "eur-sct"}})
	for i := range 6 {
		route := []string{testRoute, "eur-sct"}[i%2]
		if _, err := r.dead.add(ctxOf(t), corpse{subject: job.Subject(route, testSource), sequence: uint64(i + 1), reason: job.ReasonInvalid}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(f DeadFilter) (sequences []uint64) {
		for l, err := range r.dead.List(ctxOf(t), f) {
			if err != nil {
				t.Fatal(err)
			}
			sequences = append(sequences, l.Sequence)
		}
		return sequences
	}
	tests := []struct {
		filter DeadFilter
		want   []uint64
	}{
		{DeadFilter{}, []uint64{1, 2, 3, 4, 5, 6}},
		{DeadFilter{Route: "eur-sct"}, []uint64{2, 4, 6}},
		{DeadFilter{Source: testSource, Limit: 2}, []uint64{1, 2}},
		{DeadFilter{From: 4}, []uint64{4, 5, 6}},
		{DeadFilter{Source: "nobody"}, nil},
	}
	for range 2 {
		for _, test := range tests {
			if got := list(test.filter); !slices.Equal(got, test.want) {
				t.Errorf("%+v lists %v, want %v", test.filter, got, test.want)
			}
		}
	}
	s, err := r.js.Stream(ctxOf(t), StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	if info := s.CachedInfo().State; info.Msgs != 6 || info.Consumers != 0 {
		t.Errorf("%d letters and %d consumers, want 6 and 0", info.Msgs, info.Consumers)
	}
	if l, err := r.dead.Show(ctxOf(t), 3); err != nil || l.StreamSequence != 3 {
		t.Errorf("show: %v, %v", l, err)
	}
	if _, err := r.dead.Show(ctxOf(t), 99); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("show of none: %v", err)
	}
}
