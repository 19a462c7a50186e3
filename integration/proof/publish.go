package proof

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// chunk is how many messages are published at once.
const chunk = 250

// Publish publishes the whole mixture in its order and notes under which sequence the stream keeps each message. sent is told how many more
// are confirmed.
func Publish(ctx context.Context, publisher *queue.Publisher, m *Mixture, sent func(int)) (Publication, error) {
	all := Publication{Keys: slices.Clone(m.Keys)}
	for messages := range slices.Chunk(m.Messages, chunk) {
		if err := all.Send(ctx, publisher, messages); err != nil {
			return all, err
		}
		sent(len(messages))
	}
	return all, nil
}

// Send publishes some messages of a mixture whose keys all has, and notes them.
func (all *Publication) Send(ctx context.Context, publisher *queue.Publisher, messages []Message) error {
	batch := make([]queue.Message, len(messages))
	for i, msg := range messages {
		key := uuid.UUID{}
		if msg.Kind == Malformed {
			key = job.NewKey() // the publisher wants one; the payload has none, or another
		} else {
			key = all.Keys[msg.Of].Key
		}
		batch[i] = queue.Message{Source: msg.Lane.Source, Route: msg.Lane.Route, Key: key, Payload: msg.Payload, MsgID: msg.MsgID}
	}
	for i, result := range publisher.PublishMany(ctx, batch) {
		if result.Err != nil {
			return fmt.Errorf("publish: %w", result.Err)
		}
		all.note(messages[i], result.Sequence)
	}
	return nil
}

func (all *Publication) note(msg Message, sequence uint64) {
	switch msg.Kind {
	case Malformed:
		all.Malformed = append(all.Malformed, sequence)
	case Conflicting:
		all.Keys[msg.Of].Conflicting = append(all.Keys[msg.Of].Conflicting, sequence)
	default:
		if good := &all.Keys[msg.Of].Good; !slices.Contains(*good, sequence) { // the broker dropped the repeated one
			*good = append(*good, sequence)
		}
	}
}

// first is the lowest sequence of this run: a stream that was kept may hold those of earlier ones.
func (all *Publication) first() uint64 {
	lowest := ^uint64(0)
	for _, p := range all.Keys {
		for _, sequence := range slices.Concat(p.Good, p.Conflicting) {
			lowest = min(lowest, sequence)
		}
	}
	for _, sequence := range all.Malformed {
		lowest = min(lowest, sequence)
	}
	return lowest
}
