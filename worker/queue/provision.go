package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNotProvisioned says that a stream or consumer does not exist.
var ErrNotProvisioned = errors.New("not provisioned: run `paidonce migrate up` under the role of the provisioner")

// Difference is one setting that is not as wanted. Fatal means that jobs can be lost or delivered twice in quick succession;
// otherwise it costs speed or room.
type Difference struct {
	Object string // "stream WITHDRAWALS", "consumer route_gbp-fps"
	Field  string // "" when the object itself is missing, or is there and not wanted
	Wanted string
	Found  string
	Fatal  bool
}

// String is one line for people.
func (d Difference) String() string {
	if d.Field == "" {
		return fmt.Sprintf("%s: wanted %s, found %s", d.Object, d.Wanted, d.Found)
	}
	return fmt.Sprintf("%s: %s: wanted %s, found %s", d.Object, d.Field, d.Wanted, d.Found)
}

// Provision creates what is missing and updates what differs. It deletes nothing: the messages of a route that has left the
// configuration stay, and so does their consumer with its floor. It is for the provisioner only.
func Provision(ctx context.Context, nc *nats.Conn, wanted Topology) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	for _, cfg := range wanted.Streams {
		if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("provision stream %s: %w", cfg.Name, err)
		}
	}
	for _, cfg := range wanted.Consumers {
		if _, err := js.CreateOrUpdateConsumer(ctx, StreamJobs, cfg); err != nil {
			return fmt.Errorf("provision consumer %s: %w", cfg.Name, err)
		}
	}
	return nil
}

// Inspect reads what exists: the three streams, as far as they do, and the consumers of StreamJobs.
func Inspect(ctx context.Context, nc *nats.Conn) (Topology, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return Topology{}, fmt.Errorf("use JetStream: %w", err)
	}
	var found Topology
	for _, name := range []string{StreamJobs, StreamEvents, StreamDead} {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return Topology{}, fmt.Errorf("inspect stream %s: %w", name, err)
		}
		found.Streams = append(found.Streams, s.CachedInfo().Config)
		if name != StreamJobs {
			continue
		}
		consumers := s.ListConsumers(ctx)
		for info := range consumers.Info() {
			found.Consumers = append(found.Consumers, info.Config)
		}
		if err := consumers.Err(); err != nil {
			return Topology{}, fmt.Errorf("inspect consumers of %s: %w", name, err)
		}
	}
	return found, nil
}

// Compare names every difference between what is wanted and what was found, streams first. None means that workers may start.
func Compare(wanted, found Topology) []Difference {
	var diffs []Difference
	for _, want := range wanted.Streams {
		object := "stream " + want.Name
		i := slices.IndexFunc(found.Streams, func(s jetstream.StreamConfig) bool { return s.Name == want.Name })
		if i < 0 {
			diffs = append(diffs, Difference{Object: object, Wanted: "present", Found: "absent", Fatal: true})
			continue
		}
		diffs = append(diffs, compareStream(object, want, found.Streams[i])...)
	}
	for _, want := range wanted.Consumers {
		object := "consumer " + want.Durable
		i := slices.IndexFunc(found.Consumers, func(c jetstream.ConsumerConfig) bool { return c.Durable == want.Durable })
		if i < 0 {
			diffs = append(diffs, Difference{Object: object, Wanted: "present", Found: "absent", Fatal: true})
			continue
		}
		diffs = append(diffs, compareConsumer(object, want, found.Consumers[i])...)
	}
	for _, have := range found.Consumers {
		if !slices.ContainsFunc(wanted.Consumers, func(c jetstream.ConsumerConfig) bool { return c.Durable == have.Durable }) {
			// Jobs of its route are waiting for it, and nothing else will surface them.
			diffs = append(diffs, Difference{Object: "consumer " + have.Name, Wanted: "absent", Found: "present"})
		}
	}
	return diffs
}

func compareStream(object string, want, have jetstream.StreamConfig) []Difference {
	c := comparison{object: object}
	c.check(true, "subjects", fmt.Sprint(want.Subjects), fmt.Sprint(have.Subjects))
	c.check(true, "retention", want.Retention.String(), have.Retention.String())
	c.check(true, "discard", want.Discard.String(), have.Discard.String())
	c.check(true, "storage", want.Storage.String(), have.Storage.String())
	c.check(true, "replicas", strconv.Itoa(want.Replicas), strconv.Itoa(have.Replicas))
	c.check(true, "max_age", want.MaxAge.String(), have.MaxAge.String())
	c.check(true, "max_msgs", limit(want.MaxMsgs), limit(have.MaxMsgs))
	c.check(true, "max_msgs_per_subject", limit(want.MaxMsgsPerSubject), limit(have.MaxMsgsPerSubject))
	c.check(true, "no_ack", strconv.FormatBool(want.NoAck), strconv.FormatBool(have.NoAck))
	c.check(true, "sealed", strconv.FormatBool(want.Sealed), strconv.FormatBool(have.Sealed))
	c.check(true, "allow_rollup_hdrs", strconv.FormatBool(want.AllowRollup), strconv.FormatBool(have.AllowRollup))
	c.check(true, "allow_msg_ttl", strconv.FormatBool(want.AllowMsgTTL), strconv.FormatBool(have.AllowMsgTTL))
	c.check(true, "duplicate_window", want.Duplicates.String(), have.Duplicates.String())
	c.check(true, "allow_direct", strconv.FormatBool(want.AllowDirect), strconv.FormatBool(have.AllowDirect))
	c.check(true, "max_msg_size", limit(int64(want.MaxMsgSize)), limit(int64(have.MaxMsgSize)))
	c.check(false, "max_bytes", limit(want.MaxBytes), limit(have.MaxBytes))
	c.check(false, "allow_atomic", strconv.FormatBool(want.AllowAtomicPublish), strconv.FormatBool(have.AllowAtomicPublish))
	return c.diffs
}

func compareConsumer(object string, want, have jetstream.ConsumerConfig) []Difference {
	c := comparison{object: object}
	c.check(true, "filter_subject", fmt.Sprint(filters(want)), fmt.Sprint(filters(have)))
	c.check(true, "ack_policy", want.AckPolicy.String(), have.AckPolicy.String())
	c.check(true, "ack_wait", effectiveAckWait(want).String(), effectiveAckWait(have).String())
	c.check(true, "max_deliver", limit(int64(want.MaxDeliver)), limit(int64(have.MaxDeliver)))
	c.check(true, "backoff", fmt.Sprint(want.BackOff), fmt.Sprint(have.BackOff))
	c.check(true, "deliver_policy", want.DeliverPolicy.String(), have.DeliverPolicy.String())
	c.check(true, "deliver_subject", want.DeliverSubject, have.DeliverSubject)
	c.check(true, "headers_only", strconv.FormatBool(want.HeadersOnly), strconv.FormatBool(have.HeadersOnly))
	c.check(true, "inactive_threshold", want.InactiveThreshold.String(), have.InactiveThreshold.String())
	c.check(true, "mem_storage", strconv.FormatBool(want.MemoryStorage), strconv.FormatBool(have.MemoryStorage))
	c.check(true, "pause_until", pause(want), pause(have))
	c.check(false, "max_ack_pending", limit(int64(want.MaxAckPending)), limit(int64(have.MaxAckPending)))
	c.check(false, "max_waiting", limit(int64(want.MaxWaiting)), limit(int64(have.MaxWaiting)))
	return c.diffs
}

type comparison struct {
	object string
	diffs  []Difference
}

func (c *comparison) check(fatal bool, field, wanted, found string) {
	if wanted != found {
		c.diffs = append(c.diffs, Difference{Object: c.object, Field: field, Wanted: wanted, Found: found, Fatal: fatal})
	}
}

// effectiveAckWait is the time the broker really waits: the first step of a back-off silently replaces the ack wait.
func effectiveAckWait(cfg jetstream.ConsumerConfig) time.Duration {
	if len(cfg.BackOff) > 0 {
		return cfg.BackOff[0]
	}
	return cfg.AckWait
}

func filters(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return slices.Sorted(slices.Values(cfg.FilterSubjects))
}

// limit prints a limit; the server says 0 and -1 for none.
func limit(n int64) string {
	if n <= 0 {
		return "none"
	}
	return strconv.FormatInt(n, 10)
}

func pause(cfg jetstream.ConsumerConfig) string {
	if cfg.PauseUntil == nil || cfg.PauseUntil.IsZero() {
		return "none"
	}
	return cfg.PauseUntil.UTC().Format(time.RFC3339)
}
