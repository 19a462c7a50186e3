package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// confirmWait bounds the wait for one confirmation; after it the same message is published again.
	confirmWait = 10 * time.Second
	// confirmWindow is how many publishes wait for their confirmation at once.
	confirmWindow = 1024

	backoffFirst = 50 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// confirmer publishes messages and learns for each whether the broker has stored it.
type confirmer struct {
	js     jetstream.JetStream
	stream string // that must confirm
}

func newConfirmer(nc *nats.Conn, stream string) (confirmer, error) {
	js, err := jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(4*confirmWindow),
		jetstream.WithPublishAsyncTimeout(confirmWait),
		jetstream.WithDefaultTimeout(confirmWait))
	if err != nil {
		return confirmer{}, fmt.Errorf("use JetStream: %w", err)
	}
	return confirmer{js: js, stream: stream}, nil
}

// closed says that no publish can succeed any more.
func (c confirmer) closed() bool { return c.js.Conn().IsClosed() }

type confirmation struct {
	ack *jetstream.PubAck
	err error
}

// publishAll publishes each message once, in order, and waits for every confirmation: a reconnect fails all that are pending although
// the broker may have stored them, so that each must be asked.
func (c confirmer) publishAll(ctx context.Context, msgs []*nats.Msg) []confirmation {
	results := make([]confirmation, len(msgs))
	futures := make([]jetstream.PubAckFuture, min(len(msgs), confirmWindow))
	for start := 0; start < len(msgs); start += confirmWindow {
		part := msgs[start:min(start+confirmWindow, len(msgs))]
		for i, m := range part {
			futures[i], results[start+i].err = c.js.PublishMsgAsync(m, jetstream.WithStallWait(confirmWait))
		}
		for i := range part {
			if results[start+i].err == nil {
				results[start+i] = c.await(ctx, futures[i])
			}
		}
	}
	return results
}

func (c confirmer) await(ctx context.Context, future jetstream.PubAckFuture) confirmation {
	select {
	case ack := <-future.Ok():
		return c.confirmed(ack)
	case err := <-future.Err():
		return confirmation{err: err}
	case <-ctx.Done():
		select {
		case ack := <-future.Ok(): // both were ready: the confirmation is worth more
			return c.confirmed(ack)
		default:
			return confirmation{err: ctx.Err()}
		}
	}
}

func (c confirmer) confirmed(ack *jetstream.PubAck) confirmation {
	if ack.Stream != c.stream {
		return confirmation{err: fmt.Errorf("confirmed by stream %s instead of %s", ack.Stream, c.stream)}
	}
	return confirmation{ack: ack}
}

// refused says that the broker has answered, does not have the message, and will answer the same again: publishing once more is of no use.
// Not so a conflict (409): "duplicate message id is in process" comes while an earlier copy of the same message is being stored, as after a
// change of leaders. Whoever took that for a refusal would believe a job not to be there that is. Too late and too many pass as well.
func refused(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code >= 400 && api.Code < 500 &&
		api.Code != http.StatusConflict && api.Code != http.StatusRequestTimeout && api.Code != http.StatusTooManyRequests
}

// backoff counts the failures in a row and waits longer after each, with jitter, so that many that failed together do not come back
// together.
type backoff struct {
	failures int
}

func (b *backoff) reset() { b.failures = 0 }

func (b *backoff) next() time.Duration {
	d := backoffMost
	if b.failures < 7 {
		d = min(backoffFirst<<b.failures, backoffMost)
	}
	b.failures++
	return d/2 + rand.N(d/2)
}

// wait waits for the next step, or until ctx ends, which it says by its error.
func (b *backoff) wait(ctx context.Context) error {
	timer := time.NewTimer(b.next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
