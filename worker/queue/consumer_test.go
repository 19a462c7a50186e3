package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/job"
)

// tally counts what handlers saw.
type tally struct {
	mu    sync.Mutex
	by    map[uint64]int // deliveries by stream sequence
	total int
}

func (y *tally) saw(d *Delivery) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.by == nil {
		y.by = make(map[uint64]int)
	}
	y.by[d.Origin().Sequence]++
	y.total++
	return y.by[d.Origin().Sequence]
}

func (y *tally) counts() (jobs, deliveries int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.by), y.total
}

func TestE2_SlowHandlersKeepTheirJobs(t *testing.T) {
	t.Parallel()
	// Ten jobs and two slots of 700 ms each, at an ack wait of a second: 3.5 ack waits in all, and each is heartbeated over its own.
	atSomePace(t, time.Second, func(t *testing.T, ackWait time.Duration) error { return slowHandlers(t, ackWait, 2, ackWait*7/10) })
}

// slowHandlers works ten jobs and says whether one of them came twice.
func slowHandlers(t *testing.T, ackWait time.Duration, n int, each time.Duration) error {
	r := newRig(t, TopologyOptions{AckWait: ackWait})
	r.enqueue(10)
	var seen tally
	stop := r.run(newSlots(n), func(_ context.Context, d *Delivery) {
		seen.saw(d)
		<-time.After(each)
		d.Done()
	}, ConsumerOptions{AckWait: ackWait})
	eventually(t, "all acknowledged", r.settled)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if jobs, deliveries := seen.counts(); jobs != 10 || deliveries != 10 {
		return fmt.Errorf("%d jobs in %d deliveries, want 10 in 10", jobs, deliveries)
	}
	return nil
}

func TestE2_HandlerOfThreeAckWaitsIsHeartbeated(t *testing.T) {
	t.Parallel()
	// More slots than jobs: one whose ack wait ran out would be taken at once.
	atSomePace(t, time.Second, func(t *testing.T, ackWait time.Duration) error { return slowHandlers(t, ackWait, 20, 3*ackWait) })
}

func TestE2_NoJobIsTakenWithoutASlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.enqueue(50)
	release := make(chan struct{})
	var running atomic.Int64
	r.run(newSlots(3), func(_ context.Context, d *Delivery) {
		running.Add(1)
		<-release
		d.Done()
	}, ConsumerOptions{})
	eventually(t, "three handlers", func() bool { return running.Load() == 3 })
	eventually(t, "three jobs out of the broker", func() bool { a, b := r.pending(); return a == 47 && b == 3 }) // it counts a moment after a publish
	stays(t, "three jobs out of the broker", 1500*time.Millisecond, func() bool { a, b := r.pending(); return a == 47 && b == 3 })
	close(release)
	eventually(t, "all acknowledged", r.settled)
}

func TestConsumer_ClosedIntakePullsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.enqueue(5)
	eventually(t, "five jobs undelivered", func() bool { a, _ := r.pending(); return a == 5 })
	r.run(closed{}, func(context.Context, *Delivery) { t.Error("a job was taken") }, ConsumerOptions{})
	stays(t, "five jobs undelivered", 500*time.Millisecond, func() bool { a, b := r.pending(); return a == 5 && b == 0 })
}

// An idle consumer holds one slot per puller, so that the sweep finds the others free.
func TestConsumer_IdlePullsHoldOneSlotEach(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.enqueue(2000)
	intake := newSlots(300)
	r.run(intake, func(_ context.Context, d *Delivery) { d.Done() }, ConsumerOptions{Pullers: 2})
	eventually(t, "all acknowledged", r.settled)
	eventually(t, "298 slots free", func() bool { return len(intake.free) >= 298 })
}

// A delivery is handled by a goroutine that has handled others if one is idle, and none outlives Run.
func TestConsumer_HandlersAreUsedAgainAndEndWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.enqueue(100)
	var mu sync.Mutex
	handlers := make(map[string]int)
	name := func(stack []byte) string { return string(bytes.SplitN(stack, []byte(" ["), 2)[0]) } // "goroutine 42", which no other is ever called
	stop := r.run(newSlots(2), func(_ context.Context, d *Delivery) {
		stack := make([]byte, 64)
		mu.Lock()
		handlers[name(stack[:runtime.Stack(stack, false)])]++
		mu.Unlock()
		<-time.After(5 * time.Millisecond)
		d.Done()
	}, ConsumerOptions{})
	eventually(t, "all acknowledged", r.settled)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if len(handlers) > 20 { // two slots; one that was just released may start another
		t.Errorf("%d goroutines handled 100 deliveries", len(handlers))
	}
	all := make([]byte, 8<<20)
	for stack := range bytes.SplitSeq(all[:runtime.Stack(all, true)], []byte("\n\n")) {
		if handlers[name(stack)] > 0 && bytes.Contains(stack, []byte("(*Consumer).work(")) {
			t.Errorf("Run has returned, and this one is still there:\n%s", stack)
		}
	}
}

// Run waits for those who are idle, within its grace: one that does not end is told of.
func TestConsumer_RunWaitsForThoseWhoAreIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	c, err := NewConsumer(r.sub, r.dead, testRoute, newSlots(1), nil, ConsumerOptions{AckWait: time.Second, Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	stays := make(chan struct{})
	defer close(stays)
	c.workers.Go(func() { <-stays })
	if err := start(c.Run)(); err == nil || !strings.Contains(err.Error(), "grace of 50ms is over") {
		t.Errorf("%v, want that the grace is over", err)
	}
	if c.life.Err() == nil {
		t.Error("those who are idle were not told to end")
	}
}

func TestE4_JobsOfADeadWorkerResumeWithinTwoAckWaits(t *testing.T) {
	t.Parallel()
	atSomePace(t, 2*time.Second, resumes)
}

func resumes(t *testing.T, ackWait time.Duration) error {
	r := newRig(t, TopologyOptions{AckWait: ackWait})
	r.enqueue(20)
	// The first worker is gone without a word: it has taken all jobs, and its connection is cut with no shutdown.
	doomed := connect(t, r.url, RoleWorker)
	js, err := jetstream.New(doomed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(ctxOf(t), StreamJobs, ConsumerName(testRoute))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(20, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range batch.Messages() {
		n++
	}
	if n != 20 {
		t.Fatalf("the first worker has %d jobs, want 20", n)
	}
	doomed.Close()
	died := time.Now()

	var seen tally
	r.run(newSlots(20), func(_ context.Context, d *Delivery) { seen.saw(d); d.Done() }, ConsumerOptions{})
	eventually(t, "all resumed", func() bool { jobs, _ := seen.counts(); return jobs == 20 })
	if took := time.Since(died); took > 2*ackWait {
		return fmt.Errorf("resumed after %s, want at most two ack waits", took)
	}
	return nil
}

func TestE5_BackOffThatUndercutsTheAckWaitIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*jetstream.ConsumerConfig)
		want   string
	}{
		"backoff": {func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second, 40 * time.Second} },
			"redelivers after 1s, the ack wait is 30s"},
		"long backoff": {func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{40 * time.Second} }, "has a backoff"},
		"ack wait":     {func(c *jetstream.ConsumerConfig) { c.AckWait = 8 * time.Second }, "redelivers after 8s"},
		"max deliver":  {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, "gives up after 5"},
		"filter":       {func(c *jetstream.ConsumerConfig) { c.FilterSubject = "withdrawals.jobs.>" }, "its filter is"},
		"headers only": {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, "headers only"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, TopologyOptions{Routes: []string{}})
			topology, err := NewTopology(TopologyOptions{Routes: []string{testRoute}})
			if err != nil {
				t.Fatal(err)
			}
			test.change(&topology.Consumers[0])
			if err := Provision(ctxOf(t), r.pub, topology); err != nil {
				t.Fatal(err)
			}
			c, err := NewConsumer(r.sub, r.dead, testRoute, newSlots(1), nil, ConsumerOptions{AckWait: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Run(ctxOf(t))
			var unfit *UnfitError
			if !errors.As(err, &unfit) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("start gives %v, want a refusal with %q", err, test.want)
			}
		})
	}
}

func TestConsumer_MissingConsumerIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{Routes: []string{}})
	c, err := NewConsumer(r.sub, r.dead, testRoute, newSlots(1), nil, ConsumerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctxOf(t)); !errors.Is(err, ErrNotProvisioned) || !strings.Contains(err.Error(), "paidonce migrate up") {
		t.Errorf("start gives %v", err)
	}
}

// E7: a delivery count says nothing: after any number of deliveries the job still reaches a handler.
func TestE7_JobAtAHighDeliveryCountStillSurfaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.enqueue(1)
	var last atomic.Int64
	r.run(newSlots(1), func(_ context.Context, d *Delivery) {
		last.Store(int64(d.Origin().Deliveries))
		if d.Origin().Deliveries < 60 {
			d.Retry(0)
			return
		}
		d.Done()
	}, ConsumerOptions{AckWait: 30 * time.Second}) // so that the job comes again for what the handler says, and for nothing else
	eventually(t, "acknowledged", r.settled)
	if last.Load() != 60 {
		t.Errorf("last delivery was %d, want 60", last.Load())
	}
	if dead := r.deadLetters(); len(dead) != 0 {
		t.Errorf("%d dead letters, want none", len(dead))
	}
}

func TestE6_RetryWaitsAndNothingDies(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.enqueue(10)
	var back atomic.Bool // the ledger
	var seen tally
	r.run(newSlots(10), func(_ context.Context, d *Delivery) {
		seen.saw(d)
		if back.Load() {
			d.Done()
			return
		}
		d.Retry(300 * time.Millisecond)
	}, ConsumerOptions{})
	eventually(t, "every job was retried", func() bool { _, n := seen.counts(); return n >= 30 })
	back.Store(true)
	eventually(t, "acknowledged", r.settled)
	if dead := r.deadLetters(); len(dead) != 0 {
		t.Errorf("%d dead letters, want none", len(dead))
	}
}

func TestE15_SettlesOnceOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	r.enqueue(1)
	var seen tally
	r.run(newSlots(1), func(_ context.Context, d *Delivery) {
		seen.saw(d)
		d.Done()
		d.Retry(0)
		d.Dead(job.ReasonInvalid, "too late")
		d.Done()
	}, ConsumerOptions{AckWait: 30 * time.Second})
	eventually(t, "acknowledged", r.settled)
	stays(t, "one delivery", 1500*time.Millisecond, func() bool { _, n := seen.counts(); return n == 1 })
	if dead := r.deadLetters(); len(dead) != 0 {
		t.Errorf("%d dead letters, want none", len(dead))
	}
}

// E16: a process that dies right after receipt has acknowledged nothing.
func TestE16_CrashRightAfterReceiptLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.enqueue(5)
	hold := make(chan struct{})
	var first atomic.Int64
	doomed := connect(t, r.url, RoleWorker)
	c, err := NewConsumer(doomed, r.dead, testRoute, newSlots(5), func(context.Context, *Delivery) { first.Add(1); <-hold },
		ConsumerOptions{AckWait: time.Second, Grace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(context.Background()) }()
	eventually(t, "the first worker has all", func() bool { return first.Load() == 5 })
	doomed.Close() // with it the heartbeats end

	var seen tally
	r.run(newSlots(5), func(_ context.Context, d *Delivery) { seen.saw(d); d.Done() }, ConsumerOptions{})
	eventually(t, "all five come again", func() bool { jobs, _ := seen.counts(); return jobs == 5 })
	close(hold)
	<-ended
}

func TestFact1_JobsComeBackAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	server := startChild(t)
	r := newRigAt(t, server.url, TopologyOptions{AckWait: time.Second})
	r.enqueue(100)
	var seen tally
	r.run(newSlots(100), func(_ context.Context, d *Delivery) { seen.saw(d); d.Done() }, ConsumerOptions{})
	eventually(t, "all worked", func() bool { jobs, _ := seen.counts(); return jobs == 100 })
	eventually(t, "all acknowledged", r.settled)

	server.crash()
	r.enqueue(10)
	eventually(t, "the later ones are worked too", func() bool { jobs, _ := seen.counts(); return jobs == 110 })
	eventually(t, "all acknowledged again", r.settled)
	// How many come back is the server's affair; that it may be any number is why an acknowledgement decides nothing.
	_, deliveries := seen.counts()
	t.Logf("%d deliveries of 110 jobs", deliveries)
	if deliveries > 210 {
		t.Errorf("%d deliveries of 110 jobs: more than one crash explains", deliveries)
	}
}

// Fact 2: the client's Messages loses what it has prefetched at a reconnect. Pulls with one slot per job lose nothing.
func TestFact2_ReconnectsLoseNoJob(t *testing.T) {
	t.Parallel()
	server := startChild(t)
	r := newRigAt(t, server.url, TopologyOptions{AckWait: time.Second})
	r.enqueue(600)
	var seen tally
	r.run(newSlots(20), func(_ context.Context, d *Delivery) {
		seen.saw(d)
		<-time.After(2 * time.Millisecond)
		d.Done()
	}, ConsumerOptions{})
	for _, at := range []int{100, 250, 400} {
		eventually(t, "progress", func() bool { jobs, _ := seen.counts(); return jobs >= at })
		server.crash()
	}
	eventually(t, "every job is worked", func() bool { jobs, _ := seen.counts(); return jobs == 600 })
	eventually(t, "all acknowledged", r.settled)
}

// Fact 3: a shutdown hands back what it has not started at once, and burns no ack wait.
func TestFact3_ShutdownLeavesTheRestToOthersAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: 30 * time.Second})
	r.enqueue(500)
	var first, second tally
	release := make(chan struct{})
	stop := r.run(newSlots(40), func(_ context.Context, d *Delivery) {
		first.saw(d)
		<-release
		d.Done()
	}, ConsumerOptions{AckWait: 30 * time.Second})
	eventually(t, "forty are under way", func() bool { jobs, _ := first.counts(); return jobs == 40 })
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	r.run(newSlots(40), func(_ context.Context, d *Delivery) { second.saw(d); d.Done() }, ConsumerOptions{AckWait: 30 * time.Second})
	eventually(t, "the other worker has the rest", func() bool { jobs, _ := second.counts(); return jobs >= 460 })
	close(release)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	eventually(t, "all acknowledged", r.settled)
	a, _ := first.counts()
	b, n := second.counts()
	if a+b != 500 || n != b {
		t.Errorf("%d and %d jobs, the second in %d deliveries; want 500 in all, each once", a, b, n)
	}
}

func TestE13_ShutdownWaitsForHandlersOnAContextThatLives(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.enqueue(1)
	started, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Value
	stop := r.run(newSlots(1), func(ctx context.Context, d *Delivery) {
		close(started)
		<-release
		ended.Store(ctx.Err() == nil)
		d.Done()
	}, ConsumerOptions{})
	<-started
	result := make(chan error, 1)
	go func() { result <- stop() }()
	stays(t, "the consumer waits, for longer than two ack waits", 2500*time.Millisecond, func() bool { return len(result) == 0 })
	close(release)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if alive, _ := ended.Load().(bool); !alive {
		t.Error("the handler's context had ended")
	}
	eventually(t, "the acknowledgement that was flushed is applied; nobody takes the job again", r.settled) // the broker applies it a moment after it came
}

func TestL1_GraceThatRunsOutEndsTheContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	r.enqueue(1)
	started := make(chan struct{})
	stop := r.run(newSlots(1), func(ctx context.Context, d *Delivery) {
		close(started)
		<-ctx.Done()
	}, ConsumerOptions{Grace: 50 * time.Millisecond})
	<-started
	if err := stop(); err == nil || !strings.Contains(err.Error(), "1 deliveries unsettled") {
		t.Errorf("shutdown gives %v, want it to say what is left", err)
	}
}

// A dead letter that nobody stores is not waited for longer than the handlers are.
func TestL1_GraceThatRunsOutEndsTheWaitForADeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Hour})
	r.enqueue(1)
	if err := r.js.DeleteStream(ctxOf(t), StreamDead); err != nil {
		t.Fatal(err)
	}
	started, returned := make(chan struct{}), make(chan struct{})
	stop := r.run(newSlots(1), func(_ context.Context, d *Delivery) {
		close(started)
		d.Dead(job.ReasonInvalid, "nobody takes it")
		close(returned)
	}, ConsumerOptions{AckWait: time.Hour, Grace: 50 * time.Millisecond})
	<-started
	_ = stop() // whether the handler has returned by then is not what is asked
	select {
	case <-returned:
	case <-time.After(2 * time.Minute): // a bound on hanging, not on speed
		t.Error("the handler is still waiting for its dead letter")
	}
}

func TestE14_HandlerThatPanicsMakesPoisonADeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	var log bytes.Buffer
	var seen tally
	r.enqueue(1)
	c, err := NewConsumer(r.sub, r.dead, testRoute, newSlots(1), nil, ConsumerOptions{AckWait: 30 * time.Second, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	// The pause before a retry is for a real bug; here the broker's own hand-back is enough.
	c.handle = func(_ context.Context, d *Delivery) {
		if seen.saw(d); d.Origin().Deliveries < panicsOfPoison {
			d.Retry(0)
		}
		panic("account GB33BUKB20201555555555")
	}
	stop := start(c.Run)
	eventually(t, "terminated", r.settled)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	dead := r.deadLetters()
	if len(dead) != 1 || dead[0].Reason != "poison" || dead[0].Deliveries != 3 {
		t.Errorf("dead letters %v, want one for poison after 3 deliveries", dead)
	}
	if strings.Contains(log.String(), "GB33BUKB") {
		t.Error("the log quotes the panic")
	}
}

// A job without payload and with a status header looks like a word of the broker to the client's own Fetch, and would come again for ever.
func TestE14_EmptyJobWithAStatusHeaderIsDelivered(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{AckWait: time.Second})
	for _, status := range []string{"408", "404", "409", "100", "503"} {
		r.rawPublish(job.Subject(testRoute, testSource), nats.Header{"Status": {status}, "Description": {"Consumer Deleted"}}, nil)
	}
	r.enqueue(1)
	r.run(newSlots(4), func(_ context.Context, d *Delivery) {
		if len(d.Payload()) == 0 {
			d.Dead(job.ReasonUndecodable, "empty")
			return
		}
		d.Done()
	}, ConsumerOptions{})
	eventually(t, "all settled", r.settled)
	if dead := r.deadLetters(); len(dead) != 5 {
		t.Errorf("%d dead letters, want 5", len(dead))
	}
}

func TestConsumer_OriginTellsWhereTheJobIsFrom(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	m := message(job.NewKey())
	m.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	receipt, err := r.publish.Publish(ctxOf(t), m)
	if err != nil {
		t.Fatal(err)
	}
	origins := make(chan job.Origin, 1)
	payloads := make(chan []byte, 1)
	r.run(newSlots(1), func(_ context.Context, d *Delivery) {
		origins <- d.Origin()
		payloads <- d.Payload()
		d.Done()
	}, ConsumerOptions{AckWait: 30 * time.Second})
	o := <-origins
	if o.Source != "wallet" || o.Route != "gbp-fps" || o.Sequence != receipt.Sequence || o.Deliveries != 1 || o.TraceParent != m.TraceParent {
		t.Errorf("origin %+v", o)
	}
	if age := time.Since(o.PublishedAt); age < 0 || age > time.Minute {
		t.Errorf("published %s ago", age)
	}
	if !bytes.Equal(<-payloads, m.Payload) {
		t.Error("the payload differs")
	}
}
