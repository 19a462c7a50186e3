package bankclient

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

// Breaker says when a partner's intake closes and how it opens again. Zero fields mean the defaults.
type Breaker struct {
	Consecutive  int           // partner-scoped failures in a row that open; default 5
	MinCalls     int           // calls in Window before FailureRatio counts; default 20
	FailureRatio float64       // share of failed calls in Window that opens; default 0.6
	Window       time.Duration // default 10s
	OpenFor      time.Duration // before a few probes are let through; default 5s
	Probes       int           // calls at the same time while probing, and successes that close; default 2
}

func (b Breaker) withDefaults() Breaker {
	if b.Consecutive == 0 {
		b.Consecutive = 5
	}
	if b.MinCalls == 0 {
		b.MinCalls = 20
	}
	if b.FailureRatio == 0 {
		b.FailureRatio = 0.6
	}
	if b.Window == 0 {
		b.Window = 10 * time.Second
	}
	if b.OpenFor == 0 {
		b.OpenFor = 5 * time.Second
	}
	if b.Probes == 0 {
		b.Probes = 2
	}
	return b
}

func (b Breaker) validate() error {
	if b.Consecutive < 0 || b.MinCalls < 0 || b.Window < 0 || b.OpenFor < 0 || b.Probes < 0 {
		return errors.New("breaker settings may not be negative")
	}
	if b.FailureRatio < 0 || b.FailureRatio > 1 {
		return errors.New("breaker failure ratio must lie between 0 and 1")
	}
	return nil
}

// Gate bounds the calls to one partner: slots (calls at the same time), rate, and a breaker that closes the intake of this
// partner only. It makes no call itself. Safe for concurrent use.
type Gate struct {
	probes  int
	openFor time.Duration
	limiter *rate.Limiter // nil = no rate limit
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	run     atomic.Int64 // partner-scoped failures in a row

	mu      sync.Mutex
	slots   int
	inUse   int
	waiting int
	changed chan struct{} // closed and replaced when slots or breaker changed and somebody waits
	reopens time.Time     // when an open breaker will admit probes
}

// giveWay is how long a probe is left to those who have waited for it.
const giveWay = 20 * time.Millisecond

// errPartnerFailure is what the breaker is told of a failed call; it never leaves this file.
var errPartnerFailure = errors.New("partner failure")

func newGate(cfg Config) *Gate {
	b := cfg.Breaker
	g := &Gate{probes: b.Probes, openFor: b.OpenFor, slots: cfg.MaxInFlight, changed: make(chan struct{})}
	if cfg.RateLimit > 0 {
		g.limiter = rate.NewLimiter(rate.Limit(cfg.RateLimit), cfg.RateBurst)
	}
	g.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         cfg.ID,
		MaxRequests:  uint32(b.Probes),
		Interval:     b.Window,
		BucketPeriod: b.Window / 10,
		Timeout:      b.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return g.run.Load() >= int64(b.Consecutive) ||
				int(c.Requests) >= b.MinCalls && float64(c.TotalFailures) >= b.FailureRatio*float64(c.Requests)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) { g.stateChanged(to) },
	})
	return g
}

// Acquire blocks until the breaker admits calls and a slot is free, and takes 1 to most slots. While the breaker probes, all
// slots in use together are at most the probes. The error is the context's.
func (g *Gate) Acquire(ctx context.Context, most int) (int, error) {
	if most < 1 {
		panic("bankclient: no slot was asked for")
	}
	for waited := false; ; waited = true {
		n, wait, changed := g.take(most, true, waited)
		if n > 0 {
			return n, nil
		}
		err := waitFor(ctx, changed, wait)
		g.stopWaiting()
		if err != nil {
			return 0, err
		}
	}
}

// TryAcquire takes up to most slots without waiting; 0 if there is none or the breaker is open.
func (g *Gate) TryAcquire(most int) int {
	n, _, _ := g.take(most, false, false)
	return n
}

// Release gives slots back.
func (g *Gate) Release(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n < 0 || n > g.inUse {
		panic("bankclient: more slots released than acquired")
	}
	g.inUse -= n
	g.wake()
}

// Take waits for a rate token.
func (g *Gate) Take(ctx context.Context) error {
	if g.limiter == nil {
		return ctx.Err()
	}
	return g.limiter.Wait(ctx)
}

// Report tells the breaker what a call came to.
func (g *Gate) Report(r Result) {
	health := healthOf(r)
	switch {
	case health == healthUnsaid:
		return
	case r.Scope == ScopePartner:
		g.run.Add(1)
	case health == healthGood:
		g.run.Store(0)
	}
	done, err := g.breaker.Allow()
	if err != nil { // open, or enough probes reported: nothing to learn
		return
	}
	if health == healthGood {
		done(nil)
		return
	}
	done(errPartnerFailure)
}

// Open says whether the breaker is open: the intake is closed, not even probes are admitted yet.
func (g *Gate) Open() bool { return g.breaker.State() == gobreaker.StateOpen }

// take takes slots if it can. Otherwise, with wait, it registers the caller as waiting and says for what; a timer of 0 means
// that none is needed. Probes are few, and who returns one could take it again before a waiter has woken up: so whoever has waited goes first, or
// idle pulls would keep the sweep from asking after what is in doubt.
func (g *Gate) take(most int, wait, waited bool) (n int, timer time.Duration, changed <-chan struct{}) {
	// Asked outside of the lock, because the breaker's own notices take it. A change in between is seen by the next call.
	state := g.breaker.State()
	g.mu.Lock()
	defer g.mu.Unlock()
	room := g.slots - g.inUse
	switch state {
	case gobreaker.StateOpen:
		// The breaker compares strictly: a moment later it has moved on for certain. A time already past gets a
		// millisecond too, so that the caller cannot spin.
		room, timer = 0, max(time.Until(g.reopens), 0)+time.Millisecond
	case gobreaker.StateHalfOpen:
		room = min(room, g.probes-g.inUse)
		if !waited && g.waiting > 0 {
			room, timer = 0, giveWay
		}
	}
	if n = min(room, most); n > 0 {
		g.inUse += n
		return n, 0, nil
	}
	if wait {
		g.waiting++
	}
	return 0, timer, g.changed
}

func (g *Gate) stopWaiting() {
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
}

func (g *Gate) stateChanged(to gobreaker.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if to == gobreaker.StateOpen {
		g.reopens = time.Now().Add(g.openFor)
	}
	g.wake()
}

// wake must be called with the lock held.
func (g *Gate) wake() {
	if g.waiting > 0 {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// waitFor waits for a change, for a timer if there is one, or for the context's end.
func waitFor(ctx context.Context, changed <-chan struct{}, timer time.Duration) error {
	var expired <-chan time.Time
	if timer != 0 {
		t := time.NewTimer(timer)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-changed:
		return nil
	case <-expired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// health is what a call says about the partner, as its breaker sees it.
type health uint8

const (
	healthUnsaid health = iota
	healthGood
	healthBad
)

// healthOf tells failures of the partner or of the way to it from answers. A refusal of one operation is an answer.
func healthOf(r Result) health {
	e := &r.Evidence
	switch {
	case r.Scope == ScopePartner:
		return healthBad
	case e.Error == errCanceled, e.Why == whyLocal, e.Why == whyNoLookUp:
		return healthUnsaid
	case e.Status == http.StatusTooManyRequests, e.Status >= http.StatusInternalServerError:
		return healthBad
	case e.Why == whyNotFound:
		return healthGood
	case r.Verdict == NotExecuted && e.Status == 0:
		return healthBad
	case r.Verdict != Unknown:
		return healthGood
	case e.Status >= http.StatusBadRequest, e.Why == whyReplayed, e.Why == whyMorePages:
		return healthUnsaid
	default:
		return healthBad
	}
}
