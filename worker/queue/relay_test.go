package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// box is an outbox in memory with the rules of the real one: the oldest event per key first, at most one per key in a batch.
type box struct {
	marks
	events []Event // Ref is the index
	keys   []string
}

func (b *box) put(key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		ref := len(b.events)
		b.events = append(b.events, Event{
			ID: fmt.Sprintf("event-%d", ref), Subject: "withdrawals.events.gbp-fps.wallet.accepted", Body: fmt.Appendf(nil, "%s %d", key, ref), Ref: int64(ref),
		})
		b.keys = append(b.keys, key)
	}
}

func (b *box) Unpublished(_ context.Context, max int) ([]Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.read(); err != nil {
		return nil, err
	}
	var batch []Event
	taken := make(map[string]bool)
	for i, e := range b.events {
		if b.marked[e.Ref] || taken[b.keys[i]] || len(batch) == max {
			continue
		}
		taken[b.keys[i]] = true
		batch = append(batch, e)
	}
	return batch, nil
}

func (b *box) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		if !b.marked[e.Ref] {
			n++
		}
	}
	return n
}

func (r *rig) runRelay(b *box, opts RelayOptions) *Relay {
	r.t.Helper()
	relay, err := NewRelay(r.pub, b, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.keepRunning(relay.Run)
	return relay
}

func (r *rig) eventBodies() []string {
	r.t.Helper()
	s, err := r.js.Stream(ctxOf(r.t), StreamEvents)
	if err != nil {
		r.t.Fatal(err)
	}
	var bodies []string
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		raw, err := s.GetMsg(ctxOf(r.t), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		bodies = append(bodies, string(raw.Data))
	}
	return bodies
}

// checkEvents: each event once, and those of a key in the order of the outbox.
func checkEvents(t *testing.T, bodies []string, want int) {
	t.Helper()
	if len(bodies) != want {
		t.Errorf("%d events stored, want %d", len(bodies), want)
	}
	last := make(map[string]int)
	for _, body := range bodies {
		var key string
		var ref int
		if _, err := fmt.Sscanf(body, "%s %d", &key, &ref); err != nil {
			t.Fatal(err)
		}
		if before, seen := last[key]; seen && before >= ref {
			t.Errorf("event %d of key %s comes behind %d", ref, key, before)
		}
		last[key] = ref
	}
}

func TestL4_EventsOfAKeyComeInOrderOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	b := &box{marks: marks{failMarks: 2, failReads: 1}} // lost marks publish again, under the same id
	for i := range 40 {
		b.put(fmt.Sprintf("key-%d", i%7), 3)
	}
	r.runRelay(b, RelayOptions{Batch: 5})
	eventually(t, "all published", func() bool { return b.open() == 0 })
	checkEvents(t, r.eventBodies(), 120)
}

func TestL4_EventsSurviveACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := startChild(t)
	r := newRigAt(t, server.url, TopologyOptions{})
	b := &box{}
	for i := range 600 {
		b.put(fmt.Sprintf("key-%d", i%50), 2)
	}
	r.runRelay(b, RelayOptions{Batch: 50})
	eventually(t, "a third", func() bool { return b.open() < 800 })
	server.crash()
	eventually(t, "all published", func() bool { return b.open() == 0 })
	checkEvents(t, r.eventBodies(), 1200)
}

func TestRelay_WakeIsFasterThanThePoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	b := &box{}
	relay := r.runRelay(b, RelayOptions{Poll: time.Hour})
	eventually(t, "the first look", func() bool { return b.looked() == 1 })
	b.put("key", 3)
	relay.Wake()
	eventually(t, "published", func() bool { return b.open() == 0 })
}

func TestRelay_PollFindsWhatNobodyWokeItFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	b := &box{}
	r.runRelay(b, RelayOptions{Poll: 20 * time.Millisecond})
	eventually(t, "the first look", func() bool { return b.looked() > 0 })
	b.put("key", 1)
	eventually(t, "published", func() bool { return b.open() == 0 })
}

func TestRelay_NothingIsMarkedThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	if err := r.js.DeleteStream(ctxOf(t), StreamEvents); err != nil {
		t.Fatal(err)
	}
	b := &box{}
	b.put("key", 2)
	r.runRelay(b, RelayOptions{Poll: 20 * time.Millisecond})
	eventually(t, "several tries", func() bool { return b.looked() >= 3 })
	if b.open() != 2 {
		t.Errorf("%d events are open, want 2", b.open())
	}
	if _, err := r.js.CreateStream(ctxOf(t), jetstream.StreamConfig{Name: StreamEvents, Subjects: []string{"withdrawals.events.>"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "published", func() bool { return b.open() == 0 })
	if bodies := r.eventBodies(); !slices.Equal(bodies, []string{"key 0", "key 1"}) {
		t.Errorf("events %v", bodies)
	}
}

// TestRelay_ABrokenEventHoldsBackItsKeyOnly: one that cannot be rendered, one outside of the stream's subjects and one that the broker refuses.
func TestRelay_ABrokenEventHoldsBackItsKeyOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	b := &box{}
	for _, key := range []string{"unrendered", "elsewhere", "refused"} {
		b.put(key, 2)
	}
	b.events[0].Broken = errors.New("cannot be rendered")
	b.events[2].Subject = "withdrawals.jobs.gbp-fps.wallet"
	b.events[4].Body = make([]byte, r.pub.MaxPayload()+1)
	b.put("good", 3)
	b.put("fine", 2)
	relay := r.runRelay(b, RelayOptions{Batch: 1, Poll: 10 * time.Millisecond}) // what is held back takes nobody's place
	eventually(t, "the others", func() bool { return b.open() == 6 })
	eventually(t, "counted", func() bool { return relay.Held() == 3 })
	if bodies := r.eventBodies(); !slices.Equal(bodies, []string{"good 6", "good 7", "good 8", "fine 9", "fine 10"}) {
		t.Errorf("events %v", bodies)
	}
	b.mu.Lock() // a newer program renders them
	for i := range 6 {
		b.events[i].Broken, b.events[i].Subject, b.events[i].Body = nil, b.events[1].Subject, fmt.Appendf(nil, "late%d %d", i/2, i)
	}
	b.mu.Unlock()
	eventually(t, "published", func() bool { return b.open() == 0 && relay.Held() == 0 })
	checkEvents(t, r.eventBodies(), 11)
}

func TestRelay_MessageIDIsTheEventID(t *testing.T) {
	t.Parallel()
	m, err := Event{ID: "event-7", Subject: "withdrawals.events.gbp-fps.wallet.settled", TraceParent: "00-a-b-01"}.msg()
	if err != nil || m.Header["Nats-Msg-Id"][0] != "event-7" || m.Header["traceparent"][0] != "00-a-b-01" {
		t.Errorf("%v, %v", m, err)
	}
	for _, e := range []Event{{Subject: "withdrawals.events.a.b.c"}, {ID: "x", Subject: "withdrawals.jobs.a.b"}} {
		if _, err := e.msg(); err == nil || !strings.Contains(err.Error(), "without an id or outside") {
			t.Errorf("%+v gives %v", e, err)
		}
	}
}
