package workertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
)

// RunSuite runs every scenario in a world of its own. run makes the world and calls the scenario in it, in virtual time if
// the world wants that.
func RunSuite(t *testing.T, run func(t *testing.T, scenario func(t *testing.T, world World))) {
	scenarios := []struct {
		name string
		play func(*testing.T, World)
	}{
		{"A1_FiftyDeliveriesTwoProcessesOnePost", racingDeliveries},
		{"A2_AttemptCommittedBeforeEverySend", attemptBeforeSend},
		{"A3_LostReplyIsUnknownNotFailed", endsWith(ledger.StateAuthorized, 1, LostReply)},
		{"A7_OnePartnerKeyThroughRedeliveriesReplaysRestartAndUpgrade", onePartnerKey},
		{"A8_AnswerAfterTimeoutIsAdopted", endsWith(ledger.StateAuthorized, 1, LateBooking)},
		{"B8_KilledAtEveryStep_CalmBank", killedAtEveryStep()},
		{"B8_KilledAtEveryStep_LostReply", killedAtEveryStep(LostReply)},
		{"B8_KilledAtEveryStep_Fails", killedAtEveryStep(Fails)},
		{"B8_KilledAtEveryStep_Rejects", killedAtEveryStep(Rejects)},
		{"B8_KilledAtEveryStep_Refused", killedAtEveryStep(Refused)},
		{"B8_KilledAtEveryStep_InUseLostReply", killedAtEveryStep(InUse, LostReply)},
		{"B12_BookedThen500ThenRedelivered", bookedThenRedelivered},
		{"B13_OtherAmountUnderTheKeyIsAConflict", conflict},
		{"B18_DuplicateSaidLookUpDecides", endsWith(ledger.StateAuthorized, 1, DuplicateSaid)},
		{"B19_InUseIsAskedLaterUnderTheSameKey", endsWith(ledger.StateAuthorized, 1, InUse, InUse, InUse)},
		{"B23_StoredFailureParks", endsWith(ledger.StateParked, 0, StoredFailure, StoredFailure, StoredFailure, StoredFailure, StoredFailure,
			StoredFailure, StoredFailure, StoredFailure)},
		{"C1_SlowAnswerKeepsItsClaim", endsWith(ledger.StateAuthorized, 1, SlowAnswer)},
		{"D1_ReplyToRecordLost", replyLost("record")},
		{"D1_ReplyToClaimLost", replyLost("claim")},
		{"D1_ReplyToCommitAttemptsLost", replyLost("commit_attempts")},
		{"E6_LedgerAwayLosesNothing", ledgerAway},
		{"E13_StopDuringACallRecordsIt", stopDuringCall},
		{"E15_RedeliveryOfFinishedNeedsNoCall", finishedRedelivered},
		{"G7_RetryMeetsOwnSuccess", endsWith(ledger.StateAuthorized, 1, Fails, LostReply)},
		{"G8_EveryAttemptHasTheSameBytes", sameBytes},
		{"L1_StopThenCutLeavesNothingHalf", stopThenCut},
		{"RejectionIsAnOutcome", endsWith(ledger.StateRejected, 0, Rejects)},
		{"RefusedAndRateLimitedAreTriedAgain", endsWith(ledger.StateAuthorized, 1, Refused, RateLimited, Refused)},
		{"RejectionAfterDoubtSpeaksForTheKey", endsWith(ledger.StateRejected, 0, Fails, Rejects)},
		{"MismatchParks", endsWith(ledger.StateParked, 1, Disagrees)},
		{"OurFundsPauseThePartner", ourFunds},
		{"ExpiredIsCancelled", expired},
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { run(t, s.play) })
	}
}

// CheckPromise asks ledger and bank about every key: at most one execution, and none or one as the outcome says.
func CheckPromise(t testing.TB, world World, keys ...uuid.UUID) {
	t.Helper()
	for _, key := range keys {
		n := world.Executions(key)
		if n > 1 {
			t.Errorf("operation %s was executed %d times", key, n)
		}
		sentKeys := map[string]bool{}
		for _, s := range world.Sent(key) {
			sentKeys[s.PartnerKey] = true
		}
		if len(sentKeys) > 1 {
			t.Errorf("operation %s was sent under %d partner keys", key, len(sentKeys))
		}
		outcome, known := world.Outcome(key)
		switch {
		case !known && n > 0:
			t.Errorf("operation %s was executed and is not in the ledger", key)
		case outcome.State == ledger.StateAuthorized && (n != 1 || outcome.TransferID == ""):
			t.Errorf("operation %s is authorized as %q, executions %d, want 1", key, outcome.TransferID, n)
		case (outcome.State == ledger.StateRejected || outcome.State == ledger.StateCancelled) && n != 0:
			t.Errorf("operation %s is %s, executions %d, want 0", key, outcome.State, n)
		}
	}
}

// Eventually waits until a condition holds, in growing steps.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	step, deadline := 5*time.Millisecond, time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v: not %s", within, what)
		}
		<-time.After(step)
		step = min(step+step/8, within/200+5*time.Millisecond)
	}
}

// AwaitEnd waits until an operation has an outcome or is parked.
func AwaitEnd(t testing.TB, world World, key uuid.UUID) Outcome {
	t.Helper()
	var o Outcome
	ended := false
	defer func() {
		if !ended {
			t.Logf("%s is %q (%s), in doubt: %t, after %d attempts", key, o.State, o.Code, o.InDoubt, o.Attempts)
		}
	}()
	Eventually(t, world.Patience(), "finished or parked", func() bool {
		o, _ = world.Outcome(key)
		return o.State != "" && o.State != ledger.StateOpen && o.State != ledger.StateClaimed
	})
	ended = true
	return o
}

// publish delivers a payload until it is settled for good, as a queue does.
func publish(p *Process, payload []byte) string {
	for {
		d := NewDelivery(payload)
		p.Deliver(d)
		if how := d.How(); how != "retry" {
			return how
		}
		<-time.After(d.Delay)
	}
}

func stopClean(t testing.TB, p *Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// endsWith is the plain scenario: one job, some faults, one end.
func endsWith(state ledger.State, executions int, faults ...Fault) func(*testing.T, World) {
	return func(t *testing.T, world World) {
		key, payload := Order(t)
		world.Script(key, faults...)
		p := Start(t, world, nil)
		defer stopClean(t, p)
		if how := publish(p, payload); how != "done" {
			t.Fatalf("delivery settled %q, want done", how)
		}
		o := AwaitEnd(t, world, key)
		if o.State != state {
			t.Errorf("state %s (%s), want %s", o.State, o.Code, state)
		}
		if n := world.Executions(key); n != executions {
			t.Errorf("executions %d, want %d", n, executions)
		}
		CheckPromise(t, world, key)
	}
}

func racingDeliveries(t *testing.T, world World) {
	key, payload := Order(t)
	processes := []*Process{Start(t, world, nil), Start(t, world, nil)}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if how := publish(processes[i%2], payload); how != "done" {
				t.Errorf("delivery settled %q, want done", how)
			}
		})
	}
	wg.Wait()
	if o := AwaitEnd(t, world, key); o.State != ledger.StateAuthorized || o.Attempts != 1 {
		t.Errorf("state %s after %d attempts, want authorized after 1; on record are %+v", o.State, o.Attempts, o.Facts)
	}
	if n := len(world.Sent(key)); n != 1 {
		t.Errorf("the bank saw %d requests, want 1", n)
	}
	for _, p := range processes {
		stopClean(t, p)
	}
	CheckPromise(t, world, key)
}

func attemptBeforeSend(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, Fails, Refused, InUse, Fails)
	var mu sync.Mutex
	arrived := 0
	world.OnSend(func(k uuid.UUID) {
		mu.Lock()
		defer mu.Unlock()
		arrived++
		if o, known := world.Outcome(k); !known || o.State != ledger.StateClaimed || o.Attempts < arrived {
			t.Errorf("request %d arrived at %d committed attempts in state %q", arrived, o.Attempts, o.State)
		}
	})
	p := Start(t, world, nil)
	defer stopClean(t, p)
	publish(p, payload)
	AwaitEnd(t, world, key)
	mu.Lock()
	defer mu.Unlock()
	if arrived < 3 {
		t.Errorf("the hook saw %d requests, want several", arrived)
	}
	CheckPromise(t, world, key)
}

func onePartnerKey(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, Fails, Refused, RateLimited, InUse, Fails)
	first := Start(t, world, nil)
	for range 5 {
		publish(first, payload)
	}
	stopClean(t, first)
	world.Upgrade()
	second := Start(t, world, nil)
	defer stopClean(t, second)
	for range 2 {
		publish(second, payload)
	}
	o := AwaitEnd(t, world, key)
	if hashes := slices.Compact(o.BodyHashes); o.State != ledger.StateAuthorized || len(hashes) != 1 {
		t.Errorf("%s, sent with body hashes %x, want authorized and one", o, hashes)
	}
	sent := world.Sent(key)
	if len(sent) < 3 {
		t.Errorf("the bank saw %d requests, want several", len(sent))
	}
	CheckPromise(t, world, key) // one partner key
}

// killedAtEveryStep kills a process at every crossing of its interfaces and lets a second process find the operation and a
// redelivery. In real time that takes a lease for most steps.
func killedAtEveryStep(faults ...Fault) func(*testing.T, World) {
	return func(t *testing.T, world World) {
		steps := countSteps(t, world, faults)
		if steps < 6 {
			t.Fatalf("a life has %d crossings, want at least 6", steps)
		}
		for _, step := range killPoints(world, steps) {
			killedAt(t, world, faults, step)
		}
	}
}

// killPoints is every step, unless the world cannot afford that.
func killPoints(world World, steps int) []int {
	if s, sampled := world.(Sampler); sampled {
		if points := s.KillPoints(steps); len(points) > 0 {
			return points
		}
	}
	var all []int
	for step := 1; step <= steps; step++ {
		all = append(all, step)
	}
	return all
}

func countSteps(t *testing.T, world World, faults []Fault) int {
	key, payload := Order(t)
	world.Script(key, faults...)
	f := &Faults{}
	p := Start(t, world, f)
	publish(p, payload)
	AwaitEnd(t, world, key)
	stopClean(t, p)
	CheckPromise(t, world, key)
	return len(lifePoints(f.Points()))
}

// lifePoints leaves out what the sweep does for nobody in particular.
func lifePoints(points []string) []string {
	return slices.DeleteFunc(points, func(p string) bool { return p == "sweep" })
}

func killedAt(t *testing.T, world World, faults []Fault, step int) {
	key, payload := Order(t)
	world.Script(key, faults...)
	n := 0
	var mu sync.Mutex
	where := ""
	f := &Faults{At: func(point string) error {
		mu.Lock()
		defer mu.Unlock()
		if point != "sweep" {
			n++
		}
		if n == step && point != "sweep" {
			where = point
			return ErrKilled
		}
		return nil
	}}
	first := Start(t, world, f)
	d := NewDelivery(payload)
	first.Deliver(d)
	Eventually(t, world.Patience(), "killed or finished", func() bool {
		o, _ := world.Outcome(key)
		select {
		case <-f.died:
			return true
		default:
			return o.State == ledger.StateAuthorized || o.State == ledger.StateRejected || o.State == ledger.StateParked
		}
	})
	first.Kill()
	second := Start(t, world, nil)
	if d.How() != "done" { // the broker has it still
		publish(second, payload)
	}
	o := AwaitEnd(t, world, key)
	if o.State == ledger.StateParked {
		t.Errorf("bank %v, killed at %d (%s): parked (%s), want an outcome", faults, step, where, o.Code)
	}
	stopClean(t, second)
	first.Bury()
	CheckPromise(t, world, key)
	if t.Failed() {
		t.Logf("bank %v, killed at crossing %d (%s)", faults, step, where)
	}
}

func bookedThenRedelivered(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, LostReply)
	p := Start(t, world, nil)
	defer stopClean(t, p)
	for range 3 {
		if how := publish(p, payload); how != "done" {
			t.Errorf("delivery settled %q, want done", how)
		}
	}
	if o := AwaitEnd(t, world, key); o.State != ledger.StateAuthorized {
		t.Errorf("state %s, want authorized", o.State)
	}
	if n := len(world.Sent(key)); n != 1 {
		t.Errorf("the bank saw %d requests, want 1: the look-up finds the booking", n)
	}
	CheckPromise(t, world, key)
}

func conflict(t *testing.T, world World) {
	key, payload := Order(t)
	_, other := OrderWith(t, func(j *job.Job) { j.Key, j.Amount.Minor = key, 4901 })
	world.Script(key, SlowAnswer)
	p := Start(t, world, nil)
	defer stopClean(t, p)
	first := NewDelivery(payload)
	done := make(chan struct{})
	go func() { defer close(done); p.Deliver(first) }()
	Eventually(t, world.Patience(), "sent", func() bool { return len(world.Sent(key)) == 1 })
	second := NewDelivery(other)
	p.Deliver(second)
	if how := second.How(); how != "dead:key_reused" {
		t.Errorf("the other amount was settled %q, want dead:key_reused", how)
	}
	<-done
	if o := AwaitEnd(t, world, key); o.State != ledger.StateAuthorized {
		t.Errorf("state %s, want authorized", o.State)
	}
	CheckPromise(t, world, key)
}

// replyLost loses one reply after the commit.
func replyLost(statement string) func(*testing.T, World) {
	return func(t *testing.T, world World) {
		key, payload := Order(t)
		world.Script(key, Fails)
		var once sync.Once
		lost := false
		p := Start(t, world, &Faults{At: func(point string) (err error) {
			if point == "after "+statement {
				once.Do(func() { err, lost = errors.New("connection reset"), true })
			}
			return err
		}})
		if how := publish(p, payload); how != "done" {
			t.Errorf("delivery settled %q, want done", how)
		}
		if o := AwaitEnd(t, world, key); o.State != ledger.StateAuthorized {
			t.Errorf("state %s (%s), want authorized", o.State, o.Code)
		}
		stopClean(t, p)
		if !lost {
			t.Errorf("no reply to %s was lost", statement)
		}
		CheckPromise(t, world, key)
	}
}

func ledgerAway(t *testing.T, world World) {
	var keys []uuid.UUID
	back := time.Now().Add(min(time.Minute, world.Patience()/20))
	p := Start(t, world, &Faults{At: func(string) error {
		if time.Now().Before(back) {
			return errors.New("connection refused")
		}
		return nil
	}})
	defer stopClean(t, p)
	var mu sync.Mutex
	delays := map[time.Duration]bool{}
	var wg sync.WaitGroup
	for range 20 {
		key, payload := Order(t)
		keys = append(keys, key)
		wg.Go(func() {
			for {
				d := NewDelivery(payload)
				p.Deliver(d)
				switch d.How() {
				case "done":
					return
				case "retry":
					mu.Lock()
					delays[d.Delay] = true
					mu.Unlock()
					<-time.After(d.Delay)
				default:
					t.Errorf("delivery settled %q while the ledger was away", d.How())
					return
				}
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		if o := AwaitEnd(t, world, key); o.State != ledger.StateAuthorized {
			t.Errorf("state %s, want authorized", o.State)
		}
	}
	if len(delays) < 10 {
		t.Errorf("20 jobs were told %d different delays, want them spread", len(delays))
	}
	CheckPromise(t, world, keys...)
}

func stopDuringCall(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, SlowAnswer)
	p := Start(t, world, nil)
	d := NewDelivery(payload)
	go p.Deliver(d)
	Eventually(t, world.Patience(), "sent", func() bool { return len(world.Sent(key)) == 1 })
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if o, _ := world.Outcome(key); o.State != ledger.StateAuthorized {
		t.Errorf("after the process ended the state is %s, want authorized", o.State)
	}
	late := NewDelivery(payload)
	p.Deliver(late)
	if how := late.How(); how != "retry" {
		t.Errorf("a stopped worker settled a delivery %q, want retry", how)
	}
	CheckPromise(t, world, key)
}

func finishedRedelivered(t *testing.T, world World) {
	key, payload := Order(t)
	p := Start(t, world, nil)
	defer stopClean(t, p)
	publish(p, payload)
	AwaitEnd(t, world, key)
	for range 3 {
		d := NewDelivery(payload)
		p.Deliver(d)
		if how := d.How(); how != "done" {
			t.Errorf("redelivery settled %q, want done", how)
		}
	}
	if n := len(world.Sent(key)); n != 1 {
		t.Errorf("the bank saw %d requests, want 1", n)
	}
	CheckPromise(t, world, key)
}

func sameBytes(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, Fails, RateLimited, Fails)
	p := Start(t, world, nil)
	defer stopClean(t, p)
	publish(p, payload)
	o := AwaitEnd(t, world, key)
	if len(o.BodyHashes) < 3 {
		t.Fatalf("%d attempts, want at least 3", len(o.BodyHashes))
	}
	for _, h := range o.BodyHashes {
		if h != o.BodyHashes[0] || h == [32]byte{} {
			t.Errorf("attempts have body hashes %x, want one", o.BodyHashes)
		}
	}
	CheckPromise(t, world, key)
}

func stopThenCut(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, SlowAnswer)
	first := Start(t, world, nil)
	d := NewDelivery(payload)
	go first.Deliver(d)
	Eventually(t, world.Patience(), "sent", func() bool { return len(world.Sent(key)) == 1 })
	first.Signal()
	first.Worker.Cut()
	if err := first.Wait(); !errors.Is(err, worker.ErrCut) {
		t.Errorf("a cut worker ended with %v, want ErrCut", err)
	}
	if o, _ := world.Outcome(key); o.State != ledger.StateClaimed && o.State != ledger.StateAuthorized && !o.InDoubt {
		t.Errorf("after the cut: state %s, in doubt %v", o.State, o.InDoubt)
	}
	second := Start(t, world, nil)
	defer stopClean(t, second)
	if o := AwaitEnd(t, world, key); o.State != ledger.StateAuthorized {
		t.Errorf("state %s, want authorized", o.State)
	}
	CheckPromise(t, world, key)
}

func ourFunds(t *testing.T, world World) {
	key, payload := Order(t)
	world.Script(key, OurFunds)
	p := Start(t, world, nil)
	defer stopClean(t, p)
	publish(p, payload)
	o, _ := world.Outcome(key)
	if o.State != ledger.StateOpen || o.InDoubt {
		t.Errorf("after a lack of our funds: state %s, in doubt %v, want open and not in doubt", o.State, o.InDoubt)
	}
	other, otherPayload := Order(t)
	if how := publish(p, otherPayload); how != "done" {
		t.Errorf("a delivery for a paused partner settled %q, want done (held)", how)
	}
	if n := len(world.Sent(other)); n != 0 {
		t.Errorf("a paused partner was sent %d requests", n)
	}
	world.Resume()
	for _, k := range []uuid.UUID{key, other} {
		if o := AwaitEnd(t, world, k); o.State != ledger.StateAuthorized {
			t.Errorf("after the resume: state %s (%s), want authorized", o.State, o.Code)
		}
	}
	CheckPromise(t, world, key, other)
}

func expired(t *testing.T, world World) {
	notAfter := time.Now().Add(2 * time.Second).UTC().Truncate(time.Second)
	key, payload := OrderWith(t, func(j *job.Job) { j.NotAfter = notAfter })
	Eventually(t, 10*time.Second, "past not_after", func() bool { return time.Now().After(notAfter.Add(time.Second)) })
	p := Start(t, world, nil)
	defer stopClean(t, p)
	publish(p, payload)
	if o := AwaitEnd(t, world, key); o.State != ledger.StateCancelled || o.Code != "expired" {
		t.Errorf("state %s (%s), want cancelled (expired)", o.State, o.Code)
	}
	if n := len(world.Sent(key)); n != 0 {
		t.Errorf("the bank saw %d requests after not_after", n)
	}
	CheckPromise(t, world, key)
}

// String names an outcome in messages.
func (o Outcome) String() string { return fmt.Sprintf("%s (%s)", o.State, o.Code) }
