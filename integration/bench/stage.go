package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/riverqueue/river"

	"github.com/google/pprof/profile"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	source     = "wallet"
	route      = "gbp-fps"
	otherRoute = "gbp-other" // leads to the second partner, where there is one
	partnerID  = "northbank"
	otherID    = "southbank"
	ackWait    = 30 * time.Second
)

// bench is what all runs share: the servers and the worker's binary.
type bench struct {
	o        options
	say      func(format string, args ...any)
	dir      *stack.Directory
	postgres *stack.Postgres
	nats     *stack.NATSProcess
	binary   string
	profiles []*profile.Profile // of the worker, one a round
	stages   int
}

func openBench(ctx context.Context, o options, say func(string, ...any)) (_ *bench, err error) {
	b := &bench{o: o, say: say}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = stack.OpenDirectory(""); err != nil {
		return nil, err
	}
	b.binary = filepath.Join(b.dir.Path(), "paidonce")
	if err = buildWorker(ctx, b.binary); err != nil {
		return nil, err
	}
	b.postgres, err = stack.StartPostgres(ctx, stack.PostgresOptions{BinDir: o.pgBin, Durable: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "4GB", "track_commit_timestamp": "on",
	}})
	if err != nil {
		return nil, err
	}
	if b.nats, err = stack.StartNATSProcess(stack.NATSOptions{NoSync: !o.syncAlways}); err != nil {
		return nil, err
	}
	say("postgres of %s and nats are up", b.postgres.BinDir())
	return b, nil
}

// buildWorker builds the binary that users run, as deploy/Dockerfile does.
func buildWorker(ctx context.Context, to string) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/paidonce/paidonce").Output()
	if err != nil {
		return fmt.Errorf("find the module of paidonce (start bench from its folder): %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-pgo=deploy/worker.pgo", "-o", to, "./cmd/paidonce")
	cmd.Dir = string(out[:max(0, len(out)-1)])
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build paidonce: %w: %s", err, out)
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.nats != nil {
		errs = append(errs, b.nats.Shutdown())
	}
	if b.postgres != nil {
		errs = append(errs, b.postgres.Stop())
	}
	if b.dir != nil {
		errs = append(errs, b.dir.Close())
	}
	return errors.Join(errs...)
}

// stage is what one run works on: a fresh database, fresh streams, a fresh bank (two for the isolation part).
type stage struct {
	bench *bench
	name  string
	dir   string
	urls  stack.DatabaseURLs
	admin *pgx.Conn // into the run's database
	nc    *nats.Conn
	js    jetstream.JetStream
	bank  *child
	other *child // the second partner, nil = none

	// Of the contenders that keep their jobs in the database; nil for others.
	pool  *pgxpool.Pool
	river *river.Client[pgx.Tx]
	dbos  dbos.Client
}

// openStage makes one; latency is the bank's, routes are those of the run.
func (b *bench) openStage(ctx context.Context, latency time.Duration, routes ...string) (_ *stage, err error) {
	b.stages++
	s := &stage{bench: b, name: fmt.Sprintf("run_%d", b.stages)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	s.dir = filepath.Join(b.dir.Path(), s.name)
	if err = os.Mkdir(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the run's directory: %w", err)
	}
	if s.urls, err = b.postgres.CreateDatabase(ctx, s.name); err != nil {
		return nil, err
	}
	if s.admin, err = pgx.Connect(ctx, s.urls.Superuser); err != nil {
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	if _, err = s.admin.Exec(ctx, "CHECKPOINT"); err != nil { // what runs before left no dirty pages behind
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if err = s.provision(ctx, routes); err != nil {
		return nil, err
	}
	if s.bank, err = startChild("bank", childSettings{LatencyMS: latency.Milliseconds()}); err != nil {
		return nil, err
	}
	if slices.Contains(routes, otherRoute) {
		if s.other, err = startChild("bank", childSettings{LatencyMS: latency.Milliseconds()}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// provision makes the streams anew.
func (s *stage) provision(ctx context.Context, routes []string) (err error) {
	if s.nc, err = queue.Connect(s.bench.nats.URL(), queue.ConnectOptions{Role: queue.RoleProvisioner}); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(4096)); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	for _, name := range []string{queue.StreamJobs, queue.StreamEvents, queue.StreamDead} {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: routes, AckWait: ackWait, MaxAckPending: 1 << 17})
	if err != nil {
		return err
	}
	return queue.Provision(ctx, s.nc, topology)
}

func (s *stage) close(ctx context.Context) error {
	var errs []error
	for _, bank := range []*child{s.bank, s.other} {
		if bank != nil {
			bank.stop()
		}
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.dbos != nil {
		errs = append(errs, dbos.Shutdown(s.dbos, 5*time.Second))
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close(ctx))
		errs = append(errs, s.dropDatabase(ctx))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

func (s *stage) dropDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.bench.postgres.URL("", ""))
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	_, err = conn.Exec(ctx, "DROP DATABASE "+s.name+" WITH (FORCE)")
	return errors.Join(err, conn.Close(ctx))
}

// recorded counts the outcomes so far: each takes one number for its outbox row, and reading the counter costs nothing.
func (s *stage) recorded(ctx context.Context) (n int, err error) {
	if err = s.admin.QueryRow(ctx, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM outbox_id_seq").Scan(&n); err != nil {
		return 0, fmt.Errorf("count outcomes: %w", err)
	}
	return n, nil
}

// published says whether nothing waits in the outbox.
func (s *stage) published(ctx context.Context) (all bool, err error) {
	if err = s.admin.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM outbox)").Scan(&all); err != nil {
		return false, fmt.Errorf("look into the outbox: %w", err)
	}
	return all, nil
}

// await looks until done says so, the worker ends, or nothing has been recorded for half a minute.
func (s *stage) await(ctx context.Context, worker *child, done func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last, moved := -1, time.Now()
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		if err := worker.alive(); err != nil {
			return err
		}
		n, err := s.recorded(ctx)
		if err != nil {
			return err
		}
		if n != last {
			last, moved = n, time.Now()
		}
		if time.Since(moved) > 30*time.Second {
			return fmt.Errorf("nothing has been recorded for half a minute, after %d outcomes", n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// awaitRecorded waits for so many outcomes. The counter runs ahead of the commits: so whoever was writing then must have ended.
func (s *stage) awaitRecorded(ctx context.Context, worker *child, want int) error {
	var ends int64
	return s.await(ctx, worker, func() (bool, error) {
		if ends == 0 {
			if n, err := s.recorded(ctx); err != nil || n < want {
				return false, err
			}
		}
		var oldest, next int64
		err := s.admin.QueryRow(ctx, "SELECT pg_snapshot_xmin(s)::text::int8, pg_snapshot_xmax(s)::text::int8 FROM pg_current_snapshot() AS s").Scan(&oldest, &next)
		if err != nil {
			return false, fmt.Errorf("read the snapshot: %w", err)
		}
		if ends == 0 {
			ends = next
		}
		return oldest >= ends, nil
	})
}
