package bankclient_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

// The operation that most tests send. Key and id were computed with another program from the documented input.
const (
	opKey      = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	opPartner  = "e9331837-1561-8795-a87f-4705c6f4fadd"
	opEndToEnd = "5EZRQNYVMEDZKKD7I4C4N5H23U"
)

// The transfer as the bank shows it when everything agrees.
const agreeing = `{"id":"tr_1","status":"accepted","amount":"49.00","currency":"GBP",` +
	`"beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},"reference":"Withdrawal 88104",` +
	`"end_to_end_id":"` + opEndToEnd + `","created_at":"2026-11-02T10:00:00Z"}`

func withdrawal() bankclient.Transfer {
	return bankclient.Transfer{
		Amount: "49.00", AmountMinor: 4900, Currency: "GBP",
		Beneficiary: bankclient.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"},
		Reference:   "Withdrawal 88104",
	}
}

// varied is the reference adapter with another profile.
type varied struct {
	reference.Adapter
	profile bankclient.Profile
}

func (v varied) Profile() bankclient.Profile { return v.profile }

func vary(change func(*bankclient.Profile)) bankclient.Adapter {
	p := reference.New().Profile()
	change(&p)
	return varied{profile: p}
}

func config(baseURL string) bankclient.Config {
	c := bankclient.Config{
		ID: "northbank", BaseURL: baseURL, CredentialID: "2026-11", Token: func() string { return "s3cret" },
		Timeout: 5 * time.Second, MaxInFlight: 8,
	}
	if overTransport {
		c.Proxy = noProxy
	}
	return c
}

// overTransport makes calls go over net/http's Transport, as they do where there may be a proxy.
var overTransport bool

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// echoing is a partner whose answers name their request, so that connections are used again over plain TCP too.
func echoing(cfg bankclient.Config) bankclient.Config {
	cfg.EchoesKey = true
	return cfg
}

func open(t testing.TB, cfg bankclient.Config, adapter bankclient.Adapter) *bankclient.Partner {
	t.Helper()
	p, err := bankclient.New(cfg, adapter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func partnerAt(t testing.TB, baseURL string) *bankclient.Partner {
	t.Helper()
	return open(t, config(baseURL), reference.New())
}

func prepare(t testing.TB, p *bankclient.Partner) bankclient.Prepared {
	t.Helper()
	pr, err := p.Prepare(uuid.MustParse(opKey), 0, withdrawal())
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

// arrival is one request as it arrived on the wire.
type arrival struct {
	Method, Target, Key string
	Header              http.Header
	Body                string
}

// bank is a raw TCP bank: answer gets every request with its number, from 1, and writes what it likes. The connection is
// closed when it returns false.
type bank struct {
	URL string

	mu       sync.Mutex
	arrivals []arrival
}

func (b *bank) seen() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]arrival(nil), b.arrivals...)
}

func startBank(t testing.TB, answer func(c net.Conn, n int, a arrival) (keep bool)) *bank {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{URL: "http://" + l.Addr().String()}
	b.serve(t, l, answer)
	return b
}

func (b *bank) serve(t testing.TB, l net.Listener, answer func(c net.Conn, n int, a arrival) bool) {
	var conns sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				defer c.Close()
				b.talk(c, answer)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		conns.Wait()
	})
}

func (b *bank) talk(c net.Conn, answer func(c net.Conn, n int, a arrival) bool) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			if secure, ok := c.(*tls.Conn); ok { // closing with bytes unread would reset, and the alert could be lost
				_, _ = io.Copy(io.Discard, secure.NetConn())
			}
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		a := arrival{
			Method: req.Method, Target: req.RequestURI, Key: req.Header.Get("Idempotency-Key"),
			Header: req.Header, Body: string(body),
		}
		b.mu.Lock()
		b.arrivals = append(b.arrivals, a)
		n := len(b.arrivals)
		b.mu.Unlock()
		if !answer(c, n, a) {
			return
		}
	}
}

// say answers every request with the same bytes and closes the connection.
func say(t testing.TB, text string) *bank {
	return startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		_, _ = io.WriteString(c, text)
		return false
	})
}

// reply renders one HTTP answer with a content length.
func reply(status int, contentType, body string, headers ...string) string {
	text := fmt.Sprintf("HTTP/1.1 %d X\r\n", status)
	if contentType != "" {
		text += "Content-Type: " + contentType + "\r\n"
	}
	for _, h := range headers {
		text += h + "\r\n"
	}
	return text + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

func sendTo(t testing.TB, b *bank) bankclient.Result {
	t.Helper()
	p := partnerAt(t, b.URL)
	return p.Send(t.Context(), prepare(t, p))
}

func errorBody(code string) string { return `{"error":{"code":"` + code + `"}}` }

func wantVerdict(t *testing.T, got bankclient.Result, want bankclient.Verdict, scope bankclient.Scope) {
	t.Helper()
	if got.Verdict != want || got.Scope != scope {
		t.Fatalf("verdict %s (%s), want %s (%s); evidence %s", got.Verdict, got.Scope, want, scope, got.Evidence.JSON())
	}
}
