package queue

import (
	"context"
	"errors"
	"sync"
)

// marks is the part of a store in memory that both relays use: what was marked as published, and how many calls are still to fail.
type marks struct {
	mu        sync.Mutex
	marked    map[int64]bool
	reads     int
	failReads int
	failMarks int
}

// read counts a read. The lock is held.
func (m *marks) read() error {
	m.reads++
	return fail(&m.failReads)
}

func (m *marks) MarkPublished(_ context.Context, refs []int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := fail(&m.failMarks); err != nil {
		return err
	}
	if m.marked == nil {
		m.marked = make(map[int64]bool)
	}
	for _, ref := range refs {
		m.marked[ref] = true
	}
	return nil
}

// fail gives an error as often as is left.
func fail(left *int) error {
	if *left == 0 {
		return nil
	}
	*left--
	return errors.New("database is away")
}

func (m *marks) done() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.marked)
}

func (m *marks) looked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

// keepRunning runs a relay until the test ends.
func (r *rig) keepRunning(run func(context.Context) error) {
	stop := start(run)
	r.t.Cleanup(func() {
		if err := stop(); err != nil && !r.pub.IsClosed() {
			r.t.Error(err)
		}
	})
}
