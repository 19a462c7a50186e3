package banksim

import (
	"context"
	"sync"
)

// tasks counts what must be over before the bank is closed.
type tasks struct {
	mu     sync.Mutex
	count  int
	closed bool
	empty  chan struct{} // made by wait
}

// enter reports whether something may still begin; each true needs a leave.
func (t *tasks) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.count++
	return true
}

func (t *tasks) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if t.count == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// number tells how many have entered and not left.
func (t *tasks) number() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.count)
}

// idle waits for a moment at which nothing is under way.
func (t *tasks) idle(ctx context.Context) error {
	t.mu.Lock()
	if t.count == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.empty == nil {
		t.empty = make(chan struct{})
	}
	empty := t.empty
	t.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait lets nothing new begin and returns when all is over.
func (t *tasks) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	_ = t.idle(context.Background()) // ends only with the tasks
}
