package queue

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/job"
)

func TestHints_EveryKeyIsHeardAndNoStreamKeepsThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	var mu sync.Mutex
	var heard []uuid.UUID
	if err := HearHints(r.pub, func(key uuid.UUID) { mu.Lock(); heard = append(heard, key); mu.Unlock() }); err != nil {
		t.Fatal(err)
	}
	if err := r.pub.Flush(); err != nil {
		t.Fatal(err)
	}
	keys := make([]uuid.UUID, 2*mostHints+1)
	for i := range keys {
		keys[i] = job.NewKey()
	}
	if err := r.sub.Publish("withdrawals.recorded", []byte("shorter")); err != nil {
		t.Fatal(err)
	}
	hints := NewHints(r.sub, zerolog.Nop())
	hints.Say(nil)
	hints.Say(keys)
	eventually(t, "all are heard", func() bool { mu.Lock(); defer mu.Unlock(); return len(heard) >= len(keys) })
	if !slices.Equal(heard, keys) {
		t.Error("what was heard is not what was said")
	}
	for _, name := range []string{StreamJobs, StreamEvents, StreamDead} {
		s, err := r.js.Stream(ctxOf(t), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.Msgs; n != 0 {
			t.Errorf("%s keeps %d messages", name, n)
		}
	}
}

// TestHints_UnderTheRoles: a worker says them, a gateway hears them, and nobody else may do either.
func TestHints_UnderTheRoles(t *testing.T) {
	d, url := guarded(t)
	heard := make(chan uuid.UUID, 1)
	gateway := d.connect(t, url, RoleGateway, nil)
	if err := HearHints(gateway, func(key uuid.UUID) { heard <- key }); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Flush(); err != nil {
		t.Fatal(err)
	}
	key := job.NewKey()
	NewHints(d.connect(t, url, RoleWorker, nil), zerolog.Nop()).Say([]uuid.UUID{key})
	select {
	case got := <-heard:
		if got != key {
			t.Errorf("heard %s, said %s", got, key)
		}
	case <-ctxOf(t).Done():
		t.Fatal("not heard")
	}
	for _, role := range []Role{RolePublisher, RoleGateway, RoleOperator, RoleProvisioner} {
		nc := d.connect(t, url, role, nil)
		denied(t, nc, "Publish to", recordedSubject, func() error { return nc.Publish(recordedSubject, nil) })
	}
	for _, role := range []Role{RolePublisher, RoleWorker, RoleOperator, RoleProvisioner} {
		nc := d.connect(t, url, role, nil)
		denied(t, nc, "Subscription to", recordedSubject, func() error { _, err := nc.SubscribeSync(recordedSubject); return err })
	}
}

// TestHints_ABrokerWithoutTheRightIsAskedOnce: the roles of a broker may be older than the worker.
func TestHints_ABrokerWithoutTheRightIsAskedOnce(t *testing.T) {
	d, url := guarded(t)
	nc := d.connect(t, url, RolePublisher, nil) // may as little as an older worker
	refusals := make(chan error, 16)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refusals <- err })
	var log bytes.Buffer
	hints := NewHints(nc, zerolog.New(&log))
	for range 5 {
		hints.Say([]uuid.UUID{job.NewKey()})
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	<-refusals
	if len(refusals) != 0 || bytes.Count(log.Bytes(), []byte("roles.conf")) != 1 {
		t.Errorf("%d more refusals; log %s", len(refusals), &log)
	}
}
