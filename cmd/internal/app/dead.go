package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/queue"
)

// OpenDead makes the desk of dead letters on an operator's connection. It connects to the database when that is first asked, so that what the
// stream alone tells is told while Postgres is away.
func OpenDead(ctx context.Context, c *config.Config, nc *nats.Conn, progress func(what string, done, of int64)) (*dead.Desk, func(), error) {
	letters, err := queue.NewDeadLetters(nc)
	if err != nil {
		return nil, nil, err
	}
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		return nil, nil, err
	}
	opt := dead.Options{Routes: slices.Sorted(maps.Keys(c.Routes)), Allowed: allowed(c), Progress: progress}
	if len(opt.Routes) == 0 {
		opt.Routes = nil // a command without the settings of a worker does not know them
	}
	if c.Database.URL == "" {
		return dead.New(letters, publisher, nil, opt), func() {}, nil
	}
	pool, err := openDeskPool(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return dead.New(letters, publisher, operate.DB(pool), opt), pool.Close, nil
}

// judges know of what is proposed at the desk what only its own part of the program, and the broker, tell.
func judges(broker func(context.Context) (*nats.Conn, error)) map[string]operate.Judge {
	return map[string]operate.Judge{dead.ActCorrect: {Compare: func(ctx context.Context, p operate.Proposal) error {
		nc, err := broker(ctx)
		if err != nil {
			return fmt.Errorf("compare the proposal with its letter: %w", err)
		}
		defer nc.Close()
		letters, err := queue.NewDeadLetters(nc)
		if err != nil {
			return err
		}
		_, err = dead.New(letters, nil, nil, dead.Options{}).Proposed(ctx, p)
		return err
	}}}
}
