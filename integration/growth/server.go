package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
)

const (
	emptyDatabase = "empty"
	grownDatabase = "grown"
)

// server is a private Postgres that is restarted between filling and measuring, and the programs beside it.
type server struct {
	o        options
	say      func(string, ...any)
	dir      *stack.Directory
	binary   string
	postgres *stack.Postgres
	durable  bool
}

func openServer(ctx context.Context, o options, say func(string, ...any)) (_ *server, err error) {
	s := &server{o: o, say: say}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.dir != "" {
		if err = os.MkdirAll(o.dir, 0o711); err != nil {
			return nil, fmt.Errorf("make the directory: %w", err)
		}
		if err = os.Setenv("TMPDIR", o.dir); err != nil {
			return nil, err
		}
	}
	if s.dir, err = stack.OpenDirectory(""); err != nil {
		return nil, err
	}
	s.binary = filepath.Join(s.dir.Path(), "paidonce")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "github.com/paidonce/paidonce/cmd/paidonce").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build paidonce (start growth from the module's folder): %w: %s", err, out)
	}
	return s, s.start(ctx, true)
}

// start starts the server for measuring (durable) or for filling.
func (s *server) start(ctx context.Context, durable bool) (err error) {
	if s.postgres != nil && s.durable == durable {
		return nil
	}
	if s.postgres != nil {
		// Stop waits for a checkpoint only so long.
		if err := s.exec(ctx, "", "CHECKPOINT"); err != nil {
			return err
		}
		if err := s.postgres.Stop(); err != nil {
			return err
		}
	}
	settings := map[string]string{"shared_buffers": "1GB", "max_wal_size": "4GB", "maintenance_work_mem": "256MB"}
	if durable {
		settings["wal_keep_size"] = "5GB" // pg_waldump reads it after the run
		maps.Copy(settings, s.o.settings)
	} else {
		settings["wal_level"], settings["max_wal_senders"], settings["autovacuum"], settings["checkpoint_timeout"] = "minimal", "0", "off", "1h"
		settings["max_wal_size"] = "6GB"
	}
	s.durable = durable
	s.postgres, err = stack.StartPostgres(ctx, stack.PostgresOptions{BinDir: s.o.pgBin, Dir: s.pgDir(), Durable: durable, Settings: settings})
	return err
}

func (s *server) pgDir() string { return filepath.Join(s.dir.Path(), "postgres") }

func (s *server) close() error {
	var errs []error
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	if s.dir != nil {
		errs = append(errs, s.dir.Close())
	}
	return errors.Join(errs...)
}

// database makes a database of the product's schema, and alters it as --change says.
func (s *server) database(ctx context.Context, name string) (stack.DatabaseURLs, error) {
	urls, err := s.postgres.CreateDatabase(ctx, name)
	if err != nil {
		return urls, err
	}
	for _, sql := range s.o.changes {
		if err := s.exec(ctx, name, sql); err != nil {
			return urls, err
		}
	}
	return urls, nil
}

func (s *server) exec(ctx context.Context, database, sql string) error {
	return s.with(ctx, database, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
		return nil
	})
}

// with lends a superuser's connection.
func (s *server) with(ctx context.Context, database string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL(database, ""))
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}
