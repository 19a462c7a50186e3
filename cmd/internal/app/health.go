package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health serves /livez, /readyz and /metrics. Its answers wait for nothing.
type Health struct {
	listener net.Listener
	server   *http.Server
}

// ListenHealth takes the address; Run serves.
func ListenHealth(address string, ready *Ready, metrics prometheus.Gatherer) (*Health, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health: %w", err)
	}
	return &Health{listener: listener, server: &http.Server{
		Handler:           HealthHandler(ready, metrics),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}}, nil
}

// HealthHandler answers probes and scrapes.
func HealthHandler(ready *Ready, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answerReady(w, ready.Reasons(), ready.Warnings()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 20 * time.Second}))
	return mux
}

// ServeProfiles adds /debug/pprof; it is called before Run.
func (h *Health) ServeProfiles() {
	mux := http.NewServeMux()
	mux.Handle("/", h.server.Handler)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	h.server.Handler = mux
}

func answerReady(w http.ResponseWriter, reasons, warnings []Reason) {
	if reasons == nil {
		reasons = []Reason{}
	}
	body, err := json.Marshal(struct {
		Ready    bool     `json:"ready"`
		Reasons  []Reason `json:"reasons"`
		Warnings []Reason `json:"warnings,omitempty"` // none of them makes a process unready
	}{len(reasons) == 0, reasons, warnings})
	if err != nil {
		panic("reasons are plain text: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if len(reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n'))
}

// Addr is where it listens.
func (h *Health) Addr() string { return h.listener.Addr().String() }

// Run serves until ctx ends.
func (h *Health) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if h.server.Shutdown(grace) != nil {
			_ = h.server.Close() // a scrape that is still running has had its second
		}
	})
	defer stop()
	if err := h.server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health: %w", err)
	}
	return nil
}
