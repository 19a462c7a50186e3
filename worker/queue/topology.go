package queue

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/worker/job"
)

const (
	// maxJobBytes is the payload limit and room for headers. The broker counts both.
	maxJobBytes = job.MaxBytes + 8<<10
	// maxDeadBytes leaves room for a job of maxJobBytes that consists of nothing but headers, each of which gets longer.
	maxDeadBytes = 4 * maxJobBytes

	// jobsWindow is how long the broker recognises a repeated job.
	jobsWindow = 10 * time.Minute
	// deadWindow is longer than any worker stays away, so that a crash between dead letter and termination gives one.
	deadWindow = 24 * time.Hour

	defaultAckWait       = 30 * time.Second
	defaultMaxAckPending = 16 << 10
)

// TopologyOptions says what to provision. The zero value is a topology of one server without routes.
type TopologyOptions struct {
	Routes        []string      // each gets one durable consumer; default none
	Replicas      int           // of each stream; production has three; default 1
	MaxBytes      int64         // of the jobs stream; when it is full, publishers are refused; default no limit
	AckWait       time.Duration // must be less than the lease of an operation; default 30s
	MaxAckPending int           // per route: workers x in flight x 2 and head room; default 16384
}

// Topology is what must exist in JetStream.
type Topology struct {
	Streams   []jetstream.StreamConfig
	Consumers []jetstream.ConsumerConfig // all of StreamJobs
}

// NewTopology describes the streams and consumers for the given options, or says everything that is wrong with them.
func NewTopology(opts TopologyOptions) (Topology, error) {
	if opts.Replicas == 0 {
		opts.Replicas = 1
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = -1
	}
	if opts.AckWait == 0 {
		opts.AckWait = defaultAckWait
	}
	if opts.MaxAckPending == 0 {
		opts.MaxAckPending = defaultMaxAckPending
	}
	if err := opts.validate(); err != nil {
		return Topology{}, err
	}

	t := Topology{Streams: []jetstream.StreamConfig{
		stream(StreamJobs, jobsPrefix, opts.Replicas, maxJobBytes, jobsWindow),
		stream(StreamEvents, eventsPrefix, opts.Replicas, maxJobBytes, jobsWindow),
		stream(StreamDead, deadPrefix, opts.Replicas, maxDeadBytes, deadWindow),
	}}
	t.Streams[0].MaxBytes = opts.MaxBytes

	routes := slices.Clone(opts.Routes)
	slices.Sort(routes)
	for _, route := range slices.Compact(routes) {
		t.Consumers = append(t.Consumers, jetstream.ConsumerConfig{
			Name:          ConsumerName(route),
			Durable:       ConsumerName(route),
			FilterSubject: RouteFilter(route),
			DeliverPolicy: jetstream.DeliverAllPolicy,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       opts.AckWait,
			// The broker never gives up on a job: a count of deliveries includes those that nobody received.
			MaxDeliver:    -1,
			MaxAckPending: opts.MaxAckPending,
			MaxWaiting:    512,
			ReplayPolicy:  jetstream.ReplayInstantPolicy,
		})
	}
	return t, nil
}

// stream is a stream that never drops what it has accepted: no age, no count, and new messages are refused before old ones go.
func stream(name, prefix string, replicas int, maxMsgSize int32, window time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              name,
		Subjects:          []string{prefix + ">"},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage,
		Replicas:          replicas,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxBytes:          -1,
		MaxMsgSize:        maxMsgSize,
		Duplicates:        window,
		// A direct get answers with the message itself, so that a job without payload and with a header "Status" would look like an
		// error, and from a replica that may be behind.
		AllowDirect:        false,
		AllowAtomicPublish: name == StreamJobs,
	}
}

func (o TopologyOptions) validate() error {
	var errs []error
	for _, route := range o.Routes {
		if !job.ValidName(route) {
			errs = append(errs, fmt.Errorf("route %q: not a name of a-z, 0-9, _ and -", route))
		}
	}
	if o.Replicas < 1 || o.Replicas > 5 || o.Replicas%2 == 0 {
		errs = append(errs, fmt.Errorf("replicas %d: must be 1, 3 or 5", o.Replicas))
	}
	if o.MaxBytes < -1 {
		errs = append(errs, fmt.Errorf("max bytes %d: must be positive, or 0 for no limit", o.MaxBytes))
	}
	if o.AckWait < time.Second {
		errs = append(errs, fmt.Errorf("ack wait %s: must be at least 1s", o.AckWait))
	}
	if o.MaxAckPending < 1 {
		errs = append(errs, fmt.Errorf("max ack pending %d: must be positive", o.MaxAckPending))
	}
	return errors.Join(errs...)
}
