package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestTopology_IsTheOneOfTheContract(t *testing.T) {
	t.Parallel()
	topology, err := NewTopology(TopologyOptions{Routes: []string{"gbp-fps", "eur-sct", "gbp-fps"}, Replicas: 3, MaxBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	wantSubjects := map[string]string{
		"WITHDRAWALS": "withdrawals.jobs.>", "WITHDRAWAL_EVENTS": "withdrawals.events.>", "WITHDRAWAL_DEAD": "withdrawals.dead.>",
	}
	for _, s := range topology.Streams {
		if len(s.Subjects) != 1 || s.Subjects[0] != wantSubjects[s.Name] {
			t.Errorf("stream %s has subjects %v", s.Name, s.Subjects)
		}
		if s.Retention != jetstream.LimitsPolicy || s.Discard != jetstream.DiscardNew || s.MaxAge != 0 || s.MaxMsgs > 0 || s.Storage != jetstream.FileStorage || s.Replicas != 3 {
			t.Errorf("stream %s may lose what it has accepted: %+v", s.Name, s)
		}
	}
	if len(topology.Streams) != 3 || topology.Streams[0].Duplicates != 10*time.Minute || topology.Streams[0].MaxBytes != 1<<40 || topology.Streams[2].MaxBytes != -1 {
		t.Errorf("streams %+v", topology.Streams)
	}
	if len(topology.Consumers) != 2 {
		t.Fatalf("%d consumers, want 2", len(topology.Consumers))
	}
	c := topology.Consumers[1]
	if c.Durable != "route_gbp-fps" || c.FilterSubject != "withdrawals.jobs.gbp-fps.*" || c.AckPolicy != jetstream.AckExplicitPolicy ||
		c.AckWait != 30*time.Second || c.MaxDeliver != -1 || len(c.BackOff) != 0 {
		t.Errorf("consumer %+v", c)
	}
}

func TestTopology_SaysEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := NewTopology(TopologyOptions{Routes: []string{"ok", "a.b", "*"}, Replicas: 2, MaxBytes: -7, AckWait: time.Millisecond, MaxAckPending: -1})
	if err == nil || strings.Count(err.Error(), "\n") != 5 {
		t.Errorf("%v, want six problems", err)
	}
}

func TestProvision_IsIdempotentAndLeavesNoDifference(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{Routes: []string{"gbp-fps", "eur-sct"}})
	wanted, err := NewTopology(TopologyOptions{Routes: []string{"gbp-fps", "eur-sct"}})
	if err != nil {
		t.Fatal(err)
	}
	r.enqueue(4)
	r.ack("gbp-fps", 3, 0)
	for range 2 {
		if err := Provision(ctxOf(t), r.pub, wanted); err != nil {
			t.Fatal(err)
		}
		found, err := Inspect(ctxOf(t), r.pub)
		if err != nil {
			t.Fatal(err)
		}
		if diffs := Compare(wanted, found); len(diffs) != 0 {
			t.Errorf("differences %v", diffs)
		}
	}
	eventually(t, "one undelivered: provisioning again keeps the position", func() bool { undelivered, _ := r.pending(); return undelivered == 1 })
}

// Fact 8: an update with defaults resets a consumer silently. The comparison sees each such setting.
func TestFact8_CompareSeesWhatAnUpdateWithDefaultsResets(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: 40 * time.Second})
	wanted, err := NewTopology(TopologyOptions{Routes: []string{testRoute}, AckWait: 40 * time.Second, MaxAckPending: 5000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.js.CreateOrUpdateConsumer(ctxOf(t), StreamJobs, jetstream.ConsumerConfig{
		Durable: ConsumerName(testRoute), FilterSubject: RouteFilter(testRoute), AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3,
	}); err != nil {
		t.Fatal(err)
	}
	found, err := Inspect(ctxOf(t), r.pub)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(Compare(wanted, found))
	for _, want := range []string{
		"consumer route_gbp-fps: ack_wait: wanted 40s, found 30s", "max_deliver: wanted none, found 3", "max_ack_pending: wanted 5000, found 1000",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("differences %s: want %q", got, want)
		}
	}
}

func TestE5_CompareSeesABackOffThatUndercutsTheAckWait(t *testing.T) {
	t.Parallel()
	wanted, err := NewTopology(TopologyOptions{Routes: []string{testRoute}})
	if err != nil {
		t.Fatal(err)
	}
	found, err := NewTopology(TopologyOptions{Routes: []string{testRoute, "gone"}})
	if err != nil {
		t.Fatal(err)
	}
	found.Consumers[0].BackOff = []time.Duration{time.Second, time.Minute}
	found.Streams = found.Streams[:2]
	found.Streams[0].MaxAge = time.Hour
	diffs := Compare(wanted, found)
	got := fmt.Sprint(diffs)
	for _, want := range []string{
		"stream WITHDRAWALS: max_age: wanted 0s, found 1h0m0s", "stream WITHDRAWAL_DEAD: wanted present, found absent",
		"consumer route_gbp-fps: ack_wait: wanted 30s, found 1s", "backoff", "consumer route_gone: wanted absent, found present",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("differences %s: want %q", got, want)
		}
	}
	if len(diffs) != 5 {
		t.Errorf("%d differences, want 5", len(diffs))
	}
}
