package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// atOnce is how many operations one statement records. The two events of an operation stand that far apart, and in one of the relay's batches.
const atOnce = 200

// record writes what the ledger has written of an operation when it is authorized: two events, the later one behind the earlier ones of others.
const record = `
WITH made AS (
  INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, settlement, fence,
                          first_sent_at, outcome_at, partner, credential, partner_key, transfer_id)
  SELECT ('01939e1c-7a52-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 4900, 1, sha256(n::text::bytea), 'GBP', 'wallet', 'gbp-fps', 'cust-4471', 'authorized', 'pending', 1,
         now(), now(), 'northbank', 'c1', 'key-' || n, 'tr_' || n
    FROM generate_series($1::int8, $2::int8) n
  RETURNING id
), payload AS (
  INSERT INTO payloads (operation_id, body) SELECT id, convert_to(repeat('x', 300), 'UTF8') FROM made
), event AS (
  SELECT id, type FROM made CROSS JOIN (VALUES (1, 'accepted'), (2, 'authorized')) AS e(n, type) ORDER BY n, id
)
INSERT INTO outbox (operation_id, fence, type) SELECT id, 1, type::outbox_type FROM event`

// fill records so many operations more.
func (l *load) fill(ctx context.Context, operations int) error {
	for left := operations; left > 0; left -= atOnce {
		n := min(atOnce, left)
		if _, err := l.conn.Exec(ctx, record, l.operations+1, l.operations+n); err != nil {
			return fmt.Errorf("record %d operations: %w", n, err)
		}
		l.operations += n
	}
	return nil
}

// catchUp fills the outbox while no relay runs, starts a worker, and waits until nothing is left.
func (l *load) catchUp(ctx context.Context, operations int, held bool) error {
	if err := l.fill(ctx, operations); err != nil {
		return err
	}
	if held {
		release, err := l.hold(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	before, err := l.look(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("outage: %d events wait, %s\n", before.waiting, before)
	if err := l.startWorker(); err != nil {
		return err
	}
	after, err := l.drain(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("caught up: %s\n", after)
	return l.verify(ctx)
}

// drain waits until the outbox is empty. The time counts from the first event that has left: a process that starts is not a relay that is slow.
func (l *load) drain(ctx context.Context) (size, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var begun, told time.Time
	first := -1
	for {
		now, err := l.look(ctx)
		if err != nil {
			return now, err
		}
		switch {
		case first < 0:
			first = now.waiting
		case begun.IsZero() && now.waiting < first:
			begun, told, first = time.Now(), time.Now(), now.waiting
		}
		if now.waiting == 0 {
			if took := time.Since(begun); !begun.IsZero() && took > 0 {
				fmt.Printf("published %d events in %s: %d/s\n", first, took.Round(time.Millisecond), int64(first)*int64(time.Second)/int64(took))
			}
			return now, nil
		}
		if !begun.IsZero() && time.Since(told) > 5*time.Second {
			told = time.Now()
			fmt.Printf("  %d to come, %s\n", now.waiting, now)
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-tick.C:
		}
	}
}

// hold opens a snapshot that sees what is there now, until it is released.
func (l *load) hold(ctx context.Context) (release func(), err error) {
	conn, err := pgx.Connect(ctx, l.database)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM leases"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			_ = conn.Close(ctx) // the first error says more
			return nil, fmt.Errorf("hold a snapshot: %w", err)
		}
	}
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

// pass lets operations pass through the outbox while the relay empties it, and says what the table takes on the way.
func (l *load) pass(ctx context.Context, operations, ahead int) error {
	if err := l.startWorker(); err != nil {
		return err
	}
	var most size
	begun, target := time.Now(), l.operations+operations
	for step := 0; l.operations < target; {
		now, err := l.look(ctx)
		if err != nil {
			return err
		}
		most = most.most(now)
		if done := operations - (target - l.operations); done*10/operations >= step {
			fmt.Printf("  %d operations after %s, %s\n", done, time.Since(begun).Round(time.Second), now)
			step++
		}
		if now.waiting > ahead {
			if err := l.await(ctx, ahead/2); err != nil {
				return err
			}
		}
		if err := l.fill(ctx, min(5*atOnce, target-l.operations)); err != nil {
			return err
		}
	}
	if err := l.await(ctx, 0); err != nil {
		return err
	}
	now, err := l.look(ctx)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	fmt.Printf("%d operations, %d events, passed in %s: %d events/s\n", operations, 2*operations, took.Round(time.Second), int64(2*operations)*int64(time.Second)/int64(took))
	fmt.Printf("most on the way: %s\nat the end: %s\n", most.most(now), now)
	return l.verify(ctx)
}

// await waits until at most so many events wait.
func (l *load) await(ctx context.Context, most int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var waiting int
		if err := l.conn.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&waiting); err != nil || waiting <= most {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// size is what the outbox takes.
type size struct {
	waiting, heap, index, dead, vacuums int
}

func (l *load) look(ctx context.Context) (s size, err error) {
	err = l.conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM outbox), pg_relation_size('outbox') >> 10, pg_indexes_size('outbox') >> 10,
		n_dead_tup, autovacuum_count FROM pg_stat_user_tables WHERE relname = 'outbox'`).Scan(&s.waiting, &s.heap, &s.index, &s.dead, &s.vacuums)
	return s, err
}

func (s size) most(other size) size {
	return size{max(s.waiting, other.waiting), max(s.heap, other.heap), max(s.index, other.index), max(s.dead, other.dead), max(s.vacuums, other.vacuums)}
}

func (s size) String() string {
	return fmt.Sprintf("outbox: %d rows, table %d kB, index %d kB, dead rows %d, autovacuums %d", s.waiting, s.heap, s.index, s.dead, s.vacuums)
}
