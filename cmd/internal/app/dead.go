package app

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/cmd/internal/batch"
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
	opt := dead.Options{Policy: policy(c), Allowed: allowed(c), Progress: progress}
	if c.Database.URL == "" {
		return dead.New(letters, publisher, nil, opt), func() {}, nil
	}
	pool, err := openDeskPool(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return dead.New(letters, publisher, operate.DB(pool), opt), pool.Close, nil
}

// policy is what the settings let through. A command without the settings of a worker does not know it.
func policy(c *config.Config) *dead.Policy {
	if len(c.Routes) == 0 {
		return nil
	}
	p := &dead.Policy{Routes: map[string]map[string]int64{}, Sources: map[string][]string{}}
	for name, route := range c.Routes {
		p.Routes[name] = map[string]int64{}
		for _, currency := range route.Currencies {
			p.Routes[name][currency] = dead.NoLimit
		}
		for _, most := range maxAmounts(route) {
			p.Routes[name][most.Currency] = most.Minor
		}
	}
	for name, source := range c.Sources {
		p.Sources[name] = source.Routes
	}
	return p
}

// judges know of what is proposed at the desk what only its own part of the program, and the broker, tell.
func judges(c *config.Config, db operate.DB, broker func(context.Context) (*nats.Conn, error)) map[string]operate.Judge {
	overtaken := dead.New(nil, nil, db, dead.Options{Policy: policy(c)}).Overtaken
	return map[string]operate.Judge{
		batch.ActSubmit: {Overtaken: func(ctx context.Context, p operate.Proposal) (string, error) { return batch.Overtaken(ctx, db, p) }},
		dead.ActReplay:  {Overtaken: overtaken},
		dead.ActDiscard: {Overtaken: overtaken},
		dead.ActCorrect: {Overtaken: overtaken, Compare: func(ctx context.Context, p operate.Proposal) error {
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
		}},
	}
}
