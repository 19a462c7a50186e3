package queue

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/job"
)

const deployDir = "../../deploy/nats"

// deployment is a copy of the files of deploy/nats with keys in it.
type deployment struct {
	dir   string
	seeds map[Role]string // files
}

func newDeployment(t *testing.T) deployment {
	t.Helper()
	d := deployment{dir: t.TempDir(), seeds: make(map[Role]string)}
	for _, name := range []string{"accounts.conf", "roles.conf", "server.conf"} {
		text, err := os.ReadFile(filepath.Join(deployDir, name))
		if err != nil {
			t.Fatal(err)
		}
		d.write(t, name, text)
	}
	example, err := os.ReadFile(filepath.Join(deployDir, "nkeys.conf.example"))
	if err != nil {
		t.Fatal(err)
	}
	var filled strings.Builder
	for line := range strings.Lines(string(example)) {
		name, _, isKey := strings.Cut(line, " = ")
		if !isKey || strings.HasPrefix(line, "#") {
			continue
		}
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		seed, err := pair.Seed()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&filled, "%s = %q\n", name, public)
		role, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(name, "NKEY_")), "_")
		d.seeds[Role(role)] = d.write(t, role+".seed", seed)
	}
	d.write(t, "nkeys.conf", []byte(filled.String()))
	return d
}

func (d deployment) write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (d deployment) serve(t *testing.T, conf string) *server.Server {
	t.Helper()
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func (d deployment) connect(t *testing.T, url string, role Role, pool *x509.CertPool) *nats.Conn {
	t.Helper()
	opts := ConnectOptions{Role: role, NKeySeedFile: d.seeds[role]}
	if role == RolePublisher {
		opts.Source = "wallet"
	}
	if pool != nil {
		opts.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	nc, err := Connect(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// guarded is a server with the roles of production, and a topology that the provisioner has made.
func guarded(t *testing.T) (d deployment, url string) {
	t.Helper()
	d = newDeployment(t)
	conf := d.write(t, "test.conf", fmt.Appendf(nil,
		"listen: \"127.0.0.1:-1\"\ninclude ./accounts.conf\njetstream { store_dir: %q, sync_interval: always }\n", filepath.Join(d.dir, "js")))
	s := d.serve(t, conf)
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	topology, err := NewTopology(TopologyOptions{Routes: []string{testRoute}, AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	provisioner := d.connect(t, s.ClientURL(), RoleProvisioner, nil)
	for range 2 { // creates, and updates
		if err := Provision(ctxOf(t), provisioner, topology); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []Role{RoleProvisioner, RoleOperator} { // doctor
		found, err := Inspect(ctxOf(t), d.connect(t, s.ClientURL(), role, nil))
		if err != nil {
			t.Fatal(err)
		}
		if diffs := Compare(topology, found); len(diffs) != 0 {
			t.Errorf("%s finds differences %v", role, diffs)
		}
	}
	return d, s.ClientURL()
}

// TestRoles_EachRoleCanDoItsWork walks a job through all of them.
func TestRoles_EachRoleCanDoItsWork(t *testing.T) {
	d, url := guarded(t)
	publisher, err := NewPublisher(d.connect(t, url, RolePublisher, nil), PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range publisher.PublishMany(ctxOf(t), messages(3)) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	gateway, err := NewPublisher(d.connect(t, url, RoleGateway, nil), PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stray := message(job.NewKey())
	stray.Route, stray.Source = "unknown", "shop"
	if _, err := gateway.Publish(ctxOf(t), stray); err != nil {
		t.Fatal(err)
	}

	dead, err := NewDeadLetters(d.connect(t, url, RoleWorker, nil))
	if err != nil {
		t.Fatal(err)
	}
	consuming := d.connect(t, url, RoleWorker, nil)
	var seen tally
	consumer, err := NewConsumer(consuming, dead, testRoute, newSlots(3), func(_ context.Context, d *Delivery) {
		if seen.saw(d); d.Origin().Sequence == 1 {
			d.Dead(job.ReasonInvalid, "test")
			return
		}
		<-time.After(1500 * time.Millisecond) // longer than the ack wait
		d.Done()
	}, ConsumerOptions{AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	strays, err := NewStrays(consuming, dead, StraysOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strays.Pass(ctxOf(t)); n != 1 || err != nil {
		t.Errorf("strays: %d, %v", n, err)
	}
	b := &box{}
	b.put("key", 2)
	publishing := d.connect(t, url, RoleWorker, nil)
	relay, err := NewRelay(publishing, b, RelayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := relay.round(ctxOf(t)); n != 1 || err != nil {
		t.Errorf("relay: %d, %v", n, err)
	}
	if _, err := LastEvents(ctxOf(t), publishing, 1); err != nil {
		t.Errorf("last events: %v", err)
	}

	operator := d.connect(t, url, RoleOperator, nil)
	stop := start(consumer.Run)
	js, err := jetstream.New(operator)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all three settled", func() bool {
		c, err := js.Consumer(ctxOf(t), StreamJobs, ConsumerName(testRoute))
		return err == nil && c.CachedInfo().AckFloor.Stream == 3
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if jobs, deliveries := seen.counts(); jobs != 3 || deliveries != 3 {
		t.Errorf("%d jobs in %d deliveries, want 3 in 3", jobs, deliveries)
	}

	events, err := js.Stream(ctxOf(t), StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.GetMsg(ctxOf(t), 1); err != nil {
		t.Errorf("the operator reads no event: %v", err)
	}
	reader, err := NewDeadLetters(operator)
	if err != nil {
		t.Fatal(err)
	}
	letters := 0
	for _, err := range reader.List(ctxOf(t), DeadFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		letters++
	}
	for letter, err := range reader.Scan(ctxOf(t), DeadFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if read, err := reader.Read(ctxOf(t), []uint64{letter.Sequence}); err != nil || read[0].Sequence != letter.Sequence {
			t.Errorf("read of %v: %v, %v", letter, read, err)
		}
		letters++
	}
	replayer, err := NewPublisher(operator, PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replayer.Replay(ctxOf(t), message(keyOne), 1); err != nil || letters != 4 {
		t.Errorf("%d letters, replay: %v", letters, err)
	}
	if held, err := replayer.Holds(ctxOf(t), 5, message(keyOne)); err != nil || !held {
		t.Errorf("the replay is not in the stream: %v", err)
	}
	janitor, err := NewJanitor(operator, JanitorOptions{Window: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if report, err := janitor.Pass(ctxOf(t)); err != nil || report.Removed != 3 || report.Unserved["withdrawals.jobs.unknown.shop"] != 1 {
		t.Errorf("janitor: %+v, %v", report, err)
	}
}

// TestRoles_NobodyCanDoMore tries what each role must not do. A denial shows as an error of the connection.
func TestRoles_NobodyCanDoMore(t *testing.T) {
	d, url := guarded(t)
	const next, ack = "$JS.API.CONSUMER.MSG.NEXT.WITHDRAWALS.route_gbp-fps", "$JS.ACK.WITHDRAWALS.route_gbp-fps.1.1.1.1700000000000000000.0"
	publishes := map[Role][]string{
		RolePublisher: {
			"withdrawals.jobs.gbp-fps.shop", "withdrawals.jobs.eur-sct.wallet", "withdrawals.dead.gbp-fps.wallet",
			"withdrawals.events.gbp-fps.wallet.settled", next, ack, "$JS.API.STREAM.INFO.WITHDRAWALS", "$JS.API.STREAM.MSG.GET.WITHDRAWALS",
			"$JS.API.DIRECT.GET.WITHDRAWALS", "$JS.API.STREAM.PURGE.WITHDRAWALS", "$JS.API.CONSUMER.CREATE.WITHDRAWALS", "$JS.API.INFO",
			"_INBOX_worker.forged", "_INBOX_publisher.shop.forged", "$SYS.REQ.USER.INFO",
		},
		RoleGateway: {
			"withdrawals.jobs.gbp-fps", "withdrawals.dead.gbp-fps.wallet", "withdrawals.events.gbp-fps.wallet.settled", next, ack,
			"$JS.API.STREAM.MSG.GET.WITHDRAWALS", "$JS.API.STREAM.PURGE.WITHDRAWALS", "_INBOX_worker.forged",
		},
		RoleWorker: {
			"withdrawals.jobs.gbp-fps.wallet", "$JS.API.CONSUMER.CREATE.WITHDRAWALS", "$JS.API.CONSUMER.CREATE.WITHDRAWALS.route_gbp-fps",
			"$JS.API.CONSUMER.DURABLE.CREATE.WITHDRAWALS.route_gbp-fps", "$JS.API.CONSUMER.DELETE.WITHDRAWALS.route_gbp-fps",
			"$JS.API.CONSUMER.PAUSE.WITHDRAWALS.route_gbp-fps", "$JS.API.STREAM.CREATE.OTHER", "$JS.API.STREAM.UPDATE.WITHDRAWALS",
			"$JS.API.STREAM.DELETE.WITHDRAWALS", "$JS.API.STREAM.PURGE.WITHDRAWALS", "$JS.API.STREAM.MSG.DELETE.WITHDRAWALS",
			"$JS.API.STREAM.PURGE.WITHDRAWAL_DEAD", "$JS.API.STREAM.MSG.DELETE.WITHDRAWAL_DEAD", "_INBOX_gateway.forged",
		},
		RoleOperator: {
			next, ack, "$JS.ACK._.hash.WITHDRAWALS.route_gbp-fps.1.1.1.1700000000000000000.0.tok", "$JS.API.STREAM.DELETE.WITHDRAWALS",
			"$JS.API.STREAM.PURGE.WITHDRAWAL_DEAD", "$JS.API.STREAM.PURGE.WITHDRAWAL_EVENTS", "$JS.API.STREAM.MSG.DELETE.WITHDRAWALS",
			"$JS.API.CONSUMER.CREATE.WITHDRAWALS", "$JS.API.STREAM.UPDATE.WITHDRAWALS", "withdrawals.dead.gbp-fps.wallet",
			"withdrawals.events.gbp-fps.wallet.settled", "$JS.API.STREAM.MSG.DELETE.WITHDRAWAL_DEAD", "$JS.API.STREAM.UPDATE.WITHDRAWAL_DEAD",
			"$JS.API.STREAM.DELETE.WITHDRAWAL_DEAD", "withdrawals.jobs.gbp-fps", "withdrawals.jobs.gbp-fps.wallet.more",
		},
		RoleProvisioner: {
			"withdrawals.jobs.gbp-fps.wallet", next, ack, "$JS.API.STREAM.DELETE.WITHDRAWALS", "$JS.API.STREAM.PURGE.WITHDRAWALS",
			"$JS.API.CONSUMER.DELETE.WITHDRAWALS.route_gbp-fps", "$JS.API.STREAM.MSG.GET.WITHDRAWALS", "$JS.API.STREAM.CREATE.OTHER",
		},
	}
	subscribes := []string{">", "withdrawals.>", "withdrawals.jobs.gbp-fps.wallet", "_INBOX.>", "$JS.>", "$JS.EVENT.ADVISORY.>", "$SYS.>", "*.>"}
	for role, subjects := range publishes {
		t.Run(string(role), func(t *testing.T) {
			nc := d.connect(t, url, role, nil)
			for _, subject := range subjects {
				denied(t, nc, "Publish to", subject, func() error { return nc.Publish(subject, nil) })
			}
			foreign := append([]string{}, subscribes...)
			for _, other := range []Role{RolePublisher, RoleGateway, RoleWorker, RoleOperator, RoleProvisioner} {
				if other != role {
					foreign = append(foreign, InboxPrefix(other, "")+".>")
				}
			}
			for _, subject := range append(foreign, InboxPrefix(RolePublisher, "shop")+".>") {
				denied(t, nc, "Subscription to", subject, func() error { _, err := nc.SubscribeSync(subject); return err })
			}
		})
	}
}

// denied does something and waits for the server to say no to just that.
func denied(t *testing.T, nc *nats.Conn, what, subject string, do func() error) {
	t.Helper()
	errs := make(chan error, 16)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err })
	if err := do(); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-errs:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), what+` "`+subject+`"`) {
			t.Errorf("%s %s: %v, want a denial", what, subject, err)
		}
	case <-time.After(time.Minute): // a bound on hanging: a denial is certain to come
		t.Errorf("%s %s is allowed", what, subject)
	}
}

func TestRoles_PlaceholdersAreRefused(t *testing.T) {
	d := newDeployment(t)
	example, err := os.ReadFile(filepath.Join(deployDir, "nkeys.conf.example"))
	if err != nil {
		t.Fatal(err)
	}
	d.write(t, "nkeys.conf", example)
	if _, err := server.ProcessConfigFile(filepath.Join(d.dir, "accounts.conf")); err == nil {
		t.Error("a server starts on placeholders")
	}
}

// TestProduction_ThreeServersLoseOneAndGoOn runs the production configuration, as it is, three times.
func TestProduction_ThreeServersLoseOneAndGoOn(t *testing.T) {
	d := newDeployment(t)
	pool := d.certificates(t)
	ports := freePorts(t, 3)
	t.Setenv("NATS_ROUTES", fmt.Sprintf("[nats-route://127.0.0.1:%d, nats-route://127.0.0.1:%d, nats-route://127.0.0.1:%d]", ports[0], ports[1], ports[2]))
	var servers []*server.Server
	var urls []string
	for i, port := range ports {
		t.Setenv("NATS_NODE", fmt.Sprintf("nats-%d", i+1))
		t.Setenv("NATS_STORE", filepath.Join(d.dir, fmt.Sprintf("js%d", i)))
		t.Setenv("NATS_LISTEN", `"127.0.0.1:-1"`)
		t.Setenv("NATS_CLUSTER_LISTEN", fmt.Sprintf(`"127.0.0.1:%d"`, port))
		servers = append(servers, d.serve(t, filepath.Join(d.dir, "server.conf")))
	}
	for _, s := range servers {
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("server is not ready")
		}
		if !s.JetStreamConfig().SyncAlways {
			t.Error("a confirmed job is not on disk")
		}
		urls = append(urls, s.ClientURL())
	}
	url := strings.Join(urls, ",")
	topology, err := NewTopology(TopologyOptions{Routes: []string{testRoute}, Replicas: 3, AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	provisioner := d.connect(t, url, RoleProvisioner, pool)
	eventually(t, "provisioned", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		return Provision(ctx, provisioner, topology) == nil
	})
	publisher, err := NewPublisher(d.connect(t, url, RolePublisher, pool), PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := NewDeadLetters(d.connect(t, url, RoleWorker, pool))
	if err != nil {
		t.Fatal(err)
	}
	var seen tally
	c, err := NewConsumer(d.connect(t, url, RoleWorker, pool), dead, testRoute, newSlots(50), func(_ context.Context, d *Delivery) { seen.saw(d); d.Done() },
		ConsumerOptions{AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stop := start(c.Run)
	publish := func(n int) {
		t.Helper()
		for _, result := range publisher.PublishMany(ctxOf(t), messages(n)) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
	}
	publish(200)
	servers[0].Shutdown()
	publish(200)
	eventually(t, "all worked", func() bool { jobs, _ := seen.counts(); return jobs == 400 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// certificates makes the files that server.conf names, with one certificate for all, and returns who signed them.
func (d deployment) certificates(t *testing.T) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nats"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	d.write(t, "tls/server.pem", cert)
	d.write(t, "tls/ca.pem", cert)
	d.write(t, "tls/server.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	// The paths in server.conf are relative to where the server is started.
	t.Chdir(d.dir)
	return pool
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		port, err := stack.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}
