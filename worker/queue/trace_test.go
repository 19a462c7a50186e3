package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func sequencesOf(seen Seen) (all []uint64) {
	for _, s := range seen.Sightings {
		all = append(all, s.Sequence)
	}
	return all
}

// TestTrace_FindsWhatTheStreamsHoldOfAKey: by payload, from a time on, so far and no further; and it consumes nothing.
func TestTrace_FindsWhatTheStreamsHoldOfAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	trace, err := NewTrace(connect(t, r.url, RoleOperator))
	if err != nil {
		t.Fatal(err)
	}
	jobs := func(since time.Time, most int) Seen {
		t.Helper()
		seen, err := trace.Jobs(ctxOf(t), testRoute, testSource, keyOne, since, most)
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if seen := jobs(time.Time{}, 9); !seen.Whole || seen.Messages != 0 {
		t.Errorf("an empty stream: %+v", seen)
	}
	const subject = "withdrawals.jobs.gbp-fps.wallet"
	text := string(message(keyOne).Payload)
	r.enqueue(3)
	r.rawPublish(subject, nil, []byte(strings.ToUpper(keyOne.String())+` is in no JSON`))
	r.rawPublish(subject, nil, []byte(strings.Replace(string(messages(1)[0].Payload), `{"v":1,`, `{"v":1,"metadata":{"other":"`+keyOne.String()+`"},`, 1)))
	r.rawPublish("withdrawals.jobs.gbp-fps.other", nil, []byte(text))
	own := r.rawPublish(subject, nats.Header{"Nats-Msg-Id": {"their-own"}}, []byte(strings.Replace(text, keyOne.String(), strings.ToUpper(keyOne.String()), 1)))
	r.enqueue(2)
	if _, err := r.publish.Replay(ctxOf(t), message(keyOne), 3); err != nil {
		t.Fatal(err)
	}
	r.enqueue(1)
	seen := jobs(time.Time{}, 99)
	if !slices.Equal(sequencesOf(seen), []uint64{7, 10}) || own != 7 || !seen.Whole || seen.Messages != 10 {
		t.Fatalf("%+v", seen)
	}
	if one, two := seen.Sightings[0], seen.Sightings[1]; one.MessageID != "their-own" || one.Replay != 0 || two.Replay != 3 || two.MessageID != keyOne.String()+":r3" {
		t.Errorf("%+v", seen.Sightings)
	}
	if some := jobs(seen.Sightings[0].At, 3); !slices.Equal(sequencesOf(some), []uint64{7}) || some.Whole || some.Messages != 3 || some.Until.Before(seen.Sightings[0].At) {
		t.Errorf("three from the first: %+v", some)
	}
	if some := jobs(seen.Sightings[1].At.Add(time.Nanosecond), 99); len(some.Sightings) != 0 || some.Messages > 1 || !some.Whole {
		t.Errorf("after the last: %+v", some)
	}
	for sequence, is := range map[uint64]bool{7: true, 10: true, 1: false, 99: false} {
		if one, there, err := trace.Job(ctxOf(t), keyOne, sequence); err != nil || there != is || is && one.Sequence != sequence {
			t.Errorf("job %d: %+v, %t, %v", sequence, one, there, err)
		}
	}
	if at, err := trace.Position(ctxOf(t), testRoute); err != nil || at != (Position{}) {
		t.Errorf("position %+v, %v", at, err)
	}
	if _, err := trace.Position(ctxOf(t), "no-such-route"); err == nil {
		t.Error("a route without a consumer has a position")
	}
	if undelivered, unacknowledged := r.pending(); undelivered != 11 || unacknowledged != 0 {
		t.Errorf("%d undelivered, %d unacknowledged: something was consumed", undelivered, unacknowledged)
	}
}

func TestTrace_FindsEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	trace, err := NewTrace(connect(t, r.url, RoleOperator))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * traceBatch {
		id := fmt.Sprint("other.", n)
		switch n {
		case 5, traceBatch + 5:
			id = fmt.Sprint(keyOne, ".parked.", n)
		}
		if _, err := r.js.PublishMsgAsync(&nats.Msg{Subject: "withdrawals.events.gbp-fps.wallet.parked", Header: nats.Header{"Nats-Msg-Id": {id}}, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	ours := func(id string) bool { return strings.HasPrefix(id, keyOne.String()+".parked.") }
	for _, c := range []struct {
		what         string
		kind         string
		enough, most int
		want         []uint64
		whole        bool
	}{
		{"all", "parked", 9, 9 * traceBatch, []uint64{6, traceBatch + 6}, true},
		{"enough", "parked", 1, 9 * traceBatch, []uint64{6}, false},
		{"so far", "parked", 9, traceBatch, []uint64{6}, false},
		{"none of the kind", "settled", 9, 9, nil, true},
	} {
		seen, err := trace.Events(ctxOf(t), testRoute, testSource, c.kind, ours, time.Now().Add(-time.Hour), c.enough, c.most)
		if err != nil || !slices.Equal(sequencesOf(seen), c.want) || seen.Whole != c.whole {
			t.Errorf("%s: %v, whole %t, %v", c.what, sequencesOf(seen), seen.Whole, err)
		}
	}
	if seen, err := trace.Events(ctxOf(t), testRoute, testSource, "parked", ours, time.Now().Add(time.Hour), 9, 9); err != nil || len(seen.Sightings) != 0 || !seen.Whole {
		t.Errorf("of the future: %+v, %v", seen, err)
	}
	if stream, err := r.js.Stream(ctxOf(t), StreamEvents); err != nil || stream.CachedInfo().State.Consumers != 0 {
		t.Errorf("consumers are left behind: %v", err)
	}
}
