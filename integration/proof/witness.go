package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Places say where the witnesses are. All are needed.
type Places struct {
	LedgerURL string   // of a role that may see everything
	BrokerURL string   // any client's
	Routes    []string // of this run; what happens on others is none of its business
	BankURLs  []string // of the control APIs
}

// Witnesses are the connections over which everybody is asked. The SQL is this package's own.
type Witnesses struct {
	places Places
	ledger *pgx.Conn
	nc     *nats.Conn
	broker jetstream.JetStream
	banks  []bankWitness
}

// Open connects to all of them.
func Open(ctx context.Context, at Places) (*Witnesses, error) {
	ledger, err := pgx.Connect(ctx, at.LedgerURL)
	if err != nil {
		return nil, fmt.Errorf("connect to postgres: %w", err)
	}
	nc, err := nats.Connect(at.BrokerURL, nats.Name("proof"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to nats: %w", err), ledger.Close(ctx))
	}
	broker, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, errors.Join(fmt.Errorf("open jetstream: %w", err), ledger.Close(ctx))
	}
	w := &Witnesses{places: at, ledger: ledger, nc: nc, broker: broker}
	for _, url := range at.BankURLs {
		w.banks = append(w.banks, newBankWitness(url))
	}
	return w, nil
}

// Close ends the connections.
func (w *Witnesses) Close() {
	w.nc.Close()
	_ = w.ledger.Close(context.Background()) // only read from
}

// Standing is where the whole ledger and the queue are.
type Standing struct {
	Authorized, Rejected, Cancelled, Parked, UnderWay, InDoubt, Unpublished int

	Queued  int   // messages of the routes that are not acknowledged
	Pending int64 // what the banks still owe: late arrivals, commits after the answer
}

// Done says whether nothing more will happen by itself.
func (s Standing) Done() bool {
	return s.UnderWay == 0 && s.Queued == 0 && s.Unpublished == 0 && s.Pending == 0
}

// Finished counts the operations at which no machine works any more.
func (s Standing) Finished() int { return s.Authorized + s.Rejected + s.Cancelled + s.Parked }

// Standing asks everybody once.
func (w *Witnesses) Standing(ctx context.Context) (Standing, error) {
	var s Standing
	err := w.ledger.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE state = 'authorized'), count(*) FILTER (WHERE state = 'rejected'),
		       count(*) FILTER (WHERE state = 'cancelled'), count(*) FILTER (WHERE state = 'parked'),
		       count(*) FILTER (WHERE state IN ('open', 'claimed')), count(*) FILTER (WHERE in_doubt),
		       (SELECT count(*) FROM outbox)
		  FROM operations`).Scan(&s.Authorized, &s.Rejected, &s.Cancelled, &s.Parked, &s.UnderWay, &s.InDoubt, &s.Unpublished)
	if err != nil {
		return s, fmt.Errorf("ask the ledger: %w", err)
	}
	for _, route := range w.places.Routes {
		consumer, err := w.broker.Consumer(ctx, "WITHDRAWALS", "route_"+route)
		if err != nil {
			return s, fmt.Errorf("ask the broker: %w", err)
		}
		info := consumer.CachedInfo()
		s.Queued += int(info.NumPending) + info.NumAckPending
	}
	for _, bank := range w.banks {
		says, err := bank.summary(ctx)
		if err != nil {
			return s, err
		}
		s.Pending += says.Pending
	}
	return s, nil
}

// Deliveries counts how often the broker has delivered jobs of the routes, redeliveries included.
func (w *Witnesses) Deliveries(ctx context.Context) (int, error) {
	n := 0
	for _, route := range w.places.Routes {
		consumer, err := w.broker.Consumer(ctx, "WITHDRAWALS", "route_"+route)
		if err != nil {
			return n, fmt.Errorf("ask the broker: %w", err)
		}
		n += int(consumer.CachedInfo().Delivered.Consumer)
	}
	return n, nil
}

// Collect asks everybody about one run.
func (w *Witnesses) Collect(ctx context.Context, all Publication) (Evidence, error) {
	keys := make([]uuid.UUID, len(all.Keys))
	byKey := map[uuid.UUID]string{}
	for i, p := range all.Keys {
		keys[i], byKey[p.Key] = p.Key, p.Reference
	}
	ev := Evidence{Operations: map[uuid.UUID]Operation{}, Events: map[uuid.UUID][]string{}, Dead: map[uint64]int{}}
	owners := map[string]uuid.UUID{}
	err := errors.Join(
		w.operations(ctx, keys, ev.Operations),
		w.attempts(ctx, owners),
		w.ledger.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM entries GROUP BY operation_id, event, currency HAVING sum(amount_minor) <> 0) AS unbalanced`).Scan(&ev.Unbalanced),
		w.events(ctx, byKey, ev.Events),
		w.dead(ctx, all.first(), ev.Dead),
	)
	if err != nil {
		return ev, err
	}
	for _, bank := range w.banks {
		if err := bank.testify(ctx, owners, byKey, &ev); err != nil {
			return ev, err
		}
	}
	return ev, nil
}

// testify adds a bank's book, and what it calls a violation.
func (b bankWitness) testify(ctx context.Context, owners map[string]uuid.UUID, byKey map[uuid.UUID]string, ev *Evidence) error {
	book, err := b.book(ctx)
	if err != nil {
		return err
	}
	for _, p := range book {
		// A partner key without an attempt belongs to nobody, and stays under its own name.
		p.Reference = "partner key " + p.partnerKey
		if key, known := owners[p.partnerKey]; known {
			reference, ours := byKey[key]
			if !ours {
				continue // of a run before this one
			}
			p.Reference = reference
		}
		ev.Executions = append(ev.Executions, p.Execution)
	}
	says, err := b.summary(ctx)
	if says.Violations > 0 {
		ev.BankSays = append(ev.BankSays, fmt.Sprintf("%d requests reached the bank before their attempt was committed", says.Violations))
	}
	return err
}

func (w *Witnesses) operations(ctx context.Context, keys []uuid.UUID, into map[uuid.UUID]Operation) error {
	rows, err := w.ledger.Query(ctx, `
		SELECT o.key::text, o.state::text, o.amount_minor, o.currency, coalesce(o.transfer_id, ''),
		       (SELECT count(*) FROM entries e WHERE e.operation_id = o.id AND e.event = 'authorized'),
		       (SELECT count(*) FROM observations b WHERE b.operation_id = o.id)
		  FROM operations o WHERE o.key = ANY ($1::uuid[])`, keys)
	if err != nil {
		return fmt.Errorf("read the operations: %w", err)
	}
	var key string
	var op Operation
	_, err = pgx.ForEachRow(rows, []any{&key, &op.State, &op.AmountMinor, &op.Currency, &op.TransferID, &op.Entries, &op.Evidence}, func() error {
		into[uuid.MustParse(key)] = op
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the operations: %w", err)
	}
	return nil
}

// attempts says to which operation a partner key belongs, by the attempts that were committed before each request.
func (w *Witnesses) attempts(ctx context.Context, into map[string]uuid.UUID) error {
	rows, err := w.ledger.Query(ctx, `
		SELECT a.partner_key, o.key::text FROM attempts a JOIN operations o ON o.id = a.operation_id
		 UNION -- an attempt can be lost in a failover; what was found out later stands in the operation
		SELECT o.partner_key, o.key::text FROM operations o WHERE o.partner_key IS NOT NULL`)
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

func (w *Witnesses) events(ctx context.Context, ours map[uuid.UUID]string, into map[uuid.UUID][]string) error {
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

func (w *Witnesses) dead(ctx context.Context, first uint64, into map[uint64]int) error {
	return w.read(ctx, "WITHDRAWAL_DEAD", func(msg jetstream.Msg) error {
		if !slices.ContainsFunc(w.places.Routes, func(route string) bool {
			return strings.HasPrefix(msg.Subject(), "withdrawals.dead."+route+".")
		}) {
			return nil
		}
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
func (w *Witnesses) read(ctx context.Context, name string, visit func(jetstream.Msg) error) error {
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

// LeftOver tells about what is not finished, for the person who has to find out why.
func (w *Witnesses) LeftOver(ctx context.Context, most int) ([]string, error) {
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
