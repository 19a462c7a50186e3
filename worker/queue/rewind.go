package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Rewound says what Rewind did.
type Rewound struct {
	From      uint64   // the first sequence that is delivered again; 0 = nothing was stored since
	Consumers []string // that were set back
}

// Rewind has the jobs that were stored within so long delivered again, by the broker's clock, which stamped them too, to the consumers of all routes, by
// the operator's role. After a failover or a restore the ledger may have lost operations whose jobs were acknowledged long ago: nobody but the stream
// knows them any more. What the ledger still knows is answered by it, without a call. Jobs that the janitor has removed are gone.
func Rewind(ctx context.Context, nc *nats.Conn, redo time.Duration) (Rewound, error) {
	js, stream, err := streamOf(ctx, nc, StreamJobs)
	if err != nil {
		return Rewound{}, err
	}
	return rewindSince(ctx, js, stream, stream.CachedInfo().TimeStamp.Add(-redo))
}

// NewestJob is the latest moment that the broker has stamped on a job, or could stamp on one now, by its clock, by the operator's role.
func NewestJob(ctx context.Context, nc *nats.Conn) (time.Time, error) {
	_, stream, err := streamOf(ctx, nc, StreamJobs)
	if err != nil {
		return time.Time{}, err
	}
	info := stream.CachedInfo()
	if info.State.LastTime.After(info.TimeStamp) {
		return info.State.LastTime, nil
	}
	return info.TimeStamp, nil
}

// CancelledSince gives the keys of the withdrawals that were told cancelled since a time, by the operator's role.
func CancelledSince(ctx context.Context, nc *nats.Conn, since time.Time) ([]uuid.UUID, error) {
	_, stream, err := streamOf(ctx, nc, StreamEvents)
	if err != nil {
		return nil, err
	}
	next, err := firstSince(ctx, stream, eventsPrefix, since)
	if err != nil || next == 0 {
		return nil, err
	}
	var keys []uuid.UUID
	for {
		raw, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(eventsPrefix+"*.*.cancelled"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return keys, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the cancelled events behind %d: %w", next, err)
		}
		next = raw.Sequence + 1
		if key, _, ok := eventOf(raw); ok {
			keys = append(keys, key)
		}
	}
}

func rewindSince(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, since time.Time) (done Rewound, err error) {
	if done.From, err = firstSince(ctx, stream, jobsPrefix, since); err != nil || done.From == 0 {
		return done, err
	}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		// One that has not come so far has nothing to be delivered again.
		if !strings.HasPrefix(info.Name, ConsumerName("")) || info.Delivered.Stream < done.From {
			continue
		}
		if _, err := js.ResetConsumerToSequence(ctx, StreamJobs, info.Name, done.From); err != nil {
			return done, fmt.Errorf("set back consumer %s to %d: %w", info.Name, done.From, err)
		}
		done.Consumers = append(done.Consumers, info.Name)
	}
	if err := consumers.Err(); err != nil {
		return done, fmt.Errorf("list consumers of %s: %w", StreamJobs, err)
	}
	return done, nil
}

// firstSince finds the first message stored at a time or later, of a stream whose subjects all have one prefix, by halving: the broker keeps them in the
// order of their times. 0 = there is none.
func firstSince(ctx context.Context, stream jetstream.Stream, prefix string, since time.Time) (uint64, error) {
	state := stream.CachedInfo().State
	if state.Msgs == 0 || state.LastTime.Before(since) {
		return 0, nil
	}
	low, high := state.FirstSeq, state.LastSeq // the answer lies between them
	found := high
	for low < high {
		middle := low + (high-low)/2
		msg, err := stream.GetMsg(ctx, middle, jetstream.WithGetMsgSubject(prefix+">")) // the next one that is still there
		if err != nil {
			return 0, fmt.Errorf("read message behind %d: %w", middle, err)
		}
		if msg.Time.Before(since) {
			low = msg.Sequence + 1
		} else {
			high, found = middle, msg.Sequence
		}
	}
	return max(low, found), nil
}
