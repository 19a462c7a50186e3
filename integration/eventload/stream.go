package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// published is what is looked at in an event.
type published struct {
	EventID string `json:"event_id"`
	Type    string `json:"type"`
	Key     string `json:"key"`
}

// account is what the stream says: for each key, how many of its events have come, in their order.
type account struct {
	seen                       map[uuid.UUID]int
	events, disorder, badNames int
}

// verify reads the whole stream: each operation's two events, once, in their order, under ids that follow from key and type.
func (l *load) verify(ctx context.Context) error {
	nc, err := nats.Connect(l.broker.URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, "WITHDRAWAL_EVENTS")
	if err != nil {
		return err
	}
	last := stream.CachedInfo().State.LastSeq
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	a := &account{seen: make(map[uuid.UUID]int, l.operations)}
	for begun := time.Now(); uint64(a.events) < last; {
		message, err := messages.Next(jetstream.NextMaxWait(time.Minute))
		if err != nil {
			return fmt.Errorf("read event %d of %d: %w", a.events+1, last, err)
		}
		if err := a.add(message.Data(), message.Headers().Get(jetstream.MsgIDHeader)); err != nil {
			return err
		}
		if time.Since(begun) > 10*time.Minute {
			return errors.New("the stream takes too long to read")
		}
	}
	return a.judge(l.operations)
}

func (a *account) add(body []byte, messageID string) error {
	var e published
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	key, err := uuid.Parse(e.Key)
	if err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	a.events++
	if e.EventID != e.Key+"."+e.Type || messageID != e.EventID {
		a.badNames++
	}
	if n := a.seen[key]; n > 1 || e.Type != [2]string{"accepted", "authorized"}[n] {
		a.disorder++
	}
	a.seen[key]++
	return nil
}

func (a *account) judge(operations int) error {
	fmt.Printf("the stream: %d events of %d keys; out of order or repeated %d, ids that are not key and type %d\n", a.events, len(a.seen), a.disorder, a.badNames)
	if a.events != 2*operations || len(a.seen) != operations || a.disorder != 0 || a.badNames != 0 {
		return fmt.Errorf("want %d events of %d keys, in order, each once", 2*operations, operations)
	}
	return nil
}
