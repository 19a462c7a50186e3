package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	readyEvery   = 2 * time.Second
	readyTimeout = 5 * time.Second // of one judgement
)

// Check is one thing that a ready worker needs.
type Check struct {
	Name string
	Do   func(context.Context) error
}

// Reason says why a worker is not ready.
type Reason struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Ready is the last judgement over all checks. Nothing is ready before the first one.
type Ready struct {
	checks []Check
	log    zerolog.Logger

	mu       sync.Mutex
	reasons  []Reason
	warnings []Reason
	open     chan struct{} // closed while ready
}

// NewReady judges nothing yet: Run does.
func NewReady(log zerolog.Logger, checks ...Check) *Ready {
	return &Ready{checks: checks, log: log, open: make(chan struct{}), reasons: []Reason{{"start", "not judged yet"}}}
}

// Run judges until ctx ends; from then on the process is not ready.
func (r *Ready) Run(ctx context.Context) error {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		r.Judge(ctx)
		select {
		case <-ctx.Done():
			r.set([]Reason{{"shutdown", "stopping"}})
			return nil
		case <-tick.C:
		}
	}
}

// Judge asks every check once, all at the same time, so that one that hangs does not hide the others.
func (r *Ready) Judge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	found := make([]error, len(r.checks))
	var wait sync.WaitGroup
	for i, check := range r.checks {
		wait.Go(func() { found[i] = check.Do(ctx) })
	}
	wait.Wait()
	var reasons []Reason
	for i, err := range found {
		if err != nil {
			reasons = append(reasons, Reason{r.checks[i].Name, err.Error()})
		}
	}
	r.set(reasons)
}

func (r *Ready) set(reasons []Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, is := len(r.reasons) == 0, len(reasons) == 0
	changed := !slices.Equal(r.reasons, reasons)
	r.reasons = reasons
	switch {
	case is && !was:
		close(r.open)
		r.log.Info().Msg("ready")
	case !is && was:
		r.open = make(chan struct{})
	}
	if changed && !is {
		r.log.Warn().Interface("reasons", reasons).Msg("not ready: nothing is pulled")
	}
}

// Reasons says what is missing; empty = ready.
func (r *Ready) Reasons() []Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reasons)
}

// Warn replaces what a person should know of and what stops nothing.
func (r *Ready) Warn(warnings []Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = warnings
}

// Warnings are the last that were given.
func (r *Ready) Warnings() []Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}

// Wait returns when the process is ready, or the context's error.
func (r *Ready) Wait(ctx context.Context) error {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	select {
	case <-open:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slots is what the queue takes before it fetches: the partner's gate.
type slots interface {
	Acquire(ctx context.Context, most int) (int, error)
	Release(n int)
}

// intake hands out no slots while the process is not ready.
type intake struct {
	ready *Ready
	slots slots
}

// Acquire waits until the process is ready and the gate has slots.
func (i intake) Acquire(ctx context.Context, most int) (int, error) {
	if err := i.ready.Wait(ctx); err != nil {
		return 0, err
	}
	return i.slots.Acquire(ctx, most)
}

// Release gives slots back.
func (i intake) Release(n int) { i.slots.Release(n) }
