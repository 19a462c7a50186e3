package queue

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/worker/job"
)

func (r *rig) pass(window time.Duration) JanitorReport {
	r.t.Helper()
	j, err := NewJanitor(r.pub, JanitorOptions{Window: window})
	if err != nil {
		r.t.Fatal(err)
	}
	report, err := j.Pass(ctxOf(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

func (r *rig) subjects() map[string]uint64 {
	r.t.Helper()
	s, err := r.js.Stream(ctxOf(r.t), StreamJobs)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(ctxOf(r.t), jetstream.WithSubjectFilter(">"))
	if err != nil {
		r.t.Fatal(err)
	}
	return info.State.Subjects
}

// ack settles n jobs of a route, and leaves the next ones taken and unsettled.
func (r *rig) ack(route string, n, leave int) {
	r.t.Helper()
	c, err := r.js.Consumer(ctxOf(r.t), StreamJobs, ConsumerName(route))
	if err != nil {
		r.t.Fatal(err)
	}
	batch, err := c.Fetch(n+leave, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		r.t.Fatal(err)
	}
	i := 0
	for msg := range batch.Messages() {
		if i++; i <= n {
			if err := msg.DoubleAck(context.Background()); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if i != n+leave {
		r.t.Fatalf("%d jobs of route %s came, want %d", i, route, n+leave)
	}
}

func TestJanitor_EachRouteByItsOwnFloorAndNothingWithoutAConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{Routes: []string{"done", "half", "idle"}, AckWait: time.Minute})
	for range 10 {
		for _, route := range []string{"done", "half", "idle", "stray"} {
			r.rawPublish(job.Subject(route, "wallet"), nil, nil)
			r.rawPublish(job.Subject(route, "shop"), nil, nil)
		}
		r.rawPublish("withdrawals.jobs.done", nil, nil)
	}
	r.ack("done", 20, 0)
	r.ack("half", 8, 2)

	if report := r.pass(time.Hour); report.Removed != 0 {
		t.Errorf("removed %d that are inside the redo window", report.Removed)
	}
	report := r.pass(time.Nanosecond)
	if report.Removed != 28 {
		t.Errorf("removed %d, want 20 + 8", report.Removed)
	}
	wantUnserved := map[string]uint64{"withdrawals.jobs.stray.wallet": 10, "withdrawals.jobs.stray.shop": 10, "withdrawals.jobs.done": 10}
	if !maps.Equal(report.Unserved, wantUnserved) {
		t.Errorf("unserved %v, want %v", report.Unserved, wantUnserved)
	}
	want := map[string]uint64{
		"withdrawals.jobs.half.wallet": 6, "withdrawals.jobs.half.shop": 6,
		"withdrawals.jobs.idle.wallet": 10, "withdrawals.jobs.idle.shop": 10,
		"withdrawals.jobs.stray.wallet": 10, "withdrawals.jobs.stray.shop": 10, "withdrawals.jobs.done": 10,
	}
	if got := r.subjects(); !maps.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

func TestJanitor_KeepsWhatIsYoungerThanTheWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{Routes: []string{"done"}})
	for range 50 {
		r.rawPublish(job.Subject("done", "wallet"), nil, nil)
	}
	between := time.Now()
	const gap = 3 * time.Second
	eventually(t, "some time has gone", func() bool { return time.Since(between) > gap })
	for range 30 {
		r.rawPublish(job.Subject("done", "wallet"), nil, nil)
	}
	r.ack("done", 80, 0)
	if report := r.pass(time.Since(between) - 10*time.Millisecond); report.Removed != 50 { // it may begin nearly the gap later
		t.Errorf("removed %d, want the 50 that are older", report.Removed)
	}
	if got := r.subjects()["withdrawals.jobs.done.wallet"]; got != 30 {
		t.Errorf("%d are left, want 30", got)
	}
}

func TestJanitor_DefaultWindowIsSevenDays(t *testing.T) {
	t.Parallel()
	j, err := NewJanitor(connect(t, "nats://127.0.0.1:1", RoleOperator), JanitorOptions{})
	if err != nil || j.opts.Window != 168*time.Hour {
		t.Errorf("window %s, %v", j.opts.Window, err)
	}
}
