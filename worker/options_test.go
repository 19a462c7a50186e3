package worker_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/internal/fake"
	"github.com/paidonce/paidonce/worker/workertest"
)

// The real ones fit.
var (
	_ worker.Ledger = (*ledger.Ledger)(nil)
	_ worker.Bank   = (*bankclient.Partner)(nil)
	_ worker.Gate   = (*bankclient.Gate)(nil)
)

func timings() worker.Timings {
	return worker.Timings{Lease: 60 * time.Second, AckWait: 30 * time.Second, Heartbeat: 10 * time.Second, RecordMargin: 5 * time.Second,
		ShutdownGrace: 45 * time.Second, PartnerTimeouts: map[string]time.Duration{"northbank": 20 * time.Second}}
}

// TestTimingRules breaks each timing rule at its edge.
func TestTimingRules(t *testing.T) {
	if err := timings().Check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for _, c := range []struct {
		name string
		edit func(*worker.Timings)
		want string
	}{
		{"lease", func(c *worker.Timings) {
			c.PartnerTimeouts["northbank"] = 55 * time.Second
			c.ShutdownGrace = time.Hour
		},
			"partner northbank: lease (1m0s) must be longer than its timeout and the record margin (55s + 5s)"},
		{"ack wait", func(c *worker.Timings) { c.AckWait = 60 * time.Second }, "ack wait (1m0s) must be shorter than the lease (1m0s)"},
		{"heartbeat", func(c *worker.Timings) { c.Heartbeat = 15 * time.Second },
			"heartbeat (15s) must be shorter than half of the ack wait (30s)"},
		{"grace", func(c *worker.Timings) { c.ShutdownGrace = 25 * time.Second },
			"partner northbank: shutdown grace (25s) must be longer than its timeout and the record margin (20s + 5s)"},
		{"margin", func(c *worker.Timings) { c.RecordMargin = 0 }, "record margin (0s) must be positive"},
		{"timeout", func(c *worker.Timings) { c.PartnerTimeouts["northbank"] = 0 }, "partner northbank: timeout (0s) must be positive"},
	} {
		got := timings()
		c.edit(&got)
		if err := got.Check(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestNewTellsEverythingAtOnce.
func TestNewTellsEverythingAtOnce(t *testing.T) {
	bank := fake.NewBank(fake.Profile(), 20*time.Second)
	partner := worker.Partner{Bank: &fake.Client{Bank: bank}, Gate: fake.NewGate(1), LookUps: []time.Duration{0}}
	_, err := worker.New(fake.NewLedger(time.Minute), []worker.Partner{partner, partner, {}}, worker.Options{
		Lease: 20 * time.Second, Jitter: 0.1, BatchSize: -1, RetryMax: time.Second, RetryMultiplier: 0.5, SweepEvery: -1,
		Routes:  map[string]worker.Route{"gbp-fps": {Partner: "nobody", MaxAmounts: []money.Amount{{Minor: 1, Currency: "EUR"}}}},
		Sources: map[string]worker.Source{"wallet": {Routes: []string{"sepa"}}, "empty": {}},
	})
	if err == nil {
		t.Fatal("New accepted it all")
	}
	for _, want := range []string{"partner 2 needs both", "given twice", "look-up delay", "ack wait", "partner fake: lease", "jitter", "batch size",
		"retry max", "retry multiplier", "sweep every", `partner "nobody"`, "at least one currency", `max amount in "EUR"`, `route "sepa"`,
		"source empty: needs", "must be the ledger's"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q:\n%v", want, err)
		}
	}
}

// TestMetricsAndLogLines: the names of the contract, one line per decision, and nothing in it that must not be.
func TestMetricsAndLogLines(t *testing.T) {
	var lines bytes.Buffer
	registry := prometheus.NewRegistry()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		key, payload := workertest.Order(t)
		w.Script(key, workertest.Fails, workertest.RateLimited)
		logger := zerolog.New(&lines)
		p := workertest.Start(t, w, nil, func(o *worker.Options) { o.Logger, o.Registerer = &logger, registry })
		deliver(t, p, payload)
		workertest.AwaitEnd(t, w, key)
		deliver(t, p, payload)
		<-time.After(time.Minute) // the gauges are read
		stop(t, p)
		for _, field := range []string{`"key":"` + key.String(), `"fence":1`, `"attempt":1`, `"verdict":"unknown"`, `"partner":"fake"`, `"verdict":"not_found"`,
			`"verdict":"not_executed"`, `"state":"authorized"`} {
			if !strings.Contains(lines.String(), field) {
				t.Errorf("no line has %s:\n%s", field, &lines)
			}
		}
	})
	for _, secret := range []string{"Example", "BUKB", "cust-4471", "88104"} {
		if strings.Contains(lines.String(), secret) {
			t.Errorf("a line tells %q", secret)
		}
	}
	// Unknown, not found, rate limited, authorized.
	if n := strings.Count(lines.String(), "operation recorded"); n != 4 {
		t.Errorf("%d decisions are logged, want 4:\n%s", n, &lines)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"paidonce_operations_total authorized fake":       1,
		"paidonce_operations_total open fake":             3,
		"paidonce_bank_request_seconds fake unknown":      1,
		"paidonce_bank_request_seconds fake not_executed": 1,
		"paidonce_bank_request_seconds fake authorized":   1,
		"paidonce_duplicates_suppressed_total claim":      1,
		"paidonce_fenced_writes_total":                    0,
		"paidonce_lease_takeovers_total":                  0,
		"paidonce_invariant_violations_total":             0,
		"paidonce_oldest_unfinished_seconds":              0,
		"paidonce_in_doubt_operations":                    0,
		"paidonce_outbox_lag_seconds":                     0,
	} {
		if got, known := values[name]; !known || got != want {
			t.Errorf("%s = %v (there: %v), want %v", name, got, known, want)
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	bank := fake.NewBank(fake.Profile(), 20*time.Second)
	gate := fake.NewGate(1 << 20)
	w, err := worker.New(fake.NewLedger(time.Minute), []worker.Partner{{Bank: &fake.Client{Bank: bank}, Gate: gate}}, worker.Options{
		Routes:  map[string]worker.Route{workertest.RouteName: {Partner: "fake", Currencies: []string{"GBP"}}},
		Sources: map[string]worker.Source{workertest.SourceName: {Routes: []string{workertest.RouteName}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(b.Context()) }()
	deliveries := make(chan *workertest.Delivery, b.N)
	for range b.N {
		_, payload := workertest.Order(b)
		deliveries <- workertest.NewDelivery(payload)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d := <-deliveries
			w.Handle(b.Context(), d)
			if d.How() != "done" {
				b.Errorf("settled %q", d.How())
			}
		}
	})
	b.StopTimer()
	if err := w.Shutdown(b.Context()); err != nil {
		b.Error(err)
	}
	<-ended
}
