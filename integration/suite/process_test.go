package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
	"github.com/paidonce/paidonce/worker/workertest"
)

const patience = 2 * time.Minute // a bound on hanging, not on speed

// process is what `paidonce worker` is, with its neighbours: two routes lead to two banks.
type process struct {
	slow, other *arena.Bank
	second      *pgxpool.Pool
	publisher   *queue.Publisher
	js          jetstream.JetStream
	config      string
	health      string
	dir         string
}

const otherRoute = "gbp-other"

func newProcess(t *testing.T, settings arena.Settings) *process {
	t.Helper()
	p := &process{dir: t.TempDir()}
	roles, err := stack.MakeNATSRoles(filepath.Join(p.dir, "roles"), map[string][]string{workertest.SourceName: {workertest.RouteName, otherRoute}})
	check(t, err)
	server, err := stack.StartNATS(stack.NATSOptions{Dir: filepath.Join(p.dir, "nats"), NoSync: true, ConfigFile: roles.ConfigFile})
	check(t, err)
	t.Cleanup(func() { report(t, server.Shutdown()) })
	urls := stack.Databases(t)
	p.second, err = pgxpool.New(t.Context(), urls.Superuser+"&pool_max_conns=4")
	check(t, err)
	t.Cleanup(p.second.Close)
	for _, b := range []**arena.Bank{&p.slow, &p.other} {
		*b, err = arena.StartBank(t.Context(), urls.Superuser, banksim.Options{Calm: true})
		check(t, err)
		t.Cleanup(func() { report(t, (*b).Stop()) })
	}
	port, err := stack.FreePort()
	check(t, err)
	p.health = fmt.Sprintf("127.0.0.1:%d", port)
	settings.BrokerURL, settings.DatabaseURL, settings.Health, settings.Sources = server.URL(), urls.Worker, p.health, []string{workertest.SourceName}
	settings.Partners = []arena.Partner{{ID: "slowbank", Route: workertest.RouteName, BaseURL: p.slow.URL}, {ID: "otherbank", Route: otherRoute, BaseURL: p.other.URL}}
	settings.Roles = roles
	p.config, err = settings.Write(p.dir)
	check(t, err)
	check(t, underfire.Provision(t.Context(), p.config, roles.Provisioner))
	pub, err := queue.Connect(server.URL(), queue.ConnectOptions{Role: queue.RolePublisher, Source: workertest.SourceName, NKeySeedFile: roles.Publishers[workertest.SourceName], Log: zerolog.Nop()})
	check(t, err)
	t.Cleanup(pub.Close)
	p.publisher, err = queue.NewPublisher(pub, queue.PublisherOptions{})
	check(t, err)
	witness, err := roles.Witness(server.URL())
	check(t, err)
	nc, err := nats.Connect(witness)
	check(t, err)
	t.Cleanup(nc.Close)
	p.js, err = jetstream.New(nc)
	check(t, err)
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func report(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func (p *process) start(t *testing.T) *arena.Worker {
	t.Helper()
	log, err := os.Create(filepath.Join(p.dir, "worker.log"))
	check(t, err)
	w, err := arena.StartWorker(arena.Order{Config: p.config}, log, func(string) {})
	check(t, err)
	t.Cleanup(func() {
		w.Kill()
		report(t, log.Close())
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the worker said:\n%.4000s", text)
		}
	})
	return w
}

func (p *process) publish(t *testing.T, route string) uuid.UUID {
	t.Helper()
	key, payload := workertest.OrderWith(t, func(j *job.Job) { j.Route = route })
	p.send(t, queue.Message{Source: workertest.SourceName, Route: route, Key: key, Payload: payload})
	return key
}

func (p *process) send(t *testing.T, m queue.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if result := p.publisher.PublishMany(ctx, []queue.Message{m})[0]; result.Err != nil || result.Duplicate {
		t.Fatalf("publish: duplicate %v, %v", result.Duplicate, result.Err)
	}
}

func (p *process) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	check(t, p.second.QueryRow(ctx, query, args...).Scan(&n))
	return n
}

// settled: every delivery so far was acknowledged.
func (p *process) settled(t *testing.T, route string) bool {
	t.Helper()
	consumer, err := p.js.Consumer(t.Context(), queue.StreamJobs, queue.ConsumerName(route))
	check(t, err)
	info, err := consumer.Info(t.Context())
	check(t, err)
	return info.NumPending == 0 && info.NumAckPending == 0
}

// events are the ids of all events, by type.
func (p *process) events(t *testing.T) map[string][]string {
	t.Helper()
	stream, err := p.js.Stream(t.Context(), queue.StreamEvents)
	check(t, err)
	info, err := stream.Info(t.Context())
	check(t, err)
	all := map[string][]string{}
	if info.State.Msgs == 0 {
		return all
	}
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(t.Context(), sequence)
		check(t, err)
		kind := msg.Subject[len(msg.Subject)-len(filepath.Ext(msg.Subject))+1:]
		all[kind] = append(all[kind], msg.Header.Get("Nats-Msg-Id"))
	}
	return all
}

// TestF7_AReplayPublishesNoEventTwice: replays of a finished job, to the same worker and to one that was started again, add no event.
func TestF7_AReplayPublishesNoEventTwice(t *testing.T) {
	t.Parallel()
	p := newProcess(t, arena.Settings{Timeout: 15 * time.Second, Lease: 18 * time.Second, Grace: 20 * time.Second}) // no call ends before its answer
	first := p.start(t)
	key, payload := workertest.Order(t)
	original := queue.Message{Source: workertest.SourceName, Route: workertest.RouteName, Key: key, Payload: payload}
	p.send(t, original)
	workertest.Eventually(t, patience, "published", func() bool { return len(p.events(t)["authorized"]) == 1 })
	before := p.events(t)
	replay := func(from, to int) {
		for n := from; n <= to; n++ {
			_, err := p.publisher.Replay(t.Context(), original, n)
			check(t, err)
		}
		workertest.Eventually(t, patience, "acknowledged", func() bool { return p.settled(t, workertest.RouteName) })
	}
	replay(1, 3)
	report(t, first.Stop(time.Minute))
	p.start(t)
	replay(4, 5)
	workertest.Eventually(t, patience, "an empty outbox", func() bool { return p.count(t, "SELECT count(*) FROM outbox") == 0 })
	marker := p.publish(t, workertest.RouteName) // events are published in order: behind it nothing of the replays is still to come
	workertest.Eventually(t, patience, "published", func() bool { return len(p.events(t)["authorized"]) >= 2 })
	after := p.events(t)
	for kind, ids := range after {
		if !slices.Equal(before[kind], ids[:len(before[kind])]) || len(ids) != 2*len(before[kind]) {
			t.Errorf("events %s: %v before five replays and another job, %v after, want those and one more", kind, before[kind], ids)
		}
		if slices.Sort(ids); len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("events %s came twice: %v", kind, ids)
		}
	}
	if n := p.slow.Summary().Creates; n != 2 {
		t.Errorf("the bank saw %d creates, want one for %s and one for %s", n, key, marker)
	}
}

// TestD12_ABankThatHangsHoldsNoConnection: a hundred calls hang, with a pool of four. Health answers, jobs are taken in, another bank is paid.
func TestD12_ABankThatHangsHoldsNoConnection(t *testing.T) {
	t.Parallel()
	p := newProcess(t, arena.Settings{MaxConns: 4, InFlight: 256, Timeout: 5 * time.Minute, RecordMargin: 2 * time.Second, Lease: 310 * time.Second,
		AckWait: 20 * time.Second, Grace: 305 * time.Second}) // calls hang for longer than anything is waited for here
	if _, err := p.slow.SetFault(banksim.Fault{Name: "hang", DelayMS: (5 * time.Minute).Milliseconds()}); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	for range 100 {
		p.publish(t, workertest.RouteName)
	}
	workertest.Eventually(t, patience, "a hundred calls hang", func() bool { return p.slow.Summary().Creates == 100 })
	hanging := time.Now()
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		response, err := (&http.Client{Timeout: 30 * time.Second}).Get("http://" + p.health + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s answered %d %.200s (%v)", path, response.StatusCode, body, err)
		}
		report(t, response.Body.Close())
	}
	workertest.Eventually(t, time.Minute, "without a transaction that is as old as the calls", func() bool {
		return p.count(t, `SELECT count(*) FROM pg_stat_activity WHERE usename = 'paidonce_worker' AND datname = current_database()
			AND xact_start < now() - interval '2 s'`) == 0 && time.Since(hanging) > 3*time.Second
	})
	key := p.publish(t, otherRoute)
	workertest.Eventually(t, time.Minute, "paid at the other bank", func() bool {
		return p.count(t, "SELECT count(*) FROM operations WHERE key = $1 AND state = 'authorized'", key) == 1
	})
	if n := p.count(t, "SELECT count(*) FROM operations WHERE state = 'claimed'"); n != 100 {
		t.Errorf("%d operations are claimed, want the hundred whose calls hang", n)
	}
}
