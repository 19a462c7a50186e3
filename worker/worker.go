package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// ErrCut says that calls in flight were cut: what they did is in doubt and the next worker asks the partner.
var ErrCut = errors.New("calls in flight were cut")

// Ledger is what the worker needs of the ledger. Batches are answered request by request.
type Ledger interface {
	Claim(context.Context, []ledger.Wish) []ledger.ClaimAnswer
	ClaimDue(ctx context.Context, partner string, limit int) ([]ledger.Work, error)
	LookAtParked(ctx context.Context, partner string, limit int) ([]ledger.Work, error)
	CommitAttempts(context.Context, []ledger.Resend) []ledger.AttemptResult
	Record(context.Context, []ledger.Record) []ledger.RecordResult
	Renew(context.Context, []ledger.Claim) ([]bool, error)
	Append(context.Context, []ledger.Late) []ledger.RecordResult
	Gauges(context.Context) (ledger.Gauges, error)
	Pause(ctx context.Context, scope ledger.Scope, name, reason, by string) error
}

// Bank is one partner: what it declares, and single exchanges with it.
type Bank interface {
	ID() string
	CredentialID() string
	Timeout() time.Duration
	Profile() bankclient.Profile
	Prepare(key uuid.UUID, epoch int16, t bankclient.Transfer) (bankclient.Prepared, error)
	PrepareAs(renderer int16, key uuid.UUID, epoch int16, t bankclient.Transfer) (bankclient.Prepared, error)
	Send(context.Context, bankclient.Prepared) bankclient.Result
	LookUp(context.Context, bankclient.Prepared) bankclient.Finding
}

// Gate bounds what is under way at one partner: slots, rate, breaker.
type Gate interface {
	Acquire(ctx context.Context, max int) (int, error)
	Release(n int)
	Take(ctx context.Context) error
	Report(bankclient.Result)
}

// Delivery is one arrival of a job. Exactly one of Done, Retry and Dead is called.
type Delivery interface {
	Origin() job.Origin
	Payload() []byte
	Done()                                 // the ledger owns the operation
	Retry(after time.Duration)             // the ledger could not be reached
	Dead(reason job.Reason, detail string) // it cannot become an operation
}

// Worker drives withdrawals to their outcome.
type Worker struct {
	ledger   Ledger
	opts     Options
	partners map[string]*partner
	metrics  *metrics
	log      zerolog.Logger
	clock    func() time.Duration
	rand     func() float64
	schedule schedule // of what concerns no partner

	claims  *Batcher[ledger.Wish, ledger.ClaimAnswer]
	records *Batcher[ledger.Record, ledger.RecordResult]
	resends *Batcher[ledger.Resend, ledger.AttemptResult]
	keeper  keeper

	life context.Context // of calls and records: outlives the stop signal, ends with Cut
	cut  context.CancelFunc
	// opening ends when we stop: what waits to start something waits no longer.
	opening context.Context
	close   context.CancelFunc
	flight  flight
	ended   chan struct{} // closed when Run has ended
	began   atomic.Bool   // Run was called
	torn    atomic.Bool   // something was in flight when it was cut
}

// partner is a Partner with what New found out about it.
type partner struct {
	id       string
	bank     Bank
	gate     Gate
	timeout  time.Duration
	profile  bankclient.Profile
	schedule schedule

	doubtLimits map[string]int64 // by currency, minor units
	tripped     map[string]bool  // by currency: above its limit; of the one goroutine that reads the gauges
}

// New checks options and partners against each other, tells everything that is wrong at once, and returns a worker that
// works as soon as Run is called.
func New(l Ledger, partners []Partner, opts Options) (*Worker, error) {
	if l == nil {
		return nil, errors.New("worker needs a ledger")
	}
	err := opts.Check(partners)
	opts = opts.withDefaults()
	if leaser, ok := l.(interface{ Lease() time.Duration }); ok && leaser.Lease() != opts.Lease {
		err = errors.Join(err, fmt.Errorf("lease (%v) must be the ledger's (%v)", opts.Lease, leaser.Lease()))
	}
	if err != nil {
		return nil, fmt.Errorf("check worker options: %w", err)
	}
	w := &Worker{ledger: l, opts: opts, partners: map[string]*partner{}, log: zerolog.Nop(), clock: boottime, rand: rand.Float64,
		ended: make(chan struct{})}
	if opts.Clock != nil {
		w.clock = opts.Clock
	}
	if opts.Rand != nil {
		w.rand = opts.Rand
	}
	if opts.Logger != nil {
		w.log = *opts.Logger
	}
	w.schedule = newSchedule(opts, nil)
	for _, p := range partners {
		lookUps := p.LookUps
		if len(lookUps) == 0 {
			lookUps = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour}
		}
		w.partners[p.Bank.ID()] = &partner{id: p.Bank.ID(), bank: p.Bank, gate: p.Gate, timeout: p.Bank.Timeout(),
			profile: p.Bank.Profile(), schedule: newSchedule(opts, lookUps), doubtLimits: p.DoubtLimits, tripped: map[string]bool{}}
	}
	if w.metrics, err = newMetrics(opts.Registerer, w.partners); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	w.life, w.cut = context.WithCancel(context.Background())
	w.opening, w.close = context.WithCancel(context.Background())
	w.flight.empty.L, w.flight.begun = &w.flight.mu, make(chan struct{})
	w.claims = NewBatcher(opts.BatchSize, l.Claim)
	w.records = NewBatcher(opts.BatchSize, l.Record)
	w.resends = NewBatcher(opts.BatchSize, l.CommitAttempts)
	w.keeper.held = map[*operation]struct{}{}
	return w, nil
}

// Gate is the gate of the partner that serves a route.
func (w *Worker) Gate(route string) (Gate, bool) {
	r, ok := w.opts.Routes[route]
	if !ok {
		return nil, false
	}
	return w.partners[r.Partner].gate, true
}

// Run works until ctx ends, then stops as Shutdown does, within the shutdown grace. It starts the committers that Handle
// needs, the sweep of every partner, the lease keeper and the gauges, and returns when all of them have ended: nil when
// everything in flight was recorded, ErrCut when something was cut. It is called once.
func (w *Worker) Run(ctx context.Context) error {
	if w.began.Swap(true) {
		panic("worker.Run was called twice")
	}
	defer close(w.ended)
	w.claims.Start(w.life, w.opts.Committers)
	w.records.Start(w.life, w.opts.Committers)
	w.resends.Start(w.life, 1)
	loops, stop := context.WithCancel(ctx)
	var sweeping, keeping sync.WaitGroup
	for _, p := range w.partners {
		sweeping.Go(func() { w.sweep(loops, p) })
		sweeping.Go(func() { w.watchParked(loops, p) })
	}
	keeping.Go(func() { w.keepLeases(w.life) })
	keeping.Go(func() { w.readGauges(loops) })
	select {
	case <-ctx.Done():
	case <-w.flight.begun:
	}
	stop()
	grace, end := context.WithTimeout(context.WithoutCancel(ctx), w.opts.ShutdownGrace)
	defer end()
	err := w.drain(grace)
	sweeping.Wait()
	w.claims.Close()
	w.records.Close()
	w.resends.Close()
	w.cut()
	keeping.Wait()
	return err
}

// Shutdown stops: nothing new is started, claims that were not sent are handed back, calls in flight end and are
// recorded. When ctx ends first, the rest is cut. It returns when Run has ended.
func (w *Worker) Shutdown(ctx context.Context) error {
	err := w.drain(ctx)
	if w.began.Load() {
		<-w.ended
	}
	return err
}

// Cut ends calls in flight at once (the second signal). What they did is in doubt, which is safe.
func (w *Worker) Cut() {
	w.flight.stop()
	w.close()
	w.cutNow()
}

func (w *Worker) cutNow() {
	if w.flight.busy() {
		w.torn.Store(true)
	}
	w.cut()
}

// drain waits until nothing is in flight, and cuts what is left when ctx ends.
func (w *Worker) drain(ctx context.Context) error {
	w.flight.stop()
	w.close()
	unhook := context.AfterFunc(ctx, w.cutNow)
	defer unhook()
	w.flight.wait()
	if w.torn.Load() {
		return ErrCut
	}
	return nil
}

// flight counts what is under way, and refuses newcomers once stopping.
type flight struct {
	mu       sync.Mutex
	empty    sync.Cond
	n        int
	stopping bool
	begun    chan struct{} // closed when stopping
}

func (f *flight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return false
	}
	f.n++
	return true
}

// join adds one more on behalf of somebody who has entered.
func (f *flight) join() {
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
}

func (f *flight) leave() {
	f.mu.Lock()
	f.n--
	if f.n == 0 {
		f.empty.Broadcast()
	}
	f.mu.Unlock()
}

func (f *flight) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopping {
		f.stopping = true
		close(f.begun)
	}
}

// wait returns when nothing is under way. Only after stop is that final.
func (f *flight) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.n > 0 {
		f.empty.Wait()
	}
}

func (f *flight) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n > 0
}

func (f *flight) isStopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopping
}
