package queue

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Event is one row of the outbox, rendered.
type Event struct {
	ID          string // the message id
	Subject     string // withdrawals.events.<route>.<source>.<type>
	Ledger      string // the ledger that tells it
	Body        []byte
	TraceParent string // default none
	Ref         int64  // the outbox's own name for the row
	Broken      error  // why there is nothing to publish; default nothing is wrong
}

// Outbox is where events wait. Unpublished gives the oldest event per key first and at most one per key in a batch, so that an event
// never overtakes an earlier one of its key that could not be published.
type Outbox interface {
	Unpublished(ctx context.Context, max int) ([]Event, error)
	MarkPublished(ctx context.Context, refs []int64) error
}

// Relay publishes the outbox: read, publish, wait for every confirmation, mark, and only then read again. An event whose mark is lost
// is published again with the same id. An event that cannot be published as it is, because it is broken or the broker refuses it, is held back,
// and so are the later ones of its key, which must not overtake it. All others go on.
type Relay struct {
	rounds
	outbox Outbox
	held   map[int64]bool // by Ref, as of the last round
	count  atomic.Int64   // of them
}

// Held is how many events are held back. Alert at 1: a person must look, and a program must learn to render them.
func (r *Relay) Held() int { return int(r.count.Load()) }

// NewRelay uses a connection for publishing.
func NewRelay(nc *nats.Conn, outbox Outbox, opts RelayOptions) (*Relay, error) {
	rounds, err := newRounds("events", nc, StreamEvents, opts)
	if err != nil {
		return nil, err
	}
	return &Relay{rounds: rounds, outbox: outbox}, nil
}

// Run relays until ctx ends. It waits for a broker or a database that is away.
func (r *Relay) Run(ctx context.Context) error {
	return r.run(ctx, r.round, func(published int) bool { return published > 0 }) // there may be more of the same keys
}

// round relays one batch and returns how many of its events are published and marked.
func (r *Relay) round(ctx context.Context) (int, error) {
	found, err := r.outbox.Unpublished(ctx, r.opts.Batch+len(r.held)) // what is held back takes nobody's place
	if err != nil {
		return 0, fmt.Errorf("read outbox: %w", err)
	}
	held := make(map[int64]bool)
	events, msgs := make([]Event, 0, len(found)), make([]*nats.Msg, 0, len(found))
	for _, e := range found {
		msg, err := e.msg()
		if err != nil {
			r.hold(held, e, err)
			continue
		}
		events, msgs = append(events, e), append(msgs, msg)
	}

	confirmed, failed := r.publish(ctx, msgs, func(i int, err error) { r.hold(held, events[i], err) })
	refs := make([]int64, len(confirmed))
	for n, i := range confirmed {
		refs[n] = events[i].Ref
	}
	r.held = held
	r.count.Store(int64(len(held)))
	if len(refs) > 0 {
		if err := r.outbox.MarkPublished(ctx, refs); err != nil {
			return 0, fmt.Errorf("mark %d events: %w", len(refs), err)
		}
	}
	return len(refs), failed
}

// hold keeps an event back, and says so the first time.
func (r *Relay) hold(held map[int64]bool, e Event, err error) {
	held[e.Ref] = true
	if !r.held[e.Ref] {
		r.opts.Log.Error().Err(err).Str("event", e.ID).Msg("event cannot be published: it is held back, with all later ones of its key")
	}
}

func (e Event) msg() (*nats.Msg, error) {
	if e.Broken != nil {
		return nil, e.Broken
	}
	if e.ID == "" || !strings.HasPrefix(e.Subject, eventsPrefix) {
		return nil, fmt.Errorf("event %q: without an id or outside of %s>", e.ID, eventsPrefix)
	}
	msg := &nats.Msg{Subject: e.Subject, Data: e.Body, Header: nats.Header{jetstream.MsgIDHeader: {e.ID}}}
	if e.Ledger != "" {
		msg.Header[headerLedger] = []string{e.Ledger}
	}
	if printable(e.TraceParent) {
		msg.Header[headerTraceParent] = []string{e.TraceParent}
	}
	return msg, nil
}
