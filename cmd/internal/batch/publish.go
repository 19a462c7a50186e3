package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	publishBatch = 2048
	publishPoll  = 200 * time.Millisecond
	// mostInHand bounds the jobs that are kept in memory between record and publish. Those beyond are read again, in the end.
	mostInHand = 32768
)

// ErrUnpublished: the jobs are on record, and the broker has not confirmed all of them.
var ErrUnpublished = errors.New("not all jobs are published yet. They are on record: a gateway publishes them, or this command run again; at last " +
	"the sweep works them without a message")

// Publisher publishes the jobs of one run: those that this process records, straight from memory, and then what the run has left behind before.
type Publisher struct {
	s     *Service
	run   uuid.UUID
	relay *queue.JobRelay

	mu     sync.Mutex
	inHand []queue.StoredJob
	ending bool // nothing more is recorded
	after  int64
	marked int           // jobs that the broker has confirmed
	done   chan struct{} // closed when nothing of the run waits any more
	onEnd  func()
}

// NewPublisher makes the publisher of a run, on a connection that may publish the jobs of its source.
func (s *Service) NewPublisher(nc *nats.Conn, run Run, log zerolog.Logger) (*Publisher, error) {
	p := &Publisher{s: s, run: run.ID, done: make(chan struct{})}
	relay, err := queue.NewJobRelay(nc, p, queue.JobRelayOptions{Batch: publishBatch, Poll: publishPoll, Log: log})
	if err != nil {
		return nil, err
	}
	p.relay = relay
	return p, nil
}

// OnEnd has end called when Run returns: what the publisher publishes on is closed then.
func (p *Publisher) OnEnd(end func()) { p.onEnd = end }

// Run publishes until ctx ends, or Finish was called and all is published.
func (p *Publisher) Run(ctx context.Context) error {
	if p.onEnd != nil {
		defer p.onEnd()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return p.relay.Run(ctx)
}

// Finish says that nothing more is recorded, and waits until all is published: for as long as something still is, within patience of the last.
func (p *Publisher) Finish(ctx context.Context, patience time.Duration, progress func(published int)) error {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	p.relay.Wake()
	tick := time.NewTicker(publishPoll)
	defer tick.Stop()
	last, since := p.Published(), time.Now()
	for {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ErrUnpublished, context.Cause(ctx))
		case <-tick.C:
		}
		if now := p.Published(); now != last {
			last, since = now, time.Now()
		}
		if progress != nil {
			progress(last)
		}
		if time.Since(since) > patience {
			return p.left(ctx)
		}
	}
}

// left is the error of jobs that wait for the broker; nil = none does, so that it may be away.
func (p *Publisher) left(ctx context.Context) error {
	switch found, err := p.s.ledger.UnpublishedJobsOf(ctx, p.run, 0, 1); {
	case err != nil:
		return errors.Join(ErrUnpublished, err)
	case len(found) > 0:
		return ErrUnpublished
	}
	return nil
}

// Published is how many jobs were confirmed so far.
func (p *Publisher) Published() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.marked
}

// add takes what was just recorded.
func (p *Publisher) add(run Run, items []item, rows []ledger.BulkRow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.inHand)+len(items) > mostInHand {

		return
	}
	for i := range items {
		if rows[i].Answer == ledger.Accepted {
			p.inHand = append(p.inHand, queue.StoredJob{Ref: rows[i].Ref, Message: queue.Message{
				Source: run.Source, Route: items[i].route, Key: items[i].key, Payload: items[i].payload}})
		}
	}
	p.relay.Wake()
}

// Stored implements queue.JobStore.
func (p *Publisher) Stored(ctx context.Context, most int) ([]queue.StoredJob, error) {
	p.mu.Lock()
	if n := min(most, len(p.inHand)); n > 0 {
		jobs := p.inHand[:n:n]
		if p.inHand = p.inHand[n:]; len(p.inHand) == 0 {
			p.inHand = nil
		}
		p.mu.Unlock()
		return jobs, nil
	}
	after, ending := p.after, p.ending
	p.mu.Unlock()
	if !ending {
		return nil, nil // what is on record and not in hand comes in the end
	}
	found, err := p.s.ledger.UnpublishedJobsOf(ctx, p.run, after, most)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(found) > 0:
		p.after = found[len(found)-1].Ref
	case after > 0:
		p.after = 0 // once more from the start: what was passed may have failed
	default:
		p.end()
	}
	jobs := make([]queue.StoredJob, len(found))
	for i, j := range found {
		jobs[i] = queue.StoredJob{Ref: j.Ref, Message: queue.Message{Source: j.Source, Route: j.Route, Key: j.Key, Payload: j.Payload, TraceParent: j.TraceParent}}
	}
	return jobs, nil
}

// end closes done, once. The caller holds the lock.
func (p *Publisher) end() {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
}

// MarkPublished implements queue.JobStore.
func (p *Publisher) MarkPublished(ctx context.Context, refs []int64) error {
	p.s.at(ctx, pointPublish)
	if err := p.s.ledger.JobsPublished(ctx, refs); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marked += len(refs)
	return nil
}
