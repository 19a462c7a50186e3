package batch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// childEnv makes this program one that works on a run:
// "<database>|<broker>|<token>|<label>|<point at which it kills itself>|<how often it passes first>|<what it does>".
const childEnv = "PAIDONCE_TEST_BATCH"

const crashRows = 22 // five parts of four rows, and one of two

// rowsOf are rows that no other label has.
func rowsOf(label string, n int) string {
	return strings.NewReplacer("cust-", label+"-", "\nr", "\n"+label+"-r").Replace(csvRows(n))
}

// runChild runs this process as a submitter if it was started as one.
func runChild() bool {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		return false
	}
	if err := submitAndDie(strings.Split(text, "|")); err != nil {
		fmt.Fprintln(os.Stderr, "submitter:", err)
		os.Exit(1)
	}
	return true
}

func submitAndDie(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	passes, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(passes))
	l, err := ledger.Open(ctx, args[0], ledger.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	defer l.Close()
	pool, err := ledger.OpenPool(ctx, args[0], ledger.Options{MaxConns: 4})
	if err != nil {
		return err
	}
	defer pool.Close()
	limited := operate.Options{Limits: wide()}
	if args[6] == "ask" {
		limited.Limits = limits()
	}
	desk := operate.New(l, pool, limited)
	by, err := desk.Identify(ctx, args[2])
	if err != nil {
		return err
	}
	s := New(l, pool, desk, Options{PartRows: 4, PageRows: 4, Workers: 2, Partners: map[string]string{"gbp-fps": "northbank"}, point: func(_ context.Context, at point) {
		if string(at) == args[4] && left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it comes
		}
	}})
	switch args[6] {
	case ActCancel:
		_, err = s.Cancel(ctx, args[3], by, "wrong month", false)
		return err
	case ActPause:
		_, err = s.Pause(ctx, args[3], by, "wait", WalkOptions{})
		return err
	case ActResume:
		_, err = s.Release(ctx, args[3], by, "go on", WalkOptions{})
		return err
	}
	nc, err := nats.Connect(args[1])
	if err != nil {
		return err
	}
	defer nc.Close()
	return s.pay(ctx, nc, Submission{
		RunKey: args[3], By: by, Reason: "payroll", File: strings.NewReader(rowsOf(args[3], crashRows)), Format: file.FormatCSV,
		Read: file.Options{Source: "payroll", Route: "gbp-fps"},
	})
}

// pay does all that `paidonce batch submit` does.
func (s *Service) pay(ctx context.Context, nc *nats.Conn, sub Submission) error {
	out, err := s.Submit(ctx, sub)
	if err != nil {
		return err
	}
	publisher, err := s.NewPublisher(nc, out.Run, zerolog.Nop())
	if err != nil {
		return err
	}
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	group, publishing := errgroup.WithContext(publishing)
	group.Go(func() error { return publisher.Run(publishing) })
	if err = s.Enqueue(ctx, out.Run, EnqueueOptions{Publisher: publisher}); err == nil {
		err = publisher.Finish(ctx, 20*time.Second, nil)
	}
	stop()
	return errors.Join(err, group.Wait())
}

// wide are limits that nothing here reaches.
func wide() operate.Limits {
	return operate.Limits{Counts: map[string]int{ActSubmit: 1 << 30}, Amounts: map[string]int64{"GBP": 1 << 50}}
}

// broker is a JetStream server with the streams of the product.
func broker(t *testing.T) (*stack.NATS, *nats.Conn) {
	t.Helper()
	server := stack.Broker(t, stack.NATSOptions{})
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{"gbp-fps"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Provision(t.Context(), nc, topology); err != nil {
		t.Fatal(err)
	}
	return server, nc
}

// jobs are the keys of the messages in the stream, each as often as it stands there.
func jobs(t *testing.T, nc *nats.Conn) map[uuid.UUID]int {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), queue.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[uuid.UUID]int{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		id := strings.Split(m.Header.Get("Nats-Msg-Id"), ":")
		keys[uuid.MustParse(id[1])]++
	}
	return keys
}

// killed has olga do something to a run in a process that kills itself at a point. What that had told the database to do at the same time may still be
// done by then, and is when killed returns.
func (w *world) killed(t *testing.T, broker, label string, at point, passes int, what string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{w.urls.Batch + "&application_name=doomed", broker, w.tokens["olga"], label, string(at), strconv.Itoa(passes), what}, "|"))
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		t.Fatalf("%s of %s was not killed at %s: %v, %s", what, label, at, err, out)
	}
	super, err := pgx.Connect(t.Context(), w.urls.Superuser)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = super.Close(context.Background()) }()
	stack.Eventually(t, "the end of its sessions", func() bool {
		var left int
		if err := super.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doomed'`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

// TestSIGKILL: whatever a submitter was at when it was killed, the same command again pays every row once, under the key that it had.
func TestSIGKILL(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, Workers: 2})
	server, nc := broker(t)
	for _, c := range []struct {
		at         point
		passes     int
		registered bool // the keys are on record, and are kept
		recorded   int  // operations at least that there are after the kill
	}{
		{pointStaged, 1, false, 0}, {pointStaged, 5, false, 0}, {pointChecked, 1, false, 0}, {pointRegister, 1, false, 0}, {pointRegistered, 1, true, 0},
		{pointReleasing, 1, true, 0}, {pointReleased, 1, true, 0},
		{pointBefore, 1, true, 0}, {pointInside, 1, true, 0}, {pointAfter, 1, true, 1}, {pointBefore, 4, true, 1}, {pointInside, 4, true, 1}, {pointAfter, 6, true, 1},
		{pointPublish, 1, true, 1},
	} {
		label := fmt.Sprintf("%s.%d", c.at, c.passes)
		t.Run(label, func(t *testing.T) {
			w.killed(t, server.URL(), label, c.at, c.passes, ActSubmit)
			run, err := w.Service.Run(t.Context(), label)
			if registered := err == nil; registered != c.registered {
				t.Fatalf("on record: %v, want %v", registered, c.registered)
			}
			var before map[int]uuid.UUID
			if c.registered {
				if before = w.keys(run); len(before) != crashRows {
					t.Fatalf("%d keys on record", len(before))
				}
			}
			recorded := value[int64](w, `SELECT count(*) FROM operations WHERE debtor_account LIKE $1 || '-%'`, label)
			if recorded < int64(c.recorded) || c.at == pointInside && recorded == crashRows {
				t.Errorf("%d operations after the kill", recorded)
			}
			sub := w.submission(label, rowsOf(label, crashRows))
			if err := w.pay(t.Context(), nc, sub); err != nil {
				t.Fatal(err)
			}
			run, err = w.Service.Run(t.Context(), label)
			if err != nil {
				t.Fatal(err)
			}
			after := w.keys(run)
			if c.registered && !maps.Equal(before, after) {
				t.Error("the keys have changed")
			}
			w.want(crashRows, `SELECT count(*) FROM operations WHERE debtor_account LIKE $1 || '-%'`, label)
			w.want(crashRows, `SELECT count(DISTINCT o.key) FROM batch_rows b JOIN operations o ON o.id = b.operation_id WHERE b.run_id = $1`, run.ID)
			w.want(0, `SELECT count(*) FROM batch_parts WHERE run_id = $1`, run.ID)
			w.want(0, `SELECT count(*) FROM unpublished_jobs WHERE holder = $1`, run.ID)
			published := jobs(t, nc)
			for n, key := range after {
				if published[key] != 1 {
					t.Errorf("row %d was published %d times", n, published[key])
				}
			}
		})
	}
}

// TestOrphans: parts of submitters that died before their run was on record are removed in time, those of one that is at work are not.
func TestOrphans(t *testing.T) {
	w := newWorld(t, operate.Options{})
	dead, alive := uuid.New(), uuid.New()
	w.exec(`INSERT INTO batch_parts (run_id, part, first_n, rows, body, at) VALUES ($1, 0, 1, 1, 'x', now() - interval '25 hours')`, dead)
	w.exec(`INSERT INTO batch_parts (run_id, part, first_n, rows, body) VALUES ($1, 0, 1, 1, 'x')`, alive)
	w.submit("run-1", twoRows)
	w.want(0, `SELECT count(*) FROM batch_parts WHERE run_id = $1`, dead)
	w.want(1, `SELECT count(*) FROM batch_parts WHERE run_id = $1`, alive)
}

// TestJ12_ABrokerThatIsAwayChangesNothing of what is recorded: run again, the jobs are published, and there is no second operation.
func TestJ12_ABrokerThatIsAwayChangesNothing(t *testing.T) {
	w := newWorld(t, operate.Options{})
	server, nc := broker(t)
	run := w.submit("run-1", twoRows)
	away, err := nats.Connect(server.URL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := w.NewPublisher(away, run, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	if err := w.Enqueue(t.Context(), run, EnqueueOptions{Publisher: publisher}); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Finish(t.Context(), time.Second, nil); !errors.Is(err, ErrUnpublished) {
		t.Errorf("finish: %v", err)
	}
	w.want(2, `SELECT count(*) FROM operations`)
	w.want(2, `SELECT count(*) FROM unpublished_jobs`)
	if len(jobs(t, nc)) != 0 {
		t.Fatal("something was published")
	}
	if err := w.pay(t.Context(), nc, w.submission("run-1", twoRows)); err != nil {
		t.Fatal(err)
	}
	w.want(2, `SELECT count(*) FROM operations`)
	w.want(0, `SELECT count(*) FROM unpublished_jobs`)
	if got, want := jobs(t, nc), w.keys(run); len(got) != 2 || got[want[1]] != 1 || got[want[2]] != 1 {
		t.Errorf("published %v, want %v", got, want)
	}

	// Paid, and nobody can be told: the events stay in the outbox, and the same submission finds what was paid.
	w.settle(1, ledger.StateAuthorized, 2, ledger.StateAuthorized)
	const standing = `SELECT string_agg(o::text, ' ' ORDER BY o.id) FROM operations o`
	before, told := value[string](w, standing), value[int64](w, `SELECT count(*) FROM outbox`)
	publisher, err = w.NewPublisher(away, run, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	w.enqueue(w.submit("run-1", twoRows))
	if err := publisher.Finish(t.Context(), time.Second, nil); err != nil {
		t.Errorf("nothing waits for the broker: %v", err)
	}
	if after := value[string](w, standing); after != before {
		t.Errorf("operations %s, before %s", after, before)
	}
	w.want(told, `SELECT count(*) FROM outbox`)
	if got := jobs(t, nc); len(got) != 2 {
		t.Errorf("%d jobs", len(got))
	}
	if status, err := w.Status(t.Context(), "run-1"); err != nil || status.Rows("authorized") != 2 || !status.Complete() {
		t.Errorf("status %+v, %v", status, err)
	}
}

// TestPublisher_GoesOverItAgain: what was handed out and not confirmed is handed out again, until nothing is left.
func TestPublisher_GoesOverItAgain(t *testing.T) {
	w := newWorld(t, operate.Options{})
	_, nc := broker(t)
	run := w.submit("run-1", csvRows(5))
	w.enqueue(run)
	p, err := w.NewPublisher(nc, run, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	p.ending = true
	stored := func(want int) []int64 {
		found, err := p.Stored(t.Context(), 3)
		if err != nil || len(found) != want {
			t.Fatalf("%d jobs, %v; want %d", len(found), err, want)
		}
		var refs []int64
		for _, j := range found {
			refs = append(refs, j.Ref)
		}
		return refs
	}
	first := stored(3)
	if err := p.MarkPublished(t.Context(), first[1:]); err != nil {
		t.Fatal(err)
	}
	second := stored(2)
	if err := p.MarkPublished(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	stored(0)
	if again := stored(1); again[0] != first[0] {
		t.Errorf("job %d, want %d, which was not confirmed", again[0], first[0])
	}
	select {
	case <-p.done:
		t.Error("it has ended with a job left")
	default:
	}
	if err := p.MarkPublished(t.Context(), first[:1]); err != nil {
		t.Fatal(err)
	}
	stored(0)
	stored(0)
	<-p.done
	if p.Published() != 5 {
		t.Errorf("%d published", p.Published())
	}
}

// TestLeftBehind: a gateway takes over by age what a batch has recorded and not published.
func TestLeftBehind(t *testing.T) {
	w := newWorld(t, operate.Options{})
	run := w.submit("run-1", twoRows)
	w.enqueue(run)
	gateway, err := ledger.Open(t.Context(), w.urls.Worker, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	if found, err := gateway.UnpublishedJobs(t.Context(), 10, time.Minute); err != nil || len(found) != 0 {
		t.Errorf("%d jobs of a batch at work were taken, %v", len(found), err)
	}
	w.exec(`UPDATE unpublished_jobs SET at = now() - interval '2 minutes'`)
	found, err := gateway.UnpublishedJobs(t.Context(), 10, time.Minute)
	if err != nil || len(found) != 2 {
		t.Fatalf("%d jobs, %v", len(found), err)
	}
	keys := w.keys(run)
	if got := []uuid.UUID{found[0].Key, found[1].Key}; !slices.Equal(got, []uuid.UUID{keys[1], keys[2]}) || found[0].Source != "payroll" {
		t.Errorf("jobs %v, want %v", got, keys)
	}
}
