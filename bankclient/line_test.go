package bankclient_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

// wire is a bank that keeps the bytes of one request as they came.
func wire(t *testing.T) (url string, bytes <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var text strings.Builder
		buffer := make([]byte, 4096)
		for !strings.HasSuffix(text.String(), "}") {
			n, err := c.Read(buffer)
			text.Write(buffer[:n])
			if err != nil {
				break
			}
		}
		got <- text.String()
		_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
	}()
	return "http://" + l.Addr().String(), got
}

func TestB5_BytesOnTheWire(t *testing.T) {
	url, got := wire(t)
	p := partnerAt(t, url+"/base")
	wantVerdict(t, p.Send(t.Context(), prepare(t, p)), authorized, operation)
	want := "POST /base/v1/transfers HTTP/1.1\r\nHost: " + url[len("http://"):] + "\r\nUser-Agent: paidonce\r\nAccept: application/json\r\n" +
		"Authorization: Bearer s3cret\r\nIdempotency-Key: " + opPartner + "\r\nContent-Type: application/json\r\nContent-Length: 180\r\n\r\n" +
		`{"amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},` +
		`"reference":"Withdrawal 88104","end_to_end_id":"` + opEndToEnd + `"}`
	if text := <-got; text != want {
		t.Fatalf("got\n%q\nwant\n%q", text, want)
	}
}

// A token that could end its header and begin another one is not sent at all.
func TestB5_TokenWithControlCharacterIsNotSent(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(*bankclient.Config)) {
		for _, token := range []string{"a\r\nX: y", "a\nb", "a\x00b", "a\x7fb"} {
			b := say(t, reply(201, jsonType, agreeing))
			p := partnerBy(t, b.URL, func(c *bankclient.Config) { way(c); c.Token = func() string { return token } })
			r := p.Send(t.Context(), prepare(t, p))
			wantVerdict(t, r, notExecuted, operation)
			if r.Evidence.Phase != "none" || len(b.seen()) != 0 {
				t.Errorf("evidence %s, %d requests", r.Evidence.JSON(), len(b.seen()))
			}
		}
	})
}

// A3: a partner closes idle connections when it likes. The next call notices before it writes, and is not in doubt.
func TestA3_IdleConnectionThatThePartnerClosedIsNotUsed(t *testing.T) {
	cert, roots := selfSigned(t)
	for name, start := range map[string]func(func(net.Conn, int, arrival) bool) *bank{
		"plain": func(f func(net.Conn, int, arrival) bool) *bank { return startBank(t, f) },
		"TLS 1.2": func(f func(net.Conn, int, arrival) bool) *bank {
			return startTLSBank(t, tlsOf(cert, tls.VersionTLS12), f)
		},
		"TLS 1.3": func(f func(net.Conn, int, arrival) bool) *bank {
			return startTLSBank(t, tlsOf(cert, tls.VersionTLS13), f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan struct{}, 8)
			b := start(func(c net.Conn, n int, a arrival) bool {
				sayAgreeing(c, n, a)
				_ = c.Close()
				closed <- struct{}{}
				return false
			})
			p := partnerBy(t, b.URL, func(c *bankclient.Config) { c.TLS = &tls.Config{RootCAs: roots} })
			for n := range 5 {
				r := p.Send(t.Context(), prepare(t, p))
				wantVerdict(t, r, authorized, operation)
				if r.Evidence.Reused || len(b.seen()) != n+1 {
					t.Fatalf("call %d: evidence %s, %d requests", n+1, r.Evidence.JSON(), len(b.seen()))
				}
				<-closed
			}
		})
	}
}

func tlsOf(cert tls.Certificate, version uint16) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: version, MaxVersion: version}
}

// A5: whatever lies on a connection before a request is written is no answer to it: another connection is used, and the call is not
// in doubt. Over TLS the stale answer comes as a record of its own, with the answer before it or after.
func TestA5_LineWithStaleBytesIsNotUsed(t *testing.T) {
	cert, roots := selfSigned(t)
	stale := reply(422, jsonType, errorBody("account_closed"))
	for name, start := range map[string]func(func(net.Conn, int, arrival) bool) *bank{
		"plain": func(f func(net.Conn, int, arrival) bool) *bank { return startBank(t, f) },
		"TLS 1.2": func(f func(net.Conn, int, arrival) bool) *bank {
			return startTLSBank(t, tlsOf(cert, tls.VersionTLS12), f)
		},
		"TLS 1.3": func(f func(net.Conn, int, arrival) bool) *bank {
			return startTLSBank(t, tlsOf(cert, tls.VersionTLS13), f)
		},
	} {
		for _, once := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				sent := make(chan struct{}, 20)
				b := start(func(c net.Conn, _ int, _ arrival) bool {
					if once {
						_, _ = io.WriteString(c, reply(201, jsonType, agreeing)+stale)
					} else {
						_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
						_, _ = io.WriteString(c, stale)
					}
					sent <- struct{}{}
					return true
				})
				p := partnerBy(t, b.URL, func(c *bankclient.Config) { c.TLS = &tls.Config{RootCAs: roots} })
				for range 10 {
					r := p.Send(t.Context(), prepare(t, p))
					wantVerdict(t, r, authorized, operation)
					if r.Evidence.Reused {
						t.Fatalf("a connection with bytes on it was used: %s", r.Evidence.JSON())
					}
					<-sent
				}
			})
		}
	}
}

// TLS 1.3 sends session tickets after its handshake; they are no stale bytes.
func TestLinesOverTLSAreReused(t *testing.T) {
	cert, roots := selfSigned(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		b := startTLSBank(t, tlsOf(cert, version), sayAgreeing)
		p := partnerBy(t, b.URL, func(c *bankclient.Config) { c.TLS = &tls.Config{RootCAs: roots} })
		for n := range 5 {
			r := p.Send(t.Context(), prepare(t, p))
			wantVerdict(t, r, authorized, operation)
			if r.Evidence.Reused != (n > 0) {
				t.Fatalf("%s, call %d: evidence %s", tls.VersionName(version), n+1, r.Evidence.JSON())
			}
		}
	}
}

// An answer that says so, or whose end is the connection's, ends its connection.
func TestLineEndsWithItsAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"Connection: close": reply(201, jsonType, agreeing, "Connection: close"),
		"HTTP/1.0":          strings.Replace(reply(201, jsonType, agreeing), "HTTP/1.1", "HTTP/1.0", 1),
	} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{}, 4)
			b := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
				_, _ = io.WriteString(c, answer)
				_, _ = io.ReadFull(c, make([]byte, 1)) // until the client leaves
				left <- struct{}{}
				return false
			})
			p := partnerAt(t, b.URL)
			for range 2 {
				r := p.Send(t.Context(), prepare(t, p))
				wantVerdict(t, r, authorized, operation)
				if r.Evidence.Reused {
					t.Fatalf("evidence %s", r.Evidence.JSON())
				}
				select {
				case <-left:
				case <-time.After(10 * time.Second): // well before the idle timeout
					t.Fatal("the connection is still open")
				}
			}
		})
	}
}

func TestIdleLinesAreClosed(t *testing.T) {
	for name, end := range map[string]func(*bankclient.Partner){"after the idle timeout": func(*bankclient.Partner) {}, "by Close": (*bankclient.Partner).Close} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{}, 1)
			b := startBank(t, func(c net.Conn, n int, a arrival) bool {
				sayAgreeing(c, n, a)
				_, _ = io.ReadFull(c, make([]byte, 1)) // until the client leaves
				left <- struct{}{}
				return false
			})
			p := partnerBy(t, b.URL, func(c *bankclient.Config) {
				if c.IdleTimeout = time.Minute; name != "by Close" {
					c.IdleTimeout = 50 * time.Millisecond
				}
			})
			wantVerdict(t, p.Send(t.Context(), prepare(t, p)), authorized, operation)
			end(p)
			select {
			case <-left:
			case <-time.After(10 * time.Second):
				t.Fatal("the connection is still open")
			}
		})
	}
}

// After a call that its caller gave up, nothing of it is left on a connection that others use.
func TestA3_LineOfAnAbandonedCallIsNotUsed(t *testing.T) {
	release := make(chan struct{})
	b := startBank(t, func(c net.Conn, n int, a arrival) bool {
		if n == 1 {
			<-release
		}
		return sayAgreeing(c, n, a)
	})
	cfg := config(b.URL)
	cfg.Timeout = 50 * time.Millisecond
	p := open(t, cfg, reference.New())
	r := p.Send(t.Context(), prepare(t, p))
	wantVerdict(t, r, unknown, operation)
	if r.Evidence.Error != "deadline exceeded" {
		t.Errorf("error %q", r.Evidence.Error)
	}
	close(release)
	eventually(t, func() error {
		if r := p.Send(t.Context(), prepare(t, p)); r.Verdict != authorized {
			return errors.New(string(r.Evidence.JSON()))
		}
		return nil
	})
}

// A handshake that takes too long concerns the partner; a call that has no more time does not.
func TestA5_HandshakeThatHangs(t *testing.T) {
	bothWays(t, func(t *testing.T, way func(*bankclient.Config)) {
		for scope, change := range map[bankclient.Scope]func(*bankclient.Config){
			partner:   func(c *bankclient.Config) { c.TLSTimeout = 50 * time.Millisecond },
			operation: func(c *bankclient.Config) { c.Timeout = 50 * time.Millisecond; c.TLSTimeout = time.Minute },
		} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			p := partnerBy(t, "https://"+l.Addr().String(), func(c *bankclient.Config) { way(c); change(c) })
			r := p.Send(t.Context(), prepare(t, p))
			if r.Verdict != notExecuted || scope == partner && r.Scope != partner {
				t.Errorf("verdict %s (%s), want scope %s; evidence %s", r.Verdict, r.Scope, scope, r.Evidence.JSON())
			}
		}
	})
}

// Answers of several kinds through the same line: chunked, with a length, after a 103, without a body.
func TestLineCarriesEveryKindOfAnswer(t *testing.T) {
	chunk := func(text string) string {
		return "HTTP/1.1 201 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n" +
			"10\r\n" + text[:16] + "\r\n" + "1;x=y\r\n" + text[16:17] + "\r\n" + strings.ToUpper(strconv.FormatInt(int64(len(text)-17), 16)) + "\r\n" + text[17:] + "\r\n0\r\nX-End: 1\r\n\r\n"
	}
	answers := []struct {
		text    string
		verdict bankclient.Verdict
	}{
		{chunk(agreeing), authorized},
		{"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + reply(201, jsonType, agreeing), authorized},
		{"HTTP/1.1 204 X\r\n\r\n", unknown},
		{reply(500, "text/html", "<html>"), unknown},
		{reply(422, jsonType, errorBody("account_closed")), rejected},
		{reply(201, jsonType, agreeing), authorized},
	}
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		_, _ = io.WriteString(c, answers[n-1].text)
		return true
	})
	p := partnerAt(t, b.URL)
	for n, answer := range answers {
		r := p.Send(t.Context(), prepare(t, p))
		if r.Verdict != answer.verdict || r.Evidence.Reused != (n > 0) {
			t.Errorf("answer %d: verdict %s, want %s; evidence %s", n+1, r.Verdict, answer.verdict, r.Evidence.JSON())
		}
	}
}

// A look-up over a line has no body and no content type.
func TestLookUpOverALine(t *testing.T) {
	b := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		_, _ = io.WriteString(c, reply(200, jsonType, `{"data":[`+agreeing+`],"next_cursor":null}`))
		return true
	})
	p := partnerAt(t, b.URL)
	for range 2 {
		if f := p.LookUp(t.Context(), prepare(t, p)); f.Answer != bankclient.Found || f.Result.Verdict != authorized {
			t.Fatalf("answer %v, evidence %s", f.Answer, f.Result.Evidence.JSON())
		}
	}
	for _, a := range b.seen() {
		if a.Method != http.MethodGet || a.Body != "" || a.Header.Get("Content-Length") != "" || a.Header.Get("Content-Type") != "" {
			t.Errorf("request %+v", a)
		}
	}
}
