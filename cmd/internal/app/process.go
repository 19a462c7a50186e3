package app

import (
	"context"
	"errors"
	"fmt"

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
	working    []part // end with the caller's context
	outlasting []part // end after them
}

// runParts starts everything and waits until all of it has ended. The first part that ends stops the others. between (may be nil) is called when
// those that work have ended, and before the others do.
func (p *process) runParts(ctx context.Context, between func()) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	work, working := errgroup.WithContext(working)
	rest, lasting := errgroup.WithContext(lasting)
	for _, one := range p.outlasting {
		rest.Go(func() error {
			defer stop()
			return one.until(lasting)
		})
	}
	for _, one := range p.working {
		work.Go(func() error { return one.until(working) })
	}
	p.log.Info().Msg(p.name + " started")
	err := work.Wait()
	if between != nil {
		between()
	}
	end()
	err = errors.Join(err, rest.Wait())
	p.log.Info().Err(err).Msg(p.name + " ended")
	return err
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
