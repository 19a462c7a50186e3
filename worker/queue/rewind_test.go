package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/worker/job"
)

// TestRewind_DeliversAgainWhatWasAcknowledgedSince: also behind a purge, and nothing older.
func TestRewind_DeliversAgainWhatWasAcknowledgedSince(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{Routes: []string{"gbp-fps", "idle"}})
	for range 4 {
		r.rawPublish(job.Subject("gbp-fps", testSource), nil, nil)
	}
	stream, err := r.js.Stream(ctxOf(t), StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	third, err := stream.GetMsg(ctxOf(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	r.ack("gbp-fps", 4, 0)
	if err := stream.DeleteMsg(ctxOf(t), 2); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		since time.Time
		want  []uint64
	}{
		"since the third":     {third.Time, []uint64{3, 4}},
		"since ever":          {time.Time{}, []uint64{1, 3, 4}},
		"since after the end": {time.Now().Add(time.Hour), nil},
	} {
		now, err := r.js.Stream(ctxOf(t), StreamJobs)
		if err != nil {
			t.Fatal(err)
		}
		done, err := rewindSince(ctxOf(t), r.js, now, test.since)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := test.want; len(want) > 0 && (done.From != want[0] || !slices.Equal(done.Consumers, []string{"route_gbp-fps"})) || len(want) == 0 && done.From != 0 {
			t.Errorf("%s: %+v", name, done)
		}
		c, err := r.js.Consumer(ctxOf(t), StreamJobs, ConsumerName("gbp-fps"))
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		take := func(n int, wait time.Duration) {
			batch, err := c.Fetch(n, jetstream.FetchMaxWait(wait))
			if err != nil {
				t.Fatal(err)
			}
			for msg := range batch.Messages() {
				meta, err := msg.Metadata()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, meta.Sequence.Stream)
				if err := msg.DoubleAck(ctxOf(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(test.want) > 0 {
			take(len(test.want), time.Minute) // ends with the last of them
		}
		take(10, 300*time.Millisecond) // and no more
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v came again, want %v", name, got, test.want)
		}
	}
}

// TestRewind_CountsByTheBrokersClock: an hour reaches back over all of it, and the shortest time over nothing.
func TestRewind_CountsByTheBrokersClock(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	first := r.rawPublish(job.Subject("gbp-fps", testSource), nil, nil)
	r.ack("gbp-fps", 1, 0)
	if done, err := Rewind(ctxOf(t), r.pub, time.Nanosecond); err != nil || done.From != 0 {
		t.Errorf("a nanosecond: %+v, %v", done, err)
	}
	if done, err := Rewind(ctxOf(t), r.pub, time.Hour); err != nil || done.From != first || len(done.Consumers) != 1 {
		t.Errorf("an hour: %+v, %v", done, err)
	}
	if done, err := Rewind(ctxOf(t), r.pub, -time.Hour); err != nil || done.From != 0 {
		t.Errorf("an hour ahead: %+v, %v", done, err)
	}
}
