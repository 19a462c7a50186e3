package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the numbers of the gateway.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	noKey    *prometheus.CounterVec
	waits    *prometheus.CounterVec
}

func newMetrics(sources map[string]Source) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "paidonce_gateway_requests_total",
			Help: "Requests by path, status and, where it was refused, code."}, []string{"path", "status", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "paidonce_gateway_request_seconds",
			Help: "Time from the head of a request to its answer, waits included.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"path"}),
		noKey: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "paidonce_keyless_total",
			Help: "Requests without a key, of sources whose keys are made here, accepted or not. Zero for long enough: keys can become require."}, []string{"source"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "paidonce_gateway_waits_total",
			Help: "Requests whose wait ended with an outcome, by what made the gateway look: it was there before the wait, this process told, the broker's hint, or the tick. Many by tick: hints do not arrive."}, []string{"by"}),
	}
	for _, by := range []string{byFirstLook, byTold, byHint, byTick} {
		m.waits.WithLabelValues(by)
	}
	for name, source := range sources {
		if source.MakeKeys {
			m.noKey.WithLabelValues(name) // shown as zero, which is what its reader waits for
		}
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	m.requests.Describe(out)
	m.seconds.Describe(out)
	m.noKey.Describe(out)
	m.waits.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.requests.Collect(out)
	m.seconds.Collect(out)
	m.noKey.Collect(out)
	m.waits.Collect(out)
}

func (m *metrics) answered(path string, status int, code string, took time.Duration) {
	m.requests.WithLabelValues(path, strconv.Itoa(status), code).Inc()
	m.seconds.WithLabelValues(path).Observe(took.Seconds())
}

func (m *metrics) keyless(source string) { m.noKey.WithLabelValues(source).Inc() }

func (m *metrics) waitEnded(by string, requests int) {
	m.waits.WithLabelValues(by).Add(float64(requests))
}
