package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/queue"
)

func TestEveryConfiguredAdapterExists(t *testing.T) {
	for _, name := range config.Adapters() {
		adapter, err := AdapterOf(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := adapter.Profile().Validate(); err != nil {
			t.Error(err)
		}
	}
	if _, err := AdapterOf("none"); err == nil {
		t.Error("an unknown adapter is an error")
	}
}

// What subscribers were promised, written by hand.
func TestRenderEvent(t *testing.T) {
	got, err := render(ledger.Event{
		Ref: 7, ID: "e1", Type: "rejected", Key: uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"), Source: "wallet", Route: "kwd-swift",
		Partner: "northbank", Amount: money.Amount{Minor: 18600, Currency: "KWD"}, Code: "account_closed", TraceParent: "00-x",
		OccurredAt: time.Date(2026, 12, 24, 1, 2, 3, 4000, time.FixedZone("", 3600)),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"event_id":"e1","type":"rejected","key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","occurred_at":"2026-12-24T00:02:03.000004Z",` +
		`"amount":"18.600","currency":"KWD","partner":"northbank","code":"account_closed"}`
	if string(got.Body) != want || got.Subject != "withdrawals.events.kwd-swift.wallet.rejected" || got.ID != "e1" || got.Ref != 7 || got.TraceParent != "00-x" {
		t.Errorf("%s\n%+v\nwant\n%s", got.Body, got, want)
	}
}

// unrendered is an outbox whose first event no program can render.
type unrendered struct{ unpublished }

func (unrendered) Unpublished(context.Context, int) ([]ledger.Event, error) {
	return []ledger.Event{
		{Ref: 1, ID: "e1", Type: "accepted", Key: uuid.New(), Amount: money.Amount{Minor: 1, Currency: "XTS"}},
		{Ref: 2, ID: "e2", Type: "accepted", Key: uuid.New(), Amount: money.Amount{Minor: 1, Currency: "GBP"}},
		{Ref: 3, ID: "e3", Type: "accepted", Amount: money.Amount{Minor: 1, Currency: "GBP"}}, // of no operation
	}, nil
}

func TestOutbox_WhatCannotBeRenderedIsBrokenAndNoMore(t *testing.T) {
	events, err := outbox{unrendered{}}.Unpublished(t.Context(), 10)
	if err != nil || len(events) != 3 || events[0].Broken == nil || events[0].Ref != 1 || events[0].ID != "e1" || events[1].Broken != nil || events[2].Broken == nil || len(events[1].Body) == 0 {
		t.Errorf("events %+v, %v", events, err)
	}
}

func TestNothingIsPulledBeforeItIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		ready := NewReady(zerolog.Nop(), Check{"ledger", func(context.Context) error {
			if broken.Load() {
				return errors.New("away")
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ready.Run(ctx) }()
		acquired := make(chan int, 1)
		acquire := func() {
			n, err := intake{ready, freeSlots{}}.Acquire(ctx, 5)
			if err == nil {
				acquired <- n
			}
		}
		go acquire()
		time.Sleep(time.Minute) // virtual
		if len(acquired) != 0 || !slices.Equal(ready.Reasons(), []Reason{{"ledger", "away"}}) {
			t.Fatalf("slots were handed out: %d, reasons %v", len(acquired), ready.Reasons())
		}
		broken.Store(false)
		time.Sleep(readyEvery) // virtual
		synctest.Wait()
		if n := <-acquired; n != 5 || len(ready.Reasons()) != 0 {
			t.Errorf("acquired %d, reasons %v", n, ready.Reasons())
		}
		broken.Store(true)
		time.Sleep(readyEvery) // virtual
		synctest.Wait()
		go acquire()
		time.Sleep(time.Minute) // virtual
		if len(acquired) != 0 {
			t.Error("slots were handed out after the ledger went away again")
		}
		cancel()
		if err := <-ended; err != nil || !slices.Equal(ready.Reasons(), []Reason{{"shutdown", "stopping"}}) {
			t.Errorf("%v, %v", err, ready.Reasons())
		}
	})
}

type freeSlots struct{}

func (freeSlots) Acquire(_ context.Context, most int) (int, error) { return most, nil }
func (freeSlots) Release(int)                                      {}

// A check that hangs must not hold the answer.
func TestD12_HealthAnswersWhileADependencyHangs(t *testing.T) {
	ready := NewReady(zerolog.Nop(), Check{"ledger", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
	go ready.Judge(t.Context())
	server := httptest.NewServer(HealthHandler(ready, prometheus.NewRegistry()))
	defer server.Close()
	for path, want := range map[string]string{
		"/livez": "200 ok\n", "/readyz": `503 {"ready":false,"reasons":[{"check":"start","reason":"not judged yet"}]}` + "\n", "/metrics": "200 ",
	} {
		code, body := get(server.URL + path)
		if got := fmt.Sprintf("%d %s", code, body); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func get(url string) (int, string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func TestTheFirstPartThatEndsStopsAllOthers(t *testing.T) {
	var ended atomic.Int32
	waits := func(ctx context.Context) error { <-ctx.Done(); ended.Add(1); return ctx.Err() }
	broken := errors.New("broken")
	cases := []struct {
		name     string
		ends     part
		lasting  bool
		want     string
		isBroken bool
	}{
		{"an error", part{"x", func(context.Context) error { return broken }}, false, "x: broken", true},
		{"no error", part{"x", func(context.Context) error { return nil }}, false, "x ended by itself", false},
		{"an error of what outlasts", part{"x", func(context.Context) error { return broken }}, true, "x: broken", true},
	}
	for _, c := range cases {
		ended.Store(0)
		p := &process{log: zerolog.Nop(), working: []part{{"w", waits}}, outlasting: []part{{"o", waits}}}
		if c.lasting {
			p.outlasting = append(p.outlasting, c.ends)
		} else {
			p.working = append(p.working, c.ends)
		}
		err := p.runParts(t.Context(), nil)
		if err == nil || err.Error() != c.want || errors.Is(err, broken) != c.isBroken || ended.Load() != 2 {
			t.Errorf("%s: %v, %d others ended; want %s", c.name, err, ended.Load(), c.want)
		}
	}
}

func TestWhatOutlastsEndsAfterTheWork(t *testing.T) {
	var order []string
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{
		log: zerolog.Nop(),
		working: []part{{"w", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			order = append(order, "work")
			return nil
		}}},
		outlasting: []part{{"o", func(ctx context.Context) error {
			<-ctx.Done()
			order = append(order, "relay")
			return nil
		}}},
	}
	if err := p.runParts(ctx, func() { order = append(order, "between") }); err != nil || !slices.Equal(order, []string{"work", "between", "relay"}) {
		t.Errorf("%v, %v", order, err)
	}
}

// A part that does not end is left behind, by name, when grace and overtime are over.
func TestL1_APartThatDoesNotEndIsLeftBehind(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			free := make(chan struct{})
			stuck := part{"the stuck one", func(context.Context) error { <-free; return nil }}
			p := &process{log: zerolog.Nop(), grace: 40 * time.Second, working: []part{{"w", func(ctx context.Context) error { <-ctx.Done(); return nil }}}}
			if lasting {
				p.outlasting = append(p.outlasting, stuck)
			} else {
				p.working = append(p.working, stuck)
			}
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(time.Hour, stop) // virtual
			began := time.Now()
			err := p.runParts(ctx, nil)
			const want = "the stuck one did not end within 48s and is left behind: what it had in hand is in doubt"
			if err == nil || err.Error() != want || time.Since(began) != time.Hour+48*time.Second {
				t.Errorf("lasting %t: %v after %s, want %s", lasting, err, time.Since(began), want)
			}
			close(free)
		})
	}
}

func TestL1_ConnectionsThatDoNotCloseAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var closed atomic.Int32
		began := time.Now()
		closeAll(func() { <-free }, func() { closed.Add(1) }, func() { time.Sleep(time.Second); closed.Add(1) }) // virtual
		if closed.Load() != 2 || time.Since(began) != 5*time.Second {
			t.Errorf("%d closed after %s, want the other two, and 5s", closed.Load(), time.Since(began))
		}
		close(free)
	})
}

// A worker whose database is away starts, says so, pulls nothing, and stops when told to.
func TestWorkerWithoutADatabaseIsAliveAndNotReady(t *testing.T) {
	server := stack.Broker(t, stack.NATSOptions{Dir: t.TempDir()})
	health := stack.FreeAddress(t)
	c := workerConfig(t, server.URL(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1", health)
	provision(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- RunWorker(ctx, c, zerolog.Nop()) }()
	var body string
	deadline := time.After(2 * time.Minute) // a bound on hanging, not on speed
	for !strings.Contains(body, `"check":"ledger"`) {
		select {
		case err := <-ended:
			t.Fatalf("the worker ended: %v", err)
		case <-deadline:
			t.Fatalf("not within two minutes: %s", body)
		case <-time.After(20 * time.Millisecond):
		}
		_, body = get("http://" + health + "/readyz")
	}
	if code, _ := get("http://" + health + "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d", code)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
}

func provision(t *testing.T, c *config.Config) {
	t.Helper()
	nc, err := Connect(c, queue.RoleProvisioner, "", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	wanted, err := Topology(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Provision(t.Context(), nc, wanted); err != nil {
		t.Fatal(err)
	}
}

func workerConfig(t *testing.T, broker, database, health string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "secret\n", "paidonce.yaml": fmt.Sprintf(`
nats: { url: %q, replicas: 1 }
database: { url: %q, max_conns: 4 }
worker: { in_flight: 8 }
partners:
  north: { adapter: reference, base_url: "http://127.0.0.1:1", credential_id: c1, token_file: %q, max_in_flight: 8 }
routes: { gbp-fps: { partner: north, currencies: [GBP] } }
sources: { wallet: { routes: [gbp-fps] } }
health: { listen: %q }
`, broker, database, filepath.Join(dir, "token"), health)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(config.Input{File: filepath.Join(dir, "paidonce.yaml"), Rules: Rules()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRulesSpeakAllAtOnce(t *testing.T) {
	c := workerConfig(t, "nats://127.0.0.1:1", "postgres://a@b/c", "")
	c.Worker.AckWait = 2 * time.Minute
	c.Partners["north"].Timeout = 70 * time.Second
	c.Partners["north"].MaxInFlight = 1 << 20
	var texts []string
	for _, rule := range Rules() {
		for _, p := range rule(c) {
			texts = append(texts, p.Path+": "+p.Text)
		}
	}
	for _, want := range []string{
		"worker: ack wait (2m0s) must be shorter than the lease (1m0s)",
		"worker: partner north: lease (1m0s) must be longer than its timeout and the record margin (1m10s + 5s)",
		"worker: partner north: shutdown grace (45s) must be longer than its timeout and the record margin (1m10s + 5s)",
	} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is missing in %q", want, texts)
		}
	}
	if !slices.ContainsFunc(texts, func(text string) bool {
		return strings.HasPrefix(text, "partners.north: ") && strings.Contains(text, "max in flight is above the profile's")
	}) {
		t.Errorf("the profile's limit is not checked: %q", texts)
	}
}

func TestNeedWorker(t *testing.T) {
	c, err := config.Load(config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	var found config.Problems
	if err := NeedWorker(c); !errors.As(err, &found) || len(found) != 4 {
		t.Errorf("%v", err)
	}
}

func TestHealth_ServesProfilesOnlyWhenAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		health, err := ListenHealth("127.0.0.1:0", NewReady(zerolog.Nop()), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if asked {
			health.ServeProfiles()
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- health.Run(ctx) }()
		for path, want := range map[string]bool{"/debug/pprof/": asked, "/livez": true} {
			response, err := http.Get("http://" + health.Addr() + path)
			if err != nil {
				t.Fatal(err)
			}
			if served := response.StatusCode == http.StatusOK; served != want {
				t.Errorf("asked %t: %s answers %d", asked, path, response.StatusCode)
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
