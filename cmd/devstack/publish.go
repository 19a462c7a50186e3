package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// publish publishes the whole mixture in its order and notes under which sequence the stream keeps each message.
func publish(ctx context.Context, s *services, m *mixture, say *progress) (publication, error) {
	nc, err := s.connect(queue.RolePublisher, source)
	if err != nil {
		return publication{}, err
	}
	defer nc.Close()
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		return publication{}, err
	}
	all := publication{keys: slices.Clone(m.keys)}
	for chunk := range slices.Chunk(m.messages, 250) {
		batch := make([]queue.Message, len(chunk))
		for i, msg := range chunk {
			key := uuid.UUID{}
			if msg.kind == malformed {
				key = job.NewKey() // the publisher wants one; the payload has none, or another
			} else {
				key = m.keys[msg.of].key
			}
			batch[i] = queue.Message{Source: source, Route: route, Key: key, Payload: msg.payload, MsgID: msg.msgID}
		}
		for i, result := range publisher.PublishMany(ctx, batch) {
			if result.Err != nil {
				return publication{}, fmt.Errorf("publish: %w", result.Err)
			}
			all.note(chunk[i], result.Sequence)
		}
		say.published(len(chunk))
	}
	return all, nil
}

func (all *publication) note(msg message, sequence uint64) {
	switch msg.kind {
	case malformed:
		all.malformed = append(all.malformed, sequence)
	case conflicting:
		all.keys[msg.of].conflicting = append(all.keys[msg.of].conflicting, sequence)
	default:
		if good := &all.keys[msg.of].good; !slices.Contains(*good, sequence) { // the broker dropped the repeated one
			*good = append(*good, sequence)
		}
	}
}

// first is the lowest sequence of this run: a stream that was kept may hold those of earlier ones.
func (all *publication) first() uint64 {
	lowest := ^uint64(0)
	for _, p := range all.keys {
		for _, sequence := range slices.Concat(p.good, p.conflicting) {
			lowest = min(lowest, sequence)
		}
	}
	for _, sequence := range all.malformed {
		lowest = min(lowest, sequence)
	}
	return lowest
}
