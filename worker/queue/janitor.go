package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

const (
	// RedoWindow is how long acknowledged jobs stay, so that a database that was restored to an earlier hour can be given them again.
	RedoWindow = 7 * 24 * time.Hour

	defaultJanitorEvery = 10 * time.Minute
	// purgeStep is how many sequences one purge covers, so that none holds the stream for long.
	purgeStep = 50_000
)

// JanitorOptions are the settings of a Janitor. All may be zero.
type JanitorOptions struct {
	Window time.Duration  // the age up to which a job stays although it is acknowledged; default RedoWindow
	Every  time.Duration  // between passes; default 10m
	Log    zerolog.Logger // default none
}

// JanitorReport is what a pass has done and seen.
type JanitorReport struct {
	Removed  uint64            // jobs
	Unserved map[string]uint64 // jobs per subject that no consumer covers; none of them is ever removed
}

// Janitor removes jobs that have no use any more. Each route is judged by the floor of its own consumer: one that is idle does not stop
// the others, and one without a consumer is left alone. It is for the operator: workers may not remove anything.
type Janitor struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	opts JanitorOptions
}

// NewJanitor makes a janitor.
func NewJanitor(nc *nats.Conn, opts JanitorOptions) (*Janitor, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	if opts.Window < 0 {
		return nil, errors.New("janitor: window must not be negative")
	}
	if opts.Window == 0 {
		opts.Window = RedoWindow
	}
	if opts.Every <= 0 {
		opts.Every = defaultJanitorEvery
	}
	return &Janitor{nc: nc, js: js, opts: opts}, nil
}

// Run makes passes until ctx ends. A pass that fails is made again.
func (j *Janitor) Run(ctx context.Context) error {
	return repeat(ctx, j.opts.Every, func() {
		report, err := j.Pass(ctx)
		log := j.opts.Log
		if err != nil && ctx.Err() == nil {
			log.Warn().Err(err).Msg("pass of the janitor failed")
		}
		if len(report.Unserved) > 0 {
			log.Warn().Int("subjects", len(report.Unserved)).Msg("jobs are on subjects without a consumer")
		}
		log.Debug().Uint64("removed", report.Removed).Msg("janitor has passed")
	})
}

// Pass makes one pass.
func (j *Janitor) Pass(ctx context.Context) (JanitorReport, error) {
	jobs, err := openStream(ctx, j.js, StreamJobs)
	if err != nil {
		return JanitorReport{}, err
	}
	var report JanitorReport
	if report.Unserved, err = unservedSubjects(ctx, jobs); err != nil {
		return report, err
	}
	info, err := jobs.Info(ctx, jetstream.WithSubjectFilter(jobsPrefix+">"))
	if err != nil {
		return report, fmt.Errorf("read subjects of %s: %w", StreamJobs, err)
	}
	// Ages are judged by the broker's clock, which has also stamped the jobs.
	cutoff := info.TimeStamp.Add(-j.opts.Window)
	seen := make(map[string]bool)
	for subject := range info.State.Subjects {
		route, ok := coverable(subject)
		if !ok || seen[route] {
			continue
		}
		seen[route] = true
		removed, err := j.cleanRoute(ctx, jobs, route, info.State.FirstSeq, cutoff)
		report.Removed += removed
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

// cleanRoute removes what is below the floor of the route's consumer and older than cutoff.
func (j *Janitor) cleanRoute(ctx context.Context, jobs jetstream.Stream, route string, firstSeq uint64, cutoff time.Time) (uint64, error) {
	consumer, err := routeConsumer(ctx, jobs, route)
	if err != nil || consumer == nil {
		return 0, err
	}
	end, err := firstYoung(ctx, jobs, RouteFilter(route), firstSeq, consumer.AckFloor.Stream+1, cutoff)
	if err != nil {
		return 0, err
	}
	var removed uint64
	for {
		oldest, err := jobs.GetMsg(ctx, firstSeq, jetstream.WithGetMsgSubject(RouteFilter(route)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return removed, nil
		}
		if err != nil {
			return removed, fmt.Errorf("read oldest job of route %s: %w", route, err)
		}
		if oldest.Sequence >= end {
			return removed, nil
		}
		n, err := j.purge(ctx, RouteFilter(route), min(oldest.Sequence+purgeStep, end))
		removed += n
		if err != nil {
			return removed, fmt.Errorf("purge jobs of route %s below %d: %w", route, end, err)
		}
		if n == 0 {
			return removed, nil // a follower has answered with what is gone already: the next pass goes on
		}
	}
}

// firstYoung is the lowest sequence of at least low and at most high from which no job of the filter is older than cutoff. Sequences are in
// order of time, so it halves.
func firstYoung(ctx context.Context, jobs jetstream.Stream, filter string, low, high uint64, cutoff time.Time) (uint64, error) {
	for low < high {
		middle := low + (high-low)/2
		raw, err := jobs.GetMsg(ctx, middle, jetstream.WithGetMsgSubject(filter))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			high = middle
		case err != nil:
			return 0, fmt.Errorf("read job from %d: %w", middle, err)
		case raw.Sequence >= high || !raw.Time.Before(cutoff):
			high = middle
		default:
			low = raw.Sequence + 1
		}
	}
	return low, nil
}

// purge removes the jobs of a filter below a sequence and says how many. The client's own method does not say.
func (j *Janitor) purge(ctx context.Context, filter string, below uint64) (uint64, error) {
	request, err := json.Marshal(map[string]any{"filter": filter, "seq": below})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	answer, err := j.nc.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+StreamJobs, request)
	if err != nil {
		return 0, err
	}
	var body struct {
		Purged uint64              `json:"purged"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if body.Error != nil {
		return 0, body.Error
	}
	return body.Purged, nil
}
