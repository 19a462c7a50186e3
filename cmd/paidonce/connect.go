package main

import (
	"context"
	"errors"
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

// denial is what a broker did not allow.
type denial struct {
	role queue.Role
	err  error
}

// connect is dial for commands that end when the broker does not allow something: it says so only to the connection, and whoever asked would
// wait for an answer until his time is over.
func (s *session) connect(ctx context.Context, c *config.Config, role queue.Role, source string) (*nats.Conn, error) {
	nc, err := s.dial(ctx, c, role, source)
	if err != nil {
		return nil, err
	}
	nc.SetErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			s.denied.CompareAndSwap(nil, &denial{role, err})
			nc.Close() // all that wait on it end
			if s.giveUp != nil {
				s.giveUp()
			}
		}
	})
	return nc, nil
}

// asDenied puts what the broker did not allow in the place of what came of it.
func (s *session) asDenied(err error) error {
	d := s.denied.Load()
	if err == nil || d == nil {
		return err
	}
	if s.refused != "" {
		return cli.Exit(cli.NotAllowed, fmt.Errorf("%s (%w)", s.refused, d.err))
	}
	return cli.Exit(cli.NotAllowed, fmt.Errorf("the broker does not allow this to the user that the settings name (%w): it takes the credentials of the role %s", d.err, d.role))
}

// dial gives a connection that stands, or an error.
func (s *session) dial(ctx context.Context, c *config.Config, role queue.Role, source string) (*nats.Conn, error) {
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
