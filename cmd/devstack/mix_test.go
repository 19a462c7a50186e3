package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/worker/job"
)

func TestMixture_Shares(t *testing.T) {
	m, err := newMixture(1000, 7, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[kind]int{}
	first := map[int]int{}
	for place, msg := range m.messages {
		counts[msg.kind]++
		if msg.kind == fresh {
			first[msg.of] = place
		} else if at, ok := first[msg.of]; msg.kind != malformed && (!ok || at > place) {
			t.Errorf("message %d comes before its original", place)
		}
	}
	want := map[kind]int{fresh: 1000, duplicate: 63, copied: 62, conflicting: 62, malformed: 62}
	for k, n := range want {
		if counts[k] != n {
			t.Errorf("kind %d: %d messages, want %d", k, counts[k], n)
		}
	}
}

func TestMixture_MalformedAreRefusedAndOthersAreNot(t *testing.T) {
	m, err := newMixture(400, 7, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	references := map[string]bool{}
	for _, msg := range m.messages {
		_, err := job.Decode(source, route, msg.payload)
		if refused := errors.As(err, new(*job.Fault)); refused != (msg.kind == malformed) {
			t.Errorf("kind %d: %v", msg.kind, err)
		}
	}
	for _, k := range m.keys {
		if len(k.reference) != 18 || references[k.reference] {
			t.Errorf("reference %q", k.reference)
		}
		references[k.reference] = true
	}
}

func TestMixture_SameSeedSameMix(t *testing.T) {
	a, errA := newMixture(100, 7, time.Now())
	b, errB := newMixture(100, 7, time.Now())
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	for i := range a.messages {
		if a.messages[i].kind != b.messages[i].kind || a.messages[i].of != b.messages[i].of {
			t.Fatalf("message %d differs", i)
		}
	}
	if bytes.Equal(a.messages[0].payload, b.messages[0].payload) {
		t.Error("keys are not new")
	}
}
