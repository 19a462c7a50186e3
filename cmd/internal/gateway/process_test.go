package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/integration/stack/bank"
	"github.com/paidonce/paidonce/worker/queue"
)

// town is real services around gateways that run as `paidonce gateway` does.
type town struct {
	*city
	nats   *stack.NATSProcess
	bank   *bank.Bank
	gate   *gate // how the gateway under test is reached
	health string
	file   string
}

// newTown starts a broker and a calm bank. database is "" for the tests' own Postgres.
func newTown(t *testing.T, database string) *town {
	t.Helper()
	c := newCity(t)
	broker := stack.BrokerProcess(t, stack.NATSOptions{})
	simulator := bank.Calm(t)
	if database == "" {
		database = c.urls.Worker
	}
	address := stack.FreeAddress(t)
	w := &town{city: c, nats: broker, bank: simulator, health: stack.FreeAddress(t), gate: &gate{city: c, url: "http://" + address}}
	w.configure(database, address)
	w.provision()
	return w
}

func (w *town) configure(database, address string) {
	w.t.Helper()
	dir := w.t.TempDir()
	w.file = filepath.Join(dir, "paidonce.yaml")
	for name, text := range map[string]string{
		"bank": "bank-token\n", "wallet": "# rotated in spring\n" + walletToken + "\n\nthe-next-token-of-the-wallet\n",
		"paidonce.yaml": fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 4, accept_loss: true }
worker: { in_flight: 256, sweep_every: 100ms, lease: 90s, shutdown_grace: 70s }
partners:
  northbank: { adapter: reference, base_url: %q, credential_id: c1, token_file: %q, timeout: 60s, max_in_flight: 256 }
routes: { gbp-fps: { partner: northbank, currencies: [GBP], max_amount: "250000.00" } }
sources: { wallet: { routes: [gbp-fps], token_file: %q } }
health: { listen: %q }
gateway: { listen: %q, intake_grace: 1s }
`, w.nats.URL(), database, w.bank.URL, filepath.Join(dir, "bank"), filepath.Join(dir, "wallet"), w.health, address)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *town) provision() {
	w.t.Helper()
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{"gbp-fps"}, MaxAckPending: 16 * 2 * 256})
	if err != nil {
		w.t.Fatal(err)
	}
	nc, err := queue.Connect(w.nats.URL(), queue.ConnectOptions{Role: queue.RoleProvisioner})
	if err != nil {
		w.t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := queue.Provision(ctx, nc, topology); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a gateway (or both) inside this process until the returned function is called.
func (w *town) run(what string, opts app.GatewayOptions) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runGateway(ctx, w.file, what, opts) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("%s ended with %v", what, err)
		}
	})
	w.t.Cleanup(stop)
	w.awaitDoor()
	return stop
}

func (w *town) awaitDoor() {
	w.t.Helper()
	stack.Eventually(w.t, "the gateway listens", func() bool {
		a, err := w.gate.ask("GET", "/openapi.json", nil, "")
		return err == nil && a.status == http.StatusOK
	})
}

// insist repeats one request as an upstream system must: until it has an answer that is no 503.
func (w *town) insist(key string, more ...string) answer {
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := w.gate.ask("POST", "/v1/withdrawals", wallet(key, more...), body)
		if err == nil && a.status != http.StatusServiceUnavailable {
			return a
		}
		select {
		case <-deadline:
			w.t.Errorf("%s: no answer within three minutes: %d, %v", key, a.status, err)
			return a
		case <-tick.C:
		}
	}
}

// message is what matters of one stored message.
type message struct {
	subject, id, key string
	kind             string // of an event
}

// stored reads a whole stream.
func (w *town) stored(stream string) []message {
	w.t.Helper()
	nc, err := nats.Connect(w.nats.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []message
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq && seq > 0; seq++ {
		raw, err := s.GetMsg(ctx, seq)
		if err != nil {
			w.t.Fatal(err)
		}
		var inside struct {
			Key  string `json:"key"`
			Type string `json:"type"`
		}
		if err := json.Unmarshal(raw.Data, &inside); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, message{subject: raw.Subject, id: raw.Header.Get("Nats-Msg-Id"), key: inside.Key, kind: inside.Type})
	}
	return all
}

func (w *town) count(sql string, args ...any) int {
	w.t.Helper()
	w.mu.Lock() // one connection
	defer w.mu.Unlock()
	var n int
	if err := w.conn.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestGatewayIsKilledAtEachStep: whoever insists gets an answer; each key is one operation and one message, and nothing waits for ever.
func TestGatewayIsKilledAtEachStep(t *testing.T) {
	w := newTown(t, "")
	total := 0
	for _, step := range []string{beforeCommit, beforeAnswer, beforePublish, beforeMark, afterMark} {
		dying := startGatewayProcess(t, w.file, "gateway", step, 2)
		w.awaitDoor()
		keys := make([]string, 12)
		for i := range keys {
			keys[i] = newKey()
		}
		var callers sync.WaitGroup
		for half := range 2 {
			callers.Go(func() {
				for _, key := range keys[half*6 : half*6+6] { // one after the other, so that they come in several batches
					if a := w.insist(key); a.status != http.StatusAccepted || a.Key != key {
						t.Errorf("%s: %d %s", step, a.status, a.text)
					}
					stack.Eventually(t, "published, or dead", func() bool {
						return w.count(`SELECT count(*) FROM unpublished_jobs`) == 0 || !dying.lives()
					})
				}
			})
		}
		dying.wasKilled(t)
		next := startGatewayProcess(t, w.file, "gateway", never, 0)
		callers.Wait()
		stack.Eventually(t, "published after "+step, func() bool { return w.count(`SELECT count(*) FROM unpublished_jobs`) == 0 })
		next.stop(t)
		total += len(keys)
		w.wantCount(total, "operations after "+step, `SELECT count(*) FROM operations WHERE state = 'open' AND fence = 0`)
		w.wantCount(total, "events after "+step, `SELECT count(*) FROM outbox WHERE type = 'accepted'`)
		w.wantCount(total, "due after "+step, `SELECT count(*) FROM due`)
	}
	seen := map[string]int{}
	for _, m := range w.stored(queue.StreamJobs) {
		seen[m.key]++
		if m.subject != "withdrawals.jobs.gbp-fps.wallet" || !strings.HasPrefix(m.id, "wallet:"+m.key+":") {
			t.Errorf("message %+v", m)
		}
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s was stored %d times within the broker's window", key, n)
		}
	}
	if len(seen) != total {
		t.Errorf("%d keys were published, want %d", len(seen), total)
	}
}

// TestL4_EventsComeOncePerIDAndInOrder, although gateway and worker in one process were killed between commit and publish.
func TestL4_EventsComeOncePerIDAndInOrder(t *testing.T) {
	w := newTown(t, "")
	dying := startGatewayProcess(t, w.file, "both", beforeAnswer, 3)
	w.awaitDoor()
	keys := make([]string, 8)
	var callers sync.WaitGroup
	for i := range keys {
		keys[i] = newKey()
		callers.Go(func() { w.insist(keys[i]) })
	}
	dying.wasKilled(t)
	next := startGatewayProcess(t, w.file, "both", never, 0)
	callers.Wait()
	for _, key := range keys {
		a := w.insist(key, "Prefer", "wait=30")
		for tries := 0; a.State != "authorized" && tries < 8; tries++ { // what the killed one had claimed is free after its lease of 90 s
			a = w.insist(key, "Prefer", "wait=30")
		}
		if a.State != "authorized" {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	stack.Eventually(t, "all events published", func() bool { return w.count(`SELECT count(*) FROM outbox`) == 0 })
	next.stop(t)
	ids, kinds := map[string]int{}, map[string]string{}
	for _, m := range w.stored(queue.StreamEvents) {
		ids[m.id]++
		kinds[m.key] += m.kind + " "
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("event %s came %d times", id, n)
		}
	}
	for _, key := range keys {
		if kinds[key] != "accepted authorized " || ids[key+".accepted"] != 1 {
			t.Errorf("%s: events %q", key, kinds[key])
		}
	}
	if s := w.bank.Summary(); s.KeysTwice != 0 || s.KeysExecuted != int64(len(keys)) {
		t.Errorf("bank: %+v", s)
	}
}

// TestNATSAway_NothingIsLostAndTheSweepTakesOver: accepted while the broker is away, authorized by the sweep after the grace, published when
// it is back, and paid once.
func TestNATSAway_NothingIsLostAndTheSweepTakesOver(t *testing.T) {
	w := newTown(t, "")
	w.run("both", app.GatewayOptions{Patience: time.Second})
	if a := w.insist(newKey(), "Prefer", "wait=30"); a.status != http.StatusCreated {
		t.Fatalf("before: %d %s", a.status, a.text)
	}
	stack.Eventually(t, "it is published too", func() bool { return w.count(`SELECT count(*) FROM unpublished_jobs`) == 0 }) // the sweep may have been first
	w.nats.Kill()
	keys := make([]string, 30)
	var callers sync.WaitGroup
	for i := range keys {
		keys[i] = newKey()
		callers.Go(func() {
			if a := w.insist(keys[i], "Prefer", "wait=30"); a.status != http.StatusCreated || a.State != "authorized" {
				t.Errorf("while it is away: %d %s", a.status, a.text)
			}
		})
	}
	callers.Wait()
	w.wantCount(len(keys), "jobs that wait for the broker", `SELECT count(*) FROM unpublished_jobs`)
	if err := w.nats.Restart(); err != nil {
		t.Fatal(err)
	}
	stack.Eventually(t, "jobs and events published", func() bool {
		return w.count(`SELECT (SELECT count(*) FROM unpublished_jobs) + (SELECT count(*) FROM outbox)`) == 0
	})
	jobs := map[string]bool{}
	for _, m := range w.stored(queue.StreamJobs) {
		jobs[m.key] = true
	}
	events := map[string]string{}
	for _, m := range w.stored(queue.StreamEvents) {
		events[m.key] += m.kind + " "
	}
	for _, key := range keys {
		if !jobs[key] || events[key] != "accepted authorized " {
			t.Errorf("%s: published %v, events %q", key, jobs[key], events[key])
		}
		if a := w.insist(key); a.status != http.StatusOK || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s later: %d", key, a.status)
		}
	}
	if s := w.bank.Summary(); s.Creates != 31 || s.KeysTwice != 0 || s.KeysExecuted != 31 {
		t.Errorf("bank: %+v, want 31 creates", s)
	}
}

// TestPostgresAway_NothingIsAcceptedThatIsNotDurable, and the same request is accepted when it is back.
func TestPostgresAway_NothingIsAcceptedThatIsNotDurable(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := stack.StartPostgres(ctx, stack.PostgresOptions{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	urls, err := server.CreateDatabase(ctx, "paidonce")
	if err != nil {
		t.Fatal(err)
	}
	w := newTown(t, urls.Worker)
	stop := w.run("gateway", app.GatewayOptions{})
	before, away := newKey(), newKey()
	w.gate.post(before, body).want(t, http.StatusAccepted, "", false)
	server.Kill()
	for range 3 {
		a := w.gate.post(away, body)
		a.want(t, http.StatusServiceUnavailable, "try_again", false)
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if a := w.insist(away); a.status != http.StatusAccepted || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("when it is back: %d, replayed %q", a.status, a.header.Get("Idempotent-Replayed"))
	}
	w.insist(before).want(t, http.StatusAccepted, "", true) // what was answered 202 survived the crash
	stop()
}

// TestD12_TheBankHangsAndTheDoorAnswers: a hundred calls that hang, a pool of four; health, intake and reads go on.
func TestD12_TheBankHangsAndTheDoorAnswers(t *testing.T) {
	w := newTown(t, "")
	stop := w.run("both", app.GatewayOptions{})
	if _, err := w.bank.SetFault(banksim.Fault{Name: "black_hole", Next: 100}); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 10 { // so that the last one hangs long before the first one is given up
		callers.Go(func() {
			for range 10 {
				w.insist(newKey())
			}
		})
	}
	callers.Wait()
	stack.Eventually(t, "a hundred calls hang", func() bool { return w.count(`SELECT count(*) FROM operations WHERE state = 'claimed'`) == 100 })
	for range 20 {
		began := time.Now()
		key := newKey()
		w.gate.post(key, body).want(t, http.StatusAccepted, "", false)
		w.gate.must("GET", "/v1/withdrawals/"+key, wallet(""), "").want(t, http.StatusOK, "", false)
		if took := time.Since(began); took > 30*time.Second { // half of what a call may hang
			t.Errorf("an answer took %s", took)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		began := time.Now()
		response, err := w.client.Get("http://" + w.health + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || time.Since(began) > 30*time.Second {
			t.Errorf("%s: %d after %s", path, response.StatusCode, time.Since(began))
		}
	}
	if err := w.bank.Stop(); err != nil { // cuts the calls, so that the worker can end
		t.Error(err)
	}
	stop()
}

// TestWait_IsToldByAWorkerInAnotherProcess: the broker's hint ends the wait, with no tick to help. A request whose outcome was there before it
// could wait proves nothing, so there are several.
func TestWait_IsToldByAWorkerInAnotherProcess(t *testing.T) {
	w := newTown(t, "")
	w.run("gateway", app.GatewayOptions{Tick: time.Hour})
	w.run("worker", app.GatewayOptions{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			if a := w.insist(newKey(), "Prefer", "wait=30"); a.status != http.StatusCreated || a.State != "authorized" {
				t.Errorf("%d %s", a.status, a.text)
			}
		})
	}
	callers.Wait()
	response, err := w.client.Get("http://" + w.health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	ways := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^paidonce_gateway_waits_total\{by="(\w+)"\} (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		ways[found[1]] = found[2]
	}
	if hints := ways["hint"]; len(ways) != 4 || hints == "0" || ways["told"] != "0" || ways["tick"] != "0" {
		t.Errorf("the waits ended by %v, want hints and none by tick", ways)
	}
}

// TestIntakeGrace_IsWhatTheSettingSays: the sweep is due a second after the operation was made, by one clock.
func TestIntakeGrace_IsWhatTheSettingSays(t *testing.T) {
	w := newTown(t, "")
	w.run("gateway", app.GatewayOptions{})
	w.gate.post(newKey(), body).want(t, http.StatusAccepted, "", false)
	if n := w.count(`SELECT (extract(epoch FROM d.due_at - o.created_at) * 1000)::int8 FROM due d JOIN operations o ON o.id = d.operation_id`); n != 1000 {
		t.Errorf("due after %d ms, want 1000", n)
	}
}

// TestTokens_AreReadFromAFileOfSeveralLines.
func TestTokens_AreReadFromAFileOfSeveralLines(t *testing.T) {
	w := newTown(t, "")
	w.run("gateway", app.GatewayOptions{})
	for token, status := range map[string]int{walletToken: 202, "the-next-token-of-the-wallet": 202, "# rotated in spring": 401} {
		if a := w.gate.post(newKey(), body, "Authorization", "Bearer "+token); a.status != status {
			t.Errorf("%q: %d, want %d", token, a.status, status)
		}
	}
	w.gate.post(newKey(), with("49.00", "250000.01")).want(t, http.StatusUnprocessableEntity, "amount_over_limit", false)
	w.gate.post(newKey(), with(`"GBP"`, `"EUR"`)).want(t, http.StatusUnprocessableEntity, "currency_not_on_route", false)
	w.gate.post(newKey(), with(`gbp-fps`, `eur-sepa`)).want(t, http.StatusUnprocessableEntity, "route_not_allowed", false)
	stack.Eventually(t, "ready", func() bool {
		response, err := w.client.Get("http://" + w.health + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}
