package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/integration/stack/usage"
	"github.com/paidonce/paidonce/ledger"
)

// reading is everything of the server that is counted up.
type reading struct {
	postgres, client time.Duration
	wal              int64
	lsn              string
	images           int64
	updates, hot     int64
}

func (s *server) read(ctx context.Context, database string) (r reading, err error) {
	if r.postgres, err = usage.Tree(s.postgres.PID()); err != nil {
		return r, err
	}
	if r.client, _, err = usage.Process(os.Getpid(), false); err != nil {
		return r, err
	}
	return r, s.with(ctx, database, func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn()::text, (SELECT wal_fpi FROM pg_stat_wal),
			coalesce(sum(n_tup_upd), 0)::int8, coalesce(sum(n_tup_hot_upd), 0)::int8 FROM pg_stat_user_tables`).Scan(&r.wal, &r.lsn, &r.images, &r.updates, &r.hot)
		if err != nil {
			return fmt.Errorf("read the server's counters: %w", err)
		}
		return nil
	})
}

// hotPath measures a drive from just after a checkpoint.
func (s *server) hotPath(ctx context.Context, database, kind string, m *measurement) error {
	if err := s.exec(ctx, database, "CHECKPOINT"); err != nil {
		return err
	}
	from, err := s.read(ctx, database)
	if err != nil {
		return err
	}
	d, err := s.driveOn(ctx, database, kind, time.Duration(s.o.seconds)*time.Second)
	if err != nil {
		return err
	}
	to, err := s.read(ctx, database)
	if err != nil {
		return err
	}
	n := float64(d.operations)
	m.Operations, m.Seconds, m.PerSecond = d.operations, d.took.Seconds(), n/d.took.Seconds()
	m.WALBytes, m.Images = float64(to.wal-from.wal)/n, float64(to.images-from.images)/n
	m.PostgresUS, m.ClientUS = micros(to.postgres-from.postgres)/n, micros(to.client-from.client)/n
	if to.updates > from.updates {
		m.HOTShare = float64(to.hot-from.hot) / float64(to.updates-from.updates)
	}
	m.BatchP50MS, m.BatchP99MS = d.quantile(0.5), d.quantile(0.99)
	if s.o.pages {
		m.ImagesOf, m.WALOf, err = s.walByRelation(ctx, database, from.lsn, to.lsn, n)
	}
	return err
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// driveOn opens the ledger as a worker does. It is closed when the counters are read: backends report them when they end.
func (s *server) driveOn(ctx context.Context, database, kind string, length time.Duration) (driven, error) {
	urls, err := s.postgres.CreateDatabase(ctx, database) // it is there: this gives the ways into it
	if err != nil {
		return driven{}, err
	}
	l, err := ledger.Open(ctx, urls.Worker, ledger.Options{MaxConns: drivers + 1})
	if err != nil {
		return driven{}, err
	}
	defer l.Close()
	return drive(ctx, l, kind, s.o.rate, length)
}

// measureEmpty measures the hot path on a new ledger, which is dropped.
func (s *server) measureEmpty(ctx context.Context, kind string) (*measurement, error) {
	m := &measurement{Keys: kind}
	if err := s.start(ctx, true); err != nil {
		return nil, err
	}
	if _, err := s.database(ctx, emptyDatabase); err != nil {
		return nil, err
	}
	if err := s.hotPath(ctx, emptyDatabase, kind, m); err != nil {
		return nil, err
	}
	return m, s.exec(ctx, "", "DROP DATABASE "+emptyDatabase+" WITH (FORCE)")
}

// ask measures everything else on the filled ledger. A purge takes payloads that the next size would have, which changes nothing that is measured.
func (s *server) ask(ctx context.Context, m *measurement) error {
	urls, err := s.postgres.CreateDatabase(ctx, grownDatabase)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, stack.DatabaseURLs, *measurement) error{s.sizes, s.sweepQueries, s.lists} {
		if err := step(ctx, urls, m); err != nil {
			return err
		}
	}
	if s.o.prove {
		if err := s.proof(ctx, urls, m); err != nil {
			return err
		}
	}
	if s.o.purge == 0 {
		return nil
	}
	if err := s.purgeAlone(ctx, urls, m); err != nil {
		return err
	}
	return s.purgeBeside(ctx, urls, m)
}

// sizes reads how large every table and index is.
func (s *server) sizes(ctx context.Context, _ stack.DatabaseURLs, m *measurement) error {
	m.SizesMB = map[string]float64{}
	return s.with(ctx, grownDatabase, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT relname, pg_relation_size(oid)::float8 / 1048576 FROM pg_class
			WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 1048576`)
		if err != nil {
			return fmt.Errorf("read sizes: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var size float64
			if err := rows.Scan(&name, &size); err != nil {
				return fmt.Errorf("read sizes: %w", err)
			}
			m.SizesMB[name] = size
		}
		return rows.Err()
	})
}
