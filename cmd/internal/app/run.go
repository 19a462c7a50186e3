package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/queue"
)

// parts is a worker process put together.
type parts struct {
	process
	around  Around
	ledger  *ledger.Ledger
	banks   []Bank
	consume *nats.Conn // of the consumers
	publish *nats.Conn // of dead letters and events: a full consume buffer must not delay a confirmation
	operate *nats.Conn // of the janitor, who may do what a worker may not; nil = no janitor here
	witness *witness
}

// RunWorker runs consumer, sweep and event relay until ctx ends, then drains. It returns when everything has ended.
func RunWorker(ctx context.Context, c *config.Config, log zerolog.Logger) error {
	return RunWorkerWith(ctx, c, log, Around{})
}

// RunWorkerWith is RunWorker with something around its parts.
func RunWorkerWith(ctx context.Context, c *config.Config, log zerolog.Logger, around Around) error {
	if err := NeedWorker(c); err != nil {
		return err
	}
	setMemory(c)
	muteStandardLog(log)
	p, err := assemble(ctx, c, log, around)
	defer p.close()
	if err != nil {
		return err
	}
	return p.runParts(ctx, nil)
}

// assemble makes every part and starts none. On an error, what was made must still be closed.
func assemble(ctx context.Context, c *config.Config, log zerolog.Logger, around Around) (p *parts, err error) {
	p = &parts{process: process{name: "worker", log: log, grace: c.Worker.ShutdownGrace}, around: around}
	if p.banks, err = banks(c, around); err != nil {
		return p, err
	}
	if p.ledger, err = OpenLedger(ctx, c); err != nil {
		return p, err
	}
	if err := refuseSchema(ctx, p.ledger.Check, log); err != nil {
		return p, err
	}
	if p.consume, err = Connect(c, queue.RoleWorker, "", log); err != nil {
		return p, err
	}
	if p.publish, err = Connect(c, queue.RoleWorker, "", log); err != nil {
		return p, err
	}
	if p.operate, err = connectOperator(c, log); err != nil {
		return p, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	books := tellingOf(apply[worker.Ledger](around.Ledger, p.ledger), queue.NewHints(p.publish, log).Say)
	w, err := worker.New(books, p.partners(), apply(around.Options, workerOptions(c, &log, metrics)))
	if err != nil {
		return p, err
	}
	if err := p.plan(c, w, metrics); err != nil {
		return p, err
	}
	p.witness.first(ctx)
	return p, nil
}

// HasJanitor says whether a worker with these settings runs one.
func HasJanitor(c *config.Config) bool {
	n := c.NATS
	return n.OperatorCredsFile+n.OperatorNKeyFile != "" || n.CredsFile+n.NKeyFile+n.TLSCertFile == ""
}

// connectOperator gives a connection for the janitor: with the operator's own credentials, or on a broker without any.
func connectOperator(c *config.Config, log zerolog.Logger) (*nats.Conn, error) {
	if !HasJanitor(c) {
		log.Info().Msg("no janitor in this process: the operator's credentials are not set")
		return nil, nil
	}
	return Connect(c, queue.RoleOperator, "", log)
}

// OpenLedger opens the ledger of the settings. It does not wait for the database.
func OpenLedger(ctx context.Context, c *config.Config) (*ledger.Ledger, error) {
	url, err := c.ConnectURL()
	if err != nil {
		return nil, err
	}
	return ledger.Open(ctx, url.Reveal(), ledger.Options{Lease: c.Worker.Lease, MaxConns: int32(c.Database.MaxConns)}) //nolint:gosec // checked to be a small number
}

// openDeskPool opens the few connections that people at the desk need.
func openDeskPool(ctx context.Context, c *config.Config) (*pgxpool.Pool, error) {
	url, err := c.ConnectURL()
	if err != nil {
		return nil, err
	}
	return ledger.OpenPool(ctx, url.Reveal(), ledger.Options{MaxConns: deskConns})
}

// OpenDesk gives the desk of a ledger, and what closes its connections. broker gives an operator's connection, when somebody agrees to what only
// the broker tells in full.
func OpenDesk(ctx context.Context, c *config.Config, l *ledger.Ledger, broker func(context.Context) (*nats.Conn, error)) (*operate.Service, func(), error) {
	pool, err := openDeskPool(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	amounts, err := config.Amounts(c.Operator.AmountLimits)
	if err != nil {
		panic("the settings were checked: amount_limits are amounts")
	}
	return operate.New(l, pool, operate.Options{ProposalTTL: c.Operator.ProposalTTL, Limits: operate.Limits{
		Counts:  map[string]int{"replay": c.Operator.ReplayLimit, "discard": c.Operator.DiscardLimit, "batch_submit": c.Operator.BatchLimit},
		Amounts: amounts,
	}, Judges: judges(c, pool, broker)}), pool.Close, nil
}

// deskConns: a line, its act and its result follow each other.
const deskConns = 4

func (p *parts) partners() []worker.Partner {
	partners := make([]worker.Partner, len(p.banks))
	for i, b := range p.banks {
		partners[i] = worker.Partner{Bank: apply[worker.Bank](p.around.Bank, b.Partner), Gate: b.Gate(), LookUps: b.Settings.LookUps}
		limits, err := config.Amounts(b.Settings.DoubtLimits)
		if err != nil {
			panic("the settings were checked: doubt_limits are amounts")
		}
		partners[i].DoubtLimits = limits
	}
	return partners
}

// plan lists what runs, and for how long.
func (p *parts) plan(c *config.Config, w *worker.Worker, metrics *prometheus.Registry) error {
	dead, err := queue.NewDeadLetters(p.publish)
	if err != nil {
		return err
	}
	checks := []Check{{"ledger", p.ledger.Check}, {"broker", p.connected}}
	ready := NewReady(p.log, checks...)
	p.working = []part{{"readiness", ready.Run}, {"worker", w.Run}}
	routes := slices.Sorted(maps.Keys(c.Routes))
	for _, route := range routes {
		consumer, err := p.consumer(c, w, dead, ready, route)
		if err != nil {
			return err
		}
		p.working = append(p.working, part{"consumer of route " + route, consumer.Run})
	}
	strays, err := queue.NewStrays(p.publish, dead, queue.StraysOptions{Judge: w.JudgeStrays, Log: p.log})
	if err != nil {
		return err
	}
	relay, err := queue.NewRelay(p.publish, apply[queue.Outbox](p.around.Outbox, outbox{p.ledger}), queue.RelayOptions{Log: p.log})
	if err != nil {
		return err
	}
	metrics.MustRegister(heldEvents(relay))
	gauges, err := newQueueGauges(p.publish, routes, metrics, p.log)
	if err != nil {
		return err
	}
	waiting, err := newWaitingWatch(p.ledger, c, ready, metrics, p.log)
	if err != nil {
		return err
	}
	p.witness, err = newWitness(func(ctx context.Context, most int) ([]queue.Told, error) {
		return queue.LastEvents(ctx, p.publish, most)
	}, p.ledger, metrics, p.log)
	if err != nil {
		return err
	}
	p.working = append(p.working, part{"witness", p.witness.Run}, part{"catch-all consumer", strays.Run}, part{"queue gauges", gauges.Run}, part{"watch of what waits", waiting.Run},
		part{"report of open breakers", p.reportClosed})
	p.outlasting = []part{{"event relay", relay.Run}}
	if p.operate != nil {
		janitor, err := queue.NewJanitor(p.operate, queue.JanitorOptions{Log: p.log})
		if err != nil {
			return err
		}
		p.working = append(p.working, part{"janitor", janitor.Run})
	}
	if c.Health.Listen == "" {
		return nil
	}
	health, err := ListenHealth(c.Health.Listen, ready, metrics)
	if err != nil {
		return err
	}
	if c.Health.Pprof {
		health.ServeProfiles()
	}
	p.log.Info().Str("address", health.Addr()).Msg("health listens")
	p.outlasting = append(p.outlasting, part{"health", health.Run})
	return nil
}

// Closures are told this often, and hold for three times as long.
const closuresEvery = 5 * time.Second

// reportClosed tells people which partners this process starts nothing at, because too many calls in a row came to nothing.
func (p *parts) reportClosed(ctx context.Context) error {
	tick := time.NewTicker(closuresEvery)
	defer tick.Stop()
	for told := 0; ; {
		closed := []string{}
		for _, b := range p.banks {
			if b.Gate().Open() {
				closed = append(closed, b.ID())
			}
		}
		if len(closed)+told > 0 { // in a good life nothing is written
			if err := p.ledger.ReportClosed(ctx, closed, 3*closuresEvery); err != nil && ctx.Err() == nil {
				p.log.Debug().Err(err).Msg("open breakers not reported")
			} else {
				told = len(closed)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *parts) consumer(c *config.Config, w *worker.Worker, dead *queue.DeadLetters, ready *Ready, route string) (*queue.Consumer, error) {
	gate, ok := w.Gate(route)
	if !ok {
		panic("the worker was given every route of the settings, " + route + " too")
	}
	handle := func(ctx context.Context, d *queue.Delivery) {
		w.Handle(ctx, apply[worker.Delivery](p.around.Delivery, d))
	}
	return queue.NewConsumer(p.consume, dead, route, intake{ready, gate}, handle, queue.ConsumerOptions{
		Pullers: c.Worker.Pullers, AckWait: c.Worker.AckWait, Grace: c.Worker.ShutdownGrace, Log: p.log,
	})
}

// connected says whether both connections to the broker stand.
func (p *parts) connected(context.Context) error {
	for _, nc := range []*nats.Conn{p.consume, p.publish} {
		if status := nc.Status(); status != nats.CONNECTED {
			return fmt.Errorf("connection is %s", status)
		}
	}
	return nil
}

// hangUp closes a connection and waits for its callbacks, which would log after everything else has ended.
func hangUp(nc *nats.Conn) {
	if nc.IsClosed() {
		return
	}
	closed := make(chan struct{})
	nc.SetDisconnectErrHandler(nil) // this one is no loss
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	nc.Close()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

func (p *parts) close() {
	var closes []func()
	for _, nc := range []*nats.Conn{p.consume, p.publish, p.operate} {
		if nc != nil {
			closes = append(closes, func() { hangUp(nc) })
		}
	}
	if p.ledger != nil {
		closes = append(closes, p.ledger.Close)
	}
	for _, b := range p.banks {
		closes = append(closes, b.Close)
	}
	closeAll(closes...)
}
