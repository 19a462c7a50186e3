package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	cost "github.com/paidonce/paidonce/integration/stack/usage"
	"github.com/paidonce/paidonce/worker/queue"
)

// partScale measures several workers on one stream and one database.
const partScale = "scale"

// crew is several workers of one stage.
type crew struct {
	work
	others []*child
}

// scaleRound drains once with each number of workers, at a bank without latency. Calls in flight are the same in all, spread over the workers.
func (b *bench) scaleRound(ctx context.Context, r *report) error {
	for _, workers := range b.o.workers {
		if err := b.scale(ctx, r, workers); err != nil {
			return fmt.Errorf("%d workers: %w", workers, err)
		}
	}
	return nil
}

func (b *bench) scale(ctx context.Context, r *report, workers int) (err error) {
	inFlight := max(b.o.inFlight/workers, 1)
	w, err := b.begin(ctx, namePaidonce, 0, inFlight, route)
	if err != nil {
		return err
	}
	c := &crew{work: *w}
	defer func() {
		for _, other := range c.others {
			other.stop()
		}
		err = errors.Join(err, c.end(ctx))
	}()
	if err := c.join(ctx, workers-1, inFlight); err != nil {
		return err
	}
	jobs, err := makeJobs(b.o.jobs, route)
	if err != nil {
		return err
	}
	m, err := c.drainTogether(ctx, jobs, fmt.Sprintf("%d workers", workers))
	if err != nil {
		return err
	}
	stored, err := c.s.stored(ctx, c.done)
	if err != nil {
		return err
	}
	for _, other := range c.others {
		other.stop()
	}
	if err := c.finish(ctx, &m); err != nil {
		return err
	}
	b.say("%d workers: %.0f/s, %.1f us of workers, %.1f us of postgres, %.1f us of nats, %d second calls; %s", workers, m.PerSecond, m.WorkerUS, m.PostgresUS, m.NATSUS,
		m.SecondCalls, stored)
	return r.add(m)
}

// join starts more workers, each with a directory of its own for settings and log.
func (c *crew) join(ctx context.Context, more, inFlight int) error {
	for i := range more {
		beside := *c.s
		beside.dir = filepath.Join(c.s.dir, fmt.Sprintf("worker-%d", i+2))
		if err := os.Mkdir(beside.dir, 0o700); err != nil {
			return fmt.Errorf("make the worker's directory: %w", err)
		}
		other, err := c.c.start(ctx, &beside, inFlight)
		if err != nil {
			return err
		}
		c.others = append(c.others, other)
	}
	if more == 0 {
		return nil
	}
	warm, err := makeJobs(max(c.s.bench.o.warmup, 200), route)
	if err != nil {
		return err
	}
	if err := c.c.enqueue(ctx, c.s, warm); err != nil {
		return err
	}
	c.done += len(warm)
	return c.settle(ctx)
}

func (c *crew) signal(s syscall.Signal) {
	c.worker.Signal(s)
	for _, other := range c.others {
		other.Signal(s)
	}
}

// used is a reading with the processor time of all workers in it.
func (c *crew) used(ctx context.Context) (usage, error) {
	u, err := c.s.usage(ctx, c.worker)
	for _, other := range c.others {
		cpu, _, readErr := cost.Process(other.PID(), false)
		u.cpu.worker, err = u.cpu.worker+cpu, errors.Join(err, readErr)
	}
	return u, err
}

// drainTogether freezes all workers, enqueues, lets all go, and measures until all is done.
func (c *crew) drainTogether(ctx context.Context, jobs []made, variant string) (m measurement, err error) {
	c.signal(syscall.SIGSTOP)
	if err := c.c.enqueue(ctx, c.s, jobs); err != nil {
		return m, err
	}
	from, err := c.used(ctx)
	if err != nil {
		return m, err
	}
	c.signal(syscall.SIGCONT)
	from.at = time.Now()
	c.done += len(jobs)
	if err := c.settle(ctx); err != nil {
		return m, err
	}
	to, err := c.used(ctx)
	if err != nil {
		return m, err
	}
	return newMeasurement(partScale, namePaidonce, variant, len(jobs), from, to), nil
}

// stored says what one operation leaves behind in the broker and in Postgres.
func (s *stage) stored(ctx context.Context, operations int) (string, error) {
	text := ""
	for _, name := range []string{queue.StreamJobs, queue.StreamEvents} {
		stream, err := s.js.Stream(ctx, name)
		if err != nil {
			return "", fmt.Errorf("look at stream %s: %w", name, err)
		}
		state := stream.CachedInfo().State
		text += fmt.Sprintf("%s %d B/message, ", name, state.Bytes/max(state.Msgs, 1))
	}
	var bytes, payloads int64
	err := s.admin.QueryRow(ctx, `SELECT sum(pg_total_relation_size(oid))::int8, pg_total_relation_size('payloads') FROM pg_class
		WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`).Scan(&bytes, &payloads)
	if err != nil {
		return "", fmt.Errorf("read sizes: %w", err)
	}
	return text + fmt.Sprintf("Postgres %d B/operation, %d of them payload", bytes/int64(operations), payloads/int64(operations)), nil
}
