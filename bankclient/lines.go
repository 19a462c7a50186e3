package bankclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"
)

// lines are the connections to one partner: at most as many as calls may run at the same time, the last one used first.
type lines struct {
	address     string
	dial        dialer
	secure      *tls.Config // nil = not TLS
	tlsTimeout  time.Duration
	idleTimeout time.Duration
	places      chan struct{} // one per connection in use

	mu     sync.Mutex
	idle   []*line // the longest idle first
	sweep  *time.Timer
	closed bool
}

func newLines(base *url.URL, cfg Config) *lines {
	s := &lines{
		dial: cfg.DialContext, tlsTimeout: cfg.TLSTimeout, idleTimeout: cfg.IdleTimeout, places: make(chan struct{}, cfg.MaxInFlight),
	}
	if s.dial == nil {
		s.dial = (&net.Dialer{Timeout: cfg.DialTimeout}).DialContext
	}
	port := base.Port()
	if base.Scheme == "https" {
		s.secure = secureConfig(cfg)
		if s.secure.ServerName == "" {
			s.secure.ServerName = base.Hostname()
		}
		if port == "" {
			port = "443"
		}
	}
	if port == "" {
		port = "80"
	}
	s.address = net.JoinHostPort(base.Hostname(), port)
	return s
}

// get gives a line that is ready to be written to, or the reason why there is none, in which case nothing was sent.
func (s *lines) get(ctx context.Context, deadline time.Time) (*line, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.places <- struct{}{}:
	default:
		wait, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		select {
		case s.places <- struct{}{}:
		case <-wait.Done():
			return nil, wait.Err()
		}
	}
	for l := s.take(); l != nil; l = s.take() {
		if l.quiet(deadline) {
			return l, nil
		}
		_ = l.conn.Close() // it is of no more use
	}
	l, err := s.open(ctx, deadline)
	if err != nil {
		<-s.places
		return nil, err
	}
	return l, nil
}

func (s *lines) take() *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}
	l := s.idle[last]
	s.idle[last] = nil
	s.idle = s.idle[:last]
	if time.Since(l.since) > s.idleTimeout { // the others have been idle for longer
		s.closeIdle(len(s.idle))
		_ = l.conn.Close() // it is of no more use
		return nil
	}
	return l
}

// put gives a line back, to be used again or to be closed.
func (s *lines) put(l *line, again bool) {
	if again && l.raw != nil {
		l.used, l.since = true, time.Now()
		s.mu.Lock()
		if !s.closed {
			s.idle = append(s.idle, l)
			if s.sweep == nil {
				s.sweep = time.AfterFunc(s.idleTimeout, s.sweepIdle)
			}
			l = nil
		}
		s.mu.Unlock()
	}
	if l != nil {
		_ = l.conn.Close() // what matters was read
	}
	<-s.places
}

// sweepIdle closes what has been idle for too long, and comes again while anything is idle.
func (s *lines) sweepIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.idle) && time.Since(s.idle[n].since) >= s.idleTimeout {
		n++
	}
	s.closeIdle(n)
	if s.sweep = nil; len(s.idle) > 0 {
		s.sweep = time.AfterFunc(max(s.idleTimeout-time.Since(s.idle[0].since), time.Millisecond), s.sweepIdle)
	}
}

// closeIdle closes the first n, under the lock.
func (s *lines) closeIdle(n int) {
	for _, l := range s.idle[:n] {
		_ = l.conn.Close() // it is of no more use
	}
	rest := copy(s.idle, s.idle[n:])
	clear(s.idle[rest:])
	s.idle = s.idle[:rest]
}

// close closes what is idle, and what becomes so.
func (s *lines) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.closeIdle(len(s.idle))
	if s.sweep != nil {
		s.sweep.Stop()
	}
}

// errHandshakeTimeout tells a partner that does not finish its handshake from a call that has no more time.
var errHandshakeTimeout = errors.New("TLS handshake timeout")

func (s *lines) open(ctx context.Context, deadline time.Time) (*line, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	socket, err := s.dial(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	conn := socket
	if s.secure != nil {
		secure := tls.Client(socket, s.secure)
		shaking, stop := context.WithTimeout(ctx, s.tlsTimeout)
		err = secure.HandshakeContext(shaking)
		stop()
		if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = errHandshakeTimeout
		}
		conn = secure
	}
	if err == nil {
		err = conn.SetDeadline(deadline)
	}
	if err != nil {
		_ = socket.Close() // the reason is the error
		return nil, err
	}
	return newLine(socket, conn), nil
}
