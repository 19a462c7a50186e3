package banksim_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

const body = `{"amount":"49.00","currency":"GBP","beneficiary":{"name":"A & B <C>","iban":"GB33BUKB20201555555555"},` +
	`"reference":"Withdrawal 88104","end_to_end_id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`

const deadline = time.Minute // of tests that would otherwise hang

// listen listens on a free port below those that systems give to outgoing connections: while a bank refuses, nobody takes it.
func listen(t testing.TB) net.Listener {
	t.Helper()
	for range 100 {
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			return ln
		}
	}
	t.Fatal("find a free port")
	return nil
}

// serve serves one of a bank's APIs on a free port and returns its address.
func serve(t testing.TB, b *banksim.Bank, api func(net.Listener) error) string {
	t.Helper()
	ln := listen(t)
	done := make(chan error, 1)
	go func() { done <- api(ln) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// rig is one bank with clients of two kinds: net/http, and bytes on a socket.
type rig struct {
	t       testing.TB
	bank    *banksim.Bank
	address string
	http    *http.Client
}

func newRig(t testing.TB, options banksim.Options) *rig {
	bank := banksim.New(options)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	r := &rig{t: t, bank: bank, address: serve(t, bank, bank.Serve), http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return r
}

func calm(t testing.TB) *rig { return newRig(t, banksim.Options{Calm: true}) }

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r *rig) post(key string) answer { return r.postAs("token", "/v1/transfers", key, body) }

func (r *rig) postBody(key, body string) answer { return r.postAs("token", "/v1/transfers", key, body) }

func (r *rig) postAs(token, path, key, body string) answer {
	req, err := http.NewRequest(http.MethodPost, "http://"+r.address+path, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		return answer{err: err}
	}
	req.ContentLength = int64(len(body)) // without GetBody, net/http does not send it again by itself
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Idempotency-Key", key)
	return r.do(req)
}

func (r *rig) get(path string) answer {
	req, err := http.NewRequest(http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer token")
	return r.do(req)
}

func (r *rig) lookUp(key string) answer { return r.get("/v1/transfers?idempotency_key=" + key) }

func (r *rig) do(req *http.Request) answer {
	resp, err := r.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(read), err: err}
}

// later runs a post and gives its answer when it comes.
func (r *rig) later(key string) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- r.post(key) }()
	return got
}

// comes advances the bank's clock, step by step, until the answer is there, which must be a success.
func (r *rig) comes(late <-chan answer, step time.Duration) {
	r.t.Helper()
	r.until("the answer comes when its time has passed", func() bool {
		r.bank.Advance(step)
		select {
		case a := <-late:
			a.want(r.t, 201, "accepted")
			return true
		default:
			return false
		}
	})
}

// dial opens a connection, whose reads and writes are bounded.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// raw sends one create as bytes and returns all that comes back until the connection ends, and whether it was reset.
func (r *rig) raw(key string) (string, bool) {
	r.t.Helper()
	conn := r.dial()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, rawRequest(key)); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		r.t.Fatal(err)
	}
	var got bytes.Buffer
	_, err := io.Copy(&got, conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		r.t.Fatalf("connection neither closed nor reset: %v", err)
	}
	return got.String(), err != nil
}

func rawRequest(key string) string {
	return fmt.Sprintf("POST /v1/transfers HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer token\r\nIdempotency-Key: %s\r\n"+
		"Content-Length: %d\r\n\r\n%s", key, len(body), body)
}

// firstLine sends one create as bytes and returns the first line of the answer, without waiting for the end.
func (r *rig) firstLine(key string) string {
	r.t.Helper()
	conn := r.dial()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, rawRequest(key)); err != nil {
		r.t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (r *rig) set(f banksim.Fault) {
	r.t.Helper()
	if _, err := r.bank.SetFault(f); err != nil {
		r.t.Fatal(err)
	}
}

// spent waits until every fault that was set has been met.
func (r *rig) spent() {
	r.t.Helper()
	r.until("the fault is spent", func() bool { return len(r.bank.ActiveFaults()) == 0 })
}

func (r *rig) clear() {
	r.t.Helper()
	if err := r.bank.ClearFaults(); err != nil {
		r.t.Fatal(err)
	}
}

// executed asserts how often money moved under a key.
func (r *rig) executed(key string, want int) {
	r.t.Helper()
	h, _ := r.bank.History(key)
	if h.Executions != want {
		r.t.Errorf("executions of %s: got %d, want %d; requests: %+v", key, h.Executions, want, h.Requests)
	}
}

// met asserts that the oracle knows which fault the last request of a key met.
func (r *rig) met(key, name string) {
	r.t.Helper()
	r.until("the oracle knows the fault of the last request", func() bool {
		h, _ := r.bank.History(key)
		return len(h.Requests) > 0 && strings.Contains(strings.Join(h.Requests[len(h.Requests)-1].Faults, " "), name)
	})
}

// refused asserts that dials are refused and that no idle connection is left.
func (r *rig) refused() {
	r.t.Helper()
	if conn, err := net.Dial("tcp", r.address); !errors.Is(err, syscall.ECONNREFUSED) {
		r.t.Errorf("dial: %v, %v", conn, err)
	}
	r.until("idle connections are gone", func() bool { return errors.Is(r.lookUp("k").err, syscall.ECONNREFUSED) })
}

func (r *rig) quiesce() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := r.bank.Quiesce(ctx); err != nil {
		r.t.Fatalf("quiesce: %v", err)
	}
}

// until polls, bounded.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	end := time.After(deadline)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			r.t.Fatalf("not in time: %s", what)
		}
	}
}

// want asserts a status and a part of the body.
func (a answer) want(t testing.TB, status int, part string) {
	t.Helper()
	if a.err != nil || a.status != status || !strings.Contains(a.body, part) {
		t.Errorf("got %d %.300q (%v), want %d with %q", a.status, a.body, a.err, status, part)
	}
}
