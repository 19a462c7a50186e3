package app

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/queue"
)

const (
	gaugesEvery   = 5 * time.Second
	gaugesTimeout = 5 * time.Second
)

// queueGauges are the numbers of /metrics that the broker knows. The worker has those of the ledger.
type queueGauges struct {
	js      jetstream.JetStream
	routes  []string
	log     zerolog.Logger
	dead    prometheus.Gauge
	waiting *prometheus.GaugeVec
	atWork  *prometheus.GaugeVec
	stored  prometheus.Gauge
	room    prometheus.Gauge
	reached prometheus.Gauge
}

func newQueueGauges(nc *nats.Conn, routes []string, registerer prometheus.Registerer, log zerolog.Logger) (*queueGauges, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	g := &queueGauges{
		js: js, routes: routes, log: log,
		dead: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_dead_letters", Help: "Dead letters in the stream."}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "paidonce_queue_waiting_jobs",
			Help: "Jobs of a route that were not delivered yet."}, []string{"route"}),
		atWork: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "paidonce_queue_unacknowledged_jobs",
			Help: "Jobs of a route that were delivered and not acknowledged."}, []string{"route"}),
		stored: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_jobs_stream_bytes", Help: "What the stream of jobs holds. A full one refuses new jobs."}),
		room: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_jobs_stream_max_bytes",
			Help: "What the stream of jobs may hold; 0 = no limit of its own."}),
		reached: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_queue_gauges_read",
			Help: "1 when the numbers of the broker are fresh, else 0."}),
	}
	for _, one := range []prometheus.Collector{g.dead, g.waiting, g.atWork, g.stored, g.room, g.reached} {
		if err := registerer.Register(one); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// heldEvents counts what the relay cannot publish.
func heldEvents(relay *queue.Relay) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "paidonce_outbox_held_events",
		Help: "Events that cannot be published and hold back the later ones of their key. Alert at 1."}, func() float64 { return float64(relay.Held()) })
}

// Run reads until ctx ends. Numbers that cannot be read keep their last value, and paidonce_queue_gauges_read says so.
func (g *queueGauges) Run(ctx context.Context) error {
	tick := time.NewTicker(gaugesEvery)
	defer tick.Stop()
	for {
		if err := g.read(ctx); err != nil && ctx.Err() == nil {
			g.reached.Set(0)
			g.log.Debug().Err(err).Msg("the broker's numbers could not be read")
		} else {
			g.reached.Set(1)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (g *queueGauges) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gaugesTimeout)
	defer cancel()
	dead, err := g.js.Stream(ctx, queue.StreamDead)
	if err != nil {
		return err
	}
	g.dead.Set(float64(dead.CachedInfo().State.Msgs))
	jobs, err := g.js.Stream(ctx, queue.StreamJobs)
	if err != nil {
		return err
	}
	info := jobs.CachedInfo()
	g.stored.Set(float64(info.State.Bytes))
	g.room.Set(float64(max(0, info.Config.MaxBytes)))
	for _, route := range g.routes {
		consumer, err := g.js.Consumer(ctx, queue.StreamJobs, queue.ConsumerName(route))
		if err != nil {
			return err
		}
		info := consumer.CachedInfo()
		g.waiting.WithLabelValues(route).Set(float64(info.NumPending))
		g.atWork.WithLabelValues(route).Set(float64(info.NumAckPending))
	}
	return nil
}
