package worker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A statement costs as much as some twenty of its rows. So once requests come faster than they can be committed one by one, one committer takes them
// all: two would make twice as many statements of half the size.
const (
	busyBatch  = 4                      // from this size on a batch shows that requests come fast
	slowCommit = 100 * time.Millisecond // a batch that takes longer, perhaps for a lock, no longer keeps the others from working
)

// errClosed says that a batcher takes nothing more.
var errClosed = errors.New("worker is stopped")

// Batcher makes one statement of many callers' requests without ever waiting for more of them: each committer takes what
// arrived while its last batch ran. At rest a request leaves at once; once batches grow, one committer works alone.
type Batcher[Req, Res any] struct {
	commit func(context.Context, []Req) []Res
	max    int

	mu      sync.Mutex
	wake    sync.Cond
	waiting []*ticket[Req, Res]
	spare   []*ticket[Req, Res] // answered tickets, used again; bounded by the callers that ever waited at once
	holder  int                 // the committer that works alone, with a batch that is no small one; 0 = none
	closed  bool
	running sync.WaitGroup
}

// ticket is one caller's place in the queue.
type ticket[Req, Res any] struct {
	req    Req
	answer chan Res // holds one, so that a committer never waits for a caller
}

// NewBatcher returns a batcher whose batches hold at most max requests. commit answers each request at its own place.
func NewBatcher[Req, Res any](max int, commit func(context.Context, []Req) []Res) *Batcher[Req, Res] {
	b := &Batcher[Req, Res]{commit: commit, max: max}
	b.wake.L = &b.mu
	return b
}

// Start starts n committers, which work until Close. ctx is what they commit under: it must outlive the stop signal.
func (b *Batcher[Req, Res]) Start(ctx context.Context, n int) {
	for id := range n {
		b.running.Go(func() { b.run(ctx, id+1) })
	}
}

// Do hands in one request and waits for its answer. ctx only guards the entry: once handed in, a request may have been
// committed, so its answer is always waited for.
func (b *Batcher[Req, Res]) Do(ctx context.Context, req Req) (Res, error) {
	var none Res
	if err := ctx.Err(); err != nil {
		return none, err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return none, errClosed
	}
	t := b.take()
	t.req = req
	b.waiting = append(b.waiting, t)
	b.mu.Unlock()
	b.wake.Signal()
	res := <-t.answer
	b.mu.Lock()
	b.spare = append(b.spare, t)
	b.mu.Unlock()
	return res, nil
}

// Close lets the committers answer everything handed in, and waits for them.
func (b *Batcher[Req, Res]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wake.Broadcast()
	b.running.Wait()
}

func (b *Batcher[Req, Res]) take() *ticket[Req, Res] {
	if n := len(b.spare); n > 0 {
		t := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return t
	}
	return &ticket[Req, Res]{answer: make(chan Res, 1)}
}

func (b *Batcher[Req, Res]) run(ctx context.Context, id int) {
	tickets := make([]*ticket[Req, Res], 0, b.max)
	batch := make([]Req, 0, b.max)
	for {
		tickets = b.next(tickets[:0], id)
		if len(tickets) == 0 {
			return
		}
		batch = batch[:0]
		for _, t := range tickets {
			batch = append(batch, t.req)
		}
		slow := time.AfterFunc(slowCommit, func() { b.leave(id) })
		answers := b.commit(ctx, batch)
		slow.Stop()
		if len(answers) != len(tickets) {
			panic("a batch was not answered request by request")
		}
		var none Req
		for i, t := range tickets {
			t.req = none
			t.answer <- answers[i]
		}
	}
}

// next waits for requests and takes the oldest of them; none means closed and empty.
func (b *Batcher[Req, Res]) next(into []*ticket[Req, Res], id int) []*ticket[Req, Res] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holder == id && len(b.waiting) < busyBatch {
		b.holder = 0
		b.wake.Broadcast()
	}
	for len(b.waiting) == 0 || b.holder != 0 && b.holder != id {
		if b.closed && len(b.waiting) == 0 {
			return into
		}
		b.wake.Wait()
	}
	n := min(len(b.waiting), b.max)
	into = append(into, b.waiting[:n]...)
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	if n >= busyBatch {
		b.holder = id
	}
	return into
}

// leave lets the others work again.
func (b *Batcher[Req, Res]) leave(id int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holder == id {
		b.holder = 0
		b.wake.Broadcast()
	}
}
