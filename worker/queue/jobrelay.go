package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
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
type JobRelayOptions = RelayOptions

// JobRelay publishes stored jobs: read, publish, wait for every confirmation, mark. A job whose mark is lost is published again, under the
// same message id; later than the broker remembers ids it is one more delivery of a key that the ledger knows.
type JobRelay struct {
	rounds
	store JobStore
}

// NewJobRelay uses a connection that may publish the jobs of the store.
func NewJobRelay(nc *nats.Conn, store JobStore, opts JobRelayOptions) (*JobRelay, error) {
	rounds, err := newRounds("jobs", nc, StreamJobs, opts)
	if err != nil {
		return nil, err
	}
	return &JobRelay{rounds: rounds, store: store}, nil
}

// Run relays until ctx ends. It waits for a broker or a database that is away.
func (r *JobRelay) Run(ctx context.Context) error {
	return r.run(ctx, r.round, func(published int) bool { return published == r.opts.Batch })
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
	confirmed, failed := r.publish(ctx, msgs, func(i int, err error) {
		if len(errs) == 0 { // the others mostly say the same
			errs = append(errs, fmt.Errorf("publish %s: %w", sent[i].Key, err))
		}
	})
	refs := make([]int64, len(confirmed))
	for n, i := range confirmed {
		refs[n] = sent[i].Ref
	}
	if len(refs) > 0 {
		if err := r.store.MarkPublished(ctx, refs); err != nil {
			return 0, fmt.Errorf("mark %d jobs: %w", len(refs), err)
		}
	}
	return len(refs), errors.Join(append(errs, failed)...)
}
