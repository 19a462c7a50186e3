package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/outage/proxy"
)

const (
	lease   = 2 * time.Second
	ackWait = 1500 * time.Millisecond
	// stopWithin is the shutdown grace (3 s), what a process may take beyond it to flush and to cancel what it has asked for (8 s), and to hang up
	// (5 s), and time for a busy machine to notice.
	stopWithin = 31 * time.Second
)

// counters is what the workers have said.
type counters struct{ deliveries, takeovers, fenced atomic.Int64 }

func (c *counters) hear(line string) {
	switch line {
	case "delivery":
		c.deliveries.Add(1)
	case "takeover":
		c.takeovers.Add(1)
	case "fenced":
		c.fenced.Add(1)
	}
}

// slot is a place where a worker runs, and another one after it was killed.
type slot struct {
	config string
	log    io.Writer
	hear   func(string)
	wrong  string // program of a worker whose wall clock can be wrong; "" = this one, whose cannot

	mu     sync.Mutex
	worker *arena.Worker
}

func (s *slot) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startLocked()
}

// wrongHours is by how much a wrong clock is off.
func wrongHours() []int { return []int{5, -7, 30} }

func (s *slot) startWrong(hours int) error {
	var err error
	s.worker, err = arena.StartWorker(arena.Order{Config: s.config, Detail: wrongClock, Program: s.wrong,
		Env: []string{arena.WrongBy(time.Duration(hours) * time.Hour)}}, s.log, s.hear)
	return err
}

func (s *slot) startLocked() error {
	var err error
	s.worker, err = arena.StartWorker(arena.Order{Config: s.config}, s.log, s.hear)
	return err
}

// strike does one fault to the worker. A worker that ended before is an error: nobody told it to.
func (s *slot) strike(ctx context.Context, f fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.worker.Done():
		return errors.Join(fmt.Errorf("%s ended by itself: %w", f.target, s.worker.Wait()), s.startLocked())
	default:
	}
	switch f.kind {
	case "freeze":
		s.worker.Freeze()
		pause(ctx, f.lasts)
		s.worker.Thaw()
		return nil
	case "stop":
		// How it ended does not matter: with a bank or a ledger away, calls may be cut when the grace is over.
		s.worker.Terminate()
		select {
		case <-s.worker.Done():
			_ = s.worker.Wait()
		case <-time.After(stopWithin):
			s.worker.Kill()
			return errors.Join(fmt.Errorf("%s was still there %s after SIGTERM", f.target, stopWithin), s.startLocked())
		}
	default:
		s.worker.Kill()
	}
	pause(ctx, f.lasts)
	if f.kind == wrongClock {
		return s.startWrong(one(f, wrongHours()))
	}
	return s.startLocked()
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// attacker carries out a schedule.
type attacker struct {
	world  *world
	slots  [2]*slot
	struck atomic.Int64
	last   atomic.Pointer[fault]
	moved  atomic.Bool // the ledger, at least once
	says   func(format string, args ...any)
	turns  map[target]*sync.Mutex // a fault that takes longer than planned makes the next one on its target wait

	mu       sync.Mutex
	problems []string // what the product did that it must not do, whatever is done to it
}

func newAttacker(w *world, say *progress) *attacker {
	a := &attacker{world: w, says: say.line, turns: map[target]*sync.Mutex{}}
	for _, t := range targets() {
		a.turns[t.target] = &sync.Mutex{}
	}
	return a
}

// attack strikes until the schedule is over or ctx ends, and returns when every fault has ended.
func (a *attacker) attack(ctx context.Context, schedule []fault) {
	began := time.Now()
	var striking sync.WaitGroup
	for _, f := range schedule {
		pause(ctx, time.Until(began.Add(f.at)))
		if ctx.Err() != nil {
			break
		}
		a.struck.Add(1)
		a.last.Store(&f)
		striking.Go(func() {
			if err := a.strike(ctx, f); err != nil {
				a.mu.Lock()
				a.problems = append(a.problems, fmt.Sprintf("%s: %v", f, err))
				a.mu.Unlock()
				a.says("PROBLEM: %s: %v", f, err)
			}
		})
	}
	striking.Wait()
}

func (a *attacker) strike(ctx context.Context, f fault) error {
	a.turns[f.target].Lock()
	defer a.turns[f.target].Unlock()
	switch f.target {
	case worker0:
		return a.slots[0].strike(ctx, f)
	case worker1:
		return a.slots[1].strike(ctx, f)
	case database:
		return a.strikeDatabase(ctx, f)
	case broker:
		return a.strikeBroker(ctx, f)
	}
	return a.strikeNetwork(ctx, a.world.proxies[f.target], f)
}

func (a *attacker) strikeNetwork(ctx context.Context, p *proxy.Proxy, f fault) error {
	switch f.kind {
	case "cut":
		p.Cut()
		return nil
	case "delay":
		p.Set(proxy.Way{Delay: min(f.lasts/8, longestDelay)})
	case "halve":
		p.Set(proxy.Way{Halve: true})
	case "black_hole":
		p.Set(proxy.Way{BlackHole: true})
	case "deaf":
		p.Set(proxy.Way{Deaf: true})
	case "refuse":
		p.Set(proxy.Way{Refuse: true})
		p.Cut()
	case "duplicate":
		p.Set(proxy.Way{Duplicate: true})
	default:
		return fmt.Errorf("no such way to strike a network: %s", f.kind)
	}
	pause(ctx, f.lasts)
	p.Set(proxy.Way{})
	return nil
}

// found lists the problems.
func (a *attacker) found() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.problems
}
