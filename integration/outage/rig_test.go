package outage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/outage/proxy"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	source, route, partner = "wallet", "gbp-fps", "northbank"

	lease    = 1500 * time.Millisecond // the arena's defaults
	ackWait  = 1200 * time.Millisecond
	grace    = 3 * time.Second
	patience = 3 * time.Minute // a bound on hanging, not on speed
)

func TestMain(m *testing.M) {
	if arena.RunChild(prepare) {
		os.Exit(0)
	}
	stack.Alone()
	stack.Beside(4)
	os.Exit(m.Run())
}

// The details that a child may be given.
const (
	freezeBeforeSend   = "freeze before the first send" // between the last look at the lease and the first byte
	freezeBeforeLookUp = "freeze before the first look-up, of a quick partner"
	clockJumps         = "the clock jumps by hours"
	tellTime           = "say what time it is"                                             // of a process whose clock is wrong (clock_test.go)
	quickPartner       = "what was sent arrives within 2 s or never, and shows within 1 s" // true here, where nothing delays it
)

func prepare(detail string, say func(string)) (underfire.Around, error) {
	around := underfire.Around{Options: func(o worker.Options) worker.Options {
		o.RetryInitial, o.RetryMax = 200*time.Millisecond, time.Second
		if detail == clockJumps {
			began := time.Now()
			o.Clock = func() time.Duration { // as after a suspend: two hours in one step, once a second
				return time.Since(began) + 2*time.Hour*time.Since(began).Truncate(time.Second)/time.Second
			}
		}
		return o
	}}
	if detail == tellTime {
		say(strconv.FormatInt(time.Now().Unix(), 10))
	}
	if detail == quickPartner || detail == freezeBeforeLookUp {
		around.Adapter = func(_ string, a bankclient.Adapter) bankclient.Adapter { return quick{a} }
	}
	if detail == freezeBeforeSend || detail == freezeBeforeLookUp {
		var once sync.Once
		around.Bank = func(b worker.Bank) worker.Bank {
			return freezing{b, func(at string) {
				if at == detail {
					once.Do(func() {
						say("frozen")
						_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
						<-time.After(100 * time.Millisecond) // the signal may take a moment to reach this thread
					})
				}
			}}
		}
	}
	return around, nil
}

// quick is an adapter of a partner about whom certainty comes sooner than a minute after.
type quick struct{ bankclient.Adapter }

func (q quick) Profile() bankclient.Profile {
	p := q.Adapter.Profile()
	p.LatestArrival, p.VisibilityBound = 2*time.Second, time.Second
	return p
}

type freezing struct {
	worker.Bank
	before func(detail string)
}

func (f freezing) Send(ctx context.Context, pr bankclient.Prepared) bankclient.Result {
	f.before(freezeBeforeSend)
	return f.Bank.Send(ctx, pr)
}

func (f freezing) LookUp(ctx context.Context, pr bankclient.Prepared) bankclient.Finding {
	f.before(freezeBeforeLookUp)
	return f.Bank.LookUp(ctx, pr)
}

// setup says what a rig is made of; its zero value works.
type setup struct {
	bank     banksim.Options
	postgres map[string]string // settings of the server
	settings arena.Settings
	broker   func(t *testing.T, roles stack.NATSRoles) (url string) // default: one server as a child
}

// rig is one private world.
type rig struct {
	postgres  *stack.Postgres
	urls      stack.DatabaseURLs
	broker    *stack.NATSProcess // nil where the test has its own
	brokerURL string
	roles     stack.NATSRoles
	witness   string // URL of the broker
	bank      *arena.Bank
	toLedger  *proxy.Proxy
	toBroker  *proxy.Proxy
	toBank    *proxy.Proxy
	config    string
	dir       string
	log       *os.File
	publisher *queue.Publisher
	all       proof.Publication
	seed      uint64
	arrived   atomic.Int64
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRig makes a world that nobody else uses, so that tests may run beside each other.
func newRig(t *testing.T, with setup) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{dir: t.TempDir(), seed: 1}
	settings := map[string]string{"synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "32MB"} // survives a crash of the server
	for name, value := range with.postgres {
		settings[name] = value
	}
	var err error
	r.postgres, err = stack.StartPostgres(t.Context(), stack.PostgresOptions{Settings: settings})
	check(t, err)
	t.Cleanup(func() {
		if err := r.postgres.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.urls, err = r.postgres.CreateDatabase(t.Context(), "paidonce")
	check(t, err)
	r.execute(t, "CREATE INDEX outage_partner_key ON attempts (partner_key)") // of the bank's check
	r.roles, err = stack.MakeNATSRoles(filepath.Join(r.dir, "roles"), nil)    // source and route are those of the files
	check(t, err)
	r.startBroker(t, with)
	r.witness, err = r.roles.Witness(r.brokerURL)
	check(t, err)
	with.bank.Never = arena.NeedAPerson()
	r.bank, err = arena.StartBank(t.Context(), r.urls.Superuser, with.bank)
	check(t, err)
	t.Cleanup(func() {
		if err := r.bank.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.bank.OnArrival(func(string) { r.arrived.Add(1) })
	r.toLedger, r.toBank = through(t, r.urls.Worker), through(t, r.bank.URL)
	s := with.settings
	s.DatabaseURL, s.Sources = moved(t, r.urls.Worker, r.toLedger), []string{source}
	s.Partners = []arena.Partner{{ID: partner, Route: route, BaseURL: moved(t, r.bank.URL, r.toBank), EchoesKey: true}}
	s.BrokerURL, s.Roles = r.brokerURL, r.roles
	if with.broker == nil {
		r.toBroker = through(t, r.brokerURL)
		s.BrokerURL = moved(t, r.brokerURL, r.toBroker)
	}
	r.config, err = s.Write(r.dir)
	check(t, err)
	r.provision(t)
	r.log, err = os.Create(filepath.Join(r.dir, "worker.log"))
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			r.tell(t)
		}
		_ = r.log.Close()
	})
	nc, err := queue.Connect(r.brokerURL, queue.ConnectOptions{Role: queue.RolePublisher, Source: source, NKeySeedFile: r.roles.Publishers[source], Log: zerolog.Nop()})
	check(t, err)
	t.Cleanup(nc.Close)
	r.publisher, err = queue.NewPublisher(nc, queue.PublisherOptions{})
	check(t, err)
	return r
}

func (r *rig) startBroker(t *testing.T, with setup) {
	t.Helper()
	if with.broker != nil {
		r.brokerURL = with.broker(t, r.roles)
		return
	}
	var err error
	r.broker, err = stack.StartNATSProcess(stack.NATSOptions{Dir: filepath.Join(r.dir, "nats"), ConfigFile: r.roles.ConfigFile})
	check(t, err)
	t.Cleanup(func() {
		if err := r.broker.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	r.brokerURL = r.broker.URL()
}

// provision makes the streams; a cluster may need a moment before it has a leader.
func (r *rig) provision(t *testing.T) {
	t.Helper()
	eventually(t, patience, "the streams are made", func(ctx context.Context) (bool, error) {
		err := underfire.Provision(ctx, r.config, r.roles.Provisioner)
		return err == nil, err
	})
}

func through(t *testing.T, address string) *proxy.Proxy {
	t.Helper()
	at, err := url.Parse(address)
	check(t, err)
	p, err := proxy.Start(at.Host, proxy.Options{})
	check(t, err)
	t.Cleanup(p.Close)
	return p
}

func moved(t *testing.T, address string, p *proxy.Proxy) string {
	t.Helper()
	at, err := url.Parse(address)
	check(t, err)
	at.Host = p.Addr()
	return at.String()
}

// start starts a worker that is killed when the test ends.
func (r *rig) start(t *testing.T, detail string, hear func(string)) *arena.Worker {
	t.Helper()
	if hear == nil {
		hear = func(string) {}
	}
	w, err := arena.StartWorker(arena.Order{Config: r.config, Detail: detail}, r.log, hear)
	check(t, err)
	t.Cleanup(func() { w.Thaw(); w.Kill() })
	return w
}

// load publishes some more keys, with repeated, conflicting and malformed messages between them.
func (r *rig) load(t *testing.T, keys int) {
	t.Helper()
	m, err := proof.NewMixture([]proof.Lane{{Source: source, Route: route}}, keys, r.seed, time.Now())
	check(t, err)
	r.seed++
	part, err := proof.Publish(t.Context(), r.publisher, m, func(int) {})
	check(t, err)
	r.all.Keys = append(r.all.Keys, part.Keys...)
	r.all.Malformed = append(r.all.Malformed, part.Malformed...)
}

// loading publishes a few keys every 100 ms until the returned function is called.
func (r *rig) loading(t *testing.T) (end func()) {
	t.Helper()
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				r.load(t, 4)
			}
		}
	})
	var once sync.Once
	end = func() { once.Do(func() { close(stop); running.Wait() }) }
	t.Cleanup(end)
	return end
}

func (r *rig) dial(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.urls.Superuser)
	check(t, err)
	return conn
}

func (r *rig) execute(t *testing.T, statements ...string) {
	t.Helper()
	conn := r.dial(t)
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	check(t, conn.Close(t.Context()))
}

func (r *rig) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	conn := r.dial(t)
	defer func() { _ = conn.Close(context.Background()) }()
	var n int
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// jetstream is the broker seen by one who may do everything.
func (r *rig) jetstream(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(r.witness, nats.MaxReconnects(-1))
	check(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	check(t, err)
	return js
}

// eventually waits until something holds.
func eventually(t *testing.T, within time.Duration, what string, holds func(context.Context) (bool, error)) {
	t.Helper()
	deadline := time.After(within)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		held, err := holds(ctx)
		cancel()
		if held {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s (last: %v)", within, what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// prove lets everything come to rest and judges it.
func (r *rig) prove(t *testing.T) *proof.Judgement {
	t.Helper()
	w, err := proof.Open(t.Context(), proof.Places{LedgerURL: r.urls.Superuser, BrokerURL: r.witness, Routes: []string{route}, BankURLs: []string{r.bank.ControlURL}})
	check(t, err)
	defer w.Close()
	calm := 0
	eventually(t, patience, "everything is at rest", func(ctx context.Context) (bool, error) {
		now, err := w.Standing(ctx)
		if calm++; err != nil || !now.Done() {
			calm = 0
			err = fmt.Errorf("%+v, %w", now, err)
		}
		return calm >= 2, err
	})
	var ev proof.Evidence
	eventually(t, patience, "all witnesses are heard", func(context.Context) (_ bool, err error) { // a cluster that has just come back is slow to tell
		ev, err = w.Collect(t.Context(), r.all)
		return err == nil, err
	})
	if n := r.count(t, "SELECT count(*) FROM operations WHERE partner_key = 'unknown'"); n != 0 {
		t.Errorf("%d operations do not name the key under which they were found at the bank", n)
	}
	j := proof.Judge(r.all, ev)
	if !j.Held() {
		t.Errorf("%s\n%s", j, strings.Join(j.Violations, "\n"))
	}
	return j
}

func (r *rig) tell(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(r.log.Name())
	if err != nil {
		t.Error(err)
		return
	}
	const most = 4000
	t.Logf("the workers' log ends:\n%s", text[max(0, len(text)-most):])
}

// finished counts the operations at which nothing is left to do.
func (r *rig) finished(t *testing.T) int {
	t.Helper()
	return r.count(t, "SELECT count(*) FROM operations WHERE state NOT IN ('open', 'claimed')")
}
