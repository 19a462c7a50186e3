package bankclient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

// killSecond answers the first request on a kept-alive connection and kills the connection when the second has arrived.
func killSecond(t *testing.T) *bank {
	return startBank(t, func(c net.Conn, n int, _ arrival) bool {
		if n == 2 {
			return false
		}
		_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
		return true
	})
}

// keyHeaders are names that partners use to carry the key; the first two are those that net/http takes as leave to re-send.
func keyHeaders() []string {
	return []string{"Idempotency-Key", "X-Idempotency-Key", "x-idempotency-key", "IDEMPOTENCY-KEY", "PayPal-Request-Id",
		"X-Request-Id", "Request-Id", "Client-Request-Id", "Idempotence-Key", "x-fapi-interaction-id"}
}

// G1, first half: the trap is real. A plain client re-sends the POST by itself, and its caller sees one 201.
func TestG1_PlainClientSendsTwice(t *testing.T) {
	for _, header := range keyHeaders()[:4] {
		b := killSecond(t)
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		for range 2 {
			req, err := http.NewRequest(http.MethodPost, b.URL+"/v1/transfers", bytes.NewReader([]byte("{}")))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(header, opPartner)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if n := len(b.seen()); n != 3 {
			t.Errorf("%s: two calls made %d requests; the trap that this package closes would be gone", header, n)
		}
	}
}

// G1, second half: one call, one send, whatever the key's header is called.
func TestG1_OneCallIsOneSend(t *testing.T) {
	for _, header := range keyHeaders() {
		b := killSecond(t)
		p := open(t, echoing(config(b.URL)), vary(func(p *bankclient.Profile) { p.Key.Header = header }))
		pr := prepare(t, p)
		wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
		r := p.Send(t.Context(), pr)
		wantVerdict(t, r, unknown, operation)
		if !r.Evidence.Reused {
			t.Errorf("%s: the second call did not reuse the connection", header)
		}
		arrivals := b.seen()
		if len(arrivals) != 2 {
			t.Fatalf("%s: two calls made %d requests", header, len(arrivals))
		}
		for _, a := range arrivals {
			if a.Header.Get(header) != opPartner {
				t.Errorf("%s: key on the wire is %q", header, a.Header.Get(header))
			}
		}
	}
}

func TestG1_RedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{300, 301, 302, 303, 304, 305, 306, 307, 308} {
		other := say(t, reply(200, jsonType, agreeing))
		b := say(t, reply(status, "", "", "Location: "+other.URL+"/v1/transfers"))
		wantVerdict(t, sendTo(t, b), unknown, operation)
		if len(b.seen()) != 1 || len(other.seen()) != 0 {
			t.Errorf("%d: %d requests here, %d at the new place", status, len(b.seen()), len(other.seen()))
		}
	}
}

// A3: the request was read, then the connection ended in one of many ways.
func TestA3_EndAfterRequestIsUnknown(t *testing.T) {
	length := func(n string) string {
		return "HTTP/1.1 201 X\r\nContent-Type: application/json\r\nContent-Length: " + n + "\r\n\r\n"
	}
	const chunked = "HTTP/1.1 201 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	const closing = "HTTP/1.1 201 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
	for name, answer := range map[string]string{
		"closed":                       "",
		"in the status line":           "HTTP/1.1 2",
		"in the headers":               "HTTP/1.1 201 X\r\nContent-Ty",
		"no HTTP":                      "SSH-2.0-OpenSSH\r\n",
		"length, no body":              length("300"),
		"length, whole document, more": length("300") + agreeing,
		"length, half":                 length("300") + agreeing[:100],
		"chunked, half a chunk":        chunked + "100\r\n" + agreeing[:100],
		"chunked, no last chunk":       chunked + "1\r\n{\r\n",
		"close-delimited, half":        closing + agreeing[:100],
		"close-delimited, but a byte":  closing + agreeing[:len(agreeing)-1],
		"close-delimited, nothing":     closing,
		"length, too long by far":      length("99999999999") + agreeing,
		"length negative":              length("-1") + agreeing,
		"headers larger than allowed":  "HTTP/1.1 201 X\r\n" + strings.Repeat("A: b\r\n", 20000) + closing[len("HTTP/1.1 201 X\r\n"):] + agreeing,
		"headers without end":          "HTTP/1.1 201 X\r\n" + strings.Repeat("A: b\r\n", 20000),
	} {
		t.Run(name, func(t *testing.T) {
			b := say(t, answer)
			wantVerdict(t, sendTo(t, b), unknown, operation)
			if n := len(b.seen()); n != 1 {
				t.Fatalf("%d requests arrived, want 1", n)
			}
		})
	}
	whole := sendTo(t, say(t, closing+agreeing))
	wantVerdict(t, whole, authorized, operation)
	wantVerdict(t, sendTo(t, say(t, reply(201, jsonType, strings.Repeat(" ", 100<<10)+agreeing))), authorized, operation)
}

func TestA3_ResetAfterRequestIsUnknown(t *testing.T) {
	b := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		_ = c.(*net.TCPConn).SetLinger(0) // close sends a reset
		return false
	})
	r := sendTo(t, b)
	wantVerdict(t, r, unknown, operation)
	if r.Evidence.Phase != "wrote_request" || len(b.seen()) != 1 {
		t.Fatalf("evidence %s", r.Evidence.JSON())
	}
}

// silent reads a request, writes text and then waits for the end of the test.
func silent(t *testing.T, text string) *bank {
	return startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		_, _ = io.WriteString(c, text)
		_, _ = io.ReadFull(c, make([]byte, 1)) // until the client leaves
		return false
	})
}

func TestA3_SilenceIsUnknownAfterTheTimeout(t *testing.T) {
	for name, row := range map[string]struct{ text, phase string }{
		"nothing":   {"", "wrote_request"},
		"102 only":  {"HTTP/1.1 102 Processing\r\n\r\n", "first_byte"},
		"103 twice": {"HTTP/1.1 103 X\r\n\r\nHTTP/1.1 103 X\r\n\r\n", "first_byte"},
		"100":       {"HTTP/1.1 100 Continue\r\n\r\n", "first_byte"},
		"half body": {"HTTP/1.1 201 X\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n{", "first_byte"},
		"101":       {"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "first_byte"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(silent(t, row.text).URL)
			cfg.Timeout = 1500 * time.Millisecond // enough for what is written to arrive on a busy machine
			p := open(t, cfg, reference.New())
			start := time.Now()
			r := p.Send(t.Context(), prepare(t, p))
			wantVerdict(t, r, unknown, operation)
			if r.Evidence.Phase != row.phase {
				t.Errorf("phase %s, want %s", r.Evidence.Phase, row.phase)
			}
			if took := time.Since(start); took > 30*time.Second { // without a timeout it would wait for the end of the test
				t.Errorf("took %s", took)
			}
		})
	}
}

// The body of 101 is the connection itself: it has no end to wait for.
func TestA3_SwitchingProtocolsIsUnknownAtOnce(t *testing.T) {
	cfg := config(silent(t, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n").URL)
	cfg.Timeout = time.Minute
	p := open(t, cfg, reference.New())
	start := time.Now()
	wantVerdict(t, p.Send(t.Context(), prepare(t, p)), unknown, operation)
	if took := time.Since(start); took > 30*time.Second {
		t.Fatalf("took %s", took)
	}
}

func TestA3_CallersEndIsUnknownAfterTheRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		cancel()
		_, _ = io.ReadFull(c, make([]byte, 1))
		return false
	})
	cfg := config(b.URL)
	cfg.Timeout = time.Minute
	p := open(t, cfg, reference.New())
	start := time.Now()
	r := p.Send(ctx, prepare(t, p))
	wantVerdict(t, r, unknown, operation)
	if took := time.Since(start); r.Evidence.Error != "canceled" || took > 30*time.Second { // without the caller's end it would take the timeout
		t.Fatalf("error %q after %s", r.Evidence.Error, took)
	}
}

// refusing is an address that refuses connections until the end of the test: it is one end of a connection, so that nobody can come to listen there.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

// A5: everything that ends before a connection was got.
func TestA5_NoConnectionIsNotExecuted(t *testing.T) {
	free := refusing(t)
	proxy := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return false
	})
	black := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	timedOut := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
	}
	for name, change := range map[string]func(*bankclient.Config){
		"refused":           func(c *bankclient.Config) { c.BaseURL = "http://" + free },
		"refused, https":    func(c *bankclient.Config) { c.BaseURL = "https://" + free },
		"name not resolved": func(c *bankclient.Config) { c.BaseURL = "http://bank.invalid" },
		"black hole":        func(c *bankclient.Config) { c.DialContext, c.Timeout = black, 100*time.Millisecond },
		"dial timed out":    func(c *bankclient.Config) { c.DialContext = timedOut },
		"CONNECT refused": func(c *bankclient.Config) {
			c.BaseURL, c.Proxy = "https://bank.invalid", http.ProxyURL(mustURL(t, proxy.URL))
		},
		"proxy refused": func(c *bankclient.Config) {
			c.BaseURL, c.Proxy = "https://bank.invalid", http.ProxyURL(mustURL(t, "http://"+free))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config("http://127.0.0.1:1")
			change(&cfg)
			p := open(t, cfg, reference.New())
			r := p.Send(t.Context(), prepare(t, p))
			wantVerdict(t, r, notExecuted, operation)
			if r.Evidence.Phase != "none" {
				t.Errorf("phase %s", r.Evidence.Phase)
			}
		})
	}
}

func TestA5_ContextEndedBeforeIsNotExecuted(t *testing.T) {
	b := say(t, reply(201, jsonType, agreeing))
	p := partnerAt(t, b.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantVerdict(t, p.Send(ctx, prepare(t, p)), notExecuted, operation)
	if len(b.seen()) != 0 {
		t.Fatal("a request arrived")
	}
}

// A5: all connections are in use. A call that waits for one until its end has sent nothing.
func TestA5_WaitingForAConnectionIsNotExecuted(t *testing.T) {
	arrived := make(chan struct{})
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		if n == 1 {
			close(arrived)
		}
		_, _ = io.ReadFull(c, make([]byte, 1))
		return false
	})
	cfg := config(b.URL)
	cfg.MaxInFlight = 1
	p := open(t, cfg, reference.New())
	pr := prepare(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan bankclient.Result, 1)
	go func() { first <- p.Send(ctx, pr) }()
	<-arrived
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	wantVerdict(t, p.Send(short, pr), notExecuted, operation)
	cancel()
	wantVerdict(t, <-first, unknown, operation)
	if n := len(b.seen()); n != 1 {
		t.Fatalf("%d requests arrived, want 1", n)
	}
}

// brokenPipe is a connection whose writes fail before a byte leaves, or after some.
type brokenPipe struct {
	net.Conn
	partial bool
}

func (c *brokenPipe) Write(b []byte) (int, error) {
	if c.partial {
		n, _ := c.Conn.Write(b[:len(b)/2])
		return n, syscall.EPIPE
	}
	return 0, syscall.EPIPE
}

// A5: a write that failed may have been partial. Only what cannot have been sent is NotExecuted, so both are Unknown here.
func TestA5_FailedWriteIsUnknown(t *testing.T) {
	for _, partial := range []bool{false, true} {
		b := say(t, reply(201, jsonType, agreeing))
		cfg := config(b.URL)
		cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &brokenPipe{c, partial}, err
		}
		p := open(t, cfg, reference.New())
		r := p.Send(t.Context(), prepare(t, p))
		wantVerdict(t, r, unknown, operation)
		if r.Evidence.Phase == "first_byte" || len(b.seen()) != 0 {
			t.Errorf("evidence %s", r.Evidence.JSON())
		}
	}
}

// An answer that lay on the connection before the request was written belongs to another request.
func TestA5_StaleAnswerIsNeverAdopted(t *testing.T) {
	log.SetOutput(io.Discard) // net/http logs what it finds on an idle connection, and offers no other way
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	stale := reply(422, jsonType, errorBody("account_closed"))
	for range 50 {
		b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing)+stale)
			_, _ = io.ReadFull(c, make([]byte, 1))
			return false
		})
		p := open(t, echoing(config(b.URL)), reference.New())
		pr := prepare(t, p)
		wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if r := p.Send(ctx, pr); r.Verdict == rejected {
			t.Logf("a stale rejection was adopted: %s", r.Evidence.JSON())
			t.Fail()
		}
		cancel()
	}
}

// Idle connections are kept for as many calls as may run at the same time.
func TestIdleConnectionsAreReusedUpToMaxInFlight(t *testing.T) {
	opened := make(chan struct{}, 100)
	gate := make(chan struct{})
	inside := make(chan struct{}, 8)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		inside <- struct{}{}
		<-gate
		w.Header().Set("Content-Type", jsonType)
		_, _ = io.WriteString(w, agreeing)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened <- struct{}{}
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	p := open(t, echoing(config(s.URL)), reference.New())
	pr := prepare(t, p)
	for range 3 {
		results := make(chan bankclient.Result, 8)
		for range 8 {
			go func() { results <- p.Send(context.Background(), pr) }()
		}
		for range 8 {
			<-inside
		}
		for range 8 {
			gate <- struct{}{}
		}
		for range 8 {
			wantVerdict(t, <-results, authorized, operation)
		}
	}
	if n := len(opened); n != 8 {
		t.Fatalf("%d connections were opened for 3 rounds of 8 calls, want 8", n)
	}
}

func TestHTTP1IsForced(t *testing.T) {
	var protos []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protos = append(protos, r.Proto)
		w.Header().Set("Content-Type", jsonType)
		_, _ = io.WriteString(w, agreeing)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	for _, allowed := range []bool{false, true} {
		cfg := config(s.URL)
		cfg.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		if !allowed {
			cfg.TLS.NextProtos = []string{"h2", "http/1.1"} // whatever the configuration would offer
		}
		p := open(t, cfg, vary(func(p *bankclient.Profile) { p.AllowsHTTP2 = allowed }))
		wantVerdict(t, p.Send(t.Context(), prepare(t, p)), authorized, operation)
		p.Close()
	}
	if !slices.Equal(protos, []string{"HTTP/1.1", "HTTP/2.0"}) {
		t.Fatalf("protocols %v", protos)
	}
}

// Many calls that fail in every way leave no goroutine behind.
func TestNoGoroutineIsLeft(t *testing.T) {
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		switch n % 4 {
		case 0:
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
			return true
		case 1:
			_, _ = io.WriteString(c, agreeing[:20])
		case 2:
			_, _ = io.ReadFull(c, make([]byte, 1))
		}
		return false
	})
	cfg := config(b.URL)
	cfg.Timeout = 20 * time.Millisecond
	p := open(t, cfg, reference.New())
	pr := prepare(t, p)
	for range 40 {
		p.Send(t.Context(), pr)
	}
	p.Close()
	eventually(t, func() error {
		if n := transportGoroutines(); n > 0 {
			return errors.New("goroutines of net/http are left")
		}
		return nil
	})
}
