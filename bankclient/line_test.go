//go:build linux || darwin || freebsd || netbsd || openbsd

package bankclient_test

import (
	"context"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

// The table of conditions holds over net/http's Transport as over lines: the tests of what a connection can do, again.
func TestA5_TheSameOverNetHTTPsTransport(t *testing.T) {
	overTransport = true
	log.SetOutput(io.Discard) // where net/http tells of unsolicited answers
	t.Cleanup(func() {
		overTransport = false
		log.SetOutput(os.Stderr)
	})
	for name, test := range map[string]func(*testing.T){
		"one call is one send":         TestG1_OneCallIsOneSend,
		"redirects":                    TestG1_RedirectsAreNotFollowed,
		"end":                          TestA3_EndAfterRequestIsUnknown,
		"reset":                        TestA3_ResetAfterRequestIsUnknown,
		"silence":                      TestA3_SilenceIsUnknownAfterTheTimeout,
		"101":                          TestA3_SwitchingProtocolsIsUnknownAtOnce,
		"caller's end":                 TestA3_CallersEndIsUnknownAfterTheRequest,
		"no connection":                TestA5_NoConnectionIsNotExecuted,
		"context ended":                TestA5_ContextEndedBeforeIsNotExecuted,
		"waiting":                      TestA5_WaitingForAConnectionIsNotExecuted,
		"failed write":                 TestA5_FailedWriteIsUnknown,
		"stale answer":                 TestA5_StaleAnswerIsNeverAdopted,
		"repeated rejection":           TestA5_RepeatedRejectionIsNotTakenForTheNextCalls,
		"late error":                   TestA5_LateErrorAfterASuccessIsNotTakenForTheNextCalls,
		"nameless error":               TestA5_WhatANamelessErrorSaysIsEvidence,
		"spent connection":             TestA5_SpentConnectionIsPassedOver,
		"after a rejection":            TestA5_EveryCallAfterARejectionArrivesOnce,
		"no body":                      TestA5_AnAnswerWithoutABodyLeavesNoConnectionBehind,
		"TLS refusal":                  TestA5_TLSRefusalConcernsThePartner,
		"TLS 1.3 alert":                TestA5_TLS13AlertOnTheFirstRequestOnly,
		"reuse":                        TestIdleConnectionsAreReusedUpToMaxInFlight,
		"connection that ends":         TestA5_ALineEndsWhereTheAnswerSaysSo,
		"deadline before":              TestALineOutlivesTheDeadlineOfACall,
		"interim answers":              TestA5_InterimAnswersAreNotTheAnswer,
		"token that is none":           TestA5_ATokenThatFitsNoHeaderIsNotSent,
		"room for the next":            TestA5_EveryEndLeavesRoomForTheNextCall,
		"goroutines":                   TestNoGoroutineIsLeft,
		"headers":                      TestWireHeaders,
		"what the partner named":       TestA5_ResultNamesWhatThePartnerSaid,
		"end of the caller, next call": TestA5_AnEndedCallEndsNoOther,
	} {
		t.Run(name, test)
	}
}

// tapped is a connection that a test looks at from below.
type tapped struct {
	*net.TCPConn
	once   sync.Once
	closed chan struct{}
}

func (c *tapped) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}

// await waits until bytes or the end have come in on the connection, and takes nothing.
func (c *tapped) await(t *testing.T) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	if err != nil {
		t.Fatal(err)
	}
}

func tap(cfg *bankclient.Config) <-chan *tapped {
	opened := make(chan *tapped, 8)
	cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		tcp := &tapped{TCPConn: c.(*net.TCPConn), closed: make(chan struct{})}
		opened <- tcp
		return tcp, nil
	}
	return opened
}

// The partner closed an idle connection, or wrote to it: the next call uses another one, and arrives.
func TestA5_ALineOnWhichAnythingCameIsNotUsed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for name, late := range map[string]string{"closed": "", "bytes": reply(422, jsonType, errorBody("account_closed"))} {
			speak := make(chan struct{})
			b, cfg := bankOver(t, secure, func(c net.Conn, n int, _ arrival) bool {
				_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
				if n == 1 {
					<-speak
					_, _ = io.WriteString(c, late)
				}
				return n > 1 || late != ""
			})
			opened := tap(&cfg)
			p := open(t, echoing(cfg), reference.New())
			pr := prepare(t, p)
			wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
			close(speak)
			(<-opened).await(t)
			r := p.Send(t.Context(), pr)
			if wantVerdict(t, r, authorized, operation); r.Evidence.Reused || len(b.seen()) != 2 {
				t.Errorf("%s, TLS %t: %d requests, evidence %s; want 2, the second over another connection", name, secure, len(b.seen()), r.Evidence.JSON())
			}
			if r := p.Send(t.Context(), pr); !r.Evidence.Reused { // or the test would show nothing
				t.Errorf("%s, TLS %t: evidence %s; want the second connection used again", name, secure, r.Evidence.JSON())
			}
		}
	}
}

// A connection that has been idle for as long as the setting says is closed.
func TestALineIsClosedWhenItWasIdleForTooLong(t *testing.T) {
	cfg := echoing(config(startBank(t, sayAgreeing).URL))
	cfg.IdleTimeout = 10 * time.Millisecond
	opened := tap(&cfg)
	p := open(t, cfg, reference.New())
	wantVerdict(t, p.Send(t.Context(), prepare(t, p)), authorized, operation)
	line := <-opened
	select {
	case <-line.closed:
	case <-time.After(time.Minute): // a bound on hanging, not on speed
		t.Fatal("it is open still")
	}
}

// A line on which the answer says that the connection ends is not used again, though the other side leaves it open.
func TestA5_ALineEndsWhereTheAnswerSaysSo(t *testing.T) {
	for answer, want := range map[string]bankclient.Verdict{
		reply(201, jsonType, agreeing, "Connection: close"):        authorized,
		reply(201, "", "", "Location: /v1/transfers/tr_1"):         unknown, // names no request
		"HTTP/1.0 201 X\r\n" + reply(201, jsonType, agreeing)[16:]: authorized,
	} {
		b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
			_, _ = io.WriteString(c, answer)
			return true
		})
		p := open(t, echoing(config(b.URL)), reference.New())
		pr := prepare(t, p)
		for range 2 {
			if r := p.Send(t.Context(), pr); r.Verdict != want || r.Evidence.Reused {
				t.Errorf("evidence %s; want %s over a connection of its own", r.Evidence.JSON(), want)
			}
		}
	}
}

// leaving is a connection whose caller leaves when the answer has come in, before it is read.
type leaving struct {
	*net.TCPConn
	leave func()
	ended chan struct{}
}

func (c *leaving) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.leave()
	<-c.ended
	return n, err
}

func (c *leaving) SetDeadline(at time.Time) error {
	if at.Unix() == 1 {
		close(c.ended)
		return nil
	}
	return c.TCPConn.SetDeadline(at)
}

// What ends a call whose caller has left may still be at work when the answer was read: the next call is not made on the same line.
func TestA5_ALineWhoseCallWasEndedIsNotUsed(t *testing.T) {
	cfg := echoing(config(startBank(t, sayAgreeing).URL))
	ctx, leave := context.WithCancel(t.Context())
	dials := 0
	cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if dials++; err != nil || dials > 1 {
			return c, err
		}
		return &leaving{c.(*net.TCPConn), leave, make(chan struct{})}, nil
	}
	p := open(t, cfg, reference.New())
	pr := prepare(t, p)
	wantVerdict(t, p.Send(ctx, pr), authorized, operation)
	if r := p.Send(t.Context(), pr); r.Verdict != authorized || r.Evidence.Reused {
		t.Errorf("evidence %s; want authorized, over another connection", r.Evidence.JSON())
	}
}

// A line serves calls after the deadline of the one before has passed.
func TestALineOutlivesTheDeadlineOfACall(t *testing.T) {
	p := open(t, echoing(config(startBank(t, sayAgreeing).URL)), reference.New())
	pr := prepare(t, p)
	for within := 50 * time.Millisecond; ; within *= 2 { // until it is long enough for one call
		ctx, cancel := context.WithTimeout(t.Context(), within)
		r := p.Send(ctx, pr)
		<-ctx.Done()
		cancel()
		if r.Verdict == authorized {
			break
		}
	}
	if r := p.Send(t.Context(), pr); r.Verdict != authorized || !r.Evidence.Reused {
		t.Errorf("evidence %s; want authorized, over the same connection", r.Evidence.JSON())
	}
}

// However a call ends, its place is free for the next.
func TestA5_EveryEndLeavesRoomForTheNextCall(t *testing.T) {
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		switch n {
		case 1:
			_, _ = io.WriteString(c, "HTTP/1.1 201 X\r\nContent-Le")
			return false
		case 2:
			_, _ = io.WriteString(c, reply(422, jsonType, errorBody("account_closed")))
		default:
			_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
		}
		return true
	})
	cfg := echoing(config(b.URL))
	cfg.MaxInFlight = 1
	dials := 0
	cfg.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials == 1 {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	p := open(t, cfg, reference.New())
	pr := prepare(t, p)
	for _, want := range []bankclient.Verdict{notExecuted, unknown, rejected, authorized, authorized} {
		wantVerdict(t, p.Send(t.Context(), pr), want, operation)
	}
	if n := len(b.seen()); n != 4 || dials != 4 {
		t.Errorf("%d requests arrived over %d dials, want 4 over 4", n, dials)
	}
}

func TestA5_InterimAnswersAreNotTheAnswer(t *testing.T) {
	for _, interim := range []string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 X\r\nLink: </a>\r\n\r\nHTTP/1.1 102 X\r\n\r\n"} {
		wantVerdict(t, sendTo(t, say(t, interim+reply(201, jsonType, agreeing))), authorized, operation)
		wantVerdict(t, sendTo(t, say(t, interim+reply(422, jsonType, errorBody("account_closed")))), rejected, operation)
	}
}

// A file that is no token must not become a second header, nor leave at all.
func TestA5_ATokenThatFitsNoHeaderIsNotSent(t *testing.T) {
	for _, token := range []string{"a\r\nX: y", "a\x00b", "a\x7fb"} {
		b := say(t, reply(201, jsonType, agreeing))
		cfg := config(b.URL)
		cfg.Token = func() string { return token }
		p := open(t, cfg, reference.New())
		wantVerdict(t, p.Send(t.Context(), prepare(t, p)), notExecuted, operation)
		if n := len(b.seen()); n != 0 {
			t.Errorf("%q: %d requests arrived", token, n)
		}
	}
}

// The caller leaves while the answer comes in. Whatever it is told, the call after it is not ended by that.
func TestA5_AnEndedCallEndsNoOther(t *testing.T) {
	var leave context.CancelFunc
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		if n%2 == 1 {
			go leave()
		}
		_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
		return true
	})
	p := open(t, echoing(config(b.URL)), reference.New())
	pr := prepare(t, p)
	for range 300 {
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		if r := p.Send(ctx, pr); r.Verdict != authorized && r.Evidence.Error != "canceled" {
			t.Fatalf("evidence %s", r.Evidence.JSON())
		}
		wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
		leave()
	}
}
