package banksim_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

func TestCalmBankCreatesReplaysAndFinds(t *testing.T) {
	r := calm(t)
	first := r.post("key-1")
	first.want(t, 201, `"status":"accepted","amount":"49.00","currency":"GBP","beneficiary":{"name":"A & B <C>","iban":"GB33BUKB20201555555555"},`+
		`"reference":"Withdrawal 88104","end_to_end_id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","created_at":"`)
	again := r.post("key-1")
	if again.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replay: %+v", again)
	}
	r.postBody("key-1", strings.Replace(body, "49.00", "50.00", 1)).want(t, 422, `{"error":{"code":"idempotency_key_reused","transfer_id":"tr_`)
	if found := r.lookUp("key-1"); found.status != 200 || found.body != `{"data":[`+first.body+`]}` {
		t.Errorf("look-up: %+v", found)
	}
	if got := r.get("/v1/transfers/" + idOf(first)); got.status != 200 || got.body != first.body {
		t.Errorf("get: %+v", got)
	}
	r.get("/v1/transfers/tr_0000000000000000").want(t, 404, `"not_found"`)
	s := r.bank.Summary()
	if s.Executions != 1 || s.Keys != 1 || s.KeysTwice != 0 || s.KeysExecuted != 1 || s.Creates != 3 || s.LookUps != 1 || s.Requests != 6 {
		t.Errorf("summary: %+v", s)
	}
}

// Every answer of the bank's own names its request; a proxy's page does not.
func TestAnswersToACreateNameTheirRequest(t *testing.T) {
	r := calm(t)
	for _, c := range []struct {
		fault banksim.Fault
		want  string
	}{
		{banksim.Fault{Name: "rate_limited", Next: 1}, "key-1"},
		{banksim.Fault{Name: "html_page", Next: 1}, ""},
		{banksim.Fault{Name: "redirect", Next: 1}, ""},
		{banksim.Fault{Name: "insufficient_funds", Next: 1}, "key-1"},
		{banksim.Fault{}, "key-1"},
	} {
		if c.fault.Name != "" {
			if _, err := r.bank.SetFault(c.fault); err != nil {
				t.Fatal(err)
			}
		}
		if a := r.post("key-1"); a.header.Get("Idempotency-Key") != c.want {
			t.Errorf("%q: %d with the key %q, want %q", c.fault.Name, a.status, a.header.Get("Idempotency-Key"), c.want)
		}
	}
}

func idOf(a answer) string {
	_, after, _ := strings.Cut(a.body, `"id":"`)
	id, _, _ := strings.Cut(after, `"`)
	return id
}

func TestA12_PrefixKeysAreNeverConfused(t *testing.T) {
	r := calm(t)
	first := r.post("op-1")
	r.lookUp("op-10").want(t, 200, `{"data":[]}`)
	r.post("op-10").want(t, 201, `"accepted"`)
	if found := r.lookUp("op-1"); found.body != `{"data":[`+first.body+`]}` {
		t.Errorf("look-up: %+v", found)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	r := calm(t)
	r.bank.SetTokens(map[string]string{"secret": "2026-11"})
	r.post("k").want(t, 401, `{"error":{"code":"unauthorized"}}`)
	r.bank.SetTokens(nil)
	r.post("").want(t, 400, `"idempotency_key_missing"`)
	for name, bad := range map[string]string{
		"amount as number":   strings.Replace(body, `"49.00"`, `49.00`, 1),
		"amount zero":        strings.Replace(body, `"49.00"`, `"0.00"`, 1),
		"amount with sign":   strings.Replace(body, `"49.00"`, `"-1"`, 1),
		"amount ends early":  strings.Replace(body, `"49.00"`, `"49."`, 1),
		"currency lower":     strings.Replace(body, `"GBP"`, `"gbp"`, 1),
		"no beneficiary":     strings.Replace(body, `"beneficiary"`, `"payee"`, 1),
		"duplicate name":     strings.Replace(body, `{"amount"`, `{"amount":"1.00","amount"`, 1),
		"trailing data":      body + `{}`,
		"trailing brace":     body + `}`,
		"cut":                body[:len(body)-1],
		"array":              `[` + body + `]`,
		"empty":              ``,
		"no end to end id":   strings.Replace(body, `"end_to_end_id"`, `"e2e"`, 1),
		"reference a number": strings.Replace(body, `"Withdrawal 88104"`, `1`, 1),
	} {
		a := r.postBody("k", bad)
		if a.status != 400 || !strings.HasPrefix(a.body, `{"error":{"code":"invalid_request"`) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := r.postBody("k", `{"x":"`+strings.Repeat("x", 65<<10)+`"}`); a.err == nil && a.status != 413 {
		t.Errorf("too large: %+v", a)
	}
	r.executed("k", 0)
	r.post("k").want(t, 201, `"accepted"`) // none of them took the key
}

func TestH5_ExactEcho(t *testing.T) {
	r := calm(t)
	odd := `{"end_to_end_id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "reference":"caf\u00e9 \/ \"x\"", "beneficiary":{ "name" : "Zo\u00eb" },"currency":"KWD","amount":"18.600"}`
	r.postBody("k", odd).want(t, 201, `"amount":"18.600","currency":"KWD","beneficiary":{ "name" : "Zo\u00eb" },"reference":"caf\u00e9 \/ \"x\"","end_to_end_id":"ABC`)
}

func TestStatementPages(t *testing.T) {
	r := calm(t)
	for i := range 5 {
		r.post(fmt.Sprint("key-", i))
	}
	page := r.get("/v1/transfers?limit=3")
	if strings.Count(page.body, `"id"`) != 3 || !strings.HasSuffix(page.body, `"next_cursor":"3"}`) {
		t.Errorf("first page: %+v", page)
	}
	page = r.get("/v1/transfers?limit=3&cursor=3")
	if strings.Count(page.body, `"id"`) != 2 || !strings.HasSuffix(page.body, `"next_cursor":null}`) {
		t.Errorf("second page: %+v", page)
	}
	r.get("/v1/transfers?created_from=2999-01-01T00:00:00Z").want(t, 200, `{"data":[],"next_cursor":null}`)
	r.get("/v1/transfers?created_to=1066-01-01T00:00:00Z").want(t, 200, `{"data":[],"next_cursor":null}`)
	if all := r.get("/v1/transfers?created_from=2020-01-01T00:00:00Z&created_to=2999-01-01T00:00:00Z"); strings.Count(all.body, `"id"`) != 5 {
		t.Errorf("all: %+v", all)
	}
	r.get("/v1/transfers?limit=-1").want(t, 400, `"invalid_request"`)
}

func TestConcurrentDuplicatesExecuteOnce(t *testing.T) {
	r := calm(t)
	var wg sync.WaitGroup
	statuses := make(chan int, 500)
	for i := range 500 {
		wg.Go(func() { statuses <- r.post(fmt.Sprint("key-", i%10)).status })
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	if count[201] != 10 || count[200]+count[409] != 490 {
		t.Errorf("answers: %v", count)
	}
	if s := r.bank.Summary(); s.Executions != 10 || s.KeysTwice != 0 || s.Creates != 500 || s.Keys != 10 {
		t.Errorf("summary: %+v", s)
	}
}

func TestCalmMeansNoFault(t *testing.T) {
	r := calm(t)
	for i := range 500 {
		key := fmt.Sprint("key-", i)
		if a := r.post(key); a.status != 201 {
			t.Fatalf("%s: %+v", key, a)
		}
		if a := r.lookUp(key); a.status != 200 || !strings.Contains(a.body, `"accepted"`) {
			t.Fatalf("%s: %+v", key, a)
		}
	}
	r.bank.Histories(func(h banksim.History) bool {
		for _, request := range h.Requests {
			if len(request.Faults) > 0 {
				t.Errorf("%s met %v", h.Key, request.Faults)
			}
		}
		return true
	})
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkCalmCreate is the bank alone, without net/http's server.
func BenchmarkCalmCreate(b *testing.B) {
	handler := banksim.New(banksim.Options{Calm: true}).Handler()
	w := &discard{header: http.Header{}}
	target := &url.URL{Path: "/v1/transfers"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req := &http.Request{
			Method: http.MethodPost, URL: target, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
			Header: http.Header{"Authorization": {"Bearer t"}, "Idempotency-Key": {fmt.Sprintf("01939e1c-7a52-7c3e-9b6e-%012d", i)}},
		}
		clear(w.header)
		handler.ServeHTTP(w, req)
	}
}
