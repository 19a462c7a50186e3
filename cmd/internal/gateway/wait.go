package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger"
)

// mostKeys is how many rows are read in one statement.
const mostKeys = 1000

// What makes the gateway look at a row.
const (
	byFirstLook = "first_look" // the outcome may have been there before the wait
	byTold      = "told"
	byHint      = "hint"
	byTick      = "tick"
)

// waiters are the requests that wait for an outcome. One goroutine reads for all of them.
type waiters struct {
	ledger Ledger
	tick   time.Duration
	most   int
	log    zerolog.Logger

	mu      sync.Mutex
	waiting map[uuid.UUID][]*waiter
	n       int
	news    map[uuid.UUID]string // keys to look at now, and why
	wake    chan struct{}        // holds one
	closed  bool
	ended   func(by string, requests int) // of waits that ended with an outcome
}

// waiter is one request. Its channel is closed when there is an outcome, or when nobody will look any more.
type waiter struct {
	over  chan struct{}
	last  ledger.Standing // what was read last
	known bool
}

func newWaiters(l Ledger, tick time.Duration, most int, log zerolog.Logger) *waiters {
	return &waiters{ledger: l, tick: tick, most: most, log: log, waiting: map[uuid.UUID][]*waiter{}, news: map[uuid.UUID]string{},
		wake: make(chan struct{}, 1), ended: func(string, int) {}}
}

// wait returns where the operation stands when there is an outcome or ctx has ended. False: it was never looked at.
func (w *waiters) wait(ctx context.Context, key uuid.UUID) (ledger.Standing, bool) {
	one := &waiter{over: make(chan struct{})}
	w.mu.Lock()
	if w.closed || w.n >= w.most {
		w.mu.Unlock()
		return ledger.Standing{}, false
	}
	w.n++
	w.waiting[key] = append(w.waiting[key], one)
	w.news[key] = byFirstLook
	w.mu.Unlock()
	w.hear()
	select {
	case <-one.over:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(key, one)
	return one.last, one.known
}

// leave takes one request out, if it is still there.
func (w *waiters) leave(key uuid.UUID, one *waiter) {
	list := w.waiting[key]
	i := slices.Index(list, one)
	if i < 0 {
		return
	}
	w.n--
	if len(list) == 1 {
		delete(w.waiting, key)
		return
	}
	w.waiting[key] = slices.Delete(list, i, i+1)
}

// tell says that a key is worth a look. Keys that nobody waits for are forgotten at once.
func (w *waiters) tell(key uuid.UUID, by string) {
	w.mu.Lock()
	_, wanted := w.waiting[key]
	if wanted {
		w.news[key] = by
	}
	w.mu.Unlock()
	if wanted {
		w.hear()
	}
}

func (w *waiters) hear() {
	select {
	case w.wake <- struct{}{}:
	default: // one that was not heard yet covers this one too
	}
}

// run looks at what is new at once, and at everything that is waited for once a tick. While nobody waits it does nothing.
func (w *waiters) run(ctx context.Context) error {
	defer w.close()
	tick := time.NewTicker(w.tick)
	tick.Stop()
	ticking := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			w.look(ctx, w.takeNews())
		case <-tick.C:
			w.look(ctx, w.all())
		}
		if some := w.some(); some != ticking {
			ticking = some
			if tick.Stop(); some {
				tick.Reset(w.tick)
			}
		}
	}
}

func (w *waiters) takeNews() map[uuid.UUID]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.news
	w.news = map[uuid.UUID]string{}
	return news
}

func (w *waiters) all() map[uuid.UUID]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make(map[uuid.UUID]string, len(w.waiting))
	for key := range w.waiting {
		keys[key] = byTick
	}
	return keys
}

func (w *waiters) some() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

// look reads rows and answers those who wait for them.
func (w *waiters) look(ctx context.Context, keys map[uuid.UUID]string) {
	for part := range slices.Chunk(slices.Collect(maps.Keys(keys)), mostKeys) {
		found, err := w.ledger.Standings(ctx, part)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Warn().Err(err).Msg("what is waited for could not be read; it goes on")
			}
			return
		}
		w.spread(found, keys)
	}
}

func (w *waiters) spread(found []ledger.Standing, by map[uuid.UUID]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range found {
		list := w.waiting[found[i].Key]
		for _, one := range list {
			one.last, one.known = found[i], true
			if found[i].State.Finished() {
				close(one.over)
			}
		}
		if found[i].State.Finished() {
			w.n -= len(list)
			delete(w.waiting, found[i].Key)
			w.ended(by[found[i].Key], len(list))
		}
	}
}

// close ends every wait.
func (w *waiters) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for key, list := range w.waiting {
		for _, one := range list {
			close(one.over)
		}
		delete(w.waiting, key)
	}
	w.n = 0
}
