package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/worker/job"
)

// ErrNoDeadLetter says that there is no dead letter with this sequence.
var ErrNoDeadLetter = errors.New("no such dead letter")

const maxDetail = 500

// DeadLetter is a job that could not become an operation, as it is stored.
type DeadLetter struct {
	Sequence       uint64 // in StreamDead
	Route          string // as in the subject, which may be no name
	Source         string
	Reason         job.Reason
	Detail         string
	Deliveries     int
	StreamSequence uint64    // in StreamJobs
	FirstSeen      time.Time // when the broker stored the job, before any replay
	Replays        int       // how often the job had been replayed before
	Stray          bool      // no route's consumer covered its subject
	At             time.Time // when it became a dead letter
	Header         nats.Header
	Payload        []byte // as published
}

// Format prints what may be logged of a dead letter, under every verb.
func (l DeadLetter) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "dead letter "+strconv.FormatUint(l.Sequence, 10)+": "+string(l.Reason))
}

// DeadFilter chooses dead letters. The zero value chooses all.
type DeadFilter struct {
	Route  string // default any
	Source string // default any
	From   uint64 // the first sequence that is of interest; default the oldest
	Limit  int    // default none
}

// DeadLetters stores dead letters and reads them. It works while Postgres is away.
type DeadLetters struct {
	confirm confirmer
}

// NewDeadLetters uses a connection for publishing. Workers add, operators read.
func NewDeadLetters(nc *nats.Conn) (*DeadLetters, error) {
	confirm, err := newConfirmer(nc, StreamDead)
	if err != nil {
		return nil, err
	}
	return &DeadLetters{confirm: confirm}, nil
}

// corpse is a job on its way to the dead letters.
type corpse struct {
	subject    string // of the job
	header     nats.Header
	payload    []byte
	sequence   uint64
	deliveries int
	firstSeen  time.Time
	stored     time.Time // when this message was; zero = it is no replay
	reason     job.Reason
	detail     string
	stray      bool
}

// add stores a dead letter and returns its sequence when the broker has confirmed it. Its message id is the place of the job in its
// stream and when the broker stored it there: adding it twice gives one, and a place that is given out again, to another job, gives another.
func (l *DeadLetters) add(ctx context.Context, c corpse) (uint64, error) {
	var pause backoff
	for {
		confirmed := l.confirm.publishAll(ctx, []*nats.Msg{c.msg()})[0]
		if confirmed.err == nil {
			return confirmed.ack.Sequence, nil
		}
		if refused(confirmed.err) || l.confirm.closed() || pause.wait(ctx) != nil {
			return 0, fmt.Errorf("store dead letter of %d: %w", c.sequence, confirmed.err)
		}
	}
}

func (c corpse) msg() *nats.Msg {
	header := make(nats.Header, len(c.header)+6)
	for name, values := range c.header {
		kept := harmless(name)
		header[kept] = append(header[kept], values...)
	}
	header[jetstream.MsgIDHeader] = []string{c.messageID()}
	header[headerReason] = []string{string(c.reason)}
	header[headerDetail] = []string{oneLine(c.detail)}
	header[headerDeliveries] = []string{strconv.Itoa(c.deliveries)}
	header[headerStreamSeq] = []string{strconv.FormatUint(c.sequence, 10)}
	header[headerFirstSeen] = []string{c.firstSeen.UTC().Format(time.RFC3339Nano)}
	keepReplays(c.header, header)
	if c.stray {
		header[headerStray] = []string{"1"}
	}
	return &nats.Msg{Subject: deadPrefix + strings.TrimPrefix(c.subject, jobsPrefix), Header: header, Data: c.payload}
}

// messageID tells jobs apart that had the same sequence: a broker that lost the end of its stream, or has a new one, counts from there again.
func (c corpse) messageID() string {
	at := c.stored
	if at.IsZero() {
		at = c.firstSeen
	}
	return StreamJobs + ":" + strconv.FormatUint(c.sequence, 10) + ":" + strconv.FormatInt(at.UnixNano(), 10)
}

// harmless is the name under which a header of a job is kept. The names that the server obeys would act on the dead letter: one
// "Nats-Expected-Stream: WITHDRAWALS" and it could never be stored. The server, or an older one, also finds its names at the end of
// others. A "Status" makes clients take a letter without payload for an error. And nobody but us writes our own.
func harmless(name string) string {
	lower := strings.ToLower(name)
	at := strings.LastIndex(lower, "nats-")
	switch {
	case at >= 0:
		return "Was-" + name[at+len("nats-"):]
	case strings.HasPrefix(lower, "paidonce-"), lower == "status":
		return "Was-" + name
	default:
		return name
	}
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), maxDetail)]
}

// List gives the dead letters in order, one at a time. It reads them where they are: nothing is consumed, and nothing is made on the
// server. The sequence ends after the first error.
func (l *DeadLetters) List(ctx context.Context, f DeadFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		stream, err := openStream(ctx, l.confirm.js, StreamDead)
		if err != nil {
			yield(DeadLetter{}, err)
			return
		}
		next := max(f.From, 1)
		for n := 0; f.Limit <= 0 || n < f.Limit; n++ {
			raw, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(f.subject()))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return
			}
			if err != nil {
				yield(DeadLetter{}, fmt.Errorf("read dead letter from %d: %w", next, err))
				return
			}
			if !yield(readDeadLetter(raw), nil) {
				return
			}
			next = raw.Sequence + 1
		}
	}
}

// Show reads one dead letter.
func (l *DeadLetters) Show(ctx context.Context, sequence uint64) (DeadLetter, error) {
	stream, err := openStream(ctx, l.confirm.js, StreamDead)
	if err != nil {
		return DeadLetter{}, err
	}
	raw, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", sequence, ErrNoDeadLetter)
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	return readDeadLetter(raw), nil
}

// subject keeps to the filter's tokens; a letter of a malformed subject is found without a filter only.
func (f DeadFilter) subject() string {
	if f.Route == "" && f.Source == "" {
		return deadPrefix + ">"
	}
	route, source := f.Route, f.Source
	if route == "" {
		route = "*"
	}
	if source == "" {
		source = "*"
	}
	return deadPrefix + route + "." + source
}

func readDeadLetter(raw *jetstream.RawStreamMsg) DeadLetter {
	l := DeadLetter{
		Sequence: raw.Sequence,
		Reason:   job.Reason(first(raw.Header, headerReason)),
		Detail:   first(raw.Header, headerDetail),
		At:       raw.Time,
		Header:   raw.Header,
		Payload:  raw.Data,
	}
	l.Route, l.Source, _ = splitSubject(raw.Subject, deadPrefix)
	// Zero where a header is not ours to read: the letter is shown all the same.
	l.Deliveries, _ = strconv.Atoi(first(raw.Header, headerDeliveries))
	l.StreamSequence, _ = strconv.ParseUint(first(raw.Header, headerStreamSeq), 10, 64)
	l.FirstSeen, _ = time.Parse(time.RFC3339Nano, first(raw.Header, headerFirstSeen))
	l.Replays, l.Stray = countOf(first(raw.Header, headerReplays)), first(raw.Header, headerStray) != ""
	return l
}

func first(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// streamOf opens a stream over a connection.
func streamOf(ctx context.Context, nc *nats.Conn, name string) (jetstream.JetStream, jetstream.Stream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	stream, err := openStream(ctx, js, name)
	return js, stream, err
}

func openStream(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s: %w", name, ErrNotProvisioned)
	}
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", name, err)
	}
	return stream, nil
}
