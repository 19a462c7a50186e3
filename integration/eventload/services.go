package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
)

// load is everything that runs.
type load struct {
	dir, program string
	postgres     *stack.Postgres
	broker       *stack.NATSProcess
	conn         *pgx.Conn // as superuser, who sees and may do everything
	database     string
	worker       *exec.Cmd
	log          *os.File

	operations int // recorded so far
}

func open(ctx context.Context) (*load, error) {
	l := &load{}
	if err := l.start(ctx); err != nil {
		return nil, l.close(err)
	}
	return l, nil
}

func (l *load) start(ctx context.Context) (err error) {
	if l.dir, err = os.MkdirTemp("", "eventload"); err != nil {
		return err
	}
	l.postgres, err = stack.StartPostgres(ctx, stack.PostgresOptions{Durable: true, Settings: map[string]string{"shared_buffers": "512MB"}})
	if err != nil {
		return err
	}
	urls, err := l.postgres.CreateDatabase(ctx, "paidonce")
	if err != nil {
		return err
	}
	l.database = urls.Superuser
	if l.conn, err = pgx.Connect(ctx, urls.Superuser); err != nil {
		return err
	}
	if l.broker, err = stack.StartNATSProcess(stack.NATSOptions{}); err != nil {
		return err
	}
	if err := l.configure(urls.Worker); err != nil {
		return err
	}
	l.program = filepath.Join(l.dir, "paidonce")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", l.program, "./cmd/paidonce").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	migrate := exec.CommandContext(ctx, l.program, "migrate", "up", "--config", l.settings()) // the broker's streams
	migrate.Env = append(os.Environ(), "PAIDONCE_DATABASE_URL="+urls.Owner)
	if out, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	return nil
}

func (l *load) settings() string { return filepath.Join(l.dir, "paidonce.yaml") }

// configure writes the settings of a worker whose partner is never called.
func (l *load) configure(database string) error {
	token := filepath.Join(l.dir, "token")
	text := fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 8, accept_loss: true }
partners: { northbank: { adapter: reference, base_url: "http://127.0.0.1:1", credential_id: c1, token_file: %q } }
routes: { gbp-fps: { partner: northbank, currencies: [GBP] } }
sources: { wallet: { routes: [gbp-fps] } }
health: { listen: "" }
`, l.broker.URL(), database, token)
	return errors.Join(os.WriteFile(token, []byte("never-used\n"), 0o600), os.WriteFile(l.settings(), []byte(text), 0o600))
}

// startWorker starts the process whose relay is measured.
func (l *load) startWorker() (err error) {
	if l.worker != nil {
		return nil
	}
	if l.log, err = os.Create(filepath.Join(l.dir, "worker.log")); err != nil {
		return err
	}
	l.worker = exec.Command(l.program, "worker", "--config", l.settings())
	l.worker.Stdout, l.worker.Stderr = l.log, l.log
	return l.worker.Start()
}

func (l *load) close(err error) error {
	if l.worker != nil && l.worker.Process != nil {
		err = errors.Join(err, l.worker.Process.Signal(syscall.SIGTERM), l.worker.Wait(), l.log.Close())
	}
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, l.conn.Close(ctx))
	}
	if l.broker != nil {
		err = errors.Join(err, l.broker.Shutdown())
	}
	if l.postgres != nil {
		err = errors.Join(err, l.postgres.Stop())
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}
