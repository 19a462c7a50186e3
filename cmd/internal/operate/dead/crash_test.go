package dead_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// childVariable makes the test's program one operator at the desk, who is killed on the way.
const childVariable = "PAIDONCE_TEST_DEAD_CHILD"

// doomed kills its process with the third chunk: before anything of it is published, after the half, or after all.
type doomed struct {
	*queue.Publisher
	where string
	calls int
}

func (d *doomed) PublishMany(ctx context.Context, ms []queue.Message) []queue.Result {
	d.calls++
	if d.calls < 3 {
		return d.Publisher.PublishMany(ctx, ms)
	}
	published := map[string]int{"before": 0, "half": len(ms) / 2, "after": len(ms)}[d.where]
	d.Publisher.PublishMany(ctx, ms[:published])
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func replayAsChild(spec string) error {
	part := strings.Split(spec, "\n") // database, broker, token, plan, where
	ctx := context.Background()
	nc, err := queue.Connect(part[1], queue.ConnectOptions{Role: queue.RoleOperator})
	if err != nil {
		return err
	}
	letters, err := queue.NewDeadLetters(nc)
	if err != nil {
		return err
	}
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		return err
	}
	pool, err := ledger.OpenPool(ctx, part[0], ledger.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	desk := dead.New(letters, &doomed{Publisher: publisher, where: part[4]}, pool, dead.Options{Chunk: 10, Lease: time.Second})
	service := operate.New(nil, pool, limits())
	by, err := service.Identify(ctx, part[2])
	if err != nil {
		return err
	}
	plan, err := desk.Plan(ctx, uuid.MustParse(part[3]))
	if err != nil {
		return err
	}
	act, err := desk.Replay(ctx, plan, 0)
	if err != nil {
		return err
	}
	_, err = service.Do(ctx, operate.Request{By: by, Reason: "ticket 5", Act: act})
	return fmt.Errorf("the child was not killed: %w", err)
}

func TestReplay_KilledInTheMiddleGoesOn(t *testing.T) {
	for _, where := range []string{"before", "half", "after"} {
		t.Run(where, func(t *testing.T) {
			w := newWorld(t, dead.Options{Chunk: 10, Lease: time.Second})
			keys := make([]uuid.UUID, 55)
			var letters []letter
			for i := range keys {
				keys[i] = job.NewKey()
				letters = append(letters, letter{payload: payload(keys[i])})
			}
			w.bury(letters...)
			p := w.freeze(dead.Filter{})
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childVariable+"="+strings.Join([]string{w.urls.Desk, w.natsURL, w.token, p.ID.String(), where}, "\n"))
			out, err := child.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child ended with %v: %s", err, out)
			}
			var begun int
			w.one(&begun, `SELECT count(*) FROM dead_letter_acts WHERE act = 'replay'`)
			if begun != 30 {
				t.Fatalf("%d replays were begun, want 30", begun)
			}
			// The one who died keeps others out for the time of its lease, and then they go on.
			var act *dead.Replay
			var done operate.Done
			eventually(t, "gone on with", func() bool { act, done, err = w.replay(p); return !errors.Is(err, operate.ErrRefused) })
			w.must(err)
			if done.Outcome != "done" || act.Tally.Before != 20 || act.Tally.Published != 35 || act.Tally.Left != 0 || act.Tally.Failed != 0 {
				t.Errorf("%s: %+v", done.Outcome, act.Tally)
			}
			if want := map[string]int64{"before": 0, "half": 5, "after": 10}[where]; act.Tally.Duplicate != want {
				t.Errorf("%d were with the broker already, want %d", act.Tally.Duplicate, want)
			}
			w.eachOnce(keys)
		})
	}
}

// eachOnce asserts that each key is one message in the stream, is paid once, and its letter replayed once.
func (w *world) eachOnce(keys []uuid.UUID) {
	w.t.Helper()
	ids := map[string]int{}
	for _, raw := range w.jobs() {
		ids[raw.Header.Get("Nats-Msg-Id")]++
	}
	for _, key := range keys {
		if ids[key.String()+":r1"] != 1 {
			w.t.Errorf("%s was published %d times", key, ids[key.String()+":r1"])
		}
	}
	if len(ids) != len(keys) {
		w.t.Errorf("%d jobs of %d keys", len(ids), len(keys))
	}
	b := w.work(nil)
	eventually(w.t, "all paid", func() bool { return !slices.ContainsFunc(keys, func(k uuid.UUID) bool { return b.sends(k) == 0 }) })
	var authorized, published int
	w.one(&authorized, `SELECT count(*) FROM operations WHERE state = 'authorized'`)
	w.one(&published, `SELECT count(*) FROM dead_letter_acts WHERE act = 'published'`)
	for _, key := range keys {
		if b.sends(key) != 1 {
			w.t.Errorf("%s was sent %d times", key, b.sends(key))
		}
	}
	if authorized != len(keys) || published != len(keys) {
		w.t.Errorf("%d operations and %d results, want %d", authorized, published, len(keys))
	}
}

// slow makes a replay take long enough to meet another one.
type slow struct {
	*queue.Publisher
	begun chan struct{}
	go_   chan struct{}
	once  sync.Once
}

func (s *slow) PublishMany(ctx context.Context, ms []queue.Message) []queue.Result {
	s.once.Do(func() { close(s.begun); <-s.go_ })
	return s.Publisher.PublishMany(ctx, ms)
}

func TestReplay_TwoOperatorsAtOnce(t *testing.T) {
	w := newWorld(t, dead.Options{})
	keys, letters := fresh(60)
	w.bury(letters...)
	p := w.freeze(dead.Filter{})
	s := &slow{Publisher: w.publish, begun: make(chan struct{}), go_: make(chan struct{})}
	desk := dead.New(w.letters, s, w.pool, dead.Options{Chunk: 7, Lease: 3 * time.Second})
	first, err := desk.Replay(t.Context(), p, 0)
	w.must(err)
	ended := make(chan error, 1)
	go func() { _, err := w.do(w.olga, first); ended <- err }()
	<-s.begun
	<-time.After(4 * time.Second) // longer than a lease: it is kept
	second, err := w.desk.Replay(t.Context(), p, 0)
	w.must(err)
	if _, err := w.do(w.oscar, second); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "not run twice") {
		t.Errorf("the other one is told: %v", err)
	}
	close(s.go_)
	w.must(<-ended)
	w.eachOnce(keys)
}

// Two plans of the same letters at once, under two leases: the database lets one decide about each letter.
func TestReplay_TwoPlansOfTheSameLettersAtOnce(t *testing.T) {
	w := newWorld(t, dead.Options{Chunk: 3})
	keys, letters := fresh(40)
	w.bury(letters...)
	plans := []*dead.Plan{w.freeze(dead.Filter{}), w.freeze(dead.Filter{})}
	var all sync.WaitGroup
	var published, changed [2]int64
	for i, p := range plans {
		act, err := w.desk.Replay(t.Context(), p, 0)
		w.must(err)
		all.Go(func() {
			_, err := act.Run(t.Context(), w.olga) // past Check: as if both had passed it at once
			if err != nil {
				t.Error(err)
			}
			published[i], changed[i] = act.Tally.Published, act.Tally.Changed
		})
	}
	all.Wait()
	if published[0]+published[1] != 40 {
		t.Errorf("published %v, changed %v", published, changed)
	}
	w.eachOnce(keys)
}

func TestReplay_InterruptedFinishesItsChunkAndGoesOnLater(t *testing.T) {
	w := newWorld(t, dead.Options{})
	keys, letters := fresh(30)
	letters = append(letters, letters[0]) // a copy: how it stands changes with the first one's replay
	w.bury(letters...)
	p := w.freeze(dead.Filter{})
	ctx, cancel := context.WithCancel(t.Context())
	desk := dead.New(w.letters, w.publish, w.pool, dead.Options{Chunk: 5, Progress: func(what string, done, _ int64) {
		if what == "replay" && done == 10 {
			cancel()
		}
	}})
	act, err := desk.Replay(ctx, p, 0)
	w.must(err)
	if _, err := w.service.Do(ctx, operate.Request{By: w.olga, Reason: "ticket 5", Act: act}); !errors.Is(err, context.Canceled) || act.Tally.Published != 10 || act.Tally.Left != 20 {
		t.Errorf("interrupted: %v, %+v", err, act.Tally)
	}
	var unconfirmed int
	w.one(&unconfirmed, `SELECT count(*) FILTER (WHERE act = 'replay') - count(*) FILTER (WHERE act = 'published') FROM dead_letter_acts`)
	if unconfirmed != 0 {
		t.Errorf("%d replays were begun and not recorded", unconfirmed)
	}
	if again, done, err := w.replay(p); err != nil || done.Outcome != "done" || again.Tally.Before != 10 || again.Tally.Published != 20 {
		t.Errorf("gone on with: %v, %v", done, err)
	}
	w.eachOnce(keys)
}

func TestReplay_KeepsToItsRate(t *testing.T) {
	w := newWorld(t, dead.Options{})
	var letters []letter
	for range 40 {
		letters = append(letters, letter{payload: payload(job.NewKey())})
	}
	w.bury(letters...)
	act, err := w.desk.Replay(t.Context(), w.freeze(dead.Filter{}), 40)
	w.must(err)
	start := time.Now()
	_, err = w.do(w.olga, act)
	w.must(err)
	if took := time.Since(start); took < 700*time.Millisecond { // the first quarter of a second's worth is free
		t.Errorf("40 letters at 40 per second took %s", took)
	}
}

// An id that somebody else has used is found out: the broker would have swallowed the replay.
func TestReplay_AnIDThatIsTakenIsNoReplay(t *testing.T) {
	w := newWorld(t, dead.Options{})
	key := job.NewKey()
	w.bury(letter{payload: payload(key)})
	_, err := w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: key, Payload: []byte("{}"), MsgID: key.String() + ":r1"})
	w.must(err)
	p := w.freeze(dead.Filter{})
	act, done, err := w.replay(p)
	if err != nil || done.Outcome != "partial" || act.Tally.Failed != 1 || act.Tally.Published != 0 {
		t.Errorf("%v, %+v, %v", done.Outcome, act.Tally, err)
	}
	if s, err := w.desk.Show(t.Context(), 1); err != nil || s.State != dead.StatePlanned || s.Acts[len(s.Acts)-1].Reason != "id_taken" {
		t.Errorf("show: %+v, %v", s, err)
	}
}

// silent confirms nothing, as a broker that is away.
type silent struct {
	*queue.Publisher
	calls int
}

func (s *silent) PublishMany(_ context.Context, ms []queue.Message) []queue.Result {
	s.calls++
	results := make([]queue.Result, len(ms))
	for i := range results {
		results[i].Err = queue.ErrUnconfirmed
	}
	return results
}

func TestReplay_StopsWhenTheBrokerConfirmsNothing(t *testing.T) {
	w := newWorld(t, dead.Options{Chunk: 10})
	keys, letters := fresh(40)
	w.bury(letters...)
	p := w.freeze(dead.Filter{})
	s := &silent{Publisher: w.publish}
	act, err := dead.New(w.letters, s, w.pool, dead.Options{Chunk: 10}).Replay(t.Context(), p, 0)
	w.must(err)
	if _, err := w.do(w.olga, act); !errors.Is(err, queue.ErrUnconfirmed) || s.calls != 1 || act.Tally.Failed != 10 || act.Tally.Left != 30 {
		t.Errorf("%v after %d chunks, %+v", err, s.calls, act.Tally)
	}
	if again, done, err := w.replay(p); err != nil || done.Outcome != "done" || again.Tally.Published != 40 {
		t.Errorf("gone on with: %v, %v", done, err)
	}
	w.eachOnce(keys)
}
