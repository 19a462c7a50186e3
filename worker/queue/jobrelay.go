package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// StoredJob is one job that was stored in a database, in the transaction that decided on it, and waits for the broker.
type StoredJob struct {
	Message
	Ref int64 // the store's own name for the row
}

// JobStore is where jobs wait to be published. Stored may give the same job again until it is marked, and may give it to two relays:
// they publish the same bytes under the same message id.
type JobStore interface {
	Stored(ctx context.Context, max int) ([]StoredJob, error)
	MarkPublished(ctx context.Context, refs []int64) error
}

// JobRelayOptions are the settings of a JobRelay. All may be zero.
type JobRelayOptions struct {
	Batch int            // jobs in one round; default 512
	Poll  time.Duration  // the longest wait without a Wake; default 1s
	Log   zerolog.Logger // default none
}

// JobRelay publishes stored jobs: read, publish, wait for every confirmation, mark. A job whose mark is lost is published again, under the
// same message id; later than the broker remembers ids it is one more delivery of a key that the ledger knows.
type JobRelay struct {
	confirm confirmer
	store   JobStore
	opts    JobRelayOptions
	wake    chan struct{}
}

// NewJobRelay uses a connection that may publish the jobs of the store.
func NewJobRelay(nc *nats.Conn, store JobStore, opts JobRelayOptions) (*JobRelay, error) {
	confirm, err := newConfirmer(nc, StreamJobs)
	if err != nil {
		return nil, err
	}
	if opts.Batch <= 0 {
		opts.Batch = defaultRelayBatch
	}
	if opts.Poll <= 0 {
		opts.Poll = defaultRelayPoll
	}
	return &JobRelay{confirm: confirm, store: store, opts: opts, wake: make(chan struct{}, 1)}, nil
}

// Wake says that the store has something new. It never blocks.
func (r *JobRelay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up that was not heard yet covers this one too
	}
}

// Run relays until ctx ends. It waits for a broker or a database that is away.
func (r *JobRelay) Run(ctx context.Context) error {
	var pause backoff
	for ctx.Err() == nil {
		published, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
		case r.confirm.closed():
			return fmt.Errorf("relay jobs: %w", nats.ErrConnectionClosed)
		case err != nil:
			if published > 0 {
				pause.reset()
			}
			r.opts.Log.Warn().Err(err).Int("published", published).Msg("relay of jobs failed; it goes on")
			_ = pause.wait(ctx)
		case published == r.opts.Batch:
			pause.reset() // there may be more
		default:
			pause.reset()
			r.idle(ctx)
		}
	}
	return nil
}

func (r *JobRelay) idle(ctx context.Context) {
	poll := time.NewTimer(r.opts.Poll)
	defer poll.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-poll.C:
	}
}

// round relays one batch and returns how many of its jobs are published and marked. A job that can never be published is logged and left: it
// must not hold the others, and whoever recorded it owns it still.
func (r *JobRelay) round(ctx context.Context) (int, error) {
	jobs, err := r.store.Stored(ctx, r.opts.Batch)
	if err != nil {
		return 0, fmt.Errorf("read stored jobs: %w", err)
	}
	msgs := make([]*nats.Msg, 0, len(jobs))
	sent := make([]StoredJob, 0, len(jobs))
	var errs []error
	for _, j := range jobs {
		if err := j.validate(); err != nil {
			errs = append(errs, fmt.Errorf("publish %s: %w", j.Key, err))
			continue
		}
		msgs, sent = append(msgs, j.withID().msg()), append(sent, j)
	}
	refs := make([]int64, 0, len(sent))
	for i, c := range r.confirm.publishAll(ctx, msgs) {
		if c.err == nil {
			refs = append(refs, sent[i].Ref)
		} else if len(errs) == 0 {
			errs = append(errs, fmt.Errorf("publish %s: %w", sent[i].Key, c.err)) // the others mostly say the same
		}
	}
	if len(refs) > 0 {
		if err := r.store.MarkPublished(ctx, refs); err != nil {
			return 0, fmt.Errorf("mark %d jobs: %w", len(refs), err)
		}
	}
	return len(refs), errors.Join(errs...)
}
