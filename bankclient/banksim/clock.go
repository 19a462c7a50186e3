package banksim

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock is the bank's own time: the real clock plus an offset that tests move forward. Everything the bank
// remembers or delays is measured by it, so that moving it also ends the waits it has passed.
type clock struct {
	real   func() time.Time
	offset atomic.Int64

	mu    sync.Mutex
	moved chan struct{} // closed and replaced by every move
}

func newClock(real func() time.Time) *clock {
	if real == nil {
		real = time.Now
	}
	return &clock{real: real, moved: make(chan struct{})}
}

func (c *clock) now() time.Time {
	return c.real().Add(time.Duration(c.offset.Load())).UTC()
}

// advance moves the clock forward and wakes every wait.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Add(int64(d))
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *clock) changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moved
}

// wait returns true once d has passed on this clock, false when done was closed first.
func (c *clock) wait(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	return c.waitUntil(c.now().Add(d), done)
}

// waitUntil is wait for a moment that was decided earlier.
func (c *clock) waitUntil(due time.Time, done <-chan struct{}) bool {
	for {
		moved := c.changed()
		left := due.Sub(c.now())
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-moved:
			timer.Stop()
		case <-done:
			timer.Stop()
			return false
		}
	}
}
