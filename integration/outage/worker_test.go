package outage

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
)

// one publishes a single good job.
func (r *rig) one(t *testing.T) {
	t.Helper()
	r.load(t, 1)
}

func (r *rig) requests(t *testing.T, i int) int {
	t.Helper()
	history, _ := r.bank.History(bankclient.PartnerKey(r.all.Keys[i].Key, partner, "create", 0).String())
	return len(history.Requests)
}

// arrivals tells of each request that reaches the bank.
func (r *rig) arrivals() <-chan string {
	arrived := make(chan string, 1000)
	r.bank.OnArrival(func(partnerKey string) { arrived <- partnerKey })
	return arrived
}

// atFirst does something when the first request has arrived at the bank and before the bank does anything with it, and waits until that is done.
func (r *rig) atFirst(t *testing.T, load, do func()) {
	t.Helper()
	done := make(chan struct{})
	var once sync.Once
	r.bank.OnArrival(func(string) {
		once.Do(func() {
			do()
			close(done)
		})
	})
	load()
	await(t, "a request arrives", done)
}

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %s: %s", patience, what)
		panic("not reached")
	}
}

// TestC3_FrozenPastItsLease: a worker is frozen with a call in flight, another one finishes its operation, and it wakes up. It changes
// nothing; what it brings is kept.
func TestC3_FrozenPastItsLease(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	first := r.start(t, "", nil)
	r.atFirst(t, func() { r.one(t) }, first.Freeze) // it cannot have an answer yet
	r.start(t, "", nil)
	eventually(t, patience, "the second one has finished it", func(context.Context) (bool, error) { return r.finished(t) == 1, nil })
	const facts = "SELECT count(*) FROM observations"
	rows, state := r.count(t, facts), r.count(t, "SELECT fence FROM operations")
	first.Thaw()
	eventually(t, patience, "its evidence is kept", func(context.Context) (bool, error) { return r.count(t, facts) > rows, nil })
	if fence := r.count(t, "SELECT fence FROM operations"); fence != state {
		t.Errorf("the stale one changed the operation: fence %d, then %d", state, fence)
	}
	r.prove(t)
}

// TestC3_FrozenBetweenTheLeaseCheckAndTheSend: the lease is looked at once more before the first byte. What is left between that look and the kernel only
// the partner key covers.
func TestC3_FrozenBetweenTheLeaseCheckAndTheSend(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	frozen := make(chan string, 10)
	first := r.start(t, freezeBeforeSend, func(line string) { frozen <- line })
	r.one(t)
	await(t, "it is frozen", frozen)
	r.start(t, "", nil)
	eventually(t, patience, "the second one has finished it", func(context.Context) (bool, error) { return r.finished(t) == 1, nil })
	if n := r.requests(t, 0); n == 0 {
		t.Error("the second one never asked the bank")
	}
	sent := r.arrived.Load()
	first.Thaw()
	eventually(t, patience, "the first one has recorded that nothing left", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM observations WHERE fence = 1 AND verdict = 'not_executed' AND evidence->>'why' = 'too late to begin'") == 1, nil
	})
	if n := r.arrived.Load(); n != sent {
		t.Errorf("%d requests after it woke up, want none", n-sent)
	}
	r.prove(t)
}

// TestE4_KilledWorkersJobsResume: within two ack waits (and what is left of a lease) another worker is at all of them.
func TestE4_KilledWorkersJobsResume(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true, Latency: 500 * time.Millisecond}})
	arrived := r.arrivals()
	first := r.start(t, "", nil)
	r.load(t, 30)
	await(t, "the first request arrives", arrived)
	r.start(t, "", nil)
	first.Kill()
	killed := time.Now()
	eventually(t, patience, "all are finished", func(context.Context) (bool, error) { return r.finished(t) == 30, nil })
	// Two ack waits, a lease and one call are 4.4 s. The rest is for a busy machine to start a process, and far less than what any wait would be
	// that is not one of these: the default ack wait and the default lease are half a minute and more.
	if took, most := time.Since(killed), 2*ackWait+lease+500*time.Millisecond+20*time.Second; took > most {
		t.Errorf("it took %s, want at most %s", took, most)
	}
	r.prove(t)
}

// TestE13_TermDuringACall: the process ends only after the outcome of the call in flight, which takes 5 s, is committed.
func TestE13_TermDuringACall(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true, Latency: 5 * time.Second}, // far from the end of the call, on a busy machine too
		settings: arena.Settings{Timeout: 15 * time.Second, Lease: 18 * time.Second, Grace: 20 * time.Second}})
	arrived := r.arrivals()
	w := r.start(t, "", nil)
	r.one(t)
	await(t, "the request arrives", arrived)
	w.Terminate()
	if err := w.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := r.count(t, "SELECT count(*) FROM operations WHERE state = 'authorized'"); n != 1 || r.requests(t, 0) != 1 {
		t.Errorf("%d authorized when it ended, %d requests", n, r.requests(t, 0))
	}
	r.start(t, "", nil)
	r.prove(t)
}

// TestE13_TermUnderLoad: calls in flight end and are recorded, the rest is handed back, and another worker has it at once.
func TestE13_TermUnderLoad(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true, Latency: 400 * time.Millisecond}, settings: arena.Settings{Grace: 10 * time.Second}})
	first, second := r.start(t, "", nil), r.start(t, "", nil)
	end := r.loading(t)
	awhile(2 * time.Second)
	first.Terminate()
	begun := time.Now()
	if err := first.Wait(); err != nil || time.Since(begun) > stopsWithin {
		t.Errorf("it ended with %v after %s", err, time.Since(begun))
	}
	awhile(500 * time.Millisecond)
	end()
	second.Terminate()
	if err := second.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := r.count(t, "SELECT count(*) FROM operations WHERE state = 'claimed'"); n != 0 {
		t.Errorf("%d operations are still claimed by those who ended in order", n)
	}
	r.start(t, "", nil)
	r.prove(t)
}

// TestL1_KilledAfterTheGrace: a bank that hangs makes the grace run out. What was in flight is finished or in doubt, never half.
func TestL1_KilledAfterTheGrace(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	arrived := r.arrivals()
	if _, err := r.bank.SetFault(banksim.Fault{Name: "hang", Next: 10, DelayMS: 60_000}); err != nil {
		t.Fatal(err)
	}
	w := r.start(t, "", nil)
	r.load(t, 6)
	await(t, "a request arrives", arrived)
	w.Terminate()
	awhile(300 * time.Millisecond)
	w.Kill()
	var exit *exec.ExitError
	if err := w.Wait(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	half := r.count(t, `SELECT count(*) FROM operations o WHERE state NOT IN ('open', 'claimed') AND outcome_at IS NULL
		OR state IN ('open', 'claimed') AND NOT in_doubt AND EXISTS (SELECT FROM attempts a WHERE a.operation_id = o.id)
		   AND NOT EXISTS (SELECT FROM observations b WHERE b.operation_id = o.id)`)
	if half != 0 {
		t.Errorf("%d operations are half done", half)
	}
	r.start(t, "", nil)
	r.prove(t)
}

// TestWorkerClockWrongByHours: the worker's own clock jumps two hours ahead every second. It may start less, and pays nothing twice.
func TestWorkerClockWrongByHours(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.start(t, clockJumps, nil)
	r.load(t, 60)
	r.prove(t)
}

// TestB8_KilledAgainAndAgain: nothing is in progress for ever.
func TestB8_KilledAgainAndAgain(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	end := r.loading(t)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 6 {
				w := r.start(t, "", nil)
				awhile(900 * time.Millisecond)
				w.Kill()
			}
		})
	}
	all.Wait()
	end()
	r.start(t, "", nil)
	r.prove(t)
}
