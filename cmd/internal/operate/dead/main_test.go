package dead_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func TestMain(m *testing.M) {
	if doomedMain() {
		return
	}
	if spec := os.Getenv(childVariable); spec != "" {
		if err := replayAsChild(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	stack.Main(m)
}

// Canaries: they must be found nowhere but in the streams and in ledger.payloads.
const (
	canaryName = "Canary Birdsong"
	canaryIBAN = "GB33BUKB20201555555555"
	canaryRef  = "canary-reference"
)

const route, source = "gbp-fps", "wallet"

// world is a broker, a database, and a desk with people.
type world struct {
	t       testing.TB
	urls    stack.DatabaseURLs
	natsURL string
	nc      *nats.Conn
	js      jetstream.JetStream
	pool    *pgxpool.Pool
	ledger  *ledger.Ledger
	letters *queue.DeadLetters
	publish *queue.Publisher
	service *operate.Service
	desk    *dead.Desk
	olga    operate.Operator // operator
	oscar   operate.Operator // operator
	ada     operate.Operator // approver
	token   string           // olga's
	agrees  string           // ada's token
}

func limits() operate.Options {
	return operate.Options{Limits: operate.Limits{Counts: map[string]int{"replay": 100, "discard": 100}, Amounts: map[string]int64{"GBP": 10_000_000}}}
}

func newWorld(t testing.TB, opt dead.Options) *world {
	t.Helper()
	if parallel, ok := t.(interface{ Parallel() }); ok {
		parallel.Parallel()
	}
	broker, err := stack.StartNATS(stack.NATSOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Shutdown() })
	return newWorldOn(t, broker.URL(), opt)
}

// startProcess starts a broker whose memory is not ours.
func startProcess(t testing.TB) string {
	t.Helper()
	broker, err := stack.StartNATSProcess(stack.NATSOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Shutdown() })
	return broker.URL()
}

func newWorldOn(t testing.TB, url string, opt dead.Options) *world {
	t.Helper()
	w := &world{t: t, urls: stack.Databases(t), natsURL: url}
	var err error
	w.nc, err = queue.Connect(url, queue.ConnectOptions{Role: queue.RoleOperator})
	w.must(err)
	t.Cleanup(w.nc.Close)
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{route}, AckWait: time.Second})
	w.must(err)
	w.must(queue.Provision(t.Context(), w.nc, topology))
	w.js, err = jetstream.New(w.nc)
	w.must(err)
	w.pool, err = ledger.OpenPool(t.Context(), w.urls.Desk, ledger.Options{MaxConns: 8})
	w.must(err)
	t.Cleanup(w.pool.Close)
	w.ledger, err = ledger.Open(t.Context(), w.urls.Worker, ledger.Options{})
	w.must(err)
	t.Cleanup(w.ledger.Close)
	w.letters, err = queue.NewDeadLetters(w.nc)
	w.must(err)
	w.publish, err = queue.NewPublisher(w.nc, queue.PublisherOptions{})
	w.must(err)
	w.service = operate.New(w.ledger, w.pool, limits())
	w.desk = dead.New(w.letters, w.publish, w.pool, opt)
	w.people()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// people are made as a desk makes them: the owner makes an admin, and everybody else needs another one's approval.
func (w *world) people() {
	w.t.Helper()
	pool, err := ledger.OpenPool(w.t.Context(), w.urls.Owner, ledger.Options{MaxConns: 2})
	w.must(err)
	defer pool.Close()
	owners := operate.New(w.ledger, pool, operate.Options{})
	owner, err := owners.Owner(w.t.Context())
	w.must(err)
	add := func(s *operate.Service, by operate.Operator, name string, role operate.Role) (operate.Operator, string) {
		w.t.Helper()
		act, err := s.AddOperator(w.t.Context(), by, name, []operate.Role{role})
		w.must(err)
		r := operate.Request{By: by, Reason: "joins", Act: act}
		done, err := s.Do(w.t.Context(), r)
		if errors.Is(err, operate.ErrWaiting) {
			_, err = s.Approve(w.t.Context(), w.ada, done.Proposal.ID, done.Proposal.Digest, "known to me")
			w.must(err)
			_, err = s.Do(w.t.Context(), r)
		}
		w.must(err)
		o, err := w.service.Identify(w.t.Context(), act.Token)
		w.must(err)
		return o, act.Token
	}
	adam, _ := add(owners, owner, "adam", operate.RoleAdmin)
	w.ada, w.agrees = add(w.service, adam, "ada", operate.RoleApprover)
	w.olga, w.token = add(w.service, adam, "olga", operate.RoleOperator)
	w.oscar, _ = add(w.service, adam, "oscar", operate.RoleOperator)
}

// payload is a job of 49.00 GBP with canaries in it; change turns it into something else.
func payload(key uuid.UUID, change ...string) []byte {
	text := fmt.Sprintf(`{"v":1,"key":%q,"debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":%q,"iban":%q},"reference":%q}`,
		key, canaryName, canaryIBAN, canaryRef)
	return []byte(strings.NewReplacer(change...).Replace(text))
}

type letter struct {
	payload []byte
	reason  job.Reason
	detail  string
	subject string // route and source; default gbp-fps.wallet
	trace   string
	replays int // before it became this letter
}

// fresh makes n letters of as many withdrawals.
func fresh(n int) (keys []uuid.UUID, letters []letter) {
	for range n {
		key := job.NewKey()
		keys, letters = append(keys, key), append(letters, letter{payload: payload(key)})
	}
	return keys, letters
}

// bury stores letters as a worker does.
func (w *world) bury(letters ...letter) {
	w.t.Helper()
	futures := make([]jetstream.PubAckFuture, 0, len(letters))
	js, err := jetstream.New(w.nc, jetstream.WithPublishAsyncMaxPending(2000))
	w.must(err)
	for i, l := range letters {
		if l.subject == "" {
			l.subject = route + "." + source
		}
		if l.reason == "" {
			l.reason = job.ReasonInvalid
		}
		msg := &nats.Msg{Subject: "withdrawals.dead." + l.subject, Data: l.payload, Header: nats.Header{
			"Paidonce-Reason": {string(l.reason)}, "Paidonce-Detail": {l.detail}, "Paidonce-Deliveries": {"1"}, "Paidonce-Stream-Seq": {strconv.Itoa(i + 1)},
			"Paidonce-First-Seen": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)},
		}}
		if l.replays > 0 {
			msg.Header["Paidonce-Replays"] = []string{strconv.Itoa(l.replays)}
		}
		if l.trace != "" {
			msg.Header["traceparent"] = []string{l.trace}
		}
		future, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(30*time.Second))
		w.must(err)
		futures = append(futures, future)
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			w.t.Fatal(err)
		}
	}
}

func (w *world) list(f dead.Filter) (all []dead.Listed) {
	w.t.Helper()
	for l, err := range w.desk.List(w.t.Context(), f, 0) {
		w.must(err)
		all = append(all, l)
	}
	return all
}

func (w *world) freeze(f dead.Filter) *dead.Plan {
	w.t.Helper()
	act := w.desk.Freeze(f)
	_, err := w.service.Do(w.t.Context(), operate.Request{By: w.olga, Reason: "triage", Act: act})
	w.must(err)
	plan, err := w.desk.Plan(w.t.Context(), act.Plan.ID)
	w.must(err)
	return plan
}

func (w *world) do(by operate.Operator, act operate.Act) (operate.Done, error) {
	return w.service.Do(w.t.Context(), operate.Request{By: by, Reason: "ticket 5", Act: act})
}

func (w *world) replay(p *dead.Plan) (*dead.Replay, operate.Done, error) {
	w.t.Helper()
	act, err := w.desk.Replay(w.t.Context(), p, 0)
	w.must(err)
	done, err := w.do(w.olga, act)
	return act, done, err
}

// agreed has another person agree to what olga asks for, and then does it.
func (w *world) agreed(act operate.Act) (operate.Done, error) {
	w.t.Helper()
	done, err := w.do(w.olga, act)
	if !errors.Is(err, operate.ErrWaiting) {
		w.t.Fatalf("%s: %v, want to wait for another person", act.Name(), err)
	}
	_, err = w.service.Approve(w.t.Context(), w.ada, done.Proposal.ID, done.Proposal.Digest, "compared with the letter")
	w.must(err)
	return w.do(w.olga, act)
}

// one reads one value as the superuser.
func (w *world) one(into any, sql string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.urls.Superuser)
	w.must(err)
	defer func() { _ = conn.Close(context.Background()) }()
	w.must(conn.QueryRow(w.t.Context(), sql, args...).Scan(into))
}

// jobs reads the stream of jobs.
func (w *world) jobs() (all []*jetstream.RawStreamMsg) {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), queue.StreamJobs)
	w.must(err)
	for next := uint64(1); ; {
		raw, err := stream.GetMsg(w.t.Context(), next, jetstream.WithGetMsgSubject("withdrawals.jobs.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all
		}
		w.must(err)
		all = append(all, raw)
		next = raw.Sequence + 1
	}
}

// bank is a worker as small as can be: claims, "sends" once, records. It says how often each key was sent.
type bank struct {
	w      *world
	mu     sync.Mutex
	sent   map[uuid.UUID]int
	refuse func(job.Job) bool // such jobs become dead letters
	seen   int
}

func (w *world) work(refuse func(job.Job) bool) *bank {
	w.t.Helper()
	b := &bank{w: w, sent: map[uuid.UUID]int{}, refuse: refuse}
	nc, err := queue.Connect(w.natsURL, queue.ConnectOptions{Role: queue.RoleWorker})
	w.must(err)
	letters, err := queue.NewDeadLetters(nc)
	w.must(err)
	consumer, err := queue.NewConsumer(nc, letters, route, &slots{free: make(chan struct{}, 64)}, b.handle, queue.ConsumerOptions{AckWait: time.Second})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended; nc.Close() })
	return b
}

func (b *bank) handle(ctx context.Context, d *queue.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen++
	origin := d.Origin()
	j, err := job.Decode(origin.Source, origin.Route, d.Payload())
	var fault *job.Fault
	if errors.As(err, &fault) {
		d.Dead(fault.Reason, fault.Error())
		return
	}
	if b.refuse != nil && b.refuse(j) {
		d.Dead(job.ReasonInvalid, "refused by a limit")
		return
	}
	answer := b.w.ledger.Claim(ctx, []ledger.Wish{{
		Key: j.Key, Fingerprint: j.Fingerprint(), Source: j.Source, Route: j.Route, DebtorAccount: j.DebtorAccount.Reveal(), Amount: j.Amount,
		Payload: d.Payload(), PublishedAt: origin.PublishedAt, TraceParent: origin.TraceParent,
		Intention: ledger.Intention{Partner: "northbank", Credential: "1", Endpoint: "POST /", Renderer: 1, PartnerKey: j.Key.String(), EndToEndID: "e"},
	}})[0]
	switch {
	case answer.Err != nil:
		d.Retry(100 * time.Millisecond)
		return
	case answer.Answer == ledger.Conflict:
		d.Dead(job.ReasonKeyReused, "the key belongs to another job")
		return
	case answer.Answer == ledger.Claimed && answer.InDoubt: // the partner would be asked first
		b.w.ledger.Record(ctx, []ledger.Record{ledger.Schedule(answer.Claim, true, time.Hour)})
	case answer.Answer == ledger.Claimed:
		b.sent[j.Key]++
		b.w.ledger.Record(ctx, []ledger.Record{ledger.Authorize(answer.Claim, "tr_"+j.Key.String(),
			ledger.Fact{Kind: ledger.FactVerdict, Verdict: "authorized", TransferID: "tr_" + j.Key.String()})})
	}
	d.Done()
}

func (b *bank) sends(key uuid.UUID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[key]
}

func (b *bank) deliveries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

type slots struct{ free chan struct{} }

func (s *slots) Acquire(ctx context.Context, most int) (int, error) {
	select {
	case s.free <- struct{}{}:
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s *slots) Release(n int) {
	for range n {
		<-s.free
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); { // a bound on hanging, not on speed
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// forge runs a statement without the guards.
func (w *world) forge(sql string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.urls.Superuser)
	w.must(err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(w.t.Context(), `SET session_replication_role = replica`)
	w.must(err)
	_, err = conn.Exec(w.t.Context(), sql)
	w.must(err)
}

// policy takes GBP on the one route, from the one source.
func policy() *dead.Policy {
	return &dead.Policy{Routes: map[string]map[string]int64{route: {"GBP": dead.NoLimit}}, Sources: map[string][]string{source: {route}}}
}
