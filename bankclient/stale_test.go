package bankclient_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

// repeating is a bank behind a network that repeats a request inside its connection: the first answer comes again when the next request has
// been written to the same connection, before the answer to that.
func repeating(first string) func(c net.Conn, n int, a arrival) bool {
	var mu sync.Mutex
	answered := map[net.Conn]bool{}
	return func(c net.Conn, _ int, a arrival) bool {
		mu.Lock()
		again := answered[c]
		begun := len(answered) > 0
		answered[c] = true
		mu.Unlock()
		switch {
		case again:
			_, _ = io.WriteString(c, first+reply(201, jsonType, agreeing))
		case begun && a.Method == http.MethodGet:
			_, _ = io.WriteString(c, list(agreeing))
		case begun:
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
		default:
			_, _ = io.WriteString(c, first)
		}
		return true
	}
}

// bankOver is a bank reached over TLS, or over plain TCP.
func bankOver(t *testing.T, secure bool, answer func(c net.Conn, n int, a arrival) bool) (*bank, bankclient.Config) {
	t.Helper()
	if !secure {
		b := startBank(t, answer)
		return b, config(b.URL)
	}
	cert, roots := selfSigned(t)
	b := startTLSBank(t, &tls.Config{Certificates: []tls.Certificate{cert}}, answer)
	cfg := config(b.URL)
	cfg.TLS = &tls.Config{RootCAs: roots}
	return b, cfg
}

// An error answer names no request. It came a second time, late, and the next call took it for its own: the bank paid what we recorded as
// rejected. So a connection that brought one is not used again, over plain TCP and over TLS.
func TestA5_RepeatedRejectionIsNotTakenForTheNextCalls(t *testing.T) {
	for name, first := range map[string]string{
		"422": reply(422, jsonType, errorBody("account_closed")),
		"429": reply(429, jsonType, errorBody("rate_limited"), "Retry-After: 1"),
		"409": reply(409, jsonType, errorBody("request_in_progress")),
		"401": reply(401, jsonType, errorBody("unauthorized")),
		"500": reply(500, jsonType, errorBody("internal_error")),
		"404": reply(404, jsonType, errorBody("not_found")),
	} {
		for _, way := range []struct{ secure, echoes bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
			b, cfg := bankOver(t, way.secure, repeating(first))
			cfg.EchoesKey = way.echoes
			p := open(t, cfg, reference.New())
			pr := prepare(t, p)
			p.Send(t.Context(), pr)
			r := p.Send(t.Context(), pr)
			if r.Verdict != authorized || r.Evidence.Reused || len(b.seen()) != 2 {
				t.Errorf("%s (%+v): %s, %d requests, evidence %s; want authorized on another connection, 2 requests", name, way, r.Verdict, len(b.seen()), r.Evidence.JSON())
			}
		}
	}
}

// A look-up that found nothing names no request either.
func TestA12_RepeatedEmptyListIsNotTakenForTheNextLookUps(t *testing.T) {
	b := startBank(t, repeating(list()))
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	if f := p.LookUp(t.Context(), pr); f.Answer != bankclient.NotFound {
		t.Fatalf("%v %s", f.Answer, f.Result.Evidence.JSON())
	}
	if f := p.LookUp(t.Context(), pr); f.Answer != bankclient.Found {
		t.Errorf("%v, evidence %s; want found, on another connection", f.Answer, f.Result.Evidence.JSON())
	}
}

// The repeat of a create that was paid may be answered by an error, late, when the next call has been written to the connection. It is taken for that
// call's only where it names it, or where nothing can have been repeated.
func TestA5_LateErrorAfterASuccessIsNotTakenForTheNextCalls(t *testing.T) {
	const other = "Idempotency-Key: 3f0c5a1e-0000-8000-8000-000000000000"
	for _, row := range []struct {
		name           string
		echoes, secure bool
		header         string // of the error
		want           bankclient.Verdict
		reused         bool
	}{
		{"plain, errors name nobody", false, false, "X: 1", authorized, false},
		{"TLS, errors name nobody", false, true, "X: 1", rejected, true}, // its own: TLS takes no byte twice
		{"plain, this one names nobody", true, false, "X: 1", unknown, true},
		{"TLS, this one names nobody", true, true, "X: 1", unknown, true},
		{"plain, names another", true, false, other, mismatch, true},
		{"plain, names the call", true, false, "Idempotency-Key: " + opPartner, rejected, true},
	} {
		var mu sync.Mutex
		answered := map[net.Conn]bool{}
		script := func(c net.Conn, _ int, _ arrival) bool {
			mu.Lock()
			again := answered[c]
			answered[c] = true
			mu.Unlock()
			if again {
				_, _ = io.WriteString(c, reply(422, jsonType, errorBody("account_closed"), row.header))
			}
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
			return true
		}
		b, cfg := bankOver(t, row.secure, script)
		cfg.EchoesKey = row.echoes
		p := open(t, cfg, reference.New())
		pr := prepare(t, p)
		wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
		if r := p.Send(t.Context(), pr); r.Verdict != row.want || r.Evidence.Reused != row.reused || len(b.seen()) != 2 {
			t.Errorf("%s: %s, reused %t, %d requests, evidence %s; want %s, reused %t, 2 requests", row.name, r.Verdict, r.Evidence.Reused, len(b.seen()), r.Evidence.JSON(), row.want, row.reused)
		}
	}
}

// An error on a new connection needs no name: the connection owes nothing else.
func TestA5_ANamelessErrorOnANewConnectionIsTheCalls(t *testing.T) {
	wantVerdict(t, sendTo(t, say(t, reply(422, jsonType, errorBody("account_closed")))), rejected, operation)
}

// An error that names nobody, where the partner's own errors do, decides nothing on a connection used before. What it says is kept all the same.
func TestA5_WhatANamelessErrorSaysIsEvidence(t *testing.T) {
	for _, row := range []struct {
		status         int
		body           string
		code, transfer string
	}{
		{409, `{"error":{"code":"request_in_progress","transfer_id":"tr_9"}}`, "request_in_progress", "tr_9"},
		{422, `{"error":{"code":"idempotency_key_reused","transfer_id":"tr_9"}}`, "idempotency_key_reused", "tr_9"},
		{422, errorBody("account_closed"), "account_closed", ""},
		{429, errorBody("rate_limited"), "rate_limited", ""},
	} {
		b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
			if n == 1 {
				_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
			} else {
				_, _ = io.WriteString(c, reply(row.status, jsonType, row.body))
			}
			return true
		})
		p := open(t, echoing(config(b.URL)), reference.New())
		pr := prepare(t, p)
		wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
		r := p.Send(t.Context(), pr)
		wantVerdict(t, r, unknown, operation)
		if e := r.Evidence; !e.Reused || e.Status != row.status || e.Code != row.code || e.TransferID != row.transfer || r.Authoritative || r.Cause != bankclient.CauseNone {
			t.Errorf("%d %s: evidence %s; want code %q, transfer %q", row.status, row.code, e.JSON(), row.code, row.transfer)
		}
	}
}

// A partner of which nothing is said echoes nothing, and its errors are its own: over plain TCP on a new connection each, over TLS on a used one.
func TestA5_ErrorsOfAPartnerThatDoesNotEchoAreItsOwn(t *testing.T) {
	for _, row := range []struct {
		status int
		code   string
		want   bankclient.Verdict
	}{{422, "account_closed", rejected}, {429, "rate_limited", notExecuted}, {409, "request_in_progress", inFlight}, {422, "idempotency_key_reused", keyReused}} {
		for _, secure := range []bool{false, true} {
			b, cfg := bankOver(t, secure, func(c net.Conn, n int, _ arrival) bool {
				if n == 1 {
					_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
				} else {
					_, _ = io.WriteString(c, reply(row.status, jsonType, errorBody(row.code)))
				}
				return true
			})
			p := open(t, cfg, reference.New())
			pr := prepare(t, p)
			wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
			if r := p.Send(t.Context(), pr); r.Verdict != row.want || r.Evidence.Reused != secure || len(b.seen()) != 2 {
				t.Errorf("%d %s (TLS: %t): %s, evidence %s; want %s", row.status, row.code, secure, r.Verdict, r.Evidence.JSON(), row.want)
			}
		}
	}
}

// unclosable is a connection that stays open until the test ends, so that the next call gets it for certain.
type unclosable struct{ net.Conn }

func (unclosable) Close() error { return nil }

// The next call may have got the connection already when its answer was seen to name nobody. Nothing is written to it then, and the call is
// made on another one, once: a create and a look-up, over plain TCP and over TLS.
func TestA5_SpentConnectionIsPassedOver(t *testing.T) {
	for _, way := range []struct{ secure, echoes bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		first := reply(422, jsonType, errorBody("account_closed"))
		b, cfg := bankOver(t, way.secure, repeating(first))
		cfg.EchoesKey = way.echoes
		cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			return unclosable{c}, err
		}
		p := open(t, cfg, reference.New())
		pr := prepare(t, p)
		wantVerdict(t, p.Send(t.Context(), pr), rejected, operation)
		r := p.Send(t.Context(), pr)
		if wantVerdict(t, r, authorized, operation); r.Evidence.Reused {
			t.Errorf("%+v: evidence %s", way, r.Evidence.JSON())
		}
		for range 2 { // the first spends the connection that the transfer was created on
			if f := p.LookUp(t.Context(), pr); f.Answer == bankclient.NotFound {
				t.Errorf("%+v: %s", way, f.Result.Evidence.JSON())
			}
		}
		if n := len(b.seen()); n != 4 {
			t.Errorf("%+v: %d requests arrived, want 4", way, n)
		}
	}
}

// The same at speed, where closing and the next call race.
func TestA5_EveryCallAfterARejectionArrivesOnce(t *testing.T) {
	b := startBank(t, func(c net.Conn, n int, a arrival) bool {
		if n%2 == 1 {
			_, _ = io.WriteString(c, reply(422, jsonType, errorBody("account_closed"), "Idempotency-Key: "+a.Key))
		} else {
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
		}
		return true
	})
	p := open(t, echoing(config(b.URL)), reference.New())
	pr := prepare(t, p)
	const calls = 1000
	for n := 1; n <= calls; n++ {
		want := authorized
		if n%2 == 1 {
			want = rejected
		}
		if r := p.Send(t.Context(), pr); r.Verdict != want {
			t.Fatalf("call %d: %s, evidence %s; want %s", n, r.Verdict, r.Evidence.JSON(), want)
		}
	}
	if n := len(b.seen()); n != calls {
		t.Errorf("%d requests arrived, want %d", n, calls)
	}
}

// A create was paid, and the network repeats it inside the connection: the late error, which names nobody, is no answer to the look-up that comes next.
func TestA5_LateErrorOfACreateIsNoLookUpsNotFound(t *testing.T) {
	var mu sync.Mutex
	answered := map[net.Conn]bool{}
	b, cfg := bankOver(t, false, func(c net.Conn, _ int, a arrival) bool {
		mu.Lock()
		again := answered[c]
		answered[c] = true
		mu.Unlock()
		if again {
			_, _ = io.WriteString(c, reply(404, jsonType, errorBody("not_found")))
		}
		if a.Method == http.MethodGet {
			_, _ = io.WriteString(c, list(agreeing))
		} else {
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
		}
		return true
	})
	cfg.EchoesKey = true // so that the connection is kept
	p := open(t, cfg, reference.New())
	pr := prepare(t, p)
	wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
	if f := p.LookUp(t.Context(), pr); f.Answer != bankclient.Found || f.Result.Evidence.Reused {
		t.Errorf("answer %v, evidence %s; want found, over a connection of its own", f.Answer, f.Result.Evidence.JSON())
	}
	if n := len(b.seen()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// After an answer without a body, net/http gives the connection to the next call before whoever made the first has seen the answer. It is not used
// again, and no call that was given it is taken for sent.
func TestA5_AnAnswerWithoutABodyLeavesNoConnectionBehind(t *testing.T) {
	for name, row := range map[string]struct{ first, want string }{
		"created":     {"HTTP/1.1 201 Created\r\nLocation: /v1/transfers/tr_1\r\nContent-Length: 0\r\n\r\n", "unknown"},
		"refused":     {"HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 0\r\n\r\n", "unknown"},
		"unavailable": {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "in_flight"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			answered, twice := map[net.Conn]bool{}, 0
			b, cfg := bankOver(t, false, func(c net.Conn, _ int, _ arrival) bool {
				mu.Lock()
				again := answered[c]
				answered[c] = true
				if again {
					twice++
				}
				mu.Unlock()
				if again { // the late answer to the repeat of the first request
					_, _ = io.WriteString(c, reply(422, jsonType, errorBody("account_closed")))
					return true
				}
				_, _ = io.WriteString(c, row.first)
				return true
			})
			cfg.MaxInFlight = 64 // more than callers, so no call waits for a connection
			p := open(t, cfg, reference.New())
			pr := prepare(t, p)
			verdicts, each := map[string]int{}, 25
			if overTransport { // where they race
				each = 250
			}
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for range each {
						r := p.Send(t.Context(), pr)
						mu.Lock()
						verdicts[r.Verdict.String()+r.Evidence.Error]++
						mu.Unlock()
					}
				})
			}
			callers.Wait()
			// An answer may be lost when the next call finds the connection unfit and closes it: then nothing is known.
			lost := verdicts["unknowntransport error"]
			if all := 8 * each; verdicts[row.want]+lost != all || lost > all/20 || len(b.seen()) != all || twice != 0 {
				t.Errorf("%v, %d requests, %d of them on a connection with another; want %s %d times, each alone", verdicts, len(b.seen()), twice, row.want, all)
			}
		})
	}
}

// TestInTime_NotAByteLeavesTooLate: it is asked when the connection stands and before the first byte, over plain connections and TLS, on new ones and
// kept ones, and its no proves that nothing was sent.
func TestInTime_NotAByteLeavesTooLate(t *testing.T) {
	cert, roots := selfSigned(t)
	for name, start := range map[string]func() (*bank, bankclient.Config){
		"plain": func() (*bank, bankclient.Config) {
			b := startBank(t, sayAgreeing)
			c := config(b.URL)
			c.EchoesKey = true
			return b, c
		},
		"tls": func() (*bank, bankclient.Config) {
			b := startTLSBank(t, &tls.Config{Certificates: []tls.Certificate{cert}}, sayAgreeing)
			c := config(b.URL)
			c.TLS = &tls.Config{RootCAs: roots}
			return b, c
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, c := start()
			p := open(t, c, reference.New())
			pr := prepare(t, p)
			for _, want := range []struct {
				inTime   bool
				verdict  bankclient.Verdict
				arrivals int
			}{{false, notExecuted, 0}, {true, authorized, 1}, {false, notExecuted, 1}, {true, authorized, 2}} {
				var asked atomic.Int64
				pr.InTime = func() bool { asked.Add(1); return want.inTime }
				r := p.Send(t.Context(), pr)
				if r.Verdict != want.verdict || len(b.seen()) != want.arrivals || asked.Load() == 0 {
					t.Errorf("in time %t: %s, %d arrivals, asked %d times; want %s, %d; %s", want.inTime, r.Verdict, len(b.seen()), asked.Load(), want.verdict,
						want.arrivals, r.Evidence.JSON())
				}
			}
		})
	}
}
