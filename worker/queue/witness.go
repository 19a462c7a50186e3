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

// LastEvents reads some of the newest events, newest first, by the worker's role: the last, and those that lie 1, 3, 7, 15... before it, so many reads in
// all. Twenty reach back a million events, which workers that run on do not cover within seconds. What is no event of ours is left out.
func LastEvents(ctx context.Context, nc *nats.Conn, most int) ([]Told, error) {
	_, stream, err := streamOf(ctx, nc, StreamEvents)
	if err != nil {
		return nil, err
	}
	var told []Told
	state := stream.CachedInfo().State
	for n := range most {
		back := uint64(1)<<n - 1
		if state.Msgs == 0 || back > state.LastSeq-state.FirstSeq {
			break
		}
		raw, err := stream.GetMsg(ctx, state.LastSeq-back)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read event %d: %w", state.LastSeq-back, err)
		}
		if key, kind, ok := eventOf(raw); ok {
			told = append(told, Told{Sequence: raw.Sequence, Ledger: first(raw.Header, headerLedger), Type: kind, Key: key, At: raw.Time})
		}
	}
	return told, nil
}

// eventOf reads the message id of an event: <key>.<type>, and of one that can happen again .<fence>.
func eventOf(raw *jetstream.RawStreamMsg) (key uuid.UUID, kind string, ok bool) {
	text, kind, _ := strings.Cut(first(raw.Header, jetstream.MsgIDHeader), ".")
	kind, _, _ = strings.Cut(kind, ".")
	key, err := uuid.Parse(text)
	return key, kind, err == nil
}
