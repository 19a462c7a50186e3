package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/worker/job"
)

// Trace finds what the streams hold of single keys. It consumes nothing. No subject names a key, so it looks through what was stored at the time
// in question, and says how far it has looked.
type Trace struct{ js jetstream.JetStream }

// NewTrace uses an operator's connection.
func NewTrace(nc *nats.Conn) (*Trace, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return &Trace{js: js}, nil
}

// Sighting is one message of a key.
type Sighting struct {
	Sequence  uint64
	At        time.Time // when the broker stored it
	MessageID string
	Replay    int // the number of the replay that it is; 0 = none
}

// Seen is what a search has found.
type Seen struct {
	Sightings []Sighting
	Messages  int       // that were looked at
	Until     time.Time // the last of them; zero = none
	Whole     bool      // there is none behind it
}

// Jobs looks for jobs of a key among the messages of its route and source that were stored at a time or later, at most so many.
func (t *Trace) Jobs(ctx context.Context, route, source string, key uuid.UUID, since time.Time, most int) (Seen, error) {
	stream, err := openStream(ctx, t.js, StreamJobs)
	if err != nil {
		return Seen{}, err
	}
	next, err := firstSince(ctx, stream, jobsPrefix, since)
	if err != nil {
		return Seen{}, err
	}
	var seen Seen
	for seen.Messages < most && next > 0 {
		msg, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(job.Subject(route, source)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return seen, fmt.Errorf("read job behind %d: %w", next, err)
		}
		seen.Messages++
		seen.Until, next = msg.Time, msg.Sequence+1
		if one, ok := sightingOf(key, msg); ok {
			seen.Sightings = append(seen.Sightings, one)
		}
	}
	seen.Whole = seen.Messages < most
	return seen, nil
}

// Job reads one message of the stream of jobs, and says whether it is there and of the key.
func (t *Trace) Job(ctx context.Context, key uuid.UUID, sequence uint64) (Sighting, bool, error) {
	stream, err := openStream(ctx, t.js, StreamJobs)
	if err != nil {
		return Sighting{}, false, err
	}
	msg, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Sighting{}, false, nil
	}
	if err != nil {
		return Sighting{}, false, fmt.Errorf("read job %d: %w", sequence, err)
	}
	one, ok := sightingOf(key, msg)
	return one, ok, nil
}

// sightingOf says whether a job is of the key: by its payload, as every reader of it would.
func sightingOf(key uuid.UUID, msg *jetstream.RawStreamMsg) (Sighting, bool) {
	one := Sighting{Sequence: msg.Sequence, At: msg.Time, MessageID: first(msg.Header, jetstream.MsgIDHeader)}
	if replay, ok := strings.CutPrefix(one.MessageID, key.String()+":r"); ok {
		one.Replay, _ = strconv.Atoi(replay) // else it is none of ours
	}
	if !bytes.Contains(bytes.ToLower(msg.Data), []byte(key.String())) {
		return one, false
	}
	var body struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(msg.Data, &body) != nil {
		return one, false
	}
	found, err := job.ParseKey(body.Key)
	return one, err == nil && found == key
}

// Position is how far the consumer of a route has come in the stream of jobs.
type Position struct {
	Delivered    uint64 // up to here every job was delivered at least once
	Acknowledged uint64 // and up to here every job is acknowledged
}

// Position asks for it.
func (t *Trace) Position(ctx context.Context, route string) (Position, error) {
	consumer, err := t.js.Consumer(ctx, StreamJobs, ConsumerName(route))
	if err != nil {
		return Position{}, fmt.Errorf("ask the consumer of route %s: %w", route, err)
	}
	info := consumer.CachedInfo()
	return Position{Delivered: info.Delivered.Stream, Acknowledged: info.AckFloor.Stream}, nil
}

// traceBatch is how many events one request asks for. Only their headers are read.
const traceBatch = 1000

// Events looks for events of one kind among those of a route and source that were stored at a time or later, at most so many. One with enough
// ends it: an event that happens once per key is found once.
func (t *Trace) Events(ctx context.Context, route, source, kind string, ids func(string) bool, since time.Time, enough, most int) (seen Seen, err error) {
	consumer, err := t.js.CreateConsumer(ctx, StreamEvents, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, FilterSubjects: []string{eventsPrefix + route + "." + source + "." + kind},
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: scanIdle, HeadersOnly: true,
	})
	if err != nil {
		return seen, fmt.Errorf("read events: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = t.js.DeleteConsumer(ctx, StreamEvents, consumer.CachedInfo().Name) // else the broker removes it when nobody has asked it for a while
	}()
	for pending := consumer.CachedInfo().NumPending; pending > 0 && seen.Messages < most; {
		batch, err := consumer.Fetch(int(min(pending, traceBatch)), jetstream.FetchContext(ctx)) //nolint:gosec // small
		if err != nil {
			return seen, fmt.Errorf("read events: %w", err)
		}
		before := seen.Messages
		for message := range batch.Messages() {
			meta, err := message.Metadata()
			if err != nil {
				return seen, fmt.Errorf("read metadata: %w", err)
			}
			seen.Messages++
			seen.Until, pending = meta.Timestamp, meta.NumPending
			if id := first(message.Headers(), jetstream.MsgIDHeader); ids(id) {
				seen.Sightings = append(seen.Sightings, Sighting{Sequence: meta.Sequence.Stream, At: meta.Timestamp, MessageID: id})
			}
		}
		if err := batch.Error(); err != nil || seen.Messages == before {
			return seen, fmt.Errorf("read events: %w", errors.Join(err, ctx.Err()))
		}
		if len(seen.Sightings) >= enough {
			return seen, nil
		}
		seen.Whole = pending == 0
	}
	seen.Whole = seen.Whole || seen.Messages == 0
	return seen, nil
}
