package queue

import (
	"context"
	"sync"
	"time"
)

// heartbeats keeps the deliveries that are not settled, those first whose heartbeat is due first: all have the same interval, so a list
// in order of the last beat is in order of the next one, and no beat looks at a delivery that is not due.
type heartbeats struct {
	interval time.Duration

	mu    sync.Mutex
	first *Delivery
	last  *Delivery
	count int
}

func (h *heartbeats) add(d *Delivery, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.beatAt = now.Add(h.interval)
	h.append(d)
}

func (h *heartbeats) remove(d *Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlink(d)
}

func (h *heartbeats) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// due takes what is due, at most max, and puts it behind the others.
func (h *heartbeats) due(now time.Time, max int) []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*Delivery
	for d := h.first; d != nil && !d.beatAt.After(now) && len(due) < max; d = h.first {
		h.unlink(d)
		d.beatAt = now.Add(h.interval)
		h.append(d)
		due = append(due, d)
	}
	return due
}

func (h *heartbeats) append(d *Delivery) {
	d.prev, d.next = h.last, nil
	if h.last == nil {
		h.first = d
	} else {
		h.last.next = d
	}
	h.last = d
	h.count++
}

func (h *heartbeats) unlink(d *Delivery) {
	if d.prev == nil && h.first != d {
		return // never added, or removed before
	}
	if d.prev == nil {
		h.first = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		h.last = d.prev
	} else {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil
	h.count--
}

// run beats until ctx ends. A beat for a delivery that is being settled just now is harmless: the broker ignores it after the
// acknowledgement, and before it the job only stays ours a little longer.
func (h *heartbeats) run(ctx context.Context) {
	// Eight looks per interval: a beat is late by an eighth at most, which keeps it below half of the ack wait.
	ticker := time.NewTicker(h.interval / 8)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, d := range h.due(now, 1<<20) {
				if !d.settled.Load() {
					d.respond(ackInProgress)
				}
			}
		}
	}
}
