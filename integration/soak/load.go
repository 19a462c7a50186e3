package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/ledger"
)

// loadResult is what was published.
type loadResult struct {
	all proof.Publication
	err error
}

// load publishes at an even rate, a mixture of half a minute at a time.
func load(ctx context.Context, o options, w *world, say *progress) loadResult {
	var r loadResult
	began := time.Now()
	for segment := uint64(0); ; segment++ {
		left := o.length() - time.Since(began)
		if left <= 0 {
			return r
		}
		keys := max(1, int(min(left, 30*time.Second).Seconds()*float64(o.rate)))
		m, err := proof.NewMixture(lanes(), keys, o.seed+segment, time.Now())
		if err != nil {
			return loadResult{err: err}
		}
		part := proof.Publication{Keys: m.Keys}
		every := time.Second * 10 / time.Duration(o.rate*len(m.Messages)/keys)
		for n := 0; n < len(m.Messages); n += 10 {
			due := time.Now().Add(every)
			batch := m.Messages[n:min(n+10, len(m.Messages))]
			if err := part.Send(ctx, w.publisher, batch); err != nil {
				return loadResult{err: err}
			}
			say.published(len(batch))
			pause(ctx, time.Until(due))
		}
		r.all.Keys = append(r.all.Keys, part.Keys...)
		r.all.Malformed = append(r.all.Malformed, part.Malformed...)
	}
}

// newBackground plays the person and shows progress until ctx ends.
func newBackground(ctx context.Context, w *world, a *attacker, heard *counters, say *progress) *sync.WaitGroup {
	var all sync.WaitGroup
	all.Go(func() { every(ctx, 250*time.Millisecond, func() { attend(ctx, w) }) })
	all.Go(func() {
		every(ctx, 5*time.Second, func() {
			last := ""
			if f := a.last.Load(); f != nil {
				last = f.String()
			}
			say.line("published %d messages, %d deliveries, %d faults, %d takeovers, %d fenced; %s; last fault %s", say.sent(),
				heard.deliveries.Load(), a.struck.Load(), heard.takeovers.Load(), heard.fenced.Load(), standing(ctx, w), last)
		})
	})
	return &all
}

func every(ctx context.Context, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// attend fills up the float when a bank says that it is empty, and lets a partner go on that was paused because an answer belonged to another
// request: here the network that repeats bytes did it, and the operation itself stays parked. Nothing else is cured.
func attend(ctx context.Context, w *world) {
	pauses, err := w.person.Pauses(ctx)
	if err != nil {
		return // the ledger is away
	}
	for _, p := range pauses {
		if p.Scope == ledger.ScopePartner && (p.Reason == "our_funds" || p.Reason == "mismatch") {
			_ = w.person.Resume(ctx, p.Scope, p.Name, "looked into", "soak") // otherwise the next look does
		}
	}
}

func standing(ctx context.Context, w *world) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	witnesses, err := proof.Open(ctx, w.places())
	if err != nil {
		return "ledger or broker are away"
	}
	defer witnesses.Close()
	s, err := witnesses.Standing(ctx)
	if err != nil {
		return "ledger or broker are away"
	}
	return fmt.Sprintf("authorized %d, rejected %d, cancelled %d, parked %d, under way %d (in doubt %d), queued %d, events to come %d",
		s.Authorized, s.Rejected, s.Cancelled, s.Parked, s.UnderWay, s.InDoubt, s.Queued, s.Unpublished)
}

// rest waits until nothing more happens by itself, or the longest wait is over: what is left then is for the judge.
func rest(ctx context.Context, o options, w *world, say *progress) (*proof.Witnesses, error) {
	witnesses, err := proof.Open(ctx, w.places())
	if err != nil {
		return nil, err
	}
	deadline := time.After(o.settle)
	for calm := 0; calm < 2; {
		s, err := witnesses.Standing(ctx)
		if calm++; err != nil || !s.Done() { // a server that has just come back may not answer yet
			calm = 0
		}
		select {
		case <-deadline:
			if err != nil {
				witnesses.Close()
				return nil, err
			}
			say.line("waited %s, and not everything is finished", o.settle)
			return witnesses, nil
		case <-ctx.Done():
			witnesses.Close()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return witnesses, nil
}

// progress tells how far it is.
type progress struct {
	out   io.Writer
	began time.Time

	mu sync.Mutex
	n  int
}

func newProgress(out io.Writer) *progress { return &progress{out: out, began: time.Now()} }

func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

func (p *progress) published(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n += n
}

func (p *progress) sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}
