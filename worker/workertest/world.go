// Package workertest runs one suite of scenarios against the worker: in virtual time on fakes, and on the real ledger and
// the simulated bank. Each scenario ends by asking the bank what it executed.
package workertest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
)

// Fault is what the bank does with one request.
type Fault string

// The faults, in the order of the requests of one operation. Calm is also what happens when none is left.
const (
	Calm          Fault = "calm"
	Rejects       Fault = "rejects"        // listed, stored under the key
	LostReply     Fault = "lost_reply"     // booked, then 500 or a reset: Unknown
	Fails         Fault = "fails"          // 500, not booked: Unknown
	LateBooking   Fault = "late_booking"   // no answer in time, booked afterwards: Unknown
	SlowAnswer    Fault = "slow_answer"    // booked, answered within the timeout, later than a third of the lease
	InUse         Fault = "in_use"         // 409: InFlight
	RateLimited   Fault = "rate_limited"   // 429 before execution, with a delay: NotExecuted
	Refused       Fault = "refused"        // no connection: NotExecuted
	DuplicateSaid Fault = "duplicate_said" // 409 that says the transfer exists: a look-up decides
	Disagrees     Fault = "disagrees"      // booked, the echo differs: Mismatch
	StoredFailure Fault = "stored_failure" // 500 stored under the key: Unknown each time, never booked
	OurFunds      Fault = "our_funds"      // our float is empty
)

// Outcome is what the ledger says of an operation.
type Outcome struct {
	State      ledger.State
	TransferID string
	Code       string
	Attempts   int
	BodyHashes [][32]byte
	Facts      []ledger.Fact
	InDoubt    bool
}

// Sent is one request as the bank saw it.
type Sent struct {
	PartnerKey string
	At         time.Time
}

// World is a ledger, a bank and their controls. Every worker process of a scenario gets its own Partner.
type World interface {
	Ledger() worker.Ledger
	Partner() worker.Partner
	Options() worker.Options // base options; the suite adds routes and sources
	Script(key uuid.UUID, faults ...Fault)
	Executions(key uuid.UUID) int
	Sent(key uuid.UUID) []Sent
	Outcome(key uuid.UUID) (Outcome, bool)
	OnSend(func(key uuid.UUID)) // called in the bank before a request is judged
	Resume()                    // a person resumes the partner
	Patience() time.Duration    // within which everything unfinished ends or parks
	PartnerID() string
	Upgrade() // processes that start from now on are of a later version: they render new operations in another way
}

// Sampler is a World in real time, where each kill costs a lease: it chooses among the steps of a life. None means all.
type Sampler interface {
	KillPoints(steps int) []int
}

// RouteName and SourceName are those of every job of the suite.
const (
	RouteName  = "gbp-fps"
	SourceName = "wallet"
)

// Order is a job with a fresh key.
func Order(t testing.TB) (uuid.UUID, []byte) {
	t.Helper()
	return OrderWith(t, func(*job.Job) {})
}

// OrderWith is a job with a fresh key, changed.
func OrderWith(t testing.TB, change func(*job.Job)) (uuid.UUID, []byte) {
	t.Helper()
	j := job.Job{Key: job.NewKey(), Source: SourceName, Route: RouteName, DebtorAccount: "cust-4471",
		Amount:      money.Amount{Minor: 4900, Currency: "GBP"},
		Beneficiary: job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"}, Reference: "Withdrawal 88104"}
	change(&j)
	payload, err := job.Encode(j)
	if err != nil {
		t.Fatalf("encode job: %v", err)
	}
	return j.Key, payload
}

// Delivery is one arrival of a job; it keeps how it was settled.
type Delivery struct {
	payload []byte
	origin  job.Origin

	mu      sync.Mutex
	Settled []string // done, retry, dead:<reason>
	Delay   time.Duration
	Detail  string
}

// NewDelivery is an arrival of a payload, published now.
func NewDelivery(payload []byte) *Delivery {
	return &Delivery{payload: payload, origin: job.Origin{Source: SourceName, Route: RouteName, PublishedAt: time.Now(), Deliveries: 1}}
}

// Origin is where it comes from.
func (d *Delivery) Origin() job.Origin { return d.origin }

// SetOrigin changes where it comes from.
func (d *Delivery) SetOrigin(change func(*job.Origin)) { change(&d.origin) }

// Payload is its bytes.
func (d *Delivery) Payload() []byte { return d.payload }

// Done keeps that the ledger owns it.
func (d *Delivery) Done() { d.settle("done") }

// Retry keeps that it comes again.
func (d *Delivery) Retry(after time.Duration) {
	d.mu.Lock()
	d.Delay = after
	d.mu.Unlock()
	d.settle("retry")
}

// Dead keeps the reason.
func (d *Delivery) Dead(reason job.Reason, detail string) {
	d.mu.Lock()
	d.Detail = detail
	d.mu.Unlock()
	d.settle("dead:" + string(reason))
}

func (d *Delivery) settle(how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Settled = append(d.Settled, how)
}

// How is how it was settled, "" if it was not yet.
func (d *Delivery) How() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.Settled) == 0 {
		return ""
	}
	return d.Settled[len(d.Settled)-1]
}

// Process is one worker process.
type Process struct {
	t      testing.TB
	Worker *worker.Worker
	gate   worker.Gate
	faults *Faults
	stop   context.CancelFunc
	ended  chan error
}

// Start starts a process. faults may be nil.
func Start(t testing.TB, world World, faults *Faults, change ...func(*worker.Options)) *Process {
	t.Helper()
	if faults == nil {
		faults = &Faults{}
	}
	faults.init()
	opts := world.Options()
	opts.Routes = map[string]worker.Route{RouteName: {Partner: world.PartnerID(), Currencies: []string{"GBP"},
		MaxAmounts: []money.Amount{{Minor: 25000000, Currency: "GBP"}}}}
	opts.Sources = map[string]worker.Source{SourceName: {Routes: []string{RouteName}}}
	for _, c := range change {
		c(&opts)
	}
	partner := world.Partner()
	partner.Bank = &faultyBank{Bank: partner.Bank, f: faults}
	w, err := worker.New(&faultyLedger{Ledger: world.Ledger(), f: faults}, []worker.Partner{partner}, opts)
	if err != nil {
		t.Fatalf("new worker: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Process{t: t, Worker: w, gate: partner.Gate, faults: faults, stop: stop, ended: make(chan error, 1)}
	go func() {
		p.ended <- w.Run(ctx)
		close(p.ended)
	}()
	t.Cleanup(p.Bury) // a failed test leaves nothing running
	return p
}

// Deliver hands in a delivery as the queue does, and returns when it was handled or the process died.
func (p *Process) Deliver(d *Delivery) {
	if _, err := p.gate.Acquire(context.Background(), 1); err != nil {
		p.t.Errorf("acquire slot: %v", err)
		return
	}
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		defer p.gate.Release(1)
		p.Worker.Handle(context.Background(), d)
	}()
	select {
	case <-handled:
	case <-p.faults.died:
	}
}

// Stop sends the stop signal and waits for the end.
func (p *Process) Stop() error {
	p.stop()
	return <-p.ended
}

// Signal sends the stop signal only; Ended is closed over by Wait.
func (p *Process) Signal() { p.stop() }

// Wait waits for the end after a signal.
func (p *Process) Wait() error { return <-p.ended }

// Kill is SIGKILL: nothing that the process does from now on has an effect.
func (p *Process) Kill() { p.faults.kill() }

// Bury lets the goroutines of a killed process end, so that the test can.
func (p *Process) Bury() {
	p.faults.bury()
	p.Worker.Cut()
	p.stop()
	<-p.ended
}

// Faults are what goes wrong around one process: at every crossing of an interface, before and after.
type Faults struct {
	At func(point string) error // called at each crossing; an error is what the caller gets, ErrKilled kills the process

	once   sync.Once
	mu     sync.Mutex
	dead   bool
	died   chan struct{}
	buried chan struct{}
	points []string
}

type killed struct{}

func (killed) Error() string { return "killed" }

// ErrKilled as a fault kills the process at that point.
var ErrKilled error = killed{}

func (f *Faults) init() {
	f.once.Do(func() { f.died, f.buried = make(chan struct{}), make(chan struct{}) })
}

// Points are the crossings so far.
func (f *Faults) Points() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.points)
}

func (f *Faults) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dead {
		f.dead = true
		close(f.died)
	}
}

func (f *Faults) bury() {
	f.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.buried:
	default:
		close(f.buried)
	}
}

// cross reports what the caller gets instead of going on. A dead process stands still at its next crossing, for ever.
func (f *Faults) cross(point string) error {
	f.mu.Lock()
	dead := f.dead
	f.points = append(f.points, point)
	f.mu.Unlock()
	var err error
	if f.At != nil && !dead {
		err = f.At(point)
	}
	if err == ErrKilled {
		f.kill()
		dead = true
	}
	if dead {
		<-f.buried
		return ErrKilled
	}
	return err
}

type faultyLedger struct {
	worker.Ledger
	f *Faults
}

func around[T any](f *Faults, point string, failed func(error) T, call func() T) T {
	if err := f.cross("before " + point); err != nil {
		return failed(err)
	}
	result := call()
	if err := f.cross("after " + point); err != nil {
		return failed(err)
	}
	return result
}

func (l *faultyLedger) Claim(ctx context.Context, wishes []ledger.Wish) []ledger.ClaimAnswer {
	return around(l.f, "claim", func(err error) []ledger.ClaimAnswer {
		return slices.Repeat([]ledger.ClaimAnswer{{Err: err}}, len(wishes))
	}, func() []ledger.ClaimAnswer { return l.Ledger.Claim(ctx, wishes) })
}

func (l *faultyLedger) Record(ctx context.Context, records []ledger.Record) []ledger.RecordResult {
	return around(l.f, "record", func(err error) []ledger.RecordResult {
		return slices.Repeat([]ledger.RecordResult{{Err: err}}, len(records))
	}, func() []ledger.RecordResult { return l.Ledger.Record(ctx, records) })
}

func (l *faultyLedger) CommitAttempts(ctx context.Context, resends []ledger.Resend) []ledger.AttemptResult {
	return around(l.f, "commit_attempts", func(err error) []ledger.AttemptResult {
		return slices.Repeat([]ledger.AttemptResult{{Err: err}}, len(resends))
	}, func() []ledger.AttemptResult { return l.Ledger.CommitAttempts(ctx, resends) })
}

func (l *faultyLedger) Renew(ctx context.Context, claims []ledger.Claim) ([]bool, error) {
	if err := l.f.cross("before renew"); err != nil {
		return nil, err
	}
	return l.Ledger.Renew(ctx, claims)
}

func (l *faultyLedger) ClaimDue(ctx context.Context, partner string, limit int) ([]ledger.Work, error) {
	if err := l.f.cross("sweep"); err != nil { // not a step of a withdrawal by itself
		return nil, err
	}
	works, err := l.Ledger.ClaimDue(ctx, partner, limit)
	if len(works) > 0 {
		if err := l.f.cross("after claim_due"); err != nil {
			return nil, err
		}
	}
	return works, err
}

func (l *faultyLedger) Append(ctx context.Context, lates []ledger.Late) []ledger.RecordResult {
	return around(l.f, "append", func(err error) []ledger.RecordResult {
		return slices.Repeat([]ledger.RecordResult{{Err: err}}, len(lates))
	}, func() []ledger.RecordResult { return l.Ledger.Append(ctx, lates) })
}

type faultyBank struct {
	worker.Bank
	f *Faults
}

func (b *faultyBank) Send(ctx context.Context, pr bankclient.Prepared) bankclient.Result {
	if b.f.cross("before send") != nil {
		return bankclient.Result{Verdict: bankclient.NotExecuted}
	}
	said := b.Bank.Send(ctx, pr)
	if b.f.cross("after send") != nil {
		return bankclient.Result{}
	}
	return said
}

func (b *faultyBank) LookUp(ctx context.Context, pr bankclient.Prepared) bankclient.Finding {
	if b.f.cross("before look_up") != nil {
		return bankclient.Finding{}
	}
	found := b.Bank.LookUp(ctx, pr)
	if b.f.cross("after look_up") != nil {
		return bankclient.Finding{}
	}
	return found
}
