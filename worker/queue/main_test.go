package queue

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/job"
)

// serverEnv makes the test binary a NATS server: "<port>,<store directory>". A crash is a SIGKILL of that process.
const serverEnv = "PAIDONCE_TEST_NATS_SERVER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(serverEnv); spec != "" {
		if err := serve(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// Every test has a server of its own and mostly waits for it. The flag's default is the number of processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func serve(spec string) error {
	portText, store, _ := strings.Cut(spec, ",")
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: store, SyncAlways: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("server is not ready")
	}
	fmt.Println(s.ClientURL())
	s.WaitForShutdown()
	return nil
}

// child is a server in its own process.
type child struct {
	t     testing.TB
	store string
	url   string
	cmd   *exec.Cmd
}

func startChild(t testing.TB) *child {
	t.Helper()
	c := &child{t: t, store: t.TempDir()}
	port, err := stack.FreePort() // nobody takes it while the server is being started again
	if err != nil {
		t.Fatal(err)
	}
	c.start(port)
	t.Cleanup(c.kill)
	return c
}

func (c *child) start(port int) {
	c.t.Helper()
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(os.Environ(), serverEnv+"="+strconv.Itoa(port)+","+c.store)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.t.Fatalf("child server: %v", err)
	}
	c.url = strings.TrimSpace(line)
}

func (c *child) kill() {
	if c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// crash kills the server with SIGKILL and starts it again on the same port and store.
func (c *child) crash() {
	c.t.Helper()
	port, err := strconv.Atoi(c.url[strings.LastIndex(c.url, ":")+1:])
	if err != nil {
		c.t.Fatal(err)
	}
	c.kill()
	c.start(port)
}

func startServer(t testing.TB) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(t.TempDir(), "js"), SyncAlways: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func connect(t testing.TB, url string, role Role) *nats.Conn {
	t.Helper()
	nc, err := Connect(url, ConnectOptions{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// rig is a server with the topology and a connection for each direction.
type rig struct {
	t       testing.TB
	url     string
	pub     *nats.Conn
	sub     *nats.Conn
	js      jetstream.JetStream
	dead    *DeadLetters
	publish *Publisher
}

const testRoute, testSource = "gbp-fps", "wallet"

func newRig(t testing.TB, opts TopologyOptions) *rig {
	return newRigAt(t, startServer(t).ClientURL(), opts)
}

func newRigAt(t testing.TB, url string, opts TopologyOptions) *rig {
	t.Helper()
	if opts.Routes == nil {
		opts.Routes = []string{testRoute}
	}
	topology, err := NewTopology(opts)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, url: url, pub: connect(t, url, RoleGateway), sub: connect(t, url, RoleWorker)}
	if err := Provision(ctxOf(t), r.pub, topology); err != nil {
		t.Fatal(err)
	}
	if r.js, err = jetstream.New(r.pub); err != nil {
		t.Fatal(err)
	}
	if r.dead, err = NewDeadLetters(r.pub); err != nil {
		t.Fatal(err)
	}
	if r.publish, err = NewPublisher(r.pub, PublisherOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs a consumer until the returned function is called, which returns what Run returned.
func (r *rig) run(intake Intake, handle Handler, opts ConsumerOptions) (stop func() error) {
	r.t.Helper()
	if opts.AckWait == 0 {
		opts.AckWait = time.Second
	}
	c, err := NewConsumer(r.sub, r.dead, testRoute, intake, handle, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	stop = start(c.Run)
	r.t.Cleanup(func() { _ = stop() })
	return stop
}

// start starts what runs until the returned function is called, which returns what it returned.
func start(run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	return sync.OnceValue(func() error { cancel(); return <-result })
}

func (r *rig) deadLetters() []DeadLetter {
	r.t.Helper()
	var all []DeadLetter
	for l, err := range r.dead.List(ctxOf(r.t), DeadFilter{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// pending says how many jobs of the test route are not acknowledged.
func (r *rig) pending() (undelivered, unacknowledged int) {
	r.t.Helper()
	c, err := r.js.Consumer(ctxOf(r.t), StreamJobs, ConsumerName(testRoute))
	if err != nil {
		r.t.Fatal(err)
	}
	return int(c.CachedInfo().NumPending), c.CachedInfo().NumAckPending
}

// settled says whether every message of the jobs stream is acknowledged or terminated, provided that all are of the test route. The
// counts of the consumer would do only a moment after a publish.
func (r *rig) settled() bool {
	r.t.Helper()
	s, err := r.js.Stream(ctxOf(r.t), StreamJobs)
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := s.Consumer(ctxOf(r.t), ConsumerName(testRoute))
	if err != nil {
		r.t.Fatal(err)
	}
	return c.CachedInfo().AckFloor.Stream == s.CachedInfo().State.LastSeq
}

func (r *rig) rawPublish(subject string, header nats.Header, payload []byte) uint64 {
	r.t.Helper()
	ack, err := r.js.PublishMsg(ctxOf(r.t), &nats.Msg{Subject: subject, Header: header, Data: payload})
	if err != nil {
		r.t.Fatal(err)
	}
	return ack.Sequence
}

// slots is an intake of n slots that remembers its greatest use.
type slots struct {
	free chan struct{}
}

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n)}
	s.Release(n)
	return s
}

func (s *slots) Acquire(ctx context.Context, max int) (int, error) {
	select {
	case <-s.free:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	n := 1
	for ; n < max; n++ {
		select {
		case <-s.free:
		default:
			return n, nil
		}
	}
	return n, nil
}

func (s *slots) Release(n int) {
	for range n {
		s.free <- struct{}{}
	}
}

// closed is the intake of a partner whose breaker is open.
type closed struct{}

func (closed) Acquire(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
func (closed) Release(int)                                     {}

// message is a well-formed job of the test source.
func message(key uuid.UUID) Message {
	return Message{Source: testSource, Route: testRoute, Key: key, Payload: []byte(`{"v":1,"key":"` + key.String() +
		`","debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`)}
}

func messages(n int) []Message {
	ms := make([]Message, n)
	for i := range ms {
		ms[i] = message(job.NewKey())
	}
	return ms
}

func (r *rig) enqueue(n int) {
	r.t.Helper()
	for _, result := range r.publish.PublishMany(ctxOf(r.t), messages(n)) {
		if result.Err != nil {
			r.t.Fatal(result.Err)
		}
	}
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a bound on hanging, not on speed
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute) // a bound on hanging, not on speed
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("not within two minutes: %s", what)
		case <-tick.C:
		}
	}
}

// atSomePace runs a test of what holds on a machine that keeps pace with the ack wait. One that is slow, or busy with something else for a moment,
// may need a longer wait for it to hold; what is broken holds at no pace.
func atSomePace(t *testing.T, ackWait time.Duration, test func(t *testing.T, ackWait time.Duration) error) {
	t.Helper()
	for _, wait := range []time.Duration{ackWait, 4 * ackWait, 12 * ackWait} {
		err := test(t, wait)
		if err == nil {
			return
		}
		if t.Logf("ack wait of %s: %v", wait, err); wait == 12*ackWait {
			t.Error("it holds at no pace")
		}
	}
}

// stays polls for a while that a condition keeps holding.
func stays(t testing.TB, what string, d time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if !holds() {
			t.Fatalf("does not stay: %s", what)
		}
		select {
		case <-deadline.C:
			return
		case <-tick.C:
		}
	}
}
