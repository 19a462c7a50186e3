package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

// median is the middle time of several runs, in milliseconds. What takes seconds is run once.
func median(times int, do func() error) (float64, error) {
	var took []time.Duration
	for range times {
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		if took[0] > 2*time.Second {
			break
		}
	}
	slices.Sort(took)
	return micros(took[len(took)/2]) / 1000, nil
}

// sweepQueries times what the sweep and the metrics ask.
func (s *server) sweepQueries(ctx context.Context, urls stack.DatabaseURLs, m *measurement) error {
	l, err := ledger.Open(ctx, urls.Worker, ledger.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	defer l.Close()
	m.SweepIdleMS, err = median(20, func() error {
		_, err := l.ClaimDue(ctx, "nobody", batchSize)
		return err
	})
	if err != nil {
		return err
	}
	m.SweepDueMS, err = median(3, func() error {
		work, err := l.ClaimDue(ctx, "northbank", batchSize)
		m.SweepFound = max(m.SweepFound, len(work))
		if err != nil {
			return err
		}
		return putBack(ctx, l, work)
	})
	if err != nil {
		return err
	}
	m.GaugesMS, err = median(5, func() error {
		_, err := l.Gauges(ctx)
		return err
	})
	return err
}

// putBack makes what was claimed due again.
func putBack(ctx context.Context, l *ledger.Ledger, work []ledger.Work) error {
	records := make([]ledger.Record, len(work))
	for i := range work {
		records[i] = ledger.Release(work[i].Claim, false, ledger.Fact{Kind: ledger.FactNote, Code: "measured"})
	}
	for _, result := range l.Record(ctx, records) {
		if result.Answer != ledger.Recorded {
			return fmt.Errorf("a claim of the sweep was not put back, but %s: %w", result.Answer, result.Err)
		}
	}
	return nil
}

// lists times the pages that `ops list` shows.
func (s *server) lists(ctx context.Context, urls stack.DatabaseURLs, m *measurement) error {
	l, err := ledger.Open(ctx, urls.Worker, ledger.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	defer l.Close()
	m.ListMS = map[string]float64{}
	for name, filter := range map[string]ledger.Filter{
		"newest":   {},
		"parked":   {States: []ledger.State{ledger.StateParked}},
		"in doubt": {InDoubt: true},
		"rejected": {States: []ledger.State{ledger.StateRejected}},
		"source":   {Source: "wallet"},
		"nothing":  {Source: "nobody"}, // reads all of it
	} {
		m.ListMS[name], err = median(3, func() error {
			_, _, err := l.List(ctx, filter)
			return err
		})
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "57014" { // the role's statement_timeout: a person would see the same
			m.ListsTimedOut, err = append(m.ListsTimedOut, name), nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
	}
	return nil
}

const purgeAge = 90 * 24 * time.Hour

// purgeAlone measures what a purge costs per payload.
func (s *server) purgeAlone(ctx context.Context, urls stack.DatabaseURLs, m *measurement) error {
	l, err := ledger.Open(ctx, urls.Owner, ledger.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer l.Close()
	from, err := s.read(ctx, grownDatabase)
	if err != nil {
		return err
	}
	began := time.Now()
	done, err := l.PurgePayloads(ctx, ledger.Purge{OlderThan: purgeAge, Limit: int64(s.o.purge), Ease: -1})
	if err != nil {
		return err
	}
	took := time.Since(began)
	to, err := s.read(ctx, grownDatabase)
	if err != nil {
		return err
	}
	n := float64(max(done.Deleted, 1))
	m.Purged, m.PurgePerSecond = done.Deleted, n/took.Seconds()
	m.PurgeWALBytes, m.PurgeUS = float64(to.wal-from.wal)/n, micros(to.postgres-from.postgres)/n
	return nil
}

// purgeBeside drives the hot path alone and with a purge beside it, in turns, and compares the time of a batch.
func (s *server) purgeBeside(ctx context.Context, urls stack.DatabaseURLs, m *measurement) error {
	turn := time.Duration(max(s.o.seconds/8, 2)) * time.Second
	var alone, beside driven
	for range 2 {
		d, err := s.driveOn(ctx, grownDatabase, m.Keys, turn)
		if err != nil {
			return err
		}
		alone.batches = append(alone.batches, d.batches...)
		purging, stop := context.WithCancel(ctx)
		purged := make(chan error, 1)
		go func() { purged <- s.purgeUntil(purging, urls, m) }()
		d, err = s.driveOn(ctx, grownDatabase, m.Keys, turn)
		stop()
		if err = firstOf(err, <-purged); err != nil {
			return err
		}
		beside.batches = append(beside.batches, d.batches...)
	}
	slices.Sort(alone.batches)
	slices.Sort(beside.batches)
	m.AloneP50MS, m.AloneP99MS, m.BesideP50MS, m.BesideP99MS = alone.quantile(0.5), alone.quantile(0.99), beside.quantile(0.5), beside.quantile(0.99)
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// purgeUntil purges with its usual rests until it is stopped or nothing is left.
func (s *server) purgeUntil(ctx context.Context, urls stack.DatabaseURLs, m *measurement) error {
	l, err := ledger.Open(context.WithoutCancel(ctx), urls.Owner, ledger.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer l.Close()
	began := time.Now()
	var last ledger.Purged
	_, err = l.PurgePayloads(ctx, ledger.Purge{OlderThan: purgeAge, Progress: func(p ledger.Purged) { last = p }})
	m.BesidePerSecond = float64(last.Deleted) / time.Since(began).Seconds()
	if ctx.Err() != nil {
		return nil
	}
	return err
}
