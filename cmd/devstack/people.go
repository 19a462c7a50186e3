package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// The two people of a laptop: one asks for changes, the other makes operators and agrees. Each has a token and a configuration.
const (
	asks   = "olga"
	agrees = "ada"
)

// hire makes both where they are not there yet, as the owner of the database, and writes what their commands read.
func (s *services) hire(ctx context.Context, settings string) error {
	owner, closeOwner, err := openDesk(ctx, s.urls.Owner)
	if err != nil {
		return err
	}
	defer closeOwner()
	if err := s.hireOne(ctx, owner, settings, agrees, []operate.Role{operate.RoleAdmin}); err != nil {
		return err
	}
	return s.hireOne(ctx, owner, settings, asks, []operate.Role{operate.RoleOperator})
}

func (s *services) hireOne(ctx context.Context, d *operate.Service, settings, name string, roles []operate.Role) error {
	tokenFile := filepath.Join(s.dir, name+".token")
	if err := s.writeDesk(settings, name, tokenFile, s.urls.Desk, name+".yaml"); err != nil {
		return err
	}
	files := strings.Replace(settings, fmt.Sprintf("%q", s.roles.Worker), fmt.Sprintf("%q", s.roles.Publishers[source]), 1) // whoever pays files publishes jobs
	if err := s.writeDesk(files, name, tokenFile, s.urls.Batch, name+".batch.yaml"); err != nil {
		return err
	}
	if token, err := os.ReadFile(tokenFile); err == nil { //nolint:gosec // a file of our own folder
		if _, err := d.Identify(ctx, string(token)); err == nil {
			return nil // of an earlier run
		}
	}
	by, err := d.Owner(ctx)
	if err != nil {
		return err
	}
	act, err := d.AddOperator(ctx, by, name, roles)
	if err != nil {
		return err
	}
	_, err = d.Do(ctx, operate.Request{By: by, Reason: "devstack", Act: act})
	if errors.Is(err, operate.ErrKnownOperator) { // the token's file was lost
		if act, err = d.RotateToken(ctx, by, name, 0); err != nil {
			return err
		}
		_, err = d.Do(ctx, operate.Request{By: by, Reason: "devstack", Act: act})
	}
	if err != nil {
		return fmt.Errorf("make the operator %s: %w", name, err)
	}
	if err := os.WriteFile(tokenFile, []byte(act.Token+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the token of %s: %w", name, err)
	}
	return nil
}

// writeDesk writes the settings of a person's commands: those of the worker, under another role in the database.
func (s *services) writeDesk(settings, name, tokenFile, role, to string) error {
	database, err := url.Parse(role)
	if err != nil {
		return errors.New("parse the database URL: it is not one")
	}
	worker, err := url.Parse(s.urls.Worker)
	if err != nil {
		return errors.New("parse the database URL: it is not one")
	}
	database.User, worker.User = url.User(database.User.Username()), url.User(worker.User.Username())
	text := strings.Replace(settings, fmt.Sprintf("%q", worker.String()), fmt.Sprintf("%q", database.String()), 1)
	text += fmt.Sprintf("operator: { token_file: %q }\n", tokenFile)
	if err := os.WriteFile(filepath.Join(s.dir, to), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", name, err)
	}
	return nil
}

// openDesk opens the desk under a role of the database.
func openDesk(ctx context.Context, database string) (*operate.Service, func(), error) {
	l, err := ledger.Open(ctx, database, ledger.Options{MaxConns: 2})
	if err != nil {
		return nil, nil, fmt.Errorf("open the ledger of the desk: %w", err)
	}
	pool, err := ledger.OpenPool(ctx, database, ledger.Options{MaxConns: 2})
	if err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("open the desk: %w", err)
	}
	return operate.New(l, pool, operate.Options{}), func() { pool.Close(); l.Close() }, nil
}
