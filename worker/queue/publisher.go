package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/job"
)

// What a publish can come to, besides success. Use errors.Is.
var (
	// ErrUnconfirmed: the broker may or may not have the job. Publish it again with the same key and the same payload, however
	// much later; with another key it may be paid twice.
	ErrUnconfirmed = errors.New("publish is unconfirmed: repeat it with the same key and payload")
	// ErrRefused: the broker does not have the job, and has said so.
	ErrRefused = errors.New("publish is refused")
	// ErrTooLarge: the payload is larger than job.MaxBytes. It was not sent.
	ErrTooLarge = errors.New("payload is too large")
	// ErrReplayed: a replay of this key with this number was published before.
	ErrReplayed = errors.New("replay with this number was published before")
)

// Message is one job as bytes.
type Message struct {
	Source      string
	Route       string
	Key         uuid.UUID
	Payload     []byte
	TraceParent string // default none
	MsgID       string // default job.MsgID of source, key and payload
	Replays     int    // the how manieth replay this is; default none
	// FirstSeen is when the job, or what it is made of, was published first. After a failover whatever was published before it is looked up before it
	// is sent, and a replay must not look younger than its job; default now.
	FirstSeen time.Time
}

// Format prints what may be logged of a message, under every verb.
func (m Message) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "message "+m.Key.String()+" of "+m.Source+" for "+m.Route)
}

// Receipt is the broker's confirmation of a job.
type Receipt struct {
	Key      uuid.UUID // also set when there is no confirmation
	Sequence uint64    // in the stream; of the first copy when this one is a duplicate
	// Duplicate: the broker had this message already, and kept one copy. After more than one publish it may be our own.
	Duplicate bool
	Published int // how often this call published the message
}

// Result is what became of one message of many.
type Result struct {
	Receipt
	Err error
}

// PublisherOptions are the settings of a Publisher. All may be zero.
type PublisherOptions struct {
	Log zerolog.Logger // default none
}

// Publisher publishes jobs. It may be used by many goroutines.
type Publisher struct {
	confirm confirmer
	log     zerolog.Logger
}

// NewPublisher makes a publisher on a connection of its own. It needs the permission to publish and no other.
func NewPublisher(nc *nats.Conn, opts PublisherOptions) (*Publisher, error) {
	confirm, err := newConfirmer(nc, StreamJobs)
	if err != nil {
		return nil, err
	}
	return &Publisher{confirm: confirm, log: opts.Log}, nil
}

// Enqueue publishes a job and returns when the broker has confirmed it. While it gets no answer it publishes again, the same bytes
// under the same id, until ctx ends; then the error is ErrUnconfirmed. A job without a key gets one, once, before the first publish; the
// receipt carries it in every case. Whoever cannot store that key before the call should make it with job.NewKey and store it.
func (p *Publisher) Enqueue(ctx context.Context, j job.Job) (Receipt, error) {
	if j.Key == uuid.Nil {
		j.Key = job.NewKey()
	}
	payload, err := job.Encode(j)
	if err != nil {
		return Receipt{Key: j.Key}, fmt.Errorf("encode job %s: %w", j.Key, err)
	}
	return p.Publish(ctx, Message{Source: j.Source, Route: j.Route, Key: j.Key, Payload: payload})
}

// Publish is Enqueue for a job that is already encoded.
func (p *Publisher) Publish(ctx context.Context, m Message) (Receipt, error) {
	result := p.PublishMany(ctx, []Message{m})[0]
	return result.Receipt, result.Err
}

// Replay publishes a job for the nth time on an operator's word. Its message id names the replay, so that the broker does not take it
// for the job it has seen before, and takes the same replay twice for one: then the error is ErrReplayed.
func (p *Publisher) Replay(ctx context.Context, m Message, n int) (Receipt, error) {
	m = m.AsReplay(n)
	receipt, err := p.Publish(ctx, m)
	if err == nil && receipt.Duplicate && receipt.Published == 1 {
		return receipt, fmt.Errorf("replay %d of %s: %w", n, m.Key, ErrReplayed)
	}
	return receipt, err
}

// AsReplay is the message as the nth replay of its key.
func (m Message) AsReplay(n int) Message {
	m.MsgID, m.Replays = ReplayID(m.Key, n), n
	return m
}

// ReplayID is the message id of the nth replay of a key.
func ReplayID(key uuid.UUID, n int) string { return key.String() + ":r" + strconv.Itoa(n) }

// PublishMany publishes many jobs at once and returns when each is confirmed, refused, or ctx has ended: one result per message, in
// their order. Give it some thousands at a time.
func (p *Publisher) PublishMany(ctx context.Context, ms []Message) []Result {
	ms = slices.Clone(ms)
	results := make([]Result, len(ms))
	open := make([]int, 0, len(ms)) // indexes of ms without an answer
	for i, m := range ms {
		results[i].Key = m.Key
		if err := m.validate(); err != nil {
			results[i].Err = fmt.Errorf("publish %s: %w", m.Key, err)
			continue
		}
		ms[i] = m.withID()
		open = append(open, i)
	}

	var pause backoff
	for len(open) > 0 && !p.confirm.closed() {
		open = p.round(ctx, ms, results, open)
		if len(open) == 0 {
			break
		}
		p.log.Warn().Int("unconfirmed", len(open)).Err(results[open[0]].Err).Msg("publish again")
		if pause.wait(ctx) != nil {
			break
		}
	}
	for _, i := range open {
		results[i].Err = fmt.Errorf("publish %s: %w: %w", ms[i].Key, ErrUnconfirmed, results[i].Err)
	}
	return results
}

// round publishes what is open once, and returns what is open still.
func (p *Publisher) round(ctx context.Context, ms []Message, results []Result, open []int) []int {
	msgs := make([]*nats.Msg, len(open))
	for n, i := range open {
		msgs[n] = ms[i].msg()
	}
	var still []int
	for n, c := range p.confirm.publishAll(ctx, msgs) {
		r := &results[open[n]]
		r.Published++
		switch {
		case c.err == nil:
			r.Sequence, r.Duplicate, r.Err = c.ack.Sequence, c.ack.Duplicate, nil
		case refused(c.err) && r.Published > 1:
			r.Err = fmt.Errorf("publish %s: %w: %w", r.Key, ErrUnconfirmed, c.err) // it says nothing of the publishes before
		case refused(c.err):
			r.Err = fmt.Errorf("publish %s: %w: %w", r.Key, ErrRefused, c.err)
		default:
			r.Err = c.err
			still = append(still, open[n])
		}
	}
	return still
}

func (m Message) validate() error {
	if !job.ValidName(m.Source) || !job.ValidName(m.Route) {
		return errors.New("source or route is not a name")
	}
	if m.Key == uuid.Nil || m.Key == uuid.Max {
		return errors.New("key is missing")
	}
	if len(m.Payload) > job.MaxBytes {
		return ErrTooLarge
	}
	return nil
}

func (m Message) withID() Message {
	if m.MsgID == "" {
		m.MsgID = job.MsgID(m.Source, m.Key, m.Payload)
	}
	return m
}

// msg makes the message anew for each publish: the client writes into it.
func (m Message) msg() *nats.Msg {
	msg := &nats.Msg{
		Subject: job.Subject(m.Route, m.Source),
		Header:  nats.Header{jetstream.MsgIDHeader: {m.MsgID}},
		Data:    m.Payload,
	}
	if printable(m.TraceParent) {
		msg.Header[headerTraceParent] = []string{m.TraceParent}
	}
	if !m.FirstSeen.IsZero() {
		msg.Header[headerFirstSeen] = []string{m.FirstSeen.UTC().Format(time.RFC3339Nano)}
	}
	if m.Replays > 0 {
		msg.Header[headerReplays] = []string{strconv.Itoa(m.Replays)}
	}
	return msg
}

// printable says whether a text from outside may become the value of a header.
func printable(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
