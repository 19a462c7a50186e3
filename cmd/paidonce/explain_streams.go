package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// How far the streams are looked through for one key. What lies further on is not told, and it is said that it is not.
const (
	traceTimeout   = 3 * time.Second
	mostJobs       = 300
	mostEvents     = 20_000
	clocksDiffer   = 5 * time.Second // the broker's clock and the database's
	beforeRecorded = time.Minute     // a job whose time is not known is looked for from so long before its operation was recorded
)

// streams is what the broker has of one key.
type streams struct {
	why    string // it was not asked, or did not answer; "" = it did
	jobs   queue.Seen
	others []queue.Sighting // found by their sequences
	at     *queue.Position  // of the route's consumer; nil = not known
	events []queue.Sighting
	missed []string // types of events that were not found, and may lie further on
}

// look asks the broker, when it is there. It never keeps a person waiting, and what it cannot find out is no error: the ledger is the truth.
func (s *session) look(ctx context.Context, c *config.Config, tale *story) {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	nc, err := app.Connect(c, queue.RoleOperator, "", zerolog.Nop())
	if err != nil {
		tale.streams.why = "no connection to the broker can be made"
		return
	}
	defer nc.Close()
	if !nc.IsConnected() {
		tale.streams.why = "the broker cannot be reached"
		return
	}
	nc.SetErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			nc.Close() // else it would be waited for until the time is over
		}
	})
	trace, err := queue.NewTrace(nc)
	if err == nil {
		if err = tale.streams.findJobs(ctx, trace, tale); err == nil {
			err = tale.streams.findEvents(ctx, trace, tale)
		}
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		tale.streams.why = fmt.Sprintf("the broker has not told all within %v", traceTimeout)
	case nc.IsClosed():
		tale.streams.why = "the broker does not let the user of these settings look into its streams"
	default:
		tale.streams.why = "the broker does not tell: " + err.Error()
	}
}

func (t *streams) findJobs(ctx context.Context, trace *queue.Trace, tale *story) (err error) {
	since := tale.CreatedAt.Add(-beforeRecorded)
	if !tale.PublishedAt.IsZero() {
		since = tale.PublishedAt.Add(-time.Millisecond) // the broker's own time, to the microsecond
	}
	if t.jobs, err = trace.Jobs(ctx, tale.Route, tale.Source, tale.Key, since, mostJobs); err != nil {
		return err
	}
	for _, a := range tale.Acts {
		known := slices.ContainsFunc(t.jobs.Sightings, func(j queue.Sighting) bool { return int64(j.Sequence) == a.JobSequence }) //nolint:gosec // a sequence
		if a.JobSequence == 0 || known {
			continue
		}
		one, there, err := trace.Job(ctx, tale.Key, uint64(a.JobSequence)) //nolint:gosec // a sequence
		if err != nil {
			return err
		}
		if there {
			t.others = append(t.others, one)
		}
	}
	if at, err := trace.Position(ctx, tale.Route); err == nil { // else the route has no consumer
		t.at = &at
	}
	return nil
}

func (t *streams) findEvents(ctx context.Context, trace *queue.Trace, tale *story) error {
	for _, e := range tale.due() {
		enough := 1
		if e.kind == string(ledger.StateParked) {
			enough = mostEvents // it can happen again
		}
		is := func(id string) bool { return id == e.id || enough > 1 && strings.HasPrefix(id, e.id+".") }
		seen, err := trace.Events(ctx, tale.Route, tale.Source, e.kind, is, e.at.Add(-clocksDiffer), enough, mostEvents)
		if err != nil {
			return err
		}
		t.events = append(t.events, seen.Sightings...)
		if len(seen.Sightings) == 0 && !seen.Whole {
			t.missed = append(t.missed, e.kind)
		}
	}
	return nil
}

// happened is an event that the ledger's record says there is, or may be.
type happened struct {
	id, kind string
	at       time.Time
	sure     bool // else the stream alone tells
}

// due lists the events that are to be looked for in the stream: parked ones together, since how often it was parked is not on record.
func (s *story) due() []happened {
	var all []happened
	add := func(kind string, at time.Time, sure bool) {
		all = append(all, happened{ledger.EventID(s.Key, kind, 0), kind, at, sure})
	}
	// What a worker recorded together with its first attempt came as a job; else a gateway or a file may have had it accepted.
	if attempts := s.Explanation.Attempts; len(attempts) == 0 || !attempts[0].At.Equal(s.CreatedAt) {
		add("accepted", s.CreatedAt, s.run.RunKey != "")
	}
	parked := happened{s.Key.String() + ".parked", string(ledger.StateParked), s.CreatedAt, false}
	all = append(all, parked)
	if s.State.Finished() {
		add(string(s.State), s.OutcomeAt, true)
	}
	if !s.ContradictedAt.IsZero() {
		add("contradicted", s.ContradictedAt, true)
	}
	for _, e := range s.Entries {
		if e.Event != string(ledger.StateAuthorized) && !slices.ContainsFunc(all, func(h happened) bool { return h.kind == e.Event }) {
			add(e.Event, e.At, true)
		}
	}
	return all
}

// eventRow is one event of the operation, and where it is.
type eventRow struct {
	ID          string `json:"event_id"`
	Type        string `json:"type"`
	State       string `json:"state"` // waiting, published
	OccurredAt  string `json:"occurred_at,omitempty"`
	Sequence    uint64 `json:"sequence,omitzero"` // in the stream of events
	PublishedAt string `json:"published_at,omitempty"`

	at    time.Time
	words string
}

// tellEvents tells of each event whether it waits or is published, and where.
func (s *story) tellEvents() (rows []eventRow) {
	add := func(id, kind string, at time.Time) *eventRow {
		rows = append(rows, eventRow{ID: id, Type: kind, OccurredAt: preciseOrNone(at), at: at})
		return &rows[len(rows)-1]
	}
	for _, w := range s.Outbox {
		row := add(w.ID, w.Type, w.At)
		row.State, row.words = "waiting", "waits in the outbox, to be published"
	}
	for _, seen := range s.streams.events {
		if slices.ContainsFunc(rows, func(r eventRow) bool { return r.ID == seen.MessageID }) {
			continue // published, and the mark is not made yet
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(seen.MessageID, s.Key.String()+"."), ".")
		row := add(seen.MessageID, kind, time.Time{})
		row.State, row.Sequence, row.PublishedAt = "published", seen.Sequence, precise(seen.At)
		row.at, row.words = seen.At, fmt.Sprintf("published: message %d of the stream of events", seen.Sequence)
	}
	for _, e := range s.due() {
		switch at := slices.IndexFunc(rows, func(r eventRow) bool { return r.ID == e.id }); {
		case at >= 0 && rows[at].OccurredAt == "":
			rows[at].OccurredAt = precise(e.at)
		case at < 0 && e.sure:
			row := add(e.id, e.kind, e.at)
			row.State, row.words = "published", "published: it is not in the outbox any more"+s.notSeen(e.kind)
		}
	}
	if s.State == ledger.StateParked {
		s.tellParked(&rows)
	}
	slices.SortStableFunc(rows, func(a, b eventRow) int { return a.at.Compare(b.at) })
	return rows
}

// tellParked adds the event of the parking that lasts, when neither outbox nor stream has told of it.
func (s *story) tellParked(rows *[]eventRow) {
	id := ledger.EventID(s.Key, string(ledger.StateParked), s.Fence)
	if slices.ContainsFunc(*rows, func(r eventRow) bool { return r.ID == id }) {
		return
	}
	at := s.CreatedAt
	for _, f := range s.Facts {
		if f.Fence == s.Fence {
			at = laterOf(at, f.At)
			break // what a look-up found afterwards has the same fence
		}
	}
	*rows = append(*rows, eventRow{ID: id, Type: string(ledger.StateParked), State: "published", OccurredAt: precise(at), at: at,
		words: "published: it is not in the outbox any more" + s.notSeen(string(ledger.StateParked))})
}

func (s *story) notSeen(kind string) string {
	switch {
	case s.streams.why != "":
		return ""
	case slices.Contains(s.streams.missed, kind):
		return fmt.Sprintf("; in the stream it is not among the next %d of its kind", mostEvents)
	}
	return "; the stream does not hold it any more"
}

func preciseOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return precise(t)
}

// jobRow is one message that asks for the operation.
type jobRow struct {
	Sequence    uint64 `json:"sequence"` // in the stream of jobs
	PublishedAt string `json:"published_at"`
	MessageID   string `json:"message_id,omitempty"`
	Replay      int    `json:"replay,omitzero"`
	Delivery    string `json:"delivery"`

	at time.Time
}

func (s *story) tellJobs() []jobRow {
	rows := []jobRow{}
	for _, j := range slices.Concat(s.streams.jobs.Sightings, s.streams.others) {
		rows = append(rows, jobRow{j.Sequence, precise(j.At), j.MessageID, j.Replay, s.streams.delivery(j.Sequence), j.At})
	}
	return rows
}

// delivery says how far a job has come at the broker.
func (t *streams) delivery(sequence uint64) string {
	switch {
	case t.at == nil:
		return "nobody takes it: its route has no consumer"
	case sequence > t.at.Delivered:
		return "not delivered yet"
	case sequence <= t.at.Acknowledged:
		return "delivered, and acknowledged"
	}
	return "delivered, and it or one before it is not acknowledged yet"
}

// jobWords tell one job.
func (r jobRow) words() string {
	what := "a job"
	if r.Replay > 0 {
		what = fmt.Sprintf("replay %d of the job", r.Replay)
	}
	return fmt.Sprintf("the broker stored %s: message %d of the stream of jobs%s; %s", what, r.Sequence, prefixed(", as ", r.MessageID), r.Delivery)
}

// streamsNotKnown says what of the streams nobody has looked at.
func (s *story) streamsNotKnown() []string {
	t := s.streams
	if t.why != "" {
		return []string{"What the streams hold under its key, and how far its jobs are delivered: they were not looked at, since " + t.why + "."}
	}
	open := []string{"How often each of its jobs was delivered: the broker counts only while a delivery is under way, and the ledger keeps no count, since one more changes nothing."}
	if !t.jobs.Whole {
		open = append(open, fmt.Sprintf("Whether its source has published it again after %s: %d messages of the source over this route were looked through.",
			cli.Time(t.jobs.Until), t.jobs.Messages))
	}
	return open
}

// leaseLines tell the claims of which anything is on record: until when they held, and what ended them.
func (s *story) leaseLines(add func(at time.Time, fence int32, what, format string, args ...any)) {
	for i, a := range s.Explanation.Attempts {
		lease := ""
		if s.lease > 0 {
			lease = fmt.Sprintf(" (by the settings here it was for %v, until %s, unless it was renewed)", s.lease, cli.Time(a.At.Add(s.lease)))
		}
		var ended, next time.Time
		for _, f := range s.Facts {
			if f.Fence == a.Fence && f.Kind == ledger.FactVerdict && ended.IsZero() {
				ended = f.At
			}
			if f.Fence > a.Fence && (next.IsZero() || f.At.Before(next)) {
				next = f.At
			}
		}
		if i+1 < len(s.Explanation.Attempts) && (next.IsZero() || s.Explanation.Attempts[i+1].At.Before(next)) {
			next = s.Explanation.Attempts[i+1].At
		}
		switch {
		case !ended.IsZero():
			add(ended, a.Fence, "lease", "the claim under fence %d ended with what it recorded, %v after its attempt%s", a.Fence, ended.Sub(a.At).Round(time.Millisecond), lease)
		case s.State == ledger.StateClaimed && s.Fence == a.Fence && s.LeaseUntil.Before(s.Now):
			add(s.LeaseUntil, a.Fence, "lease", "the lease of the claim under fence %d ended, and it has recorded nothing: the sweep takes over", a.Fence)
		case s.State == ledger.StateClaimed && s.Fence == a.Fence:
			add(a.At, a.Fence, "lease", "the claim under fence %d holds until %s", a.Fence, precise(s.LeaseUntil))
		case !next.IsZero():
			add(next, a.Fence, "lease", "the claim under fence %d was over by now, and has recorded nothing%s", a.Fence, lease)
		default:
			add(a.At, a.Fence, "lease", "the claim under fence %d has recorded nothing%s", a.Fence, lease)
		}
	}
}

// letterLines tell of the dead letters of the key, what was done to them, and what replaced it.
func (s *story) letterLines(add func(at time.Time, fence int32, what, format string, args ...any)) {
	for _, l := range s.Letters {
		again := ""
		if l.Replays > 0 {
			again = fmt.Sprintf(", after %d replay(s) of it", l.Replays)
		}
		add(l.At, 0, "dead letter", "%d: a job under this key was refused%s: %s %s", l.Sequence, again, l.Reason, l.Detail)
	}
	for _, a := range s.Acts {
		switch a.Act {
		case "replay":
			add(a.At, 0, "replay", "%s had dead letter %d published again, as %s:r%d", a.By, a.Sequence, s.Key, a.ReplayN)
		case "discard":
			add(a.At, 0, "discard", "%s decided that dead letter %d is not replayed (%s)", a.By, a.Sequence, a.Reason)
		case "published":
			twice := ""
			if a.Duplicate {
				twice = ", which the broker had already"
			}
			add(a.At, 0, "published", "what was decided about dead letter %d is message %d of the stream of jobs%s", a.Sequence, a.JobSequence, twice)
		}
	}
	if c := s.Replaced; c != nil {
		add(c.At, 0, "corrected", "%s: dead letter %d is replaced by %s, and this key is closed", c.By, c.Sequence, c.NewKey)
	}
	if c := s.Replaces; c != nil {
		add(c.At, 0, "correction", "%s: made in place of dead letter %d%s", c.By, c.Sequence, s.oldKey())
	}
}

// oldKey names the key that a correction has replaced.
func (s *story) oldKey() string {
	if s.Replaces.OldKey == uuid.Nil {
		return ", which has no key"
	}
	return " of " + s.Replaces.OldKey.String()
}

// links are sentences about the other key of a correction.
func (s *story) links() (known []string) {
	if c := s.Replaced; c != nil {
		known = append(known, fmt.Sprintf("It was corrected: what is paid in its place is %s (`paidonce ops explain %s`).", c.NewKey, c.NewKey))
	}
	if c := s.Replaces; c != nil {
		link := ""
		if c.OldKey != uuid.Nil {
			link = fmt.Sprintf(" (`paidonce ops explain %s`)", c.OldKey)
		}
		known = append(known, fmt.Sprintf("It is the correction of dead letter %d%s%s.", c.Sequence, s.oldKey(), link))
	}
	return known
}
