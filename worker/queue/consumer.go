package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/worker/job"
)

const (
	defaultPullers = 2
	defaultGrace   = 45 * time.Second

	// maxPull is the most jobs that one pull asks for.
	maxPull = 256
	// pullWait is how long the broker keeps a pull open; a shutdown waits so long at most before it has handed back what was under way.
	pullWait = time.Second

	// panicsOfPoison is the delivery count from which a job whose handler panics is a dead letter. Only a panic counts it: the broker's
	// count alone includes deliveries that nobody received.
	panicsOfPoison = 3
	// retryAfterBug is the pause before a job comes again whose handler did not settle it.
	retryAfterBug = 10 * time.Second
)

// Intake says how many jobs may be started: the slots of a partner. Acquire blocks until at least one is free and new work is wanted.
type Intake interface {
	Acquire(ctx context.Context, max int) (int, error)
	Release(n int)
}

// Handler works one delivery, in its own goroutine, holding one slot, and settles it once. Its context outlives the signal to stop; it
// ends when the grace is over.
type Handler func(ctx context.Context, d *Delivery)

// ConsumerOptions are the settings of a Consumer. All may be zero.
type ConsumerOptions struct {
	Pullers int            // pulls that are under way at once; default 2
	AckWait time.Duration  // a consumer of the broker that waits less is refused; default 30s
	Grace   time.Duration  // how long a shutdown waits for handlers; default 45s
	Log     zerolog.Logger // default none
}

// Consumer takes the jobs of one route.
type Consumer struct {
	nc     *nats.Conn
	dead   *DeadLetters
	route  string
	intake Intake
	handle Handler
	opts   ConsumerOptions
	log    zerolog.Logger
	beats  heartbeats

	life     context.Context // of handlers and their dead letters: outlives the signal to stop, ends with the grace
	end      context.CancelFunc
	handlers sync.WaitGroup
	idle     chan *Delivery // taken by goroutines whose handler has returned
	workers  sync.WaitGroup // those goroutines
}

// NewConsumer makes a consumer of a route on a connection that is not used for publishing; dead is on the connection that is.
func NewConsumer(nc *nats.Conn, dead *DeadLetters, route string, intake Intake, handle Handler, opts ConsumerOptions) (*Consumer, error) {
	if !job.ValidName(route) {
		return nil, fmt.Errorf("consume: route %q is not a name", route)
	}
	if opts.Pullers == 0 {
		opts.Pullers = defaultPullers
	}
	if opts.AckWait == 0 {
		opts.AckWait = defaultAckWait
	}
	if opts.Grace == 0 {
		opts.Grace = defaultGrace
	}
	if opts.Pullers < 0 || opts.AckWait < 0 || opts.Grace < 0 {
		return nil, errors.New("consume: pullers, ack wait and grace must not be negative")
	}
	life, end := context.WithCancel(context.Background())
	return &Consumer{
		nc: nc, dead: dead, route: route, intake: intake, handle: handle, opts: opts,
		log:   opts.Log.With().Str("route", route).Logger(),
		beats: heartbeats{interval: opts.AckWait / 3},
		life:  life, end: end,
		idle: make(chan *Delivery),
	}, nil
}

// Check reads the broker's consumer and says what makes it unfit, without changing it.
func (c *Consumer) Check(ctx context.Context) error {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	found, err := js.Consumer(ctx, StreamJobs, ConsumerName(c.route))
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("consumer %s: %w", ConsumerName(c.route), ErrNotProvisioned)
	}
	if err != nil {
		return fmt.Errorf("read consumer %s: %w", ConsumerName(c.route), err)
	}
	return c.checkConfig(found.CachedInfo().Config)
}

// UnfitError says that a consumer of the broker has settings under which jobs would be worked twice or lost.
type UnfitError struct {
	Consumer string
	Problems []string
}

// Error names all of them, and what to do.
func (e *UnfitError) Error() string {
	return fmt.Sprintf("consumer %s is unfit: %v: run `paidonce migrate up` under the role of the provisioner", e.Consumer, e.Problems)
}

func (c *Consumer) checkConfig(cfg jetstream.ConsumerConfig) error {
	var problems []string
	if wait := effectiveAckWait(cfg); wait < c.opts.AckWait {
		problems = append(problems, fmt.Sprintf("it redelivers after %s, the ack wait is %s", wait, c.opts.AckWait))
	}
	if len(cfg.BackOff) > 0 {
		problems = append(problems, "it has a backoff, which makes the delays of Retry wrong")
	}
	if cfg.MaxDeliver > 0 {
		problems = append(problems, fmt.Sprintf("it gives up after %d deliveries", cfg.MaxDeliver))
	}
	if cfg.AckPolicy != jetstream.AckExplicitPolicy {
		problems = append(problems, "its ack policy is not explicit")
	}
	if f := filters(cfg); !slices.Equal(f, []string{RouteFilter(c.route)}) {
		problems = append(problems, fmt.Sprintf("its filter is %v instead of %s", f, RouteFilter(c.route)))
	}
	if cfg.HeadersOnly {
		problems = append(problems, "it delivers headers only")
	}
	if len(problems) > 0 {
		return &UnfitError{Consumer: ConsumerName(c.route), Problems: problems}
	}
	return nil
}

// Run takes jobs until ctx ends, and then shuts down: it asks for no more, hands back at once what still arrives, waits for the
// handlers, and flushes their acknowledgements. It may be called once. An unfit or missing consumer is an error; a broker that is
// away is waited for.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.bind(ctx); err != nil {
		return err
	}
	defer c.end()

	beating := make(chan struct{})
	beat, stopBeats := context.WithCancel(context.WithoutCancel(ctx))
	go func() { defer close(beating); c.beats.run(beat) }()
	defer func() { stopBeats(); <-beating }()

	var pullers errgroup.Group
	for range c.opts.Pullers {
		pullers.Go(func() error { return c.pullUntil(ctx) })
	}
	pullErr := pullers.Wait()
	return errors.Join(pullErr, c.finish())
}

// bind waits for a broker that is away, and refuses a consumer that is unfit.
func (c *Consumer) bind(ctx context.Context) error {
	var pause backoff
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := c.Check(try)
		cancel()
		var unfit *UnfitError
		if err == nil || errors.As(err, &unfit) || errors.Is(err, ErrNotProvisioned) || c.nc.IsClosed() {
			return err
		}
		c.log.Warn().Err(err).Msg("wait for the broker")
		if pause.wait(ctx) != nil {
			return nil
		}
	}
}

// finish waits for the handlers. What is not done when the grace is over is left in doubt, which is safe; its context ends.
func (c *Consumer) finish() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.handlers.Wait()
		c.end() // of those that are idle now: none is left when Run returns
		c.workers.Wait()
	}()
	grace := time.NewTimer(c.opts.Grace)
	defer grace.Stop()
	var err error
	select {
	case <-done:
	case <-grace.C:
		err = fmt.Errorf("shut down route %s: grace of %s is over with %d deliveries unsettled", c.route, c.opts.Grace, c.beats.len())
		c.end()
		select {
		case <-done:
		case <-time.After(time.Second): // for those who listen to their context
		}
	}
	if flushErr := c.nc.FlushTimeout(2 * time.Second); flushErr != nil && !c.nc.IsClosed() {
		c.log.Warn().Err(flushErr).Msg("acknowledgements are not flushed; their jobs will come again")
	}
	return err
}

// start gives a delivery to its handler, in a goroutine that has handled others if one is idle: the stack of a new one grows, and is copied, twice
// on the way to the bank, which costs as much as decoding the job. The slot it holds is released when the handler returns.
func (c *Consumer) start(msg *nats.Msg) error {
	d, err := newDelivery(c, msg)
	if err != nil {
		return err
	}
	c.beats.add(d, time.Now())
	c.handlers.Add(1)
	select {
	case c.idle <- d:
	default:
		c.workers.Go(func() { c.work(d) })
	}
	return nil
}

// work handles one delivery after the other until Run ends.
func (c *Consumer) work(d *Delivery) {
	for {
		c.handleOne(d)
		select {
		case d = <-c.idle:
		case <-c.life.Done():
			return
		}
	}
}

func (c *Consumer) handleOne(d *Delivery) {
	defer c.handlers.Done()
	defer c.intake.Release(1)
	defer c.recover(d)
	c.handle(c.life, d)
}

// recover deals with a handler that did not settle, by a return or a panic. A panic must not end the process: the job would come again
// and end the next one, each time leaving every call in flight in doubt. An operation that was claimed before the panic is in the
// hands of the sweep, and its job will be found busy.
func (c *Consumer) recover(d *Delivery) {
	bug := recover()
	if bug != nil {
		// The value of a panic may quote the payload: it is not logged.
		c.log.Error().Uint64("sequence", d.origin.Sequence).Str("type", fmt.Sprintf("%T", bug)).Bytes("stack", debug.Stack()).
			Msg("handler panicked")
		if d.origin.Deliveries >= panicsOfPoison {
			d.Dead(job.ReasonPoison, "its handler panicked")
			return
		}
	}
	if !d.settled.Load() {
		d.Retry(retryAfterBug)
	}
}
