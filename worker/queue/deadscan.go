package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

const (
	// What one request of a scan asks for at most: a letter has up to 288 KiB, and many are read faster than they are worked.
	scanMessages, scanBytes = 512, 4 << 20
	// scanIdle is how long the broker keeps the consumer of a scan whose process was killed.
	scanIdle = 30 * time.Second
	// scanBeat is how often the broker shows that it still has the consumer; two that are missed mean that it has not.
	scanBeat = time.Second
	// scanFailures is how often in a row a scan begins again without having read anything.
	scanFailures = 5
	// readersAtOnce is how many single letters are asked for at the same time.
	readersAtOnce = 16
)

// DeadState is the stream of dead letters as it stands. A sequence has a meaning only together with when its stream was made: a stream that is
// made again counts from 1.
type DeadState struct {
	Created     time.Time
	First, Last uint64
	Letters     uint64
}

// State looks at the stream.
func (l *DeadLetters) State(ctx context.Context) (DeadState, error) {
	stream, err := openStream(ctx, l.confirm.js, StreamDead)
	if err != nil {
		return DeadState{}, err
	}
	info := stream.CachedInfo()
	return DeadState{Created: info.Created, First: info.State.FirstSeq, Last: info.State.LastSeq, Letters: info.State.Msgs}, nil
}

// Scan gives the dead letters in order, up to the last one that there is when it begins. It reads much faster than List, by a consumer of its
// own that needs no acknowledgements and ends with it: nothing is consumed. What it holds is bounded by bytes. The sequence ends after
// the first error.
func (l *DeadLetters) Scan(ctx context.Context, f DeadFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		state, err := l.State(ctx)
		if err != nil {
			yield(DeadLetter{}, err)
			return
		}
		s := scan{js: l.confirm.js, filter: f, next: max(f.From, state.First, 1), last: state.Last, yield: yield}
		for failures := 0; !s.done && s.next <= s.last; {
			before := s.next
			err := s.part(ctx)
			if err == nil {
				continue // to the end, or to a gap, from which it begins again
			}
			if s.next > before {
				failures = 0
			}
			if failures++; failures == scanFailures || ctx.Err() != nil || l.confirm.closed() {
				yield(DeadLetter{}, fmt.Errorf("read dead letters from %d: %w", s.next, err))
				return
			}
		}
	}
}

// scan is one pass over the stream, by as many consumers as it takes.
type scan struct {
	js         jetstream.JetStream
	filter     DeadFilter
	next, last uint64 // sequences
	given      int
	done       bool
	yield      func(DeadLetter, error) bool
}

// part reads with one consumer until the end, an error, or a gap: messages that were on their way when the connection broke are not sent again.
func (s *scan) part(ctx context.Context) error {
	consumer, err := s.js.CreateConsumer(ctx, StreamDead, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.next, FilterSubjects: []string{s.filter.subject()},
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: scanIdle,
	})
	if err != nil {
		return err
	}
	name := consumer.CachedInfo().Name
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = s.js.DeleteConsumer(ctx, StreamDead, name) // else the broker removes it when nobody has asked it for a while
	}()
	if consumer.CachedInfo().NumPending == 0 {
		s.done = true
		return nil
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(scanMessages, scanBytes), jetstream.PullExpiry(4*scanBeat),
		jetstream.PullHeartbeat(scanBeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for expected := uint64(1); !s.done; expected++ {
		message, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := message.Metadata()
		if err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		if meta.Sequence.Consumer != expected {
			return nil
		}
		s.give(message, meta)
	}
	return nil
}

func (s *scan) give(message jetstream.Msg, meta *jetstream.MsgMetadata) {
	at := meta.Sequence.Stream
	if at > s.last {
		s.done = true
		return
	}
	s.next = at + 1
	s.given++
	letter := readDeadLetter(&jetstream.RawStreamMsg{
		Subject: message.Subject(), Sequence: at, Header: message.Headers(), Data: message.Data(), Time: meta.Timestamp,
	})
	s.done = !s.yield(letter, nil) || meta.NumPending == 0 || s.filter.Limit > 0 && s.given == s.filter.Limit
}

// Read reads single letters, many at the same time. Their order is that of the sequences; one that is gone has sequence 0.
func (l *DeadLetters) Read(ctx context.Context, sequences []uint64) ([]DeadLetter, error) {
	stream, err := openStream(ctx, l.confirm.js, StreamDead)
	if err != nil {
		return nil, err
	}
	letters := make([]DeadLetter, len(sequences))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readersAtOnce)
	for i, sequence := range sequences {
		group.Go(func() error {
			raw, err := stream.GetMsg(ctx, sequence)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read dead letter %d: %w", sequence, err)
			}
			letters[i] = readDeadLetter(raw)
			return nil
		})
	}
	return letters, group.Wait()
}

// TraceParent is the trace that the job belonged to; "" = none that may be passed on.
func (l DeadLetter) TraceParent() string {
	if text := first(l.Header, headerTraceParent); printable(text) {
		return text
	}
	return ""
}

// Holds says whether the stream of jobs has, under this sequence, the very message that a replay wanted to publish. The broker answers so
// to a message id that it has seen, whatever was published under it.
func (p *Publisher) Holds(ctx context.Context, sequence uint64, m Message) (bool, error) {
	stream, err := openStream(ctx, p.confirm.js, StreamJobs)
	if err != nil {
		return false, err
	}
	raw, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read job %d: %w", sequence, err)
	}
	return raw.Subject == m.msg().Subject && string(raw.Data) == string(m.Payload), nil
}

// firstSeen is when a job was published first: a replay says it. One that claims to be younger than its message is not believed.
func firstSeen(h nats.Header, stored time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, first(h, headerFirstSeen)); err == nil && at.Before(stored) && at.Unix() > 0 {
		return at
	}
	return stored
}

// keepReplays passes on how often a job was replayed, from the job to its next dead letter. It is only a number: what was replayed
// is told by the acts on record, and a publisher that makes one up harms nobody but the reader.
func keepReplays(from, to nats.Header) {
	if n := countOf(first(from, headerReplays)); n > 0 {
		to[headerReplays] = from[headerReplays][:1]
	}
}

// countOf reads a small count; 0 is anything else.
func countOf(text string) int {
	if len(text) == 0 || len(text) > 5 {
		return 0
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0
		}
		n = n*10 + int(text[i]-'0')
	}
	return n
}
