package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

const (
	defaultGrace       = 30 * time.Second
	defaultMaxRequests = 4096
	defaultMaxWaiting  = 8192
	defaultTick        = time.Second
	mostWait           = 30 * time.Second // of Prefer: wait, as openapi.json says
)

// Intake records one order; it makes batches of those that come at once.
type Intake interface {
	Do(ctx context.Context, o ledger.Order) (ledger.Acceptance, error)
}

// Ledger is what the gateway needs of the ledger besides.
type Ledger interface {
	Standings(ctx context.Context, keys []uuid.UUID) ([]ledger.Standing, error)
	CancelIfOpen(ctx context.Context, key uuid.UUID, source, code string) (bool, ledger.Standing, error)
}

// Source is one upstream system.
type Source struct {
	MakeKeys bool // a request without a key is given one and counted; default: it is refused
}

// Options say what the gateway serves. Sources, Partners, Allowed and Tokens are needed.
type Options struct {
	Sources  map[string]Source
	Partners map[string]string         // route -> partner
	Allowed  func(*job.Job) *job.Fault // the policy of sources and routes, as the worker will judge it
	Tokens   *Tokens

	Accepted    func()         // called when there is a new job to publish; default: nothing
	Grace       time.Duration  // how long the sweep leaves an operation to its own message; default 30 s
	Tick        time.Duration  // how often the rows of those who wait are read without a hint; default 1 s
	MaxRequests int            // requests in work at once, waiting ones not counted; more are answered 503; default 4096
	MaxWaiting  int            // requests that wait at once; more are answered as if their wait had ended; default 8192
	Log         zerolog.Logger // default: none

	// How long a connection may take: for the head of a request, for all of it, and between two. An answer has mostWait more than the request.
	HeaderTimeout time.Duration // default 5 s
	ReadTimeout   time.Duration // default 15 s
	IdleTimeout   time.Duration // default 2 min
}

// Gateway answers requests. Run must run beside it.
type Gateway struct {
	opts    Options
	intake  Intake
	ledger  Ledger
	slots   chan struct{}
	waiters *waiters
	metrics *metrics
	handler http.Handler
}

// New makes a gateway.
func New(intake Intake, l Ledger, opts Options) (*Gateway, error) {
	if opts.Tokens == nil || opts.Allowed == nil {
		return nil, errors.New("make gateway: tokens and policy are needed")
	}
	if opts.Accepted == nil {
		opts.Accepted = func() {}
	}
	opts.Grace = orElse(opts.Grace, defaultGrace)
	opts.Tick = orElse(opts.Tick, defaultTick)
	opts.MaxRequests = orElse(opts.MaxRequests, defaultMaxRequests)
	opts.MaxWaiting = orElse(opts.MaxWaiting, defaultMaxWaiting)
	opts.HeaderTimeout = orElse(opts.HeaderTimeout, 5*time.Second)
	opts.ReadTimeout = orElse(opts.ReadTimeout, 15*time.Second)
	opts.IdleTimeout = orElse(opts.IdleTimeout, 2*time.Minute)
	g := &Gateway{opts: opts, intake: intake, ledger: l, slots: make(chan struct{}, opts.MaxRequests)}
	g.metrics = newMetrics(opts.Sources)
	g.waiters = newWaiters(l, opts.Tick, opts.MaxWaiting, opts.Log)
	g.waiters.ended = g.metrics.waitEnded
	g.handler = g.routes()
	return g, nil
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Metrics are the numbers of this gateway.
func (g *Gateway) Metrics() prometheus.Collector { return g.metrics }

// Run serves those who wait, until ctx ends; then all of them are answered.
func (g *Gateway) Run(ctx context.Context) error { return g.waiters.run(ctx) }

// Tell says that this process has recorded something of an operation. It never blocks.
func (g *Gateway) Tell(key uuid.UUID) { g.waiters.tell(key, byTold) }

// Hear says that another process has, as the broker tells. It never blocks.
func (g *Gateway) Hear(key uuid.UUID) { g.waiters.tell(key, byHint) }

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// routes lists what is served. The paths without a method answer what a known path is asked with another method.
func (g *Gateway) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/withdrawals", g.around("/v1/withdrawals", (*request).submit))
	mux.Handle("GET /v1/withdrawals/{key}", g.around("/v1/withdrawals/{key}", (*request).read))
	mux.Handle("POST /v1/withdrawals/{key}/cancel", g.around("/v1/withdrawals/{key}/cancel", (*request).cancel))
	mux.HandleFunc("GET /openapi.json", serveOpenAPI)
	for path, allow := range map[string]string{
		"/v1/withdrawals": "POST", "/v1/withdrawals/{key}": "GET, HEAD", "/v1/withdrawals/{key}/cancel": "POST", "/openapi.json": "GET, HEAD",
	} {
		mux.Handle(path, g.plain(path, func(q *request) {
			q.w.Header().Set("Allow", allow)
			q.refuse(problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Detail: "this path takes " + allow})
		}))
	}
	mux.Handle("/", g.plain("other", func(q *request) {
		q.refuse(problem{Status: http.StatusNotFound, Code: "not_found", Detail: "there is nothing at this path; see /openapi.json"})
	}))
	return mux
}
