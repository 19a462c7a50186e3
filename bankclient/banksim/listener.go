package banksim

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
)

type listener struct {
	net.Listener
	idle func()
}

func newListener(b *Bank, ln net.Listener) *listener { return &listener{Listener: ln} }

func (l *listener) shut() { _ = l.Close() }

func (b *Bank) tlsConfig() *tls.Config { return b.options.TLS }

func withConnection(ctx context.Context, c net.Conn) context.Context { return ctx }

func served(r *http.Request) {}

func reset(w http.ResponseWriter) {}

// silent drops what net/http would print about broken connections: they are this bank's business.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }
