package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

const (
	defaultRelayBatch = 512
	defaultRelayPoll  = time.Second
	// relayGather is how long a relay waits after a small round: without it, a steady trickle of events would keep it busy with rounds of
	// a few events, each of which costs as much as one of hundreds.
	relayGather = 20 * time.Millisecond
)

// Event is one row of the outbox, rendered.
type Event struct {
	ID          string // the message id
	Subject     string // withdrawals.events.<route>.<source>.<type>
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

// RelayOptions are the settings of a Relay. All may be zero.
type RelayOptions struct {
	Batch int            // events in one round; default 512
	Poll  time.Duration  // the longest wait without a Wake; default 1s
	Log   zerolog.Logger // default none
}

// Relay publishes the outbox: read, publish, wait for every confirmation, mark, and only then read again. An event whose mark is lost
// is published again with the same id. An event that cannot be published as it is, because it is broken or the broker refuses it, is held back,
// and so are the later ones of its key, which must not overtake it. All others go on.
type Relay struct {
	confirm confirmer
	outbox  Outbox
	opts    RelayOptions
	wake    chan struct{}
	held    map[int64]bool // by Ref, as of the last round
	count   atomic.Int64   // of them
}

// Held is how many events are held back. Alert at 1: a person must look, and a program must learn to render them.
func (r *Relay) Held() int { return int(r.count.Load()) }

// NewRelay uses a connection for publishing.
func NewRelay(nc *nats.Conn, outbox Outbox, opts RelayOptions) (*Relay, error) {
	confirm, err := newConfirmer(nc, StreamEvents)
	if err != nil {
		return nil, err
	}
	if opts.Batch <= 0 {
		opts.Batch = defaultRelayBatch
	}
	if opts.Poll <= 0 {
		opts.Poll = defaultRelayPoll
	}
	return &Relay{confirm: confirm, outbox: outbox, opts: opts, wake: make(chan struct{}, 1)}, nil
}

// Wake says that the outbox has something new. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up that was not heard yet covers this one too
	}
}

// Run relays until ctx ends. It waits for a broker or a database that is away.
func (r *Relay) Run(ctx context.Context) error {
	var pause backoff
	for ctx.Err() == nil {
		published, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
		case r.confirm.closed():
			return fmt.Errorf("relay events: %w", nats.ErrConnectionClosed)
		case err != nil:
			r.opts.Log.Warn().Err(err).Int("published", published).Msg("relay failed; it goes on")
			_ = pause.wait(ctx)
		case published > 0:
			pause.reset() // there may be more, also of the same keys
			if published < r.opts.Batch/4 {
				r.gather(ctx)
			}
		default:
			pause.reset()
			r.idle(ctx)
		}
	}
	return nil
}

func (r *Relay) gather(ctx context.Context) {
	wait := time.NewTimer(min(relayGather, r.opts.Poll))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

func (r *Relay) idle(ctx context.Context) {
	poll := time.NewTimer(r.opts.Poll)
	defer poll.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-poll.C:
	}
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

	var errs []error
	refs := make([]int64, 0, len(events))
	for i, c := range r.confirm.publishAll(ctx, msgs) {
		switch {
		case c.err == nil:
			refs = append(refs, events[i].Ref)
		case refused(c.err):
			r.hold(held, events[i], c.err)
		case len(errs) == 0:
			errs = append(errs, fmt.Errorf("publish event %s: %w", events[i].ID, c.err)) // the others mostly say the same
		}
	}
	r.held = held
	r.count.Store(int64(len(held)))
	if len(refs) > 0 {
		if err := r.outbox.MarkPublished(ctx, refs); err != nil {
			return 0, fmt.Errorf("mark %d events: %w", len(refs), err)
		}
	}
	return len(refs), errors.Join(errs...)
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
	if printable(e.TraceParent) {
		msg.Header[headerTraceParent] = []string{e.TraceParent}
	}
	return msg, nil
}
