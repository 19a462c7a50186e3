package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// puller asks the broker for jobs, one pull at a time, with as many as it has slots for.
//
// It is what the client's Fetch does, on the same protocol, but with one subscription for its whole life. Fetch would make and drop a
// subscription for each pull; it loses what arrives after its own time-out; and it takes a job without payload and with a header
// "Status", which any publisher can make, for a word of the broker: such a job would come again for ever. Here the reply subject, which
// only the broker sets, tells jobs from status.
type puller struct {
	c     *Consumer
	inbox string
	msgs  chan *nats.Msg
	sub   *nats.Subscription
	pulls uint64
	size  int // of the next pull, before the intake is asked
}

// pullUntil pulls until ctx ends.
func (c *Consumer) pullUntil(ctx context.Context) error {
	p := &puller{c: c, size: 1}
	if err := p.subscribe(); err != nil {
		return err
	}
	defer func() { _ = p.sub.Unsubscribe() }()

	var pause backoff
	for {
		slots, err := c.intake.Acquire(ctx, p.size)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("acquire slots for route %s: %w", c.route, err)
		}
		used, err := p.pull(ctx, slots)
		c.intake.Release(slots - used)
		switch {
		case ctx.Err() != nil:
			return nil
		case c.nc.IsClosed():
			return fmt.Errorf("pull jobs of route %s: %w", c.route, nats.ErrConnectionClosed)
		case err == nil:
			pause.reset()
		default:
			c.log.Warn().Err(err).Msg("pull failed")
			if pause.wait(ctx) != nil {
				return nil
			}
		}
	}
}

func (p *puller) subscribe() error {
	p.inbox = p.c.nc.NewInbox()
	// Room for a full pull and the status messages around it: a channel that is full would drop jobs.
	p.msgs = make(chan *nats.Msg, 4*maxPull)
	sub, err := p.c.nc.ChanSubscribe(p.inbox+".*", p.msgs)
	if err != nil {
		return fmt.Errorf("subscribe for jobs of route %s: %w", p.c.route, err)
	}
	p.sub = sub
	return nil
}

// pull asks for as many jobs as there are slots and starts what comes, until all slots are used or the broker says that the pull is over.
// It returns how many slots it has given away. After ctx has ended, what arrives is handed back at once.
func (p *puller) pull(ctx context.Context, slots int) (used int, err error) {
	p.pulls++
	reply := p.inbox + "." + strconv.FormatUint(p.pulls, 10)
	request := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, slots, pullWait.Nanoseconds())
	subject := "$JS.API.CONSUMER.MSG.NEXT." + StreamJobs + "." + ConsumerName(p.c.route)
	if err := p.c.nc.PublishRequest(subject, reply, request); err != nil {
		return 0, fmt.Errorf("ask for jobs: %w", err)
	}

	// The broker ends a pull; only if its word got lost, as by a reconnect, does this.
	lost := time.NewTimer(pullWait + time.Second)
	defer lost.Stop()
	received := 0
	var first time.Time
	defer func() { p.adapt(slots, received, first) }()
	for received < slots {
		select {
		case msg := <-p.msgs:
			if !isJob(msg) {
				if msg.Subject != reply {
					continue // about a pull that is over
				}
				if over, err := pullStatus(msg); over || err != nil {
					return used, err
				}
				continue
			}
			if received++; received == 1 {
				first = time.Now()
			}
			if ctx.Err() != nil {
				_ = p.c.nc.Publish(msg.Reply, ackNak)
				continue
			}
			if err := p.c.start(msg); err != nil {
				return used, err
			}
			used++
		case <-lost.C:
			// What may still arrive for this pull has no slot: it is better delivered again.
			_ = p.sub.Unsubscribe()
			if err := p.subscribe(); err != nil {
				return used, err
			}
			return used, nil
		}
	}
	return used, nil
}

// adapt chooses the size of the next pull. An open pull holds its slots although they are idle, and others want them, such as the sweep: so
// a pull that waited for its jobs is followed by a smaller one, down to one slot, and one that was filled at once by a larger one.
func (p *puller) adapt(slots, received int, first time.Time) {
	const atOnce = 20 * time.Millisecond
	switch {
	case received == slots && time.Since(first) < atOnce:
		p.size = min(2*p.size, maxPull)
	case received == 0:
		p.size = 1
	case received < slots/2:
		p.size = max(p.size/2, 1)
	}
}

// isJob tells a job from a status message.
func isJob(msg *nats.Msg) bool { return strings.HasPrefix(msg.Reply, "$JS.ACK.") }

// pullStatus says whether a status message ends its pull, and whether that is a failure.
func pullStatus(msg *nats.Msg) (over bool, err error) {
	status, description := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch status {
	case "100":
		return false, nil
	case "404", "408": // no jobs
		return true, nil
	case "503":
		return true, errors.New("no stream or consumer answers")
	default: // 400, 409: deleted, leadership change, too many pulls
		return true, fmt.Errorf("status %s: %s", status, description)
	}
}
