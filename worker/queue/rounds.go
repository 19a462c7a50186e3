package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

const (
	defaultRelayBatch = 512
	defaultRelayPoll  = time.Second
	// relayGather is how long a relay waits after a small round: without it, a steady trickle of events would keep it busy with rounds of
	// a few events, each of which costs as much as one of hundreds.
	relayGather = 20 * time.Millisecond
)

// RelayOptions are the settings of a relay. All may be zero.
type RelayOptions struct {
	Batch int            // messages in one round; default 512
	Poll  time.Duration  // the longest wait without a Wake; default 1s
	Log   zerolog.Logger // default none
}

// rounds is what every relay does: read, publish, wait for every confirmation, mark, and then wait until there is something again.
type rounds struct {
	what    string // that is relayed
	confirm confirmer
	opts    RelayOptions
	wake    chan struct{}
}

func newRounds(what string, nc *nats.Conn, stream string, opts RelayOptions) (rounds, error) {
	confirm, err := newConfirmer(nc, stream)
	if opts.Batch <= 0 {
		opts.Batch = defaultRelayBatch
	}
	if opts.Poll <= 0 {
		opts.Poll = defaultRelayPoll
	}
	return rounds{what: what, confirm: confirm, opts: opts, wake: make(chan struct{}, 1)}, err
}

// Wake says that there is something new. It never blocks.
func (r *rounds) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up that was not heard yet covers this one too
	}
}

// run makes one round after the other until ctx ends, and waits for a broker or a database that is away. more says whether to look again at
// once after a round that published so many; otherwise the next one waits for a Wake or for the poll.
func (r *rounds) run(ctx context.Context, round func(context.Context) (published int, err error), more func(published int) bool) error {
	var pause backoff
	for ctx.Err() == nil {
		published, err := round(ctx)
		if err == nil || published > 0 {
			pause.reset()
		}
		switch {
		case ctx.Err() != nil:
		case r.confirm.closed():
			return fmt.Errorf("relay %s: %w", r.what, nats.ErrConnectionClosed)
		case err != nil:
			r.opts.Log.Warn().Err(err).Int("published", published).Msg("relay of " + r.what + " failed; it goes on")
			_ = pause.wait(ctx)
		case !more(published):
			r.rest(ctx, r.opts.Poll, r.wake)
		case published < r.opts.Batch/4:
			r.rest(ctx, min(relayGather, r.opts.Poll), nil)
		}
	}
	return nil
}

// rest waits for so long at most.
func (r *rounds) rest(ctx context.Context, most time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// publish sends the messages and says of each by its index whether it is confirmed. What the broker refuses for good goes to refuse; err is what
// came of the first of all others.
func (r *rounds) publish(ctx context.Context, msgs []*nats.Msg, refuse func(i int, err error)) (confirmed []int, err error) {
	confirmed = make([]int, 0, len(msgs))
	for i, c := range r.confirm.publishAll(ctx, msgs) {
		switch {
		case c.err == nil:
			confirmed = append(confirmed, i)
		case refused(c.err):
			refuse(i, c.err)
		case err == nil:
			err = fmt.Errorf("publish %s to %s: %w", msgs[i].Header.Get(nats.MsgIdHdr), msgs[i].Subject, c.err) // the others mostly say the same
		}
	}
	return confirmed, err
}
