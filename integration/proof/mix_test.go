package proof

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/paidonce/paidonce/worker/job"
)

func lanes() []Lane { return []Lane{{"wallet", "gbp-fps"}, {"shop", "gbp-alt"}} }

func TestMixture_Shares(t *testing.T) {
	m, err := NewMixture(lanes(), 1000, 7, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[Kind]int{}
	first := map[int]int{}
	for place, msg := range m.Messages {
		counts[msg.Kind]++
		if msg.Kind == Fresh {
			first[msg.Of] = place
		} else if at, ok := first[msg.Of]; msg.Kind != Malformed && (!ok || at > place) {
			t.Errorf("message %d comes before its original", place)
		}
	}
	want := map[Kind]int{Fresh: 1000, Duplicate: 63, Copied: 62, Conflicting: 62, Malformed: 62}
	for k, n := range want {
		if counts[k] != n {
			t.Errorf("kind %d: %d messages, want %d", k, counts[k], n)
		}
	}
}

func TestMixture_MalformedAreRefusedAndOthersAreNot(t *testing.T) {
	m, err := NewMixture(lanes(), 400, 7, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	references := map[string]bool{}
	for _, msg := range m.Messages {
		_, err := job.Decode(msg.Lane.Source, msg.Lane.Route, msg.Payload)
		if refused := errors.As(err, new(*job.Fault)); refused != (msg.Kind == Malformed) {
			t.Errorf("kind %d: %v", msg.Kind, err)
		}
	}
	for _, k := range m.Keys {
		if len(k.Reference) != 18 || references[k.Reference] {
			t.Errorf("reference %q", k.Reference)
		}
		references[k.Reference] = true
	}
}

func TestMixture_SameSeedSameMix(t *testing.T) {
	a, errA := NewMixture(lanes(), 100, 7, time.Now())
	b, errB := NewMixture(lanes(), 100, 7, time.Now())
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	for i := range a.Messages {
		if a.Messages[i].Kind != b.Messages[i].Kind || a.Messages[i].Of != b.Messages[i].Of {
			t.Fatalf("message %d differs", i)
		}
	}
	if bytes.Equal(a.Messages[0].Payload, b.Messages[0].Payload) {
		t.Error("keys are not new")
	}
}
