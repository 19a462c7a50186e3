package queue

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/worker/job"
)

// shelf is a store of jobs in memory.
type shelf struct {
	marks
	jobs []StoredJob
}

func newShelf(n int) *shelf {
	s := &shelf{}
	for i, m := range messages(n) {
		s.jobs = append(s.jobs, StoredJob{Message: m, Ref: int64(i)})
	}
	return s
}

func (s *shelf) Stored(_ context.Context, max int) ([]StoredJob, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.read(); err != nil {
		return nil, err
	}
	var batch []StoredJob
	for _, j := range s.jobs {
		if !s.marked[j.Ref] && len(batch) < max {
			batch = append(batch, j)
		}
	}
	return batch, nil
}

func (r *rig) runJobRelay(store JobStore, opts JobRelayOptions) *JobRelay {
	r.t.Helper()
	relay, err := NewJobRelay(r.pub, store, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	r.keepRunning(relay.Run)
	return relay
}

func (r *rig) storedJobs() uint64 {
	r.t.Helper()
	s, err := r.js.Stream(ctxOf(r.t), StreamJobs)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// TestJobRelay_EachJobOnce: lost marks publish again under the same message id, which the broker knows.
func TestJobRelay_EachJobOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	s := newShelf(40)
	s.failReads, s.failMarks = 1, 2
	r.runJobRelay(s, JobRelayOptions{Batch: 7, Poll: 10 * time.Millisecond})
	eventually(t, "all marked", func() bool { return s.done() == 40 })
	if n := r.storedJobs(); n != 40 {
		t.Errorf("%d messages, want 40", n)
	}
	first, err := r.js.Stream(ctxOf(t), StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := first.GetMsg(ctxOf(t), 1)
	if err != nil || raw.Header.Get("Nats-Msg-Id") != job.MsgID(testSource, s.jobs[0].Key, s.jobs[0].Payload) || raw.Subject != "withdrawals.jobs.gbp-fps.wallet" {
		t.Errorf("%+v, %v", raw, err)
	}
}

func TestJobRelay_NothingIsMarkedThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	if err := r.js.DeleteStream(ctxOf(t), StreamJobs); err != nil {
		t.Fatal(err)
	}
	s := newShelf(3)
	r.runJobRelay(s, JobRelayOptions{Poll: 10 * time.Millisecond})
	eventually(t, "several tries", func() bool { return s.looked() >= 3 })
	if s.done() != 0 {
		t.Errorf("%d jobs were marked without a stream", s.done())
	}
	if _, err := r.js.CreateStream(ctxOf(t), jetstream.StreamConfig{Name: StreamJobs, Subjects: []string{"withdrawals.jobs.>"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "published", func() bool { return s.done() == 3 })
}

// TestJobRelay_AJobThatCanNeverBePublishedHoldsNoOther.
func TestJobRelay_AJobThatCanNeverBePublishedHoldsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	s := newShelf(5)
	s.jobs[0].Route, s.jobs[2].Payload = "no.route", make([]byte, job.MaxBytes+1)
	r.runJobRelay(s, JobRelayOptions{Poll: 10 * time.Millisecond})
	eventually(t, "the others", func() bool { return s.done() == 3 })
	if n := r.storedJobs(); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}

func TestJobRelay_WakeIsFasterThanThePoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	s := newShelf(0)
	relay := r.runJobRelay(s, JobRelayOptions{Poll: time.Hour})
	eventually(t, "the first look", func() bool { return s.looked() == 1 })
	s.mu.Lock()
	s.jobs = newShelf(2).jobs
	s.mu.Unlock()
	relay.Wake()
	eventually(t, "published", func() bool { return s.done() == 2 })
}

func TestJobRelay_SurvivesACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := startChild(t)
	r := newRigAt(t, server.url, TopologyOptions{})
	s := newShelf(600)
	r.runJobRelay(s, JobRelayOptions{Batch: 50})
	eventually(t, "a third", func() bool { return s.done() > 200 })
	server.crash()
	eventually(t, "all marked", func() bool { return s.done() == 600 })
	if n := r.storedJobs(); n != 600 {
		t.Errorf("%d messages, want 600", n)
	}
}
