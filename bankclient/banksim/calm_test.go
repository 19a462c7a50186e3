package banksim_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

const body = `{"amount":"49.00","currency":"GBP","beneficiary":{"name":"A & B <C>","iban":"GB33BUKB20201555555555"},` +
	`"reference":"Withdrawal 88104","end_to_end_id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`

// serve starts a bank on a free port and returns its base URL.
func serve(t testing.TB, b *banksim.Bank) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.Serve(ln) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("serve: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

type client struct {
	t    testing.TB
	base string
	http *http.Client
}

func newClient(t testing.TB, base string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, base: base, http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (c *client) post(key, body string) answer { return c.postAs("token", "/v1/transfers", key, body) }

func (c *client) postAs(token, path, key, body string) answer {
	req, err := http.NewRequest(http.MethodPost, c.base+path, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		c.t.Fatal(err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Idempotency-Key", key)
	return c.do(req)
}

func (c *client) get(path string) answer {
	req, err := http.NewRequest(http.MethodGet, c.base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token")
	return c.do(req)
}

func (c *client) do(req *http.Request) answer {
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(read), err: err}
}

func TestCalmBankCreatesReplaysAndFinds(t *testing.T) {
	b := banksim.New(banksim.Options{Calm: true})
	c := newClient(t, serve(t, b))
	first := c.post("key-1", body)
	if first.status != 201 || !strings.Contains(first.body, `"status":"accepted","amount":"49.00","currency":"GBP","beneficiary":{"name":"A & B <C>","iban":"GB33BUKB20201555555555"},"reference":"Withdrawal 88104","end_to_end_id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","created_at":"`) {
		t.Fatalf("create: %+v", first)
	}
	again := c.post("key-1", body)
	if again.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replay: %+v", again)
	}
	if other := c.post("key-1", strings.Replace(body, "49.00", "50.00", 1)); other.status != 422 || !strings.Contains(other.body, `"code":"idempotency_key_reused"`) {
		t.Errorf("other body: %+v", other)
	}
	if found := c.get("/v1/transfers?idempotency_key=key-1"); found.status != 200 || found.body != `{"data":[`+first.body+`]}` {
		t.Errorf("look-up: %+v", found)
	}
	if found := c.get("/v1/transfers?idempotency_key=key-10"); found.body != `{"data":[]}` {
		t.Errorf("look-up of an unknown key: %+v", found)
	}
	id := first.body[strings.Index(first.body, "tr_"):][:19]
	if got := c.get("/v1/transfers/" + id); got.status != 200 || got.body != first.body {
		t.Errorf("get: %+v", got)
	}
	if got := c.get("/v1/transfers/tr_0000000000000000"); got.status != 404 {
		t.Errorf("get of an unknown id: %+v", got)
	}
	s := b.Summary()
	if s.Executions != 1 || s.Keys != 1 || s.KeysTwice != 0 || s.Creates != 3 {
		t.Errorf("summary: %+v", s)
	}
}

func TestStatementPages(t *testing.T) {
	b := banksim.New(banksim.Options{Calm: true})
	c := newClient(t, serve(t, b))
	for i := range 5 {
		c.post(fmt.Sprint("key-", i), body)
	}
	page := c.get("/v1/transfers?limit=3")
	if strings.Count(page.body, `"id"`) != 3 || !strings.HasSuffix(page.body, `"next_cursor":"3"}`) {
		t.Errorf("first page: %+v", page)
	}
	page = c.get("/v1/transfers?limit=3&cursor=3")
	if strings.Count(page.body, `"id"`) != 2 || !strings.HasSuffix(page.body, `"next_cursor":null}`) {
		t.Errorf("second page: %+v", page)
	}
	if page := c.get("/v1/transfers?created_from=2999-01-01T00:00:00Z"); page.body != `{"data":[],"next_cursor":null}` {
		t.Errorf("page of the future: %+v", page)
	}
}

func BenchmarkCalmCreate(b *testing.B) {
	bank := banksim.New(banksim.Options{Calm: true})
	handler := bank.Handler()
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req := &http.Request{
			Method: http.MethodPost, URL: mustURL, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
			Header: http.Header{"Authorization": {"Bearer t"}, "Idempotency-Key": {fmt.Sprintf("01939e1c-7a52-7c3e-9b6e-%012d", i)}},
		}
		clear(w.header)
		handler.ServeHTTP(w, req)
	}
}
