package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	acceptTimeout  = 5 * time.Second // of one batch of orders
	acceptBatch    = 256
	acceptors      = 2                // batches under way at once
	jobPatience    = 15 * time.Second // how long a job is left to the gateway that accepted it
	tokensEvery    = 10 * time.Second // how often token files are read again
	jobGaugesEvery = 5 * time.Second
)

// GatewayOptions are for tests and programs around; the zero value is what `paidonce gateway` uses.
type GatewayOptions struct {
	Patience time.Duration // how long a job is left to the gateway that accepted it; default 15 s
	NoHealth bool          // another part of this process serves health and metrics
	Tick     time.Duration // how often the rows of waiting requests are read without a hint; default that of the gateway

	// Programs that attack a gateway stand between its parts; nil changes nothing.
	Intake func(gateway.Intake) gateway.Intake
	Store  func(queue.JobStore) queue.JobStore
}

// door is a gateway process put together.
type door struct {
	process
	ledger  *ledger.Ledger
	publish *nats.Conn
	intake  *worker.Batcher[ledger.Order, ledger.Acceptance]
	gateway *gateway.Gateway
	gauges  *jobGauges
}

// RunGateway serves the HTTP API and publishes what it accepts, until ctx ends.
func RunGateway(ctx context.Context, c *config.Config, log zerolog.Logger, opts GatewayOptions) error {
	d, err := openDoor(ctx, c, log, opts)
	defer d.close()
	if err != nil {
		return err
	}
	return d.run(ctx)
}

// RunBoth runs a worker and a gateway in one process: one health server, and outcomes told from one to the other.
func RunBoth(ctx context.Context, c *config.Config, log zerolog.Logger, opts GatewayOptions) error {
	opts.NoHealth = true
	d, err := openDoor(ctx, c, log, opts)
	defer d.close()
	if err != nil {
		return err
	}
	var failed error
	around := Around{
		Ledger: func(l worker.Ledger) worker.Ledger {
			return tellingOf(l, func(keys []uuid.UUID) {
				for _, key := range keys {
					d.gateway.Tell(key)
				}
			})
		},
		Options: func(o worker.Options) worker.Options {
			failed = errors.Join(o.Registerer.Register(d.gateway.Metrics()), o.Registerer.Register(d.gauges))
			return o
		},
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return part{"worker", func(ctx context.Context) error { return RunWorkerWith(ctx, c, log, around) }}.until(ctx)
	})
	both.Go(func() error { return part{"gateway", d.run}.until(ctx) })
	return errors.Join(both.Wait(), failed)
}

// openDoor makes every part and starts none. On an error, what was made must still be closed.
func openDoor(ctx context.Context, c *config.Config, log zerolog.Logger, opts GatewayOptions) (*door, error) {
	d := &door{process: process{name: "gateway", log: log, grace: gateway.Grace + acceptTimeout}}
	bySource, err := sourceTokens(c)
	if found := append(asProblems("", NeedGateway(c)), asProblems("sources", err)...); len(found) > 0 {
		return d, config.Problems(found)
	}
	tokens, err := gateway.NewTokens(bySource)
	if err != nil {
		return d, config.Problems(problems("sources", err))
	}
	if d.ledger, err = OpenLedger(ctx, c); err != nil {
		return d, err
	}
	if err := refuseSchema(ctx, d.ledger.CheckIntake, log); err != nil {
		return d, err
	}
	if d.publish, err = Connect(c, queue.RoleGateway, "", log); err != nil {
		return d, err
	}
	store := apply[queue.JobStore](opts.Store, jobStore{d.ledger, orElse(opts.Patience, jobPatience)})
	relay, err := queue.NewJobRelay(d.publish, store, queue.JobRelayOptions{Log: log})
	if err != nil {
		return d, err
	}
	d.intake = worker.NewBatcher(acceptBatch, d.accept)
	d.gateway, err = gateway.New(apply[gateway.Intake](opts.Intake, d.intake), d.ledger, gateway.Options{
		Sources: gatewaySources(c), Partners: partnersByRoute(c), Allowed: allowed(c), Tokens: tokens, Accepted: relay.Wake, Grace: c.Gateway.IntakeGrace, Tick: opts.Tick, Log: log,
	})
	if err != nil {
		return d, err
	}
	if err := queue.HearHints(d.publish, d.gateway.Hear); err != nil {
		return d, err
	}
	return d, d.plan(c, relay, tokens, opts)
}

// plan lists what runs, and for how long: the relay goes on until the last request is answered.
func (d *door) plan(c *config.Config, relay *queue.JobRelay, tokens *gateway.Tokens, opts GatewayOptions) error {
	server, err := gateway.Listen(c.Gateway.Listen, d.gateway)
	if err != nil {
		return err
	}
	d.log.Info().Str("address", server.Addr()).Msg("gateway listens")
	d.gauges = newJobGauges(d.ledger, d.log)
	reload := func(ctx context.Context) error { return d.reloadTokens(ctx, c, tokens) }
	d.working = []part{{"requests", server.Run}, {"waiting requests", d.gateway.Run}, {"tokens", reload}, {"job gauges", d.gauges.Run}}
	d.outlasting = []part{{"job relay", relay.Run}}
	if opts.NoHealth || c.Health.Listen == "" {
		return nil
	}
	ready := NewReady(d.log, Check{"ledger", d.ledger.CheckIntake}) // the broker may be away: what is accepted is published later
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), d.gateway.Metrics(), d.gauges)
	health, err := ListenHealth(c.Health.Listen, ready, metrics)
	if err != nil {
		return err
	}
	d.log.Info().Str("address", health.Addr()).Msg("health listens")
	d.working = append(d.working, part{"readiness", ready.Run})
	d.outlasting = append(d.outlasting, part{"health", health.Run})
	return nil
}

// run serves until ctx ends. What was taken in is recorded before the relay ends.
func (d *door) run(ctx context.Context) error {
	d.intake.Start(context.WithoutCancel(ctx), acceptors)
	return d.runParts(ctx, d.intake.Close)
}

func (d *door) accept(ctx context.Context, orders []ledger.Order) []ledger.Acceptance {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	return d.ledger.Accept(ctx, orders)
}

func (d *door) close() {
	var closes []func()
	if d.publish != nil {
		closes = append(closes, func() { hangUp(d.publish) })
	}
	if d.ledger != nil {
		closes = append(closes, d.ledger.Close)
	}
	closeAll(closes...)
}

// reloadTokens reads the token files again and again, so that a token is rotated without a restart.
func (d *door) reloadTokens(ctx context.Context, c *config.Config, tokens *gateway.Tokens) error {
	tick := time.NewTicker(tokensEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if readsStandardInput(c) {
			continue
		}
		bySource, err := sourceTokens(c)
		if err == nil {
			err = tokens.Replace(bySource)
		}
		if err != nil {
			d.log.Error().Err(err).Msg("tokens could not be read again: the last ones stay valid")
		}
	}
}

func readsStandardInput(c *config.Config) bool {
	for _, source := range c.Sources {
		if source.TokenFile == "-" {
			return true
		}
	}
	return false
}

// NeedGateway says what a gateway cannot do without, beyond what Load checks.
func NeedGateway(c *config.Config) error {
	var found config.Problems
	for _, one := range []struct {
		missing    bool
		path, text string
	}{
		{c.Database.URL == "", "database.url", "is missing"},
		{c.Gateway.Listen == "", "gateway.listen", "is missing"},
		{len(c.Routes) == 0, "routes", "a gateway needs at least one"},
		{len(c.Sources) == 0, "sources", "a gateway needs at least one"},
	} {
		if one.missing {
			found = append(found, config.Problem{Place: c.Origin(one.path), Path: one.path, Text: one.text})
		}
	}
	if len(found) > 0 {
		return found
	}
	return nil
}

func sourceTokens(c *config.Config) (map[string][]string, error) {
	bySource := map[string][]string{}
	var found config.Problems
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		tokens, err := c.SourceTokens(name)
		if err != nil {
			found = append(found, asProblems("sources."+name, err)...)
			continue
		}
		for _, token := range tokens {
			bySource[name] = append(bySource[name], token.Reveal())
		}
	}
	if len(found) > 0 {
		return nil, found
	}
	return bySource, nil
}

func gatewaySources(c *config.Config) map[string]gateway.Source {
	sources := map[string]gateway.Source{}
	for name, source := range c.Sources {
		sources[name] = gateway.Source{MakeKeys: source.Keys == "warn"}
	}
	return sources
}

func partnersByRoute(c *config.Config) map[string]string {
	partners := map[string]string{}
	for name, route := range c.Routes {
		partners[name] = route.Partner
	}
	return partners
}

// allowed is the policy of sources and routes as the worker judges it, so that nothing is accepted that it would refuse. A route that does
// not exist and one that the source may not use look the same from outside.
func allowed(c *config.Config) func(*job.Job) *job.Fault {
	limits := map[string][]money.Amount{}
	for name, route := range c.Routes {
		limits[name] = maxAmounts(route)
	}
	return func(j *job.Job) *job.Fault {
		route, known := c.Routes[j.Route]
		source := c.Sources[j.Source] // nil for the letter of a source that is not configured any more
		switch {
		case !known || source == nil || !slices.Contains(source.Routes, j.Route):
			return &job.Fault{Reason: job.ReasonInvalid, Code: "route_not_allowed", Path: "/route", Detail: "this source has no such route"}
		case !slices.Contains(route.Currencies, j.Amount.Currency):
			return &job.Fault{Reason: job.ReasonInvalid, Code: "currency_not_on_route", Path: "/currency", Detail: "the route does not take this currency"}
		}
		for _, limit := range limits[j.Route] {
			if limit.Currency == j.Amount.Currency && j.Amount.Minor > limit.Minor {
				return &job.Fault{Reason: job.ReasonInvalid, Code: "amount_over_limit", Path: "/amount", Detail: "more than the route takes"}
			}
		}
		return nil
	}
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// jobStore adapts the ledger to the relay of jobs.
type jobStore struct {
	ledger   *ledger.Ledger
	patience time.Duration
}

// Stored implements queue.JobStore.
func (s jobStore) Stored(ctx context.Context, most int) ([]queue.StoredJob, error) {
	found, err := s.ledger.UnpublishedJobs(ctx, most, s.patience)
	if err != nil {
		return nil, err
	}
	jobs := make([]queue.StoredJob, len(found))
	for i, j := range found {
		jobs[i] = queue.StoredJob{Ref: j.Ref, Message: queue.Message{
			Source: j.Source, Route: j.Route, Key: j.Key, Payload: j.Payload, TraceParent: j.TraceParent,
		}}
	}
	return jobs, nil
}

// MarkPublished implements queue.JobStore.
func (s jobStore) MarkPublished(ctx context.Context, refs []int64) error {
	return s.ledger.JobsPublished(ctx, refs)
}

// jobGauges say what waits for the broker.
type jobGauges struct {
	ledger  *ledger.Ledger
	log     zerolog.Logger
	waiting prometheus.Gauge
	oldest  prometheus.Gauge
}

func newJobGauges(l *ledger.Ledger, log zerolog.Logger) *jobGauges {
	return &jobGauges{
		ledger: l, log: log,
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_unpublished_jobs",
			Help: "Accepted withdrawals whose message the broker has not confirmed, of all gateways."}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_unpublished_jobs_oldest_seconds",
			Help: "Age of the oldest of them, counted from when its gateway took it in hand."}),
	}
}

// Describe implements prometheus.Collector.
func (g *jobGauges) Describe(out chan<- *prometheus.Desc) {
	g.waiting.Describe(out)
	g.oldest.Describe(out)
}

// Collect implements prometheus.Collector.
func (g *jobGauges) Collect(out chan<- prometheus.Metric) {
	g.waiting.Collect(out)
	g.oldest.Collect(out)
}

// Run reads until ctx ends.
func (g *jobGauges) Run(ctx context.Context) error {
	tick := time.NewTicker(jobGaugesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		n, oldest, err := g.ledger.CountUnpublishedJobs(ctx)
		if err != nil {
			g.log.Debug().Err(err).Msg("unpublished jobs could not be counted")
			continue
		}
		g.waiting.Set(float64(n))
		g.oldest.Set(oldest.Seconds())
	}
}
