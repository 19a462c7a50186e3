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

// Told is an event as the stream keeps it.
type Told struct {
	Sequence uint64
	Ledger   string // that told it; "" = an older program published it
	Type     string
	Key      uuid.UUID
	At       time.Time // when the broker stored it, by its clock
}

// LastEvents reads the newest events, at most so many, newest first, by the worker's role. What is no event of ours is left out.
func LastEvents(ctx context.Context, nc *nats.Conn, most int) ([]Told, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	stream, err := openStream(ctx, js, StreamEvents)
	if err != nil {
		return nil, err
	}
	var told []Told
	state := stream.CachedInfo().State
	for n := 0; n < most && uint64(n) < state.Msgs; n++ {
		raw, err := stream.GetMsg(ctx, state.LastSeq-uint64(n))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read event %d: %w", state.LastSeq-uint64(n), err)
		}
		// <key>.<type>, and of one that can happen again .<fence>
		key, kind, _ := strings.Cut(first(raw.Header, jetstream.MsgIDHeader), ".")
		kind, _, _ = strings.Cut(kind, ".")
		if id, err := uuid.Parse(key); err == nil {
			told = append(told, Told{Sequence: raw.Sequence, Ledger: first(raw.Header, headerLedger), Type: kind, Key: id, At: raw.Time})
		}
	}
	return told, nil
}
