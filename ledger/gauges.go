package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Gauges are the numbers of /metrics that the ledger knows.
type Gauges struct {
	OldestUnfinished time.Duration // zero = nothing unfinished
	Unfinished       map[State]int64
	InDoubt          int64
	InDoubtMinor     map[string]int64            // by currency, minor units; stops at the largest number there is
	InDoubtAt        map[string]map[string]int64 // by partner and currency
	OldestInDoubt    map[string]time.Time        // by partner: least first-sent time, for the key window
	OutboxLag        time.Duration
	OutboxPending    int64
	Strays           int64
	Contradicted     int64
	Now              time.Time
}

// watched is what Gauges remembers from one call to the next, so that it need not read a million operations that only wait: those that are
// claimed or in doubt. Every other one that becomes so has its row of due written in the same transaction, except by a recovery.
type watched struct {
	mu       sync.Mutex
	ids      []int64
	since    string // a snapshot's xmin: rows of due that a transaction from it on has written are looked at again; "" = all
	identity string // of the ledger when that was
	fullAt   time.Time
}

const (
	fullLookEvery = 10 * time.Minute // in case that somebody changes operations by hand
	watchChunk    = 10_000
	gaugesTimeout = time.Minute // for all of it; each statement has the limit of every other
)

// Gauges counts what is unfinished. A claimed operation within its lease is at work, not in doubt. The oldest is the one with the least id:
// ids are given out as operations are made.
func (l *Ledger) Gauges(ctx context.Context) (Gauges, error) {
	ctx, cancel := context.WithTimeout(ctx, gaugesTimeout)
	defer cancel()
	l.watched.mu.Lock()
	defer l.watched.mu.Unlock()
	var g Gauges
	err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		g, err = l.readGauges(ctx, tx)
		return err
	})
	if err != nil {
		return g, fmt.Errorf("read gauges: %w", err)
	}
	return g, nil
}

func (l *Ledger) readGauges(ctx context.Context, tx pgx.Tx) (Gauges, error) {
	g := Gauges{Unfinished: map[State]int64{}, InDoubtMinor: map[string]int64{}, InDoubtAt: map[string]map[string]int64{}, OldestInDoubt: map[string]time.Time{}}
	next := watched{fullAt: l.watched.fullAt}
	var oldest, lag, unfinished, parked int64
	b := &pgx.Batch{}
	l.queueLimits(b)
	b.Queue(`
		SELECT coalesce((SELECT (extract(epoch FROM now() - o.created_at) * 1000)::int8 FROM operations o WHERE o.id = (SELECT min(operation_id) FROM due)), 0),
		       coalesce((SELECT (extract(epoch FROM now() - x.at) * 1000)::int8 FROM outbox x ORDER BY x.id LIMIT 1), 0), (SELECT count(*) FROM outbox),
		       (SELECT count(*) FROM strays), (SELECT count(*) FROM operations WHERE contradicted_at IS NOT NULL), now(),
		       pg_snapshot_xmin(pg_current_snapshot())::text, coalesce((SELECT i::text FROM ledger_identity i), '')`).QueryRow(func(row pgx.Row) error {
		return row.Scan(&oldest, &lag, &g.OutboxPending, &g.Strays, &g.Contradicted, &g.Now, &next.since, &next.identity)
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return g, err
	}
	g.OldestUnfinished, g.OutboxLag = time.Duration(oldest)*time.Millisecond, time.Duration(lag)*time.Millisecond
	since, look := l.watched.since, l.watched.ids
	if next.identity != l.watched.identity || time.Since(l.watched.fullAt) > fullLookEvery {
		since, look, next.fullAt = "", nil, time.Now()
	}
	changed, err := readDue(ctx, tx, since, &unfinished, &parked)
	if err != nil {
		return g, err
	}
	if next.ids, err = g.judge(ctx, tx, withoutTwins(look, changed)); err != nil {
		return g, err
	}
	g.Unfinished[StateParked] = parked
	g.Unfinished[StateOpen] = unfinished - parked - g.Unfinished[StateClaimed]
	for _, state := range []State{StateOpen, StateClaimed, StateParked} {
		if g.Unfinished[state] == 0 {
			delete(g.Unfinished, state)
		}
	}
	l.watched.ids, l.watched.since, l.watched.identity, l.watched.fullAt = next.ids, next.since, next.identity, next.fullAt
	return g, nil
}

// readDue passes once over due, which is small and needed whole, and gives the operations whose row was written since.
func readDue(ctx context.Context, tx pgx.Tx, since string, unfinished, parked *int64) (changed []int64, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('enable_seqscan', 'on', true)`)
	b.Queue(`SELECT count(*), count(*) FILTER (WHERE parked),
		       coalesce(array_agg(operation_id) FILTER (WHERE age(xmin) <= coalesce(age(nullif($1::text, '')::xid8::xid), 2147483647)), '{}')
		  FROM due`, since).QueryRow(func(row pgx.Row) error { return row.Scan(unfinished, parked, &changed) })
	b.Queue(`SELECT set_config('enable_seqscan', 'off', true)`)
	return changed, tx.SendBatch(ctx, b).Close()
}

func withoutTwins(a, b []int64) []int64 {
	all := slices.Concat(a, b)
	slices.Sort(all) // neighbours lie on one page
	return slices.Compact(all)
}

// judge adds up those of the operations that are claimed or in doubt, and gives their ids.
func (g *Gauges) judge(ctx context.Context, tx pgx.Tx, ids []int64) (watch []int64, err error) {
	for start := 0; start < len(ids); start += watchChunk {
		rows, err := tx.Query(ctx, `
			SELECT o.currency, coalesce(o.partner, ''), least(coalesce(sum(o.amount_minor) FILTER (WHERE doubt), 0), 9223372036854775807)::int8,
			       count(*) FILTER (WHERE doubt), min(o.first_sent_at) FILTER (WHERE doubt), count(*) FILTER (WHERE o.state = 'claimed'), array_agg(o.id)
			  FROM unnest($1::int8[]) AS w(id) JOIN operations o ON o.id = w.id
			 CROSS JOIN LATERAL (SELECT o.in_doubt AND (o.state <> 'claimed' OR o.lease_until <= now()) AS doubt) AS x
			 WHERE o.in_doubt OR o.state = 'claimed'
			 GROUP BY 1, 2`, ids[start:min(start+watchChunk, len(ids))])
		if err != nil {
			return nil, err
		}
		var currency, partner string
		var minor, doubtful, claimed int64
		var first time.Time
		var some []int64
		if _, err := pgx.ForEachRow(rows, []any{&currency, &partner, &minor, &doubtful, timeOrZero{&first}, &claimed, &some}, func() error {
			g.Unfinished[StateClaimed] += claimed
			watch = append(watch, some...)
			g.addDoubt(partner, currency, doubtful, minor, first)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return watch, nil
}

func (g *Gauges) addDoubt(partner, currency string, doubtful, minor int64, first time.Time) {
	if doubtful == 0 {
		return
	}
	g.InDoubt += doubtful
	g.InDoubtMinor[currency] += min(minor, math.MaxInt64-g.InDoubtMinor[currency])
	if g.InDoubtAt[partner] == nil {
		g.InDoubtAt[partner] = map[string]int64{}
	}
	g.InDoubtAt[partner][currency] += min(minor, math.MaxInt64-g.InDoubtAt[partner][currency])
	if known := g.OldestInDoubt[partner]; known.IsZero() || first.Before(known) {
		g.OldestInDoubt[partner] = first
	}
}
