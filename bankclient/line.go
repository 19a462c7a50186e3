package bankclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// maxHead bounds the status lines and headers of one answer, all 1xx before it included.
const maxHead = 64 << 10

var (
	errHeadTooLarge = errors.New("head of the answer is too large")
	errHeaderValue  = errors.New("a header value holds a control character")
)

// line is one connection over HTTP/1.1. A call writes its request and reads the answer in its own goroutine: nothing reads ahead, nothing
// writes for it, and so nothing can send a second time or go on after the caller has left.
type line struct {
	conn   net.Conn
	secure *tls.Conn       // conn, where it is TLS
	raw    syscall.RawConn // of the socket below; nil = it cannot be looked at, so the line serves one call
	in     *bufio.Reader   // reads from the line itself
	left   int64           // how much may still be read
	out    []byte          // request under way
	used   bool            // it has carried a request before
	since  time.Time       // idle since then

	look func(fd uintptr) bool // made once
	one  [1]byte
	calm bool
}

func newLine(socket, conn net.Conn) *line {
	l := &line{conn: conn}
	l.secure, _ = conn.(*tls.Conn)
	l.in = bufio.NewReaderSize(l, 4<<10)
	if below, ok := socket.(syscall.Conn); ok && canLook {
		l.raw, _ = below.SyscallConn() // without it the line serves one call
	}
	l.look = l.lookAt
	return l
}

// Read reads from the connection as far as the answer may go.
func (l *line) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errHeadTooLarge
	}
	n, err := l.conn.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	return n, err
}

// quiet says whether an idle line is open and nothing came in since the last answer. Bytes that lie there cannot be the answer to a request
// that was not written yet, and an end or an alert shows that the partner has left. It leaves deadline as that of the next call.
func (l *line) quiet(deadline time.Time) bool {
	if l.raw == nil || l.conn.SetDeadline(deadline) != nil || l.raw.Read(l.look) != nil || !l.calm {
		return false
	}
	if l.secure == nil {
		return true
	}
	// What was read from the socket with the last answer but not handed out yet. With a deadline in the past nothing more is read.
	if l.conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	n, err := l.conn.Read(l.one[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && l.conn.SetDeadline(deadline) == nil
}

// interrupt ends whatever the line waits for.
func (l *line) interrupt() { _ = l.conn.SetDeadline(time.Unix(1, 0)) } // one that fails has ended already

// exchange writes one request and reads its answer. It says whether the line can carry another one.
func (l *line) exchange(x *exchange, limit int64) (again bool) {
	x.advance(PhaseWroteHeaders) // from here on bytes may have left
	if _, err := l.conn.Write(l.out); err != nil {
		x.err = err
		return false
	}
	x.wrote.Store(true)
	x.advance(PhaseWroteRequest)
	l.left = maxHead
	if _, err := l.in.Peek(1); err != nil {
		x.err = err
		return false
	}
	x.advance(PhaseFirstByte)
	for {
		answer, err := http.ReadResponse(l.in, nil)
		if err != nil {
			x.err = err
			return false
		}
		if answer.StatusCode >= http.StatusOK || answer.StatusCode == http.StatusSwitchingProtocols {
			l.left = math.MaxInt64 // the body has a limit of its own
			x.read(answer, limit)
			return !answer.Close && Phase(x.phase.Load()) == PhaseComplete && x.err == nil && !x.tooLarge && l.in.Buffered() == 0
		}
	}
}

// exchangeDirectly makes the exchange on a line.
func (p *Partner) exchangeDirectly(ctx context.Context, x *exchange, rq request) {
	auth := p.fixed.authorization(p.cfg.Token())[0]
	if !headerValue(auth) || !headerValue(rq.key) {
		x.err = errHeaderValue
		return
	}
	deadline := time.Now().Add(p.cfg.Timeout)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		deadline = sooner
	}
	l, err := p.lines.get(ctx, deadline)
	if err != nil {
		x.err = ended(ctx, err)
		return
	}
	x.reused = l.used
	x.advance(PhaseConnected)
	l.out = p.appendRequest(l.out[:0], &rq, auth)
	stop := context.AfterFunc(ctx, l.interrupt)
	again := l.exchange(x, p.limit)
	again = stop() && again
	x.err = ended(ctx, x.err)
	p.lines.put(l, again)
}

// ended says of a call that its context or its time has ended, if it was that; what the connection says then is only how it noticed.
func ended(ctx context.Context, err error) error {
	switch {
	case err == nil || alertOf(err) != "":
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded
	}
	return err
}

func (p *Partner) appendRequest(b []byte, rq *request, auth string) []byte {
	b = append(append(b, rq.method...), ' ')
	b = append(append(b, rq.url.RequestURI()...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, rq.url.Host...), "\r\nUser-Agent: paidonce\r\nAccept: application/json\r\nAuthorization: "...)
	b = append(append(b, auth...), "\r\n"...)
	if rq.key != "" && p.fixed.keyHeader != "" {
		b = append(append(b, p.fixed.keyHeader...), ": "...)
		b = append(append(b, rq.key...), "\r\n"...)
	}
	if rq.body != nil {
		b = append(b, "Content-Type: application/json\r\nContent-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(rq.body)), 10), "\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, rq.body...)
}

// headerValue says whether a text may stand in a header.
func headerValue(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
