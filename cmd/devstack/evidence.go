package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// witnesses are the connections over which everybody is asked. The SQL is this program's own.
type witnesses struct {
	ledger *pgx.Conn
	nc     *nats.Conn
	broker jetstream.JetStream
	bank   *bank
}

func openWitnesses(ctx context.Context, s *services) (*witnesses, error) {
	ledger, err := pgx.Connect(ctx, s.urls.Superuser)
	if err != nil {
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	nc, err := nats.Connect(s.nats.URL(), nats.Name("devstack proof"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to nats: %w", err), ledger.Close(ctx))
	}
	broker, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, errors.Join(fmt.Errorf("open jetstream: %w", err), ledger.Close(ctx))
	}
	return &witnesses{ledger: ledger, nc: nc, broker: broker, bank: s.bank}, nil
}

func (w *witnesses) close() {
	w.nc.Close()
	_ = w.ledger.Close(context.Background()) // only read from
}

// standing is where the whole ledger and the queue are.
type standing struct {
	authorized, rejected, cancelled, parked, underWay, inDoubt, unpublished int

	queued  int   // messages of the route that are not acknowledged
	pending int64 // what the bank still owes: late arrivals, commits after the answer
}

// done says whether nothing more will happen by itself.
func (s standing) done() bool {
	return s.underWay == 0 && s.queued == 0 && s.unpublished == 0 && s.pending == 0
}

func (s standing) finished() int { return s.authorized + s.rejected + s.cancelled + s.parked }

func (w *witnesses) standing(ctx context.Context) (standing, error) {
	var s standing
	err := w.ledger.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE state = 'authorized'), count(*) FILTER (WHERE state = 'rejected'),
		       count(*) FILTER (WHERE state = 'cancelled'), count(*) FILTER (WHERE state = 'parked'),
		       count(*) FILTER (WHERE state IN ('open', 'claimed')), count(*) FILTER (WHERE in_doubt),
		       (SELECT count(*) FROM outbox)
		  FROM operations`).Scan(&s.authorized, &s.rejected, &s.cancelled, &s.parked, &s.underWay, &s.inDoubt, &s.unpublished)
	if err != nil {
		return s, fmt.Errorf("ask the ledger: %w", err)
	}
	consumer, err := w.broker.Consumer(ctx, "WITHDRAWALS", "route_"+route)
	if err != nil {
		return s, fmt.Errorf("ask the broker: %w", err)
	}
	info := consumer.CachedInfo()
	s.queued = int(info.NumPending) + info.NumAckPending
	says, err := w.bank.summary(ctx)
	s.pending = says.Pending
	return s, err
}

// collect asks everybody about one run.
func (w *witnesses) collect(ctx context.Context, all publication) (evidence, error) {
	keys := make([]uuid.UUID, len(all.keys))
	byKey := map[uuid.UUID]string{}
	for i, p := range all.keys {
		keys[i], byKey[p.key] = p.key, p.reference
	}
	ev := evidence{operations: map[uuid.UUID]operation{}, events: map[uuid.UUID][]string{}, dead: map[uint64]int{}}
	owners := map[string]uuid.UUID{}
	err := errors.Join(
		w.operations(ctx, keys, ev.operations),
		w.attempts(ctx, owners),
		w.ledger.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM entries GROUP BY operation_id, event, currency HAVING sum(amount_minor) <> 0) AS unbalanced`).Scan(&ev.unbalanced),
		w.events(ctx, byKey, ev.events),
		w.dead(ctx, all.first(), ev.dead),
	)
	if err != nil {
		return ev, err
	}
	book, err := w.bank.book(ctx)
	if err != nil {
		return ev, err
	}
	for _, p := range book {
		// A partner key without an attempt belongs to nobody, and stays under its own name.
		p.reference = "partner key " + p.partnerKey
		if key, known := owners[p.partnerKey]; known {
			if reference, ours := byKey[key]; ours {
				p.reference = reference
			} else {
				continue // of a run before this one
			}
		}
		ev.executions = append(ev.executions, p.execution)
	}
	says, err := w.bank.summary(ctx)
	if says.Violations > 0 {
		ev.bankSays = append(ev.bankSays, fmt.Sprintf("%d requests reached the bank before their attempt was committed", says.Violations))
	}
	return ev, err
}

func (w *witnesses) operations(ctx context.Context, keys []uuid.UUID, into map[uuid.UUID]operation) error {
	rows, err := w.ledger.Query(ctx, `
		SELECT o.key::text, o.state::text, o.amount_minor, o.currency, coalesce(o.transfer_id, ''),
		       (SELECT count(*) FROM entries e WHERE e.operation_id = o.id AND e.event = 'authorized')
		  FROM operations o WHERE o.key = ANY ($1::uuid[])`, keys)
	if err != nil {
		return fmt.Errorf("read the operations: %w", err)
	}
	var key string
	var op operation
	_, err = pgx.ForEachRow(rows, []any{&key, &op.state, &op.amountMinor, &op.currency, &op.transferID, &op.entries}, func() error {
		into[uuid.MustParse(key)] = op
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the operations: %w", err)
	}
	return nil
}

// attempts says to which operation a partner key belongs, by the attempts that were committed before each request.
func (w *witnesses) attempts(ctx context.Context, into map[string]uuid.UUID) error {
	rows, err := w.ledger.Query(ctx, `SELECT DISTINCT a.partner_key, o.key::text FROM attempts a JOIN operations o ON o.id = a.operation_id`)
	if err != nil {
		return fmt.Errorf("read the attempts: %w", err)
	}
	var partnerKey, key string
	_, err = pgx.ForEachRow(rows, []any{&partnerKey, &key}, func() error {
		if other, taken := into[partnerKey]; taken && other.String() != key {
			return fmt.Errorf("partner key %s belongs to two operations", partnerKey)
		}
		into[partnerKey] = uuid.MustParse(key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the attempts: %w", err)
	}
	return nil
}

func (w *witnesses) events(ctx context.Context, ours map[uuid.UUID]string, into map[uuid.UUID][]string) error {
	return w.read(ctx, "WITHDRAWAL_EVENTS", func(msg jetstream.Msg) error {
		var event struct {
			Type string `json:"type"`
			Key  string `json:"key"`
		}
		if err := json.Unmarshal(msg.Data(), &event); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		key, err := uuid.Parse(event.Key)
		if err != nil {
			return fmt.Errorf("read the key of an event: %w", err)
		}
		if _, of := ours[key]; of {
			into[key] = append(into[key], event.Type)
		}
		return nil
	})
}

func (w *witnesses) dead(ctx context.Context, first uint64, into map[uint64]int) error {
	return w.read(ctx, "WITHDRAWAL_DEAD", func(msg jetstream.Msg) error {
		sequence, err := strconv.ParseUint(msg.Headers().Get("Paidonce-Stream-Seq"), 10, 64)
		if err != nil {
			return fmt.Errorf("read the sequence of a dead letter: %w", err)
		}
		if sequence >= first {
			into[sequence]++
		}
		return nil
	})
}

// read visits every message of a stream; the reader leaves no trace in the broker.
func (w *witnesses) read(ctx context.Context, name string, visit func(jetstream.Msg) error) error {
	stream, err := w.broker.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("open stream %s: %w", name, err)
	}
	last := stream.CachedInfo().State.LastSeq
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", name, err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(30 * time.Second))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s: %w", name, err)
		}
		if err := visit(msg); err != nil {
			return err
		}
		if meta.Sequence.Stream >= last {
			return nil
		}
	}
}

// leftOver tells about what is not finished, for the person who has to find out why.
func (w *witnesses) leftOver(ctx context.Context, most int) ([]string, error) {
	rows, err := w.ledger.Query(ctx, `
		SELECT o.key::text, o.state::text, o.in_doubt, o.held, coalesce(o.code, ''), o.fence, coalesce(d.due_at - now(), '0')::text,
		       coalesce((SELECT string_agg(b.kind || ' ' || b.verdict || coalesce(' ' || b.code, ''), ', ' ORDER BY b.at)
		                   FROM observations b WHERE b.operation_id = o.id), 'nothing observed')
		  FROM operations o LEFT JOIN due d ON d.operation_id = o.id
		 WHERE o.state IN ('open', 'claimed') ORDER BY o.id LIMIT $1`, most)
	if err != nil {
		return nil, fmt.Errorf("read what is left: %w", err)
	}
	var lines []string
	var key, state, code, due, seen string
	var inDoubt, held bool
	var fence int
	_, err = pgx.ForEachRow(rows, []any{&key, &state, &inDoubt, &held, &code, &fence, &due, &seen}, func() error {
		notes := []string{state}
		if inDoubt {
			notes = append(notes, "in doubt")
		}
		if held {
			notes = append(notes, "held: "+code)
		}
		lines = append(lines, fmt.Sprintf("%s %s, claimed %d times, due in %s, %s", key, strings.Join(notes, ", "), fence, due, seen))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what is left: %w", err)
	}
	rows, err = w.ledger.Query(ctx, "SELECT concat_ws(' ', scope, name, 'is paused by', by || ':', reason) FROM pauses ORDER BY at")
	if err != nil {
		return nil, fmt.Errorf("read the pauses: %w", err)
	}
	paused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the pauses: %w", err)
	}
	return append(paused, lines...), nil
}
