package bankclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// maxHeaders bounds the headers of an answer, with those of interim answers before it.
const maxHeaders = 64 << 10

// line is an HTTP/1.1 connection that one call at a time has to itself. The caller's own goroutine writes the request and reads the answer, both with
// net/http (Request.Write, ReadResponse). Its Transport hands them to two goroutines of the connection, and waking those was a third of the cost
// of a call. It also listens while no call is under way; here the next call looks (quiet), and a line on which anything has come is not used.
type line struct {
	conn    net.Conn // over TLS if there is any
	watched *watched
	in      *bufio.Reader
	left    io.LimitedReader // below in
	expire  func()           // ends what is under way
	look    *look            // nil if what has come cannot be seen: then the line serves one call
	reused  bool
	idle    time.Time // since when
}

func newLine(conn net.Conn, below *watched) *line {
	c := &line{conn: conn, watched: below, look: newLook(below.Conn)}
	c.left.R = conn
	c.in = bufio.NewReaderSize(&c.left, 4<<10)
	c.expire = func() { _ = conn.SetDeadline(time.Unix(1, 0)) } // fails only on a closed connection
	return c
}

// quiet says that the other side has neither written nor closed.
func (c *line) quiet() bool { return c.in.Buffered() == 0 && c.look.nothing() }

func (c *line) close() { _ = c.conn.Close() } // nobody uses it again; its error adds nothing

// lines are the connections to one partner.
type lines struct {
	dial      dialer
	addr      string
	secure    *tls.Config // nil: plain
	handshake time.Duration
	keep      time.Duration // idle for longer, a line is closed
	slots     chan struct{} // as many as there may be lines; nil: no bound

	mu    sync.Mutex
	idle  []*line // the longest idle first
	sweep *time.Timer
}

// newLines makes the connections of a partner; nil where they are net/http's: over HTTP/2, through a proxy, and to a name that has to be translated.
func newLines(cfg Config, profile Profile, create *url.URL) *lines {
	host, port := create.Hostname(), create.Port()
	if profile.AllowsHTTP2 || cfg.Proxy != nil || slices.ContainsFunc([]byte(host), func(b byte) bool { return b >= 0x80 }) {
		return nil
	}
	l := &lines{dial: dialerOf(cfg), handshake: cfg.TLSTimeout, keep: cfg.IdleTimeout}
	if cfg.MaxInFlight > 0 {
		l.slots = make(chan struct{}, cfg.MaxInFlight)
	}
	if create.Scheme == "https" {
		l.secure = secureOf(cfg)
		l.secure.NextProtos = slices.DeleteFunc(slices.Clone(l.secure.NextProtos), func(s string) bool { return s == "h2" })
		if l.secure.ServerName == "" {
			l.secure.ServerName = host
		}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[create.Scheme]
	}
	l.addr = net.JoinHostPort(host, port)
	return l
}

// get gives a line that is the caller's until put. Without one, not a byte of a request was written.
func (l *lines) get(ctx context.Context, deadline time.Time) (*line, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.slots != nil {
		select {
		case l.slots <- struct{}{}:
		default:
			if err := l.wait(ctx, deadline); err != nil {
				return nil, err
			}
		}
	}
	for c := l.pop(); c != nil; c = l.pop() {
		if c.conn.SetDeadline(deadline) == nil && c.quiet() {
			return c, nil
		}
		c.close()
	}
	c, err := l.open(ctx, deadline)
	if err != nil {
		l.leave()
	}
	return c, err
}

func (l *lines) wait(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lines) leave() {
	if l.slots != nil {
		<-l.slots
	}
}

// put takes a line back. It is kept only if everything that belongs to the call was read from it, and nothing else.
func (l *lines) put(c *line, keep bool) {
	if keep && c.look != nil {
		c.watched.renew()
		c.reused, c.idle = true, time.Now()
		l.mu.Lock()
		l.idle = append(l.idle, c)
		if l.sweep == nil {
			l.sweep = time.AfterFunc(l.keep, l.closeOld)
		}
		l.mu.Unlock()
	} else {
		c.close()
	}
	l.leave()
}

// pop takes the line that was used last.
func (l *lines) pop() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle) - 1
	if n < 0 {
		return nil
	}
	c := l.idle[n]
	l.idle[n], l.idle = nil, l.idle[:n]
	return c
}

// closeOld closes what has been idle for too long, and comes again while there is any.
func (l *lines) closeOld() {
	now := time.Now()
	l.mu.Lock()
	n := 0
	for n < len(l.idle) && now.Sub(l.idle[n].idle) >= l.keep {
		n++
	}
	old := slices.Clone(l.idle[:n])
	l.idle = slices.Delete(l.idle, 0, n)
	if l.sweep = nil; len(l.idle) > 0 {
		l.sweep = time.AfterFunc(l.idle[0].idle.Add(l.keep).Sub(now), l.closeOld)
	}
	l.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// closeIdle closes what no call uses; nil has nothing.
func (l *lines) closeIdle() {
	if l == nil {
		return
	}
	for c := l.pop(); c != nil; c = l.pop() {
		c.close()
	}
}

var errHandshakeTimeout = errors.New("TLS handshake timeout")

func (l *lines) open(ctx context.Context, deadline time.Time) (*line, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	plain, err := l.dial(ctx, "tcp", l.addr)
	if err != nil {
		return nil, err
	}
	below := newWatched(plain)
	conn := net.Conn(below)
	if l.secure != nil {
		secure := tls.Client(below, l.secure)
		shaking, stop := context.WithTimeout(ctx, l.handshake)
		err := secure.HandshakeContext(shaking)
		if late := shaking.Err() != nil && ctx.Err() == nil; err != nil && late {
			err = errHandshakeTimeout
		}
		if stop(); err != nil {
			_ = below.Close() // the handshake's error says more
			return nil, err
		}
		conn = secure
	}
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newLine(conn, below), nil
}

// direct makes the exchange over a line.
func (p *Partner) direct(ctx context.Context, rq request) *exchange {
	x := p.pool.get()
	x.inTime = rq.inTime
	if x.err = p.render(x, rq); x.err != nil {
		return x
	}
	deadline := time.Now().Add(p.cfg.Timeout)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		deadline = sooner
	}
	c, err := p.lines.get(ctx, deadline)
	if err != nil {
		x.err = ended(ctx, err)
		return x
	}
	x.conn, x.watched, x.reused = c.conn, c.watched, c.reused
	c.watched.begin(x)
	x.advance(PhaseConnected)
	stop := context.AfterFunc(ctx, c.expire)
	keep := p.talk(x, c)
	keep = stop() && keep // what has begun to expire it may do so later
	p.lines.put(c, keep)
	x.err = ended(ctx, x.err)
	return x
}

// ended is the error in the terms of the context whose end it is.
func ended(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return context.DeadlineExceeded
	}
}

// render makes the bytes of the request, before there is a connection that they could leave by.
func (p *Partner) render(x *exchange, rq request) error {
	p.fill(x, rq)
	if strings.ContainsFunc(x.header["Authorization"][0], unicode.IsControl) { // Request.Write would take it
		return errUnfit
	}
	x.reader.Reset(rq.body)
	x.request.Method, x.request.URL, x.request.Host = rq.method, rq.url, rq.url.Host
	x.request.ContentLength = int64(len(rq.body))
	x.out.Reset()
	return x.request.Write(&x.out)
}

var errUnfit = errors.New("the token is not fit for a header")

// talk writes the request and reads the answer; true if another request may follow on the line.
func (p *Partner) talk(x *exchange, c *line) (again bool) {
	x.advance(PhaseWroteHeaders) // from here on some of it may have left
	if _, x.err = c.conn.Write(x.out.Bytes()); x.err != nil {
		return false
	}
	x.wrote.Store(true)
	x.advance(PhaseWroteRequest)
	c.left.N = maxHeaders
	if _, x.err = c.in.Peek(1); x.err != nil {
		return false
	}
	x.gotFirstByte()
	answer, err := http.ReadResponse(c.in, &x.request)
	for err == nil && answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
		answer, err = http.ReadResponse(c.in, &x.request) // within the same limit
	}
	if x.err = err; err != nil {
		return false
	}
	c.left.N = math.MaxInt64 // the body has a limit of its own
	x.read(answer, p.limit)
	return x.complete() && !answer.Close && created(x.status) && answer.Body != http.NoBody && !p.mayOweAnError(x.conn)
}

// complete says that the whole answer was read, and that it is one to this request.
func (x *exchange) complete() bool {
	return x.err == nil && !x.tooLarge && !x.early.Load() && Phase(x.phase.Load()) == PhaseComplete
}
