package prove

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// The streams and subjects of the contract.
const (
	streamJobs   = "WITHDRAWALS"
	streamEvents = "WITHDRAWAL_EVENTS"
	streamDead   = "WITHDRAWAL_DEAD"

	jobsPrefix   = "withdrawals.jobs."
	deadPrefix   = "withdrawals.dead."
	eventsPrefix = "withdrawals.events."

	headerStreamSeq = "Paidonce-Stream-Seq"
)

const (
	readAtOnce = 512 // messages asked for in one step
	askers     = 32  // at the same time
)

// queueState is how far the queue is, before the snapshot of the ledger.
type queueState struct {
	jobs        jetstream.Stream
	first, last uint64
	floors      map[string]uint64 // by route: everything up to it is acknowledged
	highest     uint64            // of the floors
}

// owns says whether a job may still be delivered: its consumer has not acknowledged it, or it has none and waits to be a dead letter.
func (q *queueState) owns(subject string, sequence uint64) bool {
	route, source, _ := strings.Cut(strings.TrimPrefix(subject, jobsPrefix), ".")
	floor, covered := q.floors[route]
	return !covered || strings.Contains(source, ".") || source == "" || sequence > floor
}

func (r *run) lookAtQueue(ctx context.Context) (*queueState, error) {
	stream, err := r.Broker.Stream(ctx, streamJobs)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", streamJobs, err)
	}
	q := &queueState{jobs: stream, floors: map[string]uint64{}}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		route, named := strings.CutPrefix(info.Name, "route_")
		if !named || info.Config.FilterSubject != jobsPrefix+route+".*" {
			continue
		}
		floor := info.AckFloor.Stream
		if info.NumPending == 0 && info.NumAckPending == 0 {
			floor = max(floor, info.Delivered.Stream) // nothing is under way: what was delivered is acknowledged
		}
		q.floors[route], q.highest = floor, max(q.highest, floor)
	}
	if err := consumers.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of %s: %w", streamJobs, err)
	}
	// After the consumers: a job that is published in between is read, and owned by the queue.
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", streamJobs, err)
	}
	q.first, q.last = info.State.FirstSeq, info.State.LastSeq
	return q, nil
}

func (r *run) readStreams(ctx context.Context, q *queueState) error {
	if err := r.readJobs(ctx, q); err != nil {
		return err
	}
	if err := r.readDead(ctx); err != nil {
		return err
	}
	return r.readEvents(ctx)
}

// readJobs spills every job that is still in the stream.
func (r *run) readJobs(ctx context.Context, q *queueState) error {
	from, err := r.startOf(ctx, q.jobs, jobsPrefix, q.first, q.last)
	if err != nil {
		return err
	}
	s := scan{run: r, name: "jobs", stream: q.jobs, prefix: jobsPrefix, from: from, to: q.last}
	s.visit = func(m *jetstream.RawStreamMsg) error {
		route, source, _ := strings.Cut(strings.TrimPrefix(m.Subject, jobsPrefix), ".")
		if !r.wantsRoute(route) {
			return nil
		}
		j := readJob(m.Data)
		return r.byKey.add(j.place(m.Sequence), fields{recordJob}.number(int64(m.Sequence)).boolean(q.owns(m.Subject, m.Sequence)). //nolint:gosec // a count
																		boolean(j.key != id{}).boolean(j.sound).number(j.amount).text(j.currency).text(route).text(source))
	}
	s.missing = func(from, to uint64) {
		if len(q.floors) > 0 && to > q.highest {
			r.removed(max(from, q.highest+1), to)
		}
	}
	if q.last > 0 && len(q.floors) > 0 && q.first > q.highest+1 {
		r.removed(q.highest+1, min(q.first-1, q.last))
	}
	return s.all(ctx)
}

// removed are jobs beyond all that any consumer has acknowledged. The janitor never removes those.
func (r *run) removed(from, to uint64) {
	for sequence := from; sequence <= to; sequence++ {
		if sequence-from >= uint64(r.Findings) { //nolint:gosec // positive
			r.book.Lost += int64(to - sequence + 1) //nolint:gosec // a count
			return
		}
		r.book.find(Finding{Kind: KindLost, Text: fmt.Sprintf("job message %d was removed from the stream before anybody had acknowledged it", sequence)})
	}
}

// jobSeen is what is read of a job. Everything else in it is the worker's to judge.
type jobSeen struct {
	key      id // zero: none that can be read
	sound    bool
	amount   int64
	currency string
}

// readJob reads a job or a dead letter leniently: what cannot be read cannot be an operation either.
func readJob(payload []byte) jobSeen {
	var body struct {
		Key      string `json:"key"`
		Amount   string `json:"amount"`
		Currency string `json:"currency"`
	}
	if err := json.Unmarshal(payload, &body); err != nil {
		return jobSeen{}
	}
	j := jobSeen{currency: body.Currency}
	if key, err := uuid.Parse(body.Key); err == nil && len(body.Key) == 36 && key != uuid.Max {
		j.key = id(key)
	}
	j.amount, j.sound = minor(body.Amount, body.Currency)
	return j
}

// place is where a job and its dead letter meet: under their key, or else under their sequence in the stream of jobs.
func (j jobSeen) place(sequence uint64) id {
	if j.key != (id{}) {
		return j.key
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("message\x00"), sequence))
	return id(sum[:16])
}

func (r *run) readDead(ctx context.Context) error {
	stream, err := r.Broker.Stream(ctx, streamDead)
	if err != nil {
		return fmt.Errorf("open stream %s: %w", streamDead, err)
	}
	return r.readStream(ctx, stream, deadPrefix, "dead letters", func(m *jetstream.RawStreamMsg) error {
		route, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, deadPrefix), ".")
		if !r.wantsRoute(route) {
			return nil
		}
		r.book.Dead++
		sequence, err := strconv.ParseUint(m.Header.Get(headerStreamSeq), 10, 63)
		if err != nil {
			r.note("dead letter %d does not say which message it was", m.Sequence)
			return nil
		}
		return r.byKey.add(readJob(m.Data).place(sequence), fields{recordDead}.number(int64(sequence))) //nolint:gosec // parsed as 63 bits
	})
}

// purged is the part of a stream's past that is gone.
type purged struct {
	until time.Time // what happened before may have been in it; zero: nothing is gone
}

func (r *run) readEvents(ctx context.Context) error {
	gone := func(until time.Time) {
		r.events.until = until
		r.note("events before %s were purged from their stream: whether older outcomes were published is not judged", until.UTC().Format(time.RFC3339))
	}
	stream, err := r.Broker.Stream(ctx, streamEvents)
	if err != nil {
		return fmt.Errorf("open stream %s: %w", streamEvents, err)
	}
	if state := stream.CachedInfo().State; state.Msgs == 0 && state.LastSeq > 0 {
		gone(r.cut)
	} else if state.FirstSeq > 1 {
		gone(state.FirstTime)
	}
	return r.readStream(ctx, stream, eventsPrefix, "events", func(m *jetstream.RawStreamMsg) error {
		var body struct {
			Type string `json:"type"`
			Key  string `json:"key"`
		}
		if err := json.Unmarshal(m.Data, &body); err != nil {
			r.note("event message %d cannot be read", m.Sequence)
			return nil
		}
		key, err := uuid.Parse(body.Key)
		if err != nil || announcement(body.Type) == 0 {
			return nil
		}
		return r.byKey.add(id(key), fields{recordEvent}.byte(announcement(body.Type)))
	})
}

// readStream visits a stream from Options.Since to the end that its info tells.
func (r *run) readStream(ctx context.Context, stream jetstream.Stream, prefix, what string, visit func(*jetstream.RawStreamMsg) error) error {
	state := stream.CachedInfo().State
	from, err := r.startOf(ctx, stream, prefix, state.FirstSeq, state.LastSeq)
	if err != nil {
		return err
	}
	s := scan{run: r, name: what, stream: stream, prefix: prefix, from: from, to: state.LastSeq, visit: visit, missing: func(uint64, uint64) {}}
	return s.all(ctx)
}

// startOf is the first sequence from first on that is not older than Options.Since. Sequences are in the order of time, so it halves.
func (r *run) startOf(ctx context.Context, stream jetstream.Stream, prefix string, first, last uint64) (uint64, error) {
	low, high := max(first, 1), last+1
	since := r.Since.Add(-clockSlack)
	for !r.Since.IsZero() && low < high {
		middle := low + (high-low)/2
		m, err := r.message(ctx, stream, middle, jetstream.WithGetMsgSubject(prefix+">"))
		switch {
		case err != nil:
			return 0, err
		case m == nil || m.Sequence >= high || !m.Time.Before(since):
			high = middle
		default:
			low = m.Sequence + 1
		}
	}
	return low, nil
}

// scan reads single messages, many at the same time. A consumer would need the right to make one, and leave it behind in a crash.
type scan struct {
	*run
	name     string
	stream   jetstream.Stream
	prefix   string
	from, to uint64
	visit    func(*jetstream.RawStreamMsg) error
	missing  func(from, to uint64)
}

func (s *scan) all(ctx context.Context) error {
	var done int64
	found := make([]*jetstream.RawStreamMsg, readAtOnce)
	for from := s.from; from <= s.to; {
		n := min(s.to-from+1, readAtOnce)
		if err := s.step(ctx, from, found[:n]); err != nil {
			return err
		}
		for i, m := range found[:n] {
			if m == nil {
				s.missing(from+uint64(i), from+uint64(i)) //nolint:gosec // small
				continue
			}
			if err := s.visit(m); err != nil {
				return err
			}
			done++
		}
		s.Progress(s.name, done)
		from += n
		if slices.ContainsFunc(found[:n], func(m *jetstream.RawStreamMsg) bool { return m != nil }) || from > s.to {
			continue
		}
		next, err := s.message(ctx, s.stream, from, jetstream.WithGetMsgSubject(s.prefix+">"))
		if err != nil {
			return err
		}
		if next == nil || next.Sequence > s.to {
			s.missing(from, s.to)
			return nil
		}
		if next.Sequence > from {
			s.missing(from, next.Sequence-1)
		}
		from = next.Sequence
	}
	return nil
}

// step reads the messages from a sequence on; nil where there is none.
func (s *scan) step(ctx context.Context, from uint64, into []*jetstream.RawStreamMsg) error {
	group, ctx := errgroup.WithContext(ctx)
	for asker := range min(askers, len(into)) {
		group.Go(func() error {
			for i := asker; i < len(into); i += askers {
				m, err := s.message(ctx, s.stream, from+uint64(i)) //nolint:gosec // small
				if err != nil {
					return err
				}
				into[i] = m
			}
			return nil
		})
	}
	return group.Wait()
}

// message reads one message, or nil if it is gone.
func (r *run) message(ctx context.Context, stream jetstream.Stream, sequence uint64, how ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	err := r.retry(ctx, func() (err error) {
		m, err = stream.GetMsg(ctx, sequence, how...)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			m, err = nil, nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read message %d of %s: %w", sequence, stream.CachedInfo().Config.Name, err)
	}
	return m, nil
}

// retry runs what only reads until it succeeds, with longer and longer waits.
func (r *run) retry(ctx context.Context, read func() error) error {
	wait := 100 * time.Millisecond
	for tried := 0; ; tried++ {
		err := read()
		if err == nil || tried >= r.Retries || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 10*time.Second)
	}
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
