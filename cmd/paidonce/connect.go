package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// connectTimeout is how long a command waits for a broker that is away. A worker waits for ever; a person does not.
const connectTimeout = 5 * time.Second

// connect gives a connection that stands, or an error.
func (s *session) connect(ctx context.Context, c *config.Config, role queue.Role, source string) (*nats.Conn, error) {
	nc, err := app.Connect(c, role, source, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		last := nc.LastError()
		nc.Close()
		if last != nil {
			err = last
		}
		return nil, cli.Exit(cli.TryAgain, fmt.Errorf("connect to the broker at %s: %w", c.NATS.URL, err))
	}
	return nc, nil
}

// withLedger runs body on the ledger of the settings.
func (s *session) withLedger(ctx context.Context, body func(*config.Config, *ledger.Ledger) error) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	l, err := app.OpenLedger(ctx, c)
	if err != nil {
		return err
	}
	defer l.Close()
	return body(c, l)
}
