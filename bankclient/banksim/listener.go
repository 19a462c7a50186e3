package banksim

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// silent drops what net/http would print about broken connections: they are this bank's business.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// listener lets faults act on connections. It can close its socket, so that dials are refused, and open it again.
type listener struct {
	bank    *Bank
	address net.Addr
	keep    func(bool) // whether connections are kept after an answer; false also ends idle ones

	mu      sync.Mutex
	inner   net.Listener  // nil while refusing
	changed chan struct{} // closed when inner changes
	closed  bool
	held    map[net.Conn]struct{}
}

func newListener(b *Bank, ln net.Listener) *listener {
	return &listener{bank: b, address: ln.Addr(), inner: ln, changed: make(chan struct{}), held: map[net.Conn]struct{}{}, keep: func(bool) {}}
}

func (l *listener) current() (net.Listener, <-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inner, l.changed, l.closed
}

// Accept gives the next connection that no fault took.
func (l *listener) Accept() (net.Conn, error) {
	for {
		ln, changed, closed := l.current()
		if closed {
			return nil, net.ErrClosed
		}
		if ln == nil {
			<-changed
			continue
		}
		conn, err := ln.Accept()
		if err != nil {
			if now, _, closed := l.current(); now == ln || closed {
				return nil, err
			}
			continue // refused in the meantime
		}
		name, m, found := l.bank.connectionFault(faultBlackHole, faultSlowAccept, faultResetOnAccept)
		switch {
		case !found:
			return conn, nil
		case name == faultResetOnAccept:
			end(conn, true)
		case name == faultBlackHole:
			l.hold(conn)
		case name == faultSlowAccept:
			return &slowConn{Conn: conn, bank: l.bank, delay: m.delay}, nil
		}
	}
}

// hold keeps a connection without ever reading from it; it ends with the bank.
func (l *listener) hold(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return
	}
	l.held[conn] = struct{}{}
}

func (l *listener) Addr() net.Addr { return l.address }

// Close is what a server calls; the bank calls it too.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.changed)
	for conn := range l.held {
		end(conn, true)
	}
	if l.inner == nil {
		return nil
	}
	return l.inner.Close()
}

func (l *listener) refuse() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.inner == nil {
		return nil
	}
	err := l.inner.Close()
	l.change(nil)
	l.keep(false)
	return err
}

func (l *listener) change(inner net.Listener) {
	l.inner = inner
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listener) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.inner != nil {
		return nil
	}
	inner, err := net.Listen(l.address.Network(), l.address.String())
	if err != nil {
		return err
	}
	l.keep(true)
	l.change(inner)
	return nil
}

// refuseConnections closes the sockets, for the time given or until acceptConnections.
func (b *Bank) refuseConnections(d time.Duration) error {
	var problems []error
	for _, ln := range b.served() {
		problems = append(problems, ln.refuse())
	}
	if d > 0 {
		b.inBackground(func() {
			if b.clock.wait(d, b.closed) {
				_ = b.clearFaults(func(r *rule) bool { return r.fault.Name == faultRefuse }) // a taken port shows as refused
			}
		})
	}
	return errors.Join(problems...)
}

func (b *Bank) acceptConnections() error {
	var problems []error
	for _, ln := range b.served() {
		problems = append(problems, ln.reopen())
	}
	return errors.Join(problems...)
}

func (b *Bank) served() []*listener {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listeners
}

// slowConn waits before its first read.
type slowConn struct {
	net.Conn
	bank  *Bank
	delay time.Duration
	once  sync.Once
}

func (c *slowConn) Read(p []byte) (int, error) {
	c.once.Do(func() { c.bank.clock.wait(c.delay, c.bank.closed) })
	return c.Conn.Read(p)
}

// NetConn gives the connection below.
func (c *slowConn) NetConn() net.Conn { return c.Conn }

// tlsConfig is the configured TLS, with client certificates refused on demand.
func (b *Bank) tlsConfig() *tls.Config {
	config := b.options.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	before := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		_, m, found := b.connectionFault(faultTLSRefusesPeer)
		if !found {
			if before != nil {
				return before(hello)
			}
			return nil, nil
		}
		strict := b.options.TLS.Clone()
		strict.NextProtos = []string{"http/1.1"}
		strict.GetConfigForClient = nil
		strict.MinVersion, strict.MaxVersion = tlsVersion(m.value), tlsVersion(m.value)
		strict.ClientAuth = tls.RequireAnyClientCert
		strict.VerifyConnection = func(tls.ConnectionState) error { return errors.New("client certificate refused") }
		return strict, nil
	}
	return config
}

// connection counts what a connection has served.
type connection struct{ served atomic.Int64 }

type connectionKey struct{}

func withConnection(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, new(connection))
}

// reused tells whether the connection of a request has served one before.
func reused(r *http.Request) bool {
	if r == nil {
		return false
	}
	c, ok := r.Context().Value(connectionKey{}).(*connection)
	return ok && c.served.Load() > 0
}

// served counts a request for its connection once it is over.
func served(r *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		c.served.Add(1)
	}
}
