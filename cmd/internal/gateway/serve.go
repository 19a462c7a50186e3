package gateway

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// Grace is how long requests in work have to get their answers when the server stops.
const Grace = 10 * time.Second

// Server serves a gateway on an address.
type Server struct {
	listener net.Listener
	server   *http.Server
	grace    time.Duration
}

// Listen takes the address; Run serves. TLS is the business of whoever stands in front.
func Listen(address string, g *Gateway) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for requests: %w", err)
	}
	return &Server{listener: listener, grace: Grace, server: &http.Server{
		Handler:           g,
		ReadHeaderTimeout: g.opts.HeaderTimeout,
		ReadTimeout:       g.opts.ReadTimeout,
		WriteTimeout:      mostWait + g.opts.ReadTimeout,
		IdleTimeout:       g.opts.IdleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(lines{g.opts.Log}, "", 0),
	}}, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends; then requests in work have a grace to get their answers.
func (s *Server) Run(ctx context.Context) error {
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
		defer cancel()
		if s.server.Shutdown(grace) != nil {
			_ = s.server.Close() // whoever has no answer repeats it, with the same key
		}
	})
	err := s.server.Serve(s.listener)
	if stop() {
		return fmt.Errorf("serve requests: %w", err)
	}
	<-drained
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve requests: %w", err)
	}
	return nil
}

// lines passes on what net/http says of connections, without its text: that may quote a caller.
type lines struct{ log zerolog.Logger }

// Write implements io.Writer.
func (l lines) Write(p []byte) (int, error) {
	l.log.Debug().Int("bytes", len(p)).Msg("a connection failed")
	return len(p), nil
}
