package banksim

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// takeOver gives the raw connection of a request.
func takeOver(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // no connection of ours: ending the exchange is all that is left
	}
	return conn
}

// end closes a connection for real: with TLS, without the goodbye that would tell the client that all was well.
func end(conn net.Conn, hard bool) {
	raw := conn
	for {
		inner, ok := raw.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		raw = inner.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok && hard {
		_ = tcp.SetLinger(0) // closing then sends a reset
	}
	_ = raw.Close()
}

func cutOff(w http.ResponseWriter, hard bool) { end(takeOver(w), hard) }

func spoilReset(_ *Bank, w http.ResponseWriter, _ *http.Request, _ *reply, _ *plan) { cutOff(w, true) }

func spoilClose(_ *Bank, w http.ResponseWriter, _ *http.Request, _ *reply, _ *plan) { cutOff(w, false) }

// spoilHang waits for the client to leave.
func spoilHang(b *Bank, w http.ResponseWriter, r *http.Request, _ *reply, p *plan) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(b.life, cancel)
	defer stop()
	b.clock.wait(p.page.delay, ctx.Done())
	cutOff(w, true)
}

// rawHead is a status line and headers as bytes; length below zero leaves the length out.
func (b *Bank) rawHead(rp *reply, length int, more ...string) []byte {
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nDate: %s\r\n",
		rp.status, http.StatusText(rp.status), time.Now().UTC().Format(http.TimeFormat))
	if rp.location != "" {
		head = fmt.Appendf(head, "Location: %s\r\n", rp.location)
	}
	if rp.replayed {
		head = append(head, "Idempotent-Replayed: true\r\n"...)
	}
	if length >= 0 {
		head = fmt.Appendf(head, "Content-Length: %d\r\n", length)
	}
	for _, line := range more {
		head = append(append(head, line...), "\r\n"...)
	}
	return append(head, "\r\n"...)
}

// half is at least one byte and never all.
func half(body []byte) []byte { return body[:max(len(body)/2, min(1, len(body)))] }

func (b *Bank) sendRaw(w http.ResponseWriter, bytes ...[]byte) {
	conn := takeOver(w)
	for _, part := range bytes {
		_, _ = conn.Write(part) // the client may be gone
	}
	end(conn, false)
}

func spoilCutHeaders(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	p.answered = rp.status
	b.sendRaw(w, half(b.rawHead(rp, len(b.payload(rp)))))
}

func spoilCutLength(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	p.answered = rp.status
	body := b.payload(rp)
	b.sendRaw(w, b.rawHead(rp, len(body)), half(body))
}

func spoilCutChunked(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	p.answered = rp.status
	body := b.payload(rp)
	b.sendRaw(w, b.rawHead(rp, -1, "Transfer-Encoding: chunked"), fmt.Appendf(nil, "%x\r\n", len(body)), half(body))
}

func spoilCutClose(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	p.answered = rp.status
	b.sendRaw(w, b.rawHead(rp, -1, "Connection: close"), half(b.payload(rp)))
}

// spoilProcessing sends a 102 and nothing more.
func spoilProcessing(b *Bank, w http.ResponseWriter, _ *http.Request, _ *reply, p *plan) {
	p.answered = http.StatusProcessing
	b.interim(takeOver(w), http.StatusProcessing, p.page.delay)
}

// interim writes an interim answer and holds the connection until the client leaves or the time is over.
func (b *Bank) interim(conn net.Conn, status int, hold time.Duration) {
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n\r\n", status, http.StatusText(status))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var one [1]byte
		_, _ = conn.Read(one[:]) // an answered client says nothing more: this ends with the connection
	}()
	ctx, cancel := context.WithCancel(b.life)
	defer cancel()
	go func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	b.clock.wait(hold, ctx.Done())
	end(conn, true)
	<-gone
}

func spoilRedirect(b *Bank, w http.ResponseWriter, r *http.Request, _ *reply, p *plan) {
	target := p.page.value
	if target == "" {
		target = r.URL.RequestURI()
	}
	delete(w.Header(), "Idempotency-Key") // so speaks a proxy
	w.Header().Set("Location", target)
	p.answered = p.page.status
	w.WriteHeader(p.page.status)
}

func spoilHTML(_ *Bank, w http.ResponseWriter, _ *http.Request, _ *reply, p *plan) {
	delete(w.Header(), "Idempotency-Key") // so speaks a proxy
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.answered = p.page.status
	w.WriteHeader(p.page.status)
	_, _ = fmt.Fprintf(w, "<html><head><title>%d %s</title></head><body><center><h1>gateway</h1></center></body></html>\n",
		p.page.status, http.StatusText(p.page.status))
}

func spoilContentType(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	p.answered = rp.status
	body := b.payload(rp)
	w.Header().Set("Content-Type", p.page.value)
	w.WriteHeader(rp.status)
	_, _ = w.Write(body)
}

// replaced answers with the same head and another body.
func (b *Bank) replaced(w http.ResponseWriter, rp *reply, p *plan, body []byte) {
	p.answered = rp.status
	b.answer(w, &reply{status: rp.status, location: rp.location, replayed: rp.replayed, retryAfter: rp.retryAfter, body: body})
}

func spoilTwice(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	body := b.payload(rp)
	b.replaced(w, rp, p, bytes.Join([][]byte{body, body}, []byte("\n")))
}

func spoilTruncated(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	b.replaced(w, rp, p, bytes.Clone(half(b.payload(rp))))
}

func spoilHuge(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	size, err := strconv.Atoi(p.page.value)
	if err != nil || size < 0 {
		size = 4 << 20
	}
	body := b.payload(rp)
	if len(body) < 2 {
		body = []byte(`{}`)
	}
	huge := append(bytes.Clone(body[:len(body)-1]), `,"padding":"`...)
	huge = append(append(huge, strings.Repeat("x", size)...), `"}`...)
	b.replaced(w, rp, p, huge)
}

func spoilEmpty(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	p.answered = rp.status
	if p.page.status != 0 {
		p.answered = p.page.status
	}
	b.answer(w, &reply{status: p.answered})
}

func spoilEmptyCreated(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	if rp.transfer == nil { // nothing was created: the answer stays what it is
		p.answered = rp.status
		b.answer(w, rp)
		return
	}
	p.answered = http.StatusCreated
	b.answer(w, &reply{status: http.StatusCreated, location: transfersPath + "/" + rp.transfer.id()})
}

func spoilCrossed(b *Bank, w http.ResponseWriter, _ *http.Request, rp *reply, p *plan) {
	other := &transfer{body: []byte(`"9.00""GBP"{"name":"Nobody"}"BBBBBBBBBBBBBBBBBBBBBBBBBB"`), at: b.clock.now().UnixNano(), status: "accepted", run: 1}
	other.fields = fields{amount: span{0, 6}, currency: span{6, 11}, beneficiary: span{11, 28}, endToEnd: span{28, 56}}
	all := b.store.page(0)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] != nil && all[i].key != p.key {
			other = all[i]
			break
		}
	}
	body := other.render(b.buffer(), b.clock.now(), view{})
	if rp.status == http.StatusOK && bytes.HasPrefix(rp.body, []byte(`{"data":`)) {
		body = append(append([]byte(`{"data":[`), body...), `]}`...)
	}
	p.answered = rp.status
	if rp.code != "" {
		p.answered = http.StatusCreated
	}
	b.answer(w, &reply{status: p.answered, body: body})
}

func spoilStatus(b *Bank, w http.ResponseWriter, _ *http.Request, _ *reply, p *plan) {
	p.answered = p.page.status
	if p.page.status < 200 {
		b.interim(takeOver(w), p.page.status, time.Hour)
		return
	}
	answer := &reply{status: p.page.status, code: p.page.value}
	if p.page.status == http.StatusTooManyRequests || p.page.status == http.StatusServiceUnavailable {
		answer.retryAfter = p.page.retryAfter
	}
	b.answer(w, answer)
}

// tlsVersion reads "1.2" and "1.3".
func tlsVersion(text string) uint16 {
	if text == "1.2" {
		return tls.VersionTLS12
	}
	return tls.VersionTLS13
}
