package bankclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sealed stands in exchange.phase once the caller has gone away before the headers were written.
const sealed = 1 << 8

// exchange is one request and what came of it. It is used again only after an exchange that ended cleanly: then the
// transport holds nothing of it any more.
type exchange struct {
	phase     atomic.Uint32 // a Phase, or sealed
	wrote     atomic.Bool   // the whole request was handed to the connection
	begun     atomic.Bool   // its first byte was handed to the connection, if that is watched
	early     atomic.Bool   // the answer lay there before the request was written: it is another request's
	late      atomic.Bool   // inTime said no
	inTime    func() bool   // nil = always
	cancel    context.CancelFunc
	conn      net.Conn
	watched   *watched // nil over HTTP/2
	reused    bool
	hooks     httptrace.ClientTrace // made once
	trace     httptrace.ClientTrace // copy for one call, as httptrace may write to it
	header    http.Header
	headerKey [1]string
	reader    bytes.Reader
	request   http.Request // of a line; its body is reader
	out       bytes.Buffer // its bytes

	// The answer.
	err      error // of the transport, before or inside of the body
	status   int   // 0 = none
	answer   http.Header
	body     []byte // capacity is kept
	tooLarge bool
	elapsed  time.Duration
}

func newExchange() *exchange {
	x := &exchange{header: make(http.Header, 8)}
	x.hooks = httptrace.ClientTrace{
		GotConn:              x.gotConn,
		WroteHeaders:         x.wroteHeaders,
		WroteRequest:         x.wroteRequest,
		GotFirstResponseByte: x.gotFirstByte,
	}
	x.request = http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: x.header, Body: io.NopCloser(&x.reader),
	}
	return x
}

func (x *exchange) gotConn(info httptrace.GotConnInfo) {
	x.conn, x.reused = info.Conn, info.Reused
	if x.watched = watchedOf(info.Conn); x.watched != nil {
		x.watched.begin(x)
	} else if x.isLate() {
		x.cancel()
	}
	x.advance(PhaseConnected)
}

// wroteHeaders runs on the connection's writer before anything is flushed. If the caller has left meanwhile and has called
// this NotExecuted, the connection is closed here, so that it stays true.
func (x *exchange) wroteHeaders() {
	if !x.advance(PhaseWroteHeaders) {
		_ = x.conn.Close() // whatever it says, it cannot be written to after this
	}
}

func (x *exchange) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err == nil {
		x.wrote.Store(true)
		x.advance(PhaseWroteRequest)
	}
}

func (x *exchange) gotFirstByte() {
	if x.watched != nil && !x.watched.answered() {
		x.early.Store(true)
	}
	x.advance(PhaseFirstByte)
}

// isLate says whether it is too late for the request to leave.
func (x *exchange) isLate() bool {
	if x.inTime == nil || x.inTime() {
		return false
	}
	x.late.Store(true)
	return true
}

// advance raises the phase and never lowers it; false if the exchange is sealed.
func (x *exchange) advance(to Phase) bool {
	for {
		now := x.phase.Load()
		switch {
		case now == sealed:
			return false
		case now >= uint32(to):
			return true
		case x.phase.CompareAndSwap(now, uint32(to)):
			return true
		}
	}
}

// seal ends the exchange and says how far it came. After it, an exchange that had not written its headers never will.
func (x *exchange) seal() Phase {
	for {
		now := x.phase.Load()
		if now >= uint32(PhaseWroteHeaders) || x.phase.CompareAndSwap(now, sealed) {
			return Phase(now)
		}
	}
}

// request is what one exchange sends.
type request struct {
	method string
	url    *url.URL
	key    string // partner key, where a header carries it
	body   []byte
	inTime func() bool
}

// fixed are header values that every request shares; nobody writes to them.
type fixed struct {
	json, agent []string
	// Names of headers in canonical form, "" = none.
	keyHeader, requestID, replay string

	auth atomic.Pointer[authorization]
}

type authorization struct {
	token string
	value []string
}

func (f *fixed) authorization(token string) []string {
	if a := f.auth.Load(); a != nil && a.token == token {
		return a.value
	}
	a := &authorization{token: token, value: []string{"Bearer " + strings.TrimSpace(token)}}
	f.auth.Store(a)
	return a.value
}

// pool hands out exchanges.
type pool struct{ free sync.Pool }

func (p *pool) get() *exchange {
	if x, ok := p.free.Get().(*exchange); ok {
		return x
	}
	return newExchange()
}

// put takes an exchange back if the transport has let go of it for certain; otherwise it is garbage.
func (p *pool) put(x *exchange) {
	if x.err != nil || x.tooLarge || !x.wrote.Load() || x.status < 200 || cap(x.body) > 64<<10 {
		return
	}
	x.phase.Store(0)
	x.wrote.Store(false)
	x.begun.Store(false)
	x.early.Store(false)
	x.late.Store(false)
	x.conn, x.watched, x.reused, x.status, x.answer = nil, nil, false, 0, nil
	x.inTime, x.cancel = nil, nil
	x.body, x.elapsed = x.body[:0], 0
	x.reader.Reset(nil)
	p.free.Put(x)
}

// do makes the exchange: one request, at most one answer, bounded by the context and the partner's timeout. A spent connection that the
// request was given is passed over; not a byte was written to it, so the request still leaves at most once.
func (p *Partner) do(ctx context.Context, rq request) *exchange {
	start := p.cfg.Clock()
	if p.lines != nil && rq.body != nil {
		x := p.direct(ctx, rq)
		x.elapsed = p.cfg.Clock().Sub(start)
		return x
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	for {
		x := p.pool.get()
		x.inTime, x.cancel = rq.inTime, cancel
		p.try(ctx, x, rq)
		x.elapsed = p.cfg.Clock().Sub(start)
		if x.err == nil || x.watched == nil || !x.watched.refused(x) || x.late.Load() || ctx.Err() != nil {
			return x
		} // else it is garbage: the transport may hold it still
	}
}

// try makes the exchange on the connection that the transport gives it.
func (p *Partner) try(ctx context.Context, x *exchange, rq request) {
	x.trace = x.hooks
	p.fill(x, rq)
	req := (&http.Request{
		Method: rq.method, URL: rq.url, Host: rq.url.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: x.header,
	}).WithContext(httptrace.WithClientTrace(ctx, &x.trace))
	if rq.body != nil {
		// GetBody stays nil. With it, net/http sends a POST that carries an idempotency key a second time by itself
		// when a kept-alive connection dies after the first was written.
		x.reader.Reset(rq.body)
		req.Body, req.ContentLength = io.NopCloser(&x.reader), int64(len(rq.body))
	}
	transport := p.transport
	if rq.body == nil {
		transport = p.lookUps
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		x.err = err
	} else {
		switch {
		case x.watched == nil:
		case created(resp.StatusCode) && rq.body != nil && resp.Body != http.NoBody && !p.mayOweAnError(x.conn):
			x.watched.renew()
		default:
			x.watched.spend()
			defer func() { _ = x.conn.Close() }() // what matters was read
		}
		x.read(resp, p.limit)
		_ = resp.Body.Close() // what matters was read; its error adds nothing
	}
}

// created says whether the answer to a create shows the transfer, which is compared with what was asked for. No other answer says whose it is:
// neither an error nor a list.
func created(status int) bool { return status >= 200 && status < 300 }

// mayOweAnError says whether the repeat of a create that was answered may still be answered on the connection by an error that the next call
// would take for its own. It cannot over TLS, which takes no byte twice; and it does no harm where the partner's errors name their request.
func (p *Partner) mayOweAnError(c net.Conn) bool {
	_, secure := c.(*tls.Conn)
	return !secure && !p.cfg.EchoesKey
}

func (p *Partner) fill(x *exchange, rq request) {
	h := x.header
	clear(h)
	h["Accept"], h["User-Agent"] = p.fixed.json, p.fixed.agent
	h["Authorization"] = p.fixed.authorization(p.cfg.Token())
	if rq.body != nil {
		h["Content-Type"] = p.fixed.json
	}
	if rq.key != "" && p.fixed.keyHeader != "" {
		x.headerKey[0] = rq.key
		h[p.fixed.keyHeader] = x.headerKey[:]
	}
}

// read takes the whole answer, within the limit.
func (x *exchange) read(resp *http.Response, limit int64) {
	x.status, x.answer = resp.StatusCode, resp.Header
	x.advance(PhaseFirstByte)
	if resp.StatusCode < 200 { // 101: the body is the connection itself and never ends
		return
	}
	if resp.ContentLength > limit {
		x.tooLarge = true
		return
	}
	if x.body == nil {
		x.body = make([]byte, 0, 1024)
	}
	for {
		if len(x.body) == cap(x.body) {
			x.body = append(x.body, 0)[:len(x.body)]
		}
		n, err := resp.Body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		switch {
		case int64(len(x.body)) > limit:
			x.tooLarge = true
			return
		case err == io.EOF:
			x.advance(PhaseComplete)
			return
		case err != nil:
			x.err = err
			return
		}
	}
}
