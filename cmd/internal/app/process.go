package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/ledger"
)

// part is one thing that runs until its context ends.
type part struct {
	name string
	run  func(context.Context) error
}

// process is what runs, and in which order it ends.
type process struct {
	name       string
	log        zerolog.Logger
	working    []part        // end with the caller's context
	outlasting []part        // end after them
	grace      time.Duration // how long work in hand may take when all are told to stop

	mu      sync.Mutex
	running []string // names of parts
}

const (
	// overtime is what all parts together may take beyond the grace: each of their steps has a bound, and this is more than their sum.
	overtime = 8 * time.Second
	// closeWithin bounds the end of connections. A worker and a gateway in one process end theirs one after the other: the supervisors in deploy
	// wait for grace, overtime and this twice, which is grace + 18 s, before they kill.
	closeWithin = 5 * time.Second
)

// runParts starts everything and waits until all of it has ended. The first part that ends stops the others. between (may be nil) is called when
// those that work have ended, and before the others do. A part that does not end in time is left behind, for a process that stays would be
// killed: what it had in hand is in doubt, as after a kill.
func (p *process) runParts(ctx context.Context, between func()) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	work, working := errgroup.WithContext(working)
	rest, lasting := errgroup.WithContext(lasting)
	for _, one := range p.outlasting {
		p.begun(one)
		rest.Go(func() error {
			defer stop()
			defer p.over(one)
			return one.until(lasting)
		})
	}
	for _, one := range p.working {
		p.begun(one)
		work.Go(func() error {
			defer p.over(one)
			return one.until(working)
		})
	}
	p.log.Info().Msg(p.name + " started")
	all := make(chan error, 1)
	go func() {
		err := work.Wait()
		if between != nil {
			between()
		}
		end()
		all <- errors.Join(err, rest.Wait())
	}()
	err := p.await(working, all)
	p.log.Info().Err(err).Msg(p.name + " ended")
	return err
}

// await waits for the end of all parts, but not for ever once they are told to stop.
func (p *process) await(working context.Context, all <-chan error) error {
	select {
	case err := <-all:
		return err
	case <-working.Done():
	}
	late := time.NewTimer(p.grace + overtime)
	defer late.Stop()
	select {
	case err := <-all:
		return err
	case <-late.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Errorf("%s did not end within %s and is left behind: what it had in hand is in doubt", strings.Join(p.running, ", "), p.grace+overtime)
	}
}

func (p *process) begun(one part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, one.name)
}

func (p *process) over(one part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.running, one.name); i >= 0 {
		p.running = slices.Delete(p.running, i, i+1)
	}
}

// closeAll closes, all at the same time, and does not wait for ever: where nobody answers, a connection that is being made keeps whoever closes it.
func closeAll(closes ...func()) {
	closed := make(chan struct{}, len(closes))
	for _, one := range closes {
		go func() {
			defer func() { closed <- struct{}{} }()
			one()
		}()
	}
	late := time.NewTimer(closeWithin)
	defer late.Stop()
	for range closes {
		select {
		case <-closed:
		case <-late.C:
			return
		}
	}
}

// until runs the part. One that ends before its context is an error, whatever it says.
func (o part) until(ctx context.Context) error {
	err := o.run(ctx)
	switch {
	case ctx.Err() == nil && err == nil:
		return fmt.Errorf("%s ended by itself", o.name)
	case err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil
	}
	return fmt.Errorf("%s: %w", o.name, err)
}

// refuseSchema ends a process that can never work on this schema. A database that is away is waited for.
func refuseSchema(ctx context.Context, check func(context.Context) error, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := check(ctx)
	if err == nil || errors.Is(err, ledger.ErrSchema) {
		return err
	}
	log.Warn().Err(err).Msg("the ledger is not ready yet")
	return nil
}
