package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/job"
)

const (
	defaultStraysEvery = 5 * time.Second
	// strayBatch is how many jobs of one subject become dead letters in one pass.
	strayBatch = 256
)

// StraysOptions are the settings of Strays. All may be zero.
type StraysOptions struct {
	Every time.Duration // between passes; default 5s
	// Judge says for each job why it becomes a dead letter, by the fault's reason and detail, or nil: its operation is on record, and it needs
	// no letter. After an error the jobs are judged again in the next pass. Default: every stray job becomes a dead letter.
	Judge func(ctx context.Context, origins []job.Origin, payloads [][]byte) ([]*job.Fault, error)
	Log   zerolog.Logger // default none
}

// Strays makes dead letters of the jobs that no route's consumer covers: their route is unknown, or their subject has too few or too many
// tokens. It is the catch-all of the topology.
//
// It is not a consumer of JetStream, for three reasons. A consumer of all subjects would read every good job a second time. One with
// exactly the stray subjects would have to be updated while it runs, which workers may not do; and a subject that is
// added to the filter of a running consumer is read from the consumer's position on, so its older jobs would be lost. Instead
// each pass asks the broker which subjects the stream has, which costs the same however many jobs there are, and reads only the stray ones,
// each from behind its last dead letter: the dead letters are the position, stored together with the work. Two workers in the same pass
// give one letter, by its message id.
//
// The stray jobs stay in the stream: when their route gets its consumer it will take them, and a replay of the dead letter meets the
// same key. A job whose operation is on record gets no letter; how far those were passed over is only remembered, and found out again by the
// next process.
type Strays struct {
	js     jetstream.JetStream
	dead   *DeadLetters
	opts   StraysOptions
	passed map[string]place // by subject
}

// place is a job's place in StreamJobs, and when the broker stored it there.
type place struct {
	sequence uint64
	at       time.Time
}

// NewStrays reads on nc, and stores by dead.
func NewStrays(nc *nats.Conn, dead *DeadLetters, opts StraysOptions) (*Strays, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	if opts.Every <= 0 {
		opts.Every = defaultStraysEvery
	}
	if opts.Judge == nil {
		opts.Judge = func(_ context.Context, origins []job.Origin, _ [][]byte) ([]*job.Fault, error) {
			faults := make([]*job.Fault, len(origins))
			for i := range faults {
				faults[i] = &job.Fault{Reason: job.ReasonUnknownRoute, Detail: "no consumer covers the subject"}
			}
			return faults, nil
		}
	}
	return &Strays{js: js, dead: dead, opts: opts, passed: map[string]place{}}, nil
}

// Run makes passes until ctx ends. A pass that fails is made again.
func (s *Strays) Run(ctx context.Context) error {
	return repeat(ctx, s.opts.Every, func() {
		n, err := s.Pass(ctx)
		if n > 0 {
			s.opts.Log.Warn().Int("dead_letters", n).Msg("jobs without a route became dead letters")
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Warn().Err(err).Msg("pass over stray jobs failed")
		}
	})
}

// Pass makes one pass and returns how many dead letters it has stored, or found stored. It is not for several goroutines at once. What fails
// on one subject does not hold up the others.
func (s *Strays) Pass(ctx context.Context) (int, error) {
	jobs, err := openStream(ctx, s.js, StreamJobs)
	if err != nil {
		return 0, err
	}
	dead, err := openStream(ctx, s.js, StreamDead)
	if err != nil {
		return 0, err
	}
	unserved, err := unservedSubjects(ctx, jobs)
	if err != nil {
		return 0, err
	}
	total := 0
	var failed []error
	for _, subject := range slices.Sorted(maps.Keys(unserved)) {
		for n, read := 0, strayBatch; read == strayBatch && n == 0; { // what needs no letter holds up nothing
			if n, read, err = s.bury(ctx, jobs, dead, subject); err != nil {
				failed = append(failed, err)
				read = 0
			}
			total += n
		}
	}
	return total, errors.Join(failed...)
}

// bury makes dead letters of the jobs of one subject, from behind the last one. It returns how many, and how many jobs it has read.
func (s *Strays) bury(ctx context.Context, jobs, dead jetstream.Stream, subject string) (n, read int, err error) {
	position, err := s.from(ctx, jobs, dead, subject)
	if err != nil {
		return 0, 0, err
	}
	strays, err := readStrays(ctx, jobs, subject, position)
	if err != nil || len(strays) == 0 {
		return 0, 0, err
	}
	origins, payloads := make([]job.Origin, len(strays)), make([][]byte, len(strays))
	for i, raw := range strays {
		route, source, _ := splitSubject(raw.Subject, jobsPrefix)
		origins[i] = job.Origin{Source: source, Route: route, Sequence: raw.Sequence, PublishedAt: firstSeen(raw.Header, raw.Time), Deliveries: 1}
		payloads[i] = raw.Data
	}
	faults, err := s.opts.Judge(ctx, origins, payloads)
	if err != nil {
		return 0, 0, fmt.Errorf("judge %d stray jobs: %w", len(strays), err)
	}
	for i, raw := range strays {
		if faults[i] != nil {
			_, err = s.dead.add(ctx, corpse{
				subject: raw.Subject, header: raw.Header, payload: raw.Data,
				sequence: raw.Sequence, firstSeen: firstSeen(raw.Header, raw.Time), stored: raw.Time,
				reason: faults[i].Reason, detail: faults[i].Detail, stray: true,
			})
			if err != nil {
				return n, i, err
			}
			n++
		}
		s.passed[subject] = place{raw.Sequence, raw.Time}
	}
	return n, len(strays), nil
}

// readStrays reads the next jobs of a subject, at most a batch.
func readStrays(ctx context.Context, jobs jetstream.Stream, subject string, position uint64) ([]*jetstream.RawStreamMsg, error) {
	var strays []*jetstream.RawStreamMsg
	for range strayBatch {
		raw, err := jobs.GetMsg(ctx, position+1, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read stray job behind %d: %w", position, err)
		}
		strays = append(strays, raw)
		position = raw.Sequence
	}
	return strays, nil
}

// from is the position behind which the jobs of a subject were not judged yet: that of its last dead letter, or what was passed over since.
func (s *Strays) from(ctx context.Context, jobs, dead jetstream.Stream, subject string) (uint64, error) {
	position, at, err := s.position(ctx, dead, subject)
	if err != nil {
		return 0, err
	}
	if position, err = stands(ctx, jobs, position, at); err != nil {
		return 0, err
	}
	passed := s.passed[subject]
	if passed.sequence <= position {
		return position, nil
	}
	passedAt, err := stands(ctx, jobs, passed.sequence, passed.at)
	return max(position, passedAt), err
}

// stands is a position that the stream still has, or 0: a broker that lost the end of its stream, or has a new one, gives the sequences out
// again, and the jobs that have them now have no dead letter. Those that have one are told by their message id, or get a second one.
func stands(ctx context.Context, jobs jetstream.Stream, position uint64, at time.Time) (uint64, error) {
	if position == 0 {
		return 0, nil
	}
	raw, err := jobs.GetMsg(ctx, position)
	switch {
	case err == nil && raw.Time.Equal(at):
		return position, nil
	case err == nil:
		return 0, nil
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, fmt.Errorf("read stray job %d: %w", position, err)
	}
	info, err := jobs.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read state of %s: %w", StreamJobs, err)
	}
	if info.State.LastSeq < position {
		return 0, nil
	}
	return position, nil // deleted, as the janitor does
}

// position is the place in StreamJobs of the last stray of a subject that is a dead letter, and when the broker stored it there.
func (s *Strays) position(ctx context.Context, dead jetstream.Stream, subject string) (uint64, time.Time, error) {
	deadSubject := deadPrefix + strings.TrimPrefix(subject, jobsPrefix)
	last, err := dead.GetLastMsgForSubject(ctx, deadSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, time.Time{}, nil
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("read last dead letter: %w", err)
	}
	if first(last.Header, headerStray) != "" {
		l := readDeadLetter(last)
		return l.StreamSequence, l.FirstSeen, nil
	}
	// The route had a consumer once, or has lost it: its own dead letters are no position. This is rare, and so read in full.
	var position uint64
	var at time.Time
	for next := uint64(1); next <= last.Sequence; {
		raw, err := dead.GetMsg(ctx, next, jetstream.WithGetMsgSubject(deadSubject))
		if err != nil {
			return 0, time.Time{}, fmt.Errorf("read dead letter from %d: %w", next, err)
		}
		if first(raw.Header, headerStray) != "" {
			l := readDeadLetter(raw)
			position, at = l.StreamSequence, l.FirstSeen
		}
		next = raw.Sequence + 1
	}
	return position, at, nil
}

// unservedSubjects counts the jobs of each subject that no consumer covers.
func unservedSubjects(ctx context.Context, jobs jetstream.Stream) (map[string]uint64, error) {
	info, err := jobs.Info(ctx, jetstream.WithSubjectFilter(jobsPrefix+">"))
	if err != nil {
		return nil, fmt.Errorf("read subjects of %s: %w", StreamJobs, err)
	}
	served := make(map[string]bool)
	unserved := make(map[string]uint64)
	for subject, count := range info.State.Subjects {
		route, ok := coverable(subject)
		if !ok {
			unserved[subject] = count
			continue
		}
		has, known := served[route]
		if !known {
			consumer, err := routeConsumer(ctx, jobs, route)
			if err != nil {
				return nil, err
			}
			has = consumer != nil
			served[route] = has
		}
		if !has {
			unserved[subject] = count
		}
	}
	return unserved, nil
}

// routeConsumer reads the consumer of a route, or nil when there is none that covers the route.
func routeConsumer(ctx context.Context, jobs jetstream.Stream, route string) (*jetstream.ConsumerInfo, error) {
	consumer, err := jobs.Consumer(ctx, ConsumerName(route))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read consumer %s: %w", ConsumerName(route), err)
	}
	info := consumer.CachedInfo()
	if !slices.Equal(filters(info.Config), []string{RouteFilter(route)}) {
		return nil, nil
	}
	return info, nil
}

// repeat calls do at once, and then again each interval until ctx ends.
func repeat(ctx context.Context, every time.Duration, do func()) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}
