package banksim

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a simulated bank. The zero value is a hostile bank with the seed 0.
type Options struct {
	// Seed decides, with the partner key and the number of its request, which faults are met. Default 0.
	Seed uint64
	// Calm switches the random hostility off; faults set by hand still work. Default false.
	Calm bool
	// Hostility is the share of requests that meet a fault. Default 0.25.
	Hostility float64
	// Never names faults that the random hostility leaves out; set by hand they still work. Default none.
	Never []string
	// MaxDelay bounds every delay of the random hostility. Default 3 s.
	MaxDelay time.Duration
	// TimeScale multiplies every delay of the random hostility before MaxDelay cuts it. Default 1.
	TimeScale float64
	// Latency is how long the bank works on every create. Default 0.
	Latency time.Duration
	// Tokens maps each accepted bearer token to its credential. Default: every token is accepted as a credential of its own.
	Tokens map[string]string
	// Idempotency is how keys are treated. Default ReferenceIdempotency.
	Idempotency *Idempotency
	// BeforeExecute is called when a create with a partner key has arrived, before anything is done with it. Its error is
	// kept by the oracle as a violation; the request goes on. Default none.
	BeforeExecute func(partnerKey string) error
	// OnTransfer is called after every execution and every change of state made through the control API. It is the seam
	// for webhooks, which the simulator does not send yet. Default none.
	OnTransfer func(Transfer)
	// TLS makes Serve speak TLS (HTTP/1.1 only). Default none.
	TLS *tls.Config
	// Now is the real clock under the bank's own. Default time.Now.
	Now func() time.Time
}

// settings are what the control API changes while the bank runs; they are replaced as a whole.
type settings struct {
	latency     time.Duration
	tokens      map[string]string
	idempotency Idempotency
	profile     profile
	guardWindow time.Duration // refuse equal twins for so long; 0 = never
}

// Bank is one simulated bank. All methods may be called at the same time.
type Bank struct {
	options   Options
	clock     *clock
	store     *store
	oracle    oracle
	rules     rules
	catalogue *catalogue
	journal   *journal
	settings  atomic.Pointer[settings]
	jsonType  []string

	buffers  sync.Pool
	scanners sync.Pool

	mu        sync.Mutex
	servers   []*http.Server
	listeners []*listener
	guard     map[[16]byte]time.Time

	running  tasks         // requests being answered
	owed     tasks         // late arrivals, commits after the answer
	stopping chan struct{} // closed first: nothing new is accepted
	stopOnce sync.Once
	life     context.Context // cancelled second: every wait is over
	endLife  context.CancelFunc
	closed   <-chan struct{} // life.Done
}

// New makes a bank that nobody can reach yet; Serve opens it.
func New(options Options) *Bank {
	options = options.withDefaults()
	idempotency := ReferenceIdempotency()
	if options.Idempotency != nil {
		idempotency = *options.Idempotency
	}
	clock := newClock(options.Now)
	run := uint32(mix(uint64(clock.now().UnixNano())))
	life, endLife := context.WithCancel(context.Background())
	b := &Bank{
		options: options, clock: clock, store: newStore(run), catalogue: newCatalogue(),
		jsonType: []string{"application/json"}, guard: map[[16]byte]time.Time{},
		stopping: make(chan struct{}), life: life, endLife: endLife, closed: life.Done(),
	}
	hostility, err := b.catalogue.resolve(b.catalogue.defaultProfile(options))
	if err := errors.Join(err, b.catalogue.known(options.Never), options.Validate()); err != nil {
		panic("banksim: " + err.Error()) // whoever lets people choose options calls Validate first
	}
	b.buffers.New = func() any { return new(make([]byte, 0, 1024)) }
	b.scanners.New = func() any { return newScanner() }
	b.settings.Store(&settings{
		latency: options.Latency, tokens: options.Tokens, idempotency: idempotency,
		profile: hostility,
	})
	return b
}

func (o Options) withDefaults() Options {
	if o.Hostility == 0 {
		o.Hostility = 0.25
	}
	if o.Calm {
		o.Hostility = 0
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = 3 * time.Second
	}
	if o.TimeScale == 0 {
		o.TimeScale = 1
	}
	return o
}

// Validate lists everything that is wrong with the options.
func (o Options) Validate() error {
	var problems []error
	if o.Hostility < 0 || o.Hostility > 1 {
		problems = append(problems, errors.New("hostility is not between 0 and 1"))
	}
	if o.MaxDelay < 0 || o.TimeScale < 0 || o.Latency < 0 {
		problems = append(problems, errors.New("max delay, time scale and latency cannot be negative"))
	}
	if o.Idempotency != nil {
		problems = append(problems, o.Idempotency.validate())
	}
	return errors.Join(problems...)
}

// change replaces the settings by an edited copy.
func (b *Bank) change(edit func(*settings) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := *b.settings.Load()
	if err := edit(&next); err != nil {
		return err
	}
	b.settings.Store(&next)
	return nil
}

// SetIdempotency replaces how keys are treated from the next request on.
func (b *Bank) SetIdempotency(i Idempotency) error {
	if err := i.validate(); err != nil {
		return err
	}
	return b.change(func(s *settings) error { s.idempotency = i; return nil })
}

// Idempotency tells how keys are treated.
func (b *Bank) Idempotency() Idempotency {
	i := b.settings.Load().idempotency
	i.IgnoredRoutes = slices.Clone(i.IgnoredRoutes) // what the caller edits is not what requests read
	return i
}

// SetLatency changes how long the bank works on every create.
func (b *Bank) SetLatency(d time.Duration) {
	_ = b.change(func(s *settings) error { s.latency = d; return nil })
}

// SetTokens replaces the accepted bearer tokens, each with its credential; none means that all are accepted.
func (b *Bank) SetTokens(tokens map[string]string) {
	_ = b.change(func(s *settings) error { s.tokens = tokens; return nil })
}

// SetContentGuard makes the bank refuse an equal amount to an equal beneficiary for so long, whatever its key; 0 stops it.
func (b *Bank) SetContentGuard(window time.Duration) {
	_ = b.change(func(s *settings) error { s.guardWindow = window; return nil })
}

// Now is the time on the bank's own clock.
func (b *Bank) Now() time.Time { return b.clock.now() }

// Advance moves the bank's clock forward: windows end, states change and waits that it passes are over.
func (b *Bank) Advance(d time.Duration) {
	if d < 0 {
		panic("banksim: the clock of the bank never goes back")
	}
	b.clock.advance(d)
	b.journal.clock(d)
}

// Serve answers the reference API on ln until Close; it then returns http.ErrServerClosed.
func (b *Bank) Serve(ln net.Listener) error {
	wrapped := newListener(b, ln)
	server := b.server(b.Handler())
	server.ConnContext = withConnection
	wrapped.keep = server.SetKeepAlivesEnabled
	if !b.keep(server, wrapped) {
		return errors.Join(ln.Close(), http.ErrServerClosed)
	}
	if b.refusing() {
		if err := wrapped.refuse(); err != nil {
			return err
		}
	}
	if b.options.TLS != nil {
		return b.closedOr(server.Serve(tls.NewListener(wrapped, b.tlsConfig())))
	}
	return b.closedOr(server.Serve(wrapped))
}

// ServeControl answers the control API on ln until Close; it then returns http.ErrServerClosed.
func (b *Bank) ServeControl(ln net.Listener) error {
	server := b.server(b.ControlHandler())
	if !b.keep(server, nil) {
		return errors.Join(ln.Close(), http.ErrServerClosed)
	}
	return server.Serve(ln)
}

// closedOr gives the end that Close causes its one name: a listener may notice it before its server does.
func (b *Bank) closedOr(err error) error {
	select {
	case <-b.stopping:
		return http.ErrServerClosed
	default:
		return err
	}
}

func (b *Bank) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ErrorLog: silent(), ReadHeaderTimeout: time.Minute,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
}

func (b *Bank) keep(server *http.Server, ln *listener) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.stopping:
		return false
	default:
	}
	b.servers = append(b.servers, server)
	if ln != nil {
		b.listeners = append(b.listeners, ln)
	}
	return true
}

// inBackground runs f as something the bank still owes: a request that arrives late, a commit after the answer.
func (b *Bank) inBackground(f func()) {
	if !b.owed.enter() {
		return
	}
	go func() {
		defer b.owed.leave()
		f()
	}()
}

// Quiesce waits until the bank owes nothing more: no late arrival, no commit after its answer, no refusal of dials that
// is going to end. What waits for the bank's clock may need Advance.
func (b *Bank) Quiesce(ctx context.Context) error { return b.owed.idle(ctx) }

// Close stops at once: connections end, late arrivals never arrive. It waits for what runs.
func (b *Bank) Close() error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return b.stop(over)
}

// Shutdown lets the requests being answered end, within ctx, and then closes.
func (b *Bank) Shutdown(ctx context.Context) error { return b.stop(ctx) }

func (b *Bank) stop(ctx context.Context) error {
	b.mu.Lock()
	b.stopOnce.Do(func() { close(b.stopping) })
	servers, listeners := b.servers, b.listeners
	b.mu.Unlock()
	graceful := ctx.Err() == nil
	var problems []error
	for _, ln := range listeners {
		if err := ln.Close(); err != nil {
			problems = append(problems, err)
		}
	}
	for _, server := range servers {
		if graceful {
			if err := server.Shutdown(ctx); err != nil {
				problems = append(problems, err)
			}
		}
	}
	b.endLife()
	for _, server := range servers {
		if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	b.running.wait()
	b.owed.wait()
	problems = append(problems, b.journal.close())
	return errors.Join(problems...)
}

func (b *Bank) buffer() []byte { return (*b.buffers.Get().(*[]byte))[:0] }

func (b *Bank) release(buffer []byte) {
	if cap(buffer) > 0 && cap(buffer) <= 16<<10 {
		b.buffers.Put(&buffer)
	}
}
