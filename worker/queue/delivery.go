package queue

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/worker/job"
)

// The acknowledgements of the JetStream protocol. They are published, not requested: none of them decides anything.
// global: constants that Go cannot state, since a slice has no constant form.
var (
	ackDone       = []byte("+ACK")
	ackInProgress = []byte("+WPI")
	ackNak        = []byte("-NAK")
)

// Delivery is one arrival of a job. Its handler settles it exactly once, by Done, Retry or Dead; more is ignored.
type Delivery struct {
	msg      *nats.Msg
	origin   job.Origin
	stored   time.Time // when the broker stored this message, which may be a replay
	consumer *Consumer
	settled  atomic.Bool

	// Owned by heartbeats, under its lock.
	prev, next *Delivery
	beatAt     time.Time
}

// newDelivery reads what the broker says about a message. It cannot fail on anything a publisher can write: the reply subject is the
// broker's.
func newDelivery(c *Consumer, msg *nats.Msg) (*Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata of a delivery: %w", err)
	}
	route, source, _ := splitSubject(msg.Subject, jobsPrefix)
	d := &Delivery{msg: msg, consumer: c, stored: meta.Timestamp, origin: job.Origin{
		Source:      source,
		Route:       route,
		Sequence:    meta.Sequence.Stream,
		PublishedAt: firstSeen(msg.Header, meta.Timestamp),
		Deliveries:  int(meta.NumDelivered),
	}}
	if values := msg.Header[headerTraceParent]; len(values) > 0 && printable(values[0]) {
		d.origin.TraceParent = values[0]
	}
	return d, nil
}

// Origin says where the delivery comes from. Source and route are from the subject; whether they are known names is for the handler.
func (d *Delivery) Origin() job.Origin { return d.origin }

// Payload is the job as it was published. It must not be changed.
func (d *Delivery) Payload() []byte { return d.msg.Data }

// Format prints what may be logged of a delivery, under every verb.
func (d *Delivery) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "delivery of "+d.msg.Subject+" "+strconv.FormatUint(d.origin.Sequence, 10))
}

// Done: the ledger owns the operation. The acknowledgement is not waited for; if it gets lost, the job comes again and is found finished
// or busy.
func (d *Delivery) Done() {
	if d.settle() {
		d.respond(ackDone)
	}
}

// Retry: the ledger could not be reached. The job comes again after the given time or up to a fifth later, so that the deliveries
// of an outage do not all return at once. Meanwhile it keeps its place among the unacknowledged, so it is not for long waits: those
// are rows of the ledger.
func (d *Delivery) Retry(after time.Duration) {
	if !d.settle() {
		return
	}
	if after <= 0 {
		d.respond(ackNak)
		return
	}
	after += rand.N(after/5 + 1)
	d.respond(fmt.Appendf(nil, `-NAK {"delay": %d}`, after.Nanoseconds()))
}

// Dead: this job can never become an operation. It is stored among the dead letters first and terminated then. If it cannot be stored it is
// left alone and comes again after the ack wait; that may be because the consumer's grace is over. Detail is for people and must not quote the payload.
func (d *Delivery) Dead(reason job.Reason, detail string) {
	if !d.settle() {
		return
	}
	ctx, cancel := context.WithTimeout(d.consumer.life, d.consumer.opts.AckWait)
	defer cancel()
	_, err := d.consumer.dead.add(ctx, corpse{
		subject:    d.msg.Subject,
		header:     d.msg.Header,
		payload:    d.msg.Data,
		sequence:   d.origin.Sequence,
		deliveries: d.origin.Deliveries,
		firstSeen:  d.origin.PublishedAt,
		stored:     d.stored,
		reason:     reason,
		detail:     detail,
	})
	if err != nil {
		d.consumer.log.Error().Err(err).Uint64("sequence", d.origin.Sequence).Str("reason", string(reason)).
			Msg("dead letter is not stored; the job will come again")
		return
	}
	d.respond([]byte("+TERM " + string(reason)))
}

// settle says true to the first caller only.
func (d *Delivery) settle() bool {
	if d.settled.Swap(true) {
		return false
	}
	d.consumer.beats.remove(d)
	return true
}

func (d *Delivery) respond(body []byte) {
	if err := d.consumer.nc.Publish(d.msg.Reply, body); err != nil {
		d.consumer.log.Warn().Err(err).Uint64("sequence", d.origin.Sequence).Msg("acknowledgement is not sent; the job will come again")
	}
}
