package worker

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

// metrics are the names of the contract that the worker feeds.
type metrics struct {
	operations *prometheus.CounterVec
	calls      *prometheus.HistogramVec
	suppressed prometheus.Counter
	fenced     prometheus.Counter
	takeovers  prometheus.Counter
	violations prometheus.Counter
	oldest     prometheus.Gauge
	inDoubt    prometheus.Gauge
	inDoubtSum *prometheus.GaugeVec
	window     prometheus.Gauge
	outboxLag  prometheus.Gauge

	// Resolved once, because looking up labels costs more than counting.
	outcome map[string]map[ledger.State]prometheus.Counter
	call    map[string][]prometheus.Observer // by verdict
}

const verdicts = int(bankclient.Mismatch) + 1

func newMetrics(registerer prometheus.Registerer, partners map[string]*partner) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	suppressed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "paidonce_duplicates_suppressed_total",
		Help: "Deliveries that needed no call, because the ledger owns their operation."}, []string{"layer"})
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "paidonce_operations_total",
			Help: "Records of operations, by where they went."}, []string{"partner", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "paidonce_bank_request_seconds",
			Help: "Duration of calls that may move money, by what they proved.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)},
			[]string{"partner", "verdict"}),
		suppressed: suppressed.WithLabelValues("claim"),
		fenced:     counter("paidonce_fenced_writes_total", "Writes under a stale claim that changed no state."),
		takeovers:  counter("paidonce_lease_takeovers_total", "Operations taken over from a worker whose lease ran out."),
		violations: counter("paidonce_invariant_violations_total", "Answers and evidence that contradict the promise. Alert at 1."),
		oldest:     gauge("paidonce_oldest_unfinished_seconds", "Age of the oldest unfinished operation."),
		inDoubt:    gauge("paidonce_in_doubt_operations", "Operations in doubt."),
		inDoubtSum: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "paidonce_in_doubt_amount_minor",
			Help: "Sum of the amounts in doubt, in minor units."}, []string{"currency"}),
		window:    gauge("paidonce_key_window_remaining_seconds", "Least time left in a key window of an operation in doubt."),
		outboxLag: gauge("paidonce_outbox_lag_seconds", "Age of the oldest unpublished event."),
		outcome:   map[string]map[ledger.State]prometheus.Counter{},
		call:      map[string][]prometheus.Observer{},
	}
	for id := range partners {
		m.outcome[id] = map[ledger.State]prometheus.Counter{}
		for _, state := range []ledger.State{ledger.StateOpen, ledger.StateAuthorized, ledger.StateRejected, ledger.StateCancelled, ledger.StateParked} {
			m.outcome[id][state] = m.operations.WithLabelValues(id, string(state))
		}
		for v := range verdicts {
			m.call[id] = append(m.call[id], m.calls.WithLabelValues(id, bankclient.Verdict(v).String()))
		}
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.operations, m.calls, suppressed, m.fenced, m.takeovers, m.violations, m.oldest, m.inDoubt,
		m.inDoubtSum, m.window, m.outboxLag} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) called(partner string, verdict bankclient.Verdict, took time.Duration) {
	m.call[partner][verdict].Observe(took.Seconds())
}

// gauge shows the ledger's own numbers. partners tells the key windows.
func (m *metrics) gauge(g ledger.Gauges, partners map[string]*partner) {
	m.oldest.Set(g.OldestUnfinished.Seconds())
	m.inDoubt.Set(float64(g.InDoubt))
	m.inDoubtSum.Reset()
	for currency, minor := range g.InDoubtMinor {
		m.inDoubtSum.WithLabelValues(currency).Set(float64(minor))
	}
	m.outboxLag.Set(g.OutboxLag.Seconds())
	least := math.Inf(1) // nothing in doubt
	for id, sent := range g.OldestInDoubt {
		if p, known := partners[id]; known && p.profile.KeyWindow > 0 {
			least = min(least, sent.Add(p.profile.KeyWindow).Sub(g.Now).Seconds())
		}
	}
	m.window.Set(least)
}

// recorded counts and logs one decision.
func (w *Worker) recorded(op *operation, record ledger.Record, result ledger.RecordResult) {
	if result.Answer == ledger.Recorded {
		w.metrics.outcome[op.partner.id][result.State].Inc()
	} else {
		if result.Answer == ledger.Fenced {
			w.metrics.fenced.Inc()
		}
		w.judgeLate(op, result)
	}
	verdict := ""
	if n := len(record.Facts); n > 0 {
		verdict = record.Facts[n-1].Verdict
	}
	level := zerolog.InfoLevel
	switch record.Next {
	case ledger.StateAuthorized:
		level = zerolog.DebugLevel
	case ledger.StateParked:
		level = zerolog.WarnLevel
	}
	w.log.WithLevel(level).Stringer("key", op.claim.Key).Int32("fence", op.claim.Fence).Int("attempt", len(op.attempts)).
		Str("verdict", verdict).Str("partner", op.partner.id).Str("state", string(record.Next)).Str("code", record.Code).
		Bool("in_doubt", record.InDoubt).Dur("due_in", record.DueIn).Msg("operation recorded")
}

// judgeLate counts what became of evidence that came without a valid claim.
func (w *Worker) judgeLate(op *operation, result ledger.RecordResult) {
	switch result.Answer {
	case ledger.LateAuthorized:
		w.metrics.outcome[op.partner.id][ledger.StateAuthorized].Inc()
	case ledger.LateContradicted:
		w.metrics.violations.Inc()
		w.log.Error().Stringer("key", op.claim.Key).Str("state", string(result.State)).Str("partner", op.partner.id).
			Msg("partner authorized what has another outcome")
	}
}
