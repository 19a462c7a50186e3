package worker

import (
	"context"
	"sync"
	"time"

	"github.com/paidonce/paidonce/ledger"
)

// keeper renews the claims of calls that run long, so that nobody takes over what is still under way.
type keeper struct {
	mu   sync.Mutex
	held map[*operation]struct{}
}

func (k *keeper) hold(op *operation) {
	k.mu.Lock()
	k.held[op] = struct{}{}
	k.mu.Unlock()
}

func (k *keeper) drop(op *operation) {
	k.mu.Lock()
	delete(k.held, op)
	k.mu.Unlock()
}

// due lists the operations whose lease is older than a third.
func (k *keeper) due(now, lease time.Duration) []*operation {
	k.mu.Lock()
	defer k.mu.Unlock()
	var due []*operation
	for op := range k.held {
		if op.leaseLeft(now) < lease-lease/3 {
			due = append(due, op)
		}
	}
	return due
}

// keepLeases runs until ctx ends. A claim that is no longer ours is let go: the call under way goes on, because it cannot
// be taken back, and what it brings is recorded as late evidence.
func (w *Worker) keepLeases(ctx context.Context) {
	tick := time.NewTicker(max(w.opts.Lease/12, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		due := w.keeper.due(w.clock(), w.opts.Lease)
		for len(due) > 0 {
			n := min(len(due), w.opts.BatchSize)
			w.renew(ctx, due[:n])
			due = due[n:]
		}
	}
}

func (w *Worker) renew(ctx context.Context, due []*operation) {
	claims := make([]ledger.Claim, len(due))
	for i, op := range due {
		claims[i] = op.claim
	}
	until := w.clock() + w.opts.Lease // from before the statement
	ours, err := w.ledger.Renew(ctx, claims)
	if err != nil {
		w.log.Warn().Err(err).Int("claims", len(claims)).Msg("leases not renewed")
		return
	}
	for i := range due {
		if ours[i] {
			due[i].deadline.Store(int64(until))
		}
	}
}
