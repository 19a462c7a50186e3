package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"net/http/httptest"

	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

// wantMetric looks for one line of the exposition.
func wantMetric(t *testing.T, g *gate, line string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(g.Metrics())
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(recorder.Body.String(), line) {
		t.Errorf("no line %q in\n%s", line, recorder.Body)
	}
}

func TestTokens_NobodyComesInWithoutOne(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer x", "Basic " + walletToken, walletToken, "Bearer " + walletToken + "x", "Bearer " + walletToken[1:]} {
		for _, path := range []string{"POST /v1/withdrawals", "GET /v1/withdrawals/" + newKey(), "POST /v1/withdrawals/" + newKey() + "/cancel"} {
			method, path, _ := strings.Cut(path, " ")
			a := g.must(method, path, wallet(newKey(), "Authorization", header), body)
			a.want(t, http.StatusUnauthorized, "unauthorized", false)
			if a.header.Get("WWW-Authenticate") != `Bearer realm="paidonce"` {
				t.Errorf("%q: %v", header, a.header)
			}
		}
	}
	c.wantCount(0, "operations", `SELECT count(*) FROM operations`)
	g.post(newKey(), body, "Authorization", "bearer  "+walletToken).want(t, http.StatusAccepted, "", false) // the scheme has no case
}

func TestTokens_RotationWithOverlap(t *testing.T) {
	const first, second = "token-number-one-of-wallet", "token-number-two-of-wallet"
	tokens, err := gateway.NewTokens(map[string][]string{"wallet": {first}, "shop": {shopToken}})
	if err != nil {
		t.Fatal(err)
	}
	want := func(token, source string) {
		t.Helper()
		if got, ok := tokens.Source(token); got != source || ok != (source != "") {
			t.Errorf("%q, %v; want %q", got, ok, source)
		}
	}
	want(first, "wallet")
	want(second, "")
	replace := func(list ...string) {
		t.Helper()
		if err := tokens.Replace(map[string][]string{"wallet": list, "shop": {shopToken}}); err != nil {
			t.Fatal(err)
		}
	}
	replace(first, second)
	want(first, "wallet")
	want(second, "wallet")
	replace(second)
	want(first, "")
	want(second, "wallet")
	want(shopToken, "shop")
	const digest = "sha256:f5d7a05d58afa3d25e62babe16e2297d1576053ab213ef0c22fb7fe73da245c5" // of the first
	replace(digest, second)
	want(first, "wallet")
	want(second, "wallet")
	want(digest, "") // who has read the file has no token
	replace(second)
	for _, wrong := range []string{"sha256:", digest[:70], digest + "0", digest[:70] + "g"} {
		if err := tokens.Replace(map[string][]string{"wallet": {wrong}}); err == nil || strings.Contains(err.Error(), digest[10:60]) {
			t.Errorf("%q: error %v", wrong, err)
		}
	}
	if err := tokens.Replace(map[string][]string{"wallet": {first}, "shop": {digest}}); err == nil {
		t.Error("two sources have one token, once as its digest")
	}
	for _, wrong := range []map[string][]string{{"wallet": {"short"}}, {"wallet": {first}, "shop": {first}}} {
		if err := tokens.Replace(wrong); err == nil || strings.Contains(err.Error(), first) || strings.Contains(err.Error(), "short\"") {
			t.Errorf("error %v", err)
		}
		want(second, "wallet") // the last good ones stay
	}
}

func TestWait_EndsWithTheOutcome(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	for name, one := range map[string]struct {
		record func(ledger.Claim) ledger.Record
		status int
		state  string
	}{
		"authorized": {func(k ledger.Claim) ledger.Record { return ledger.Authorize(k, "tr_1", fact("authorized")) }, http.StatusCreated, "authorized"},
		"rejected":   {func(k ledger.Claim) ledger.Record { return ledger.Reject(k, "account_closed", fact("rejected")) }, http.StatusOK, "rejected"},
		"cancelled":  {func(k ledger.Claim) ledger.Record { return ledger.Cancel(k, "expired", fact("not_executed")) }, http.StatusOK, "cancelled"},
	} {
		key := newKey()
		var first, second answer
		var waiting sync.WaitGroup
		waiting.Go(func() { first = g.mustAsync(wallet(key, "Prefer", "respond-async, wait=25")) })
		stack.Eventually(t, "accepted", func() bool { _, err := c.ledger.Explain(context.Background(), uuid.MustParse(key)); return err == nil })
		waiting.Go(func() { second = g.mustAsync(wallet(key, "Prefer", "wait=25")) })
		claim := c.claim(key)
		began := time.Now()
		c.record(one.record(claim))
		waiting.Wait()
		if took := time.Since(began); took > 20*time.Second { // the wait itself ends later
			t.Errorf("%s: told after %s", name, took)
		}
		first.want(t, one.status, "", false)
		if second.text != first.text || first.State != one.state || first.header.Get("Preference-Applied") != "wait=25" ||
			second.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %s, %d %s", name, first.status, first.text, second.status, second.text)
		}
	}
}

func (g *gate) mustAsync(header map[string]string) answer {
	a, err := g.ask("POST", "/v1/withdrawals", header, body)
	if err != nil {
		g.city.t.Error(err)
	}
	return a
}

func TestWait_WhenItEndsFirst(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	began := time.Now()
	a := g.post(key, body, "Prefer", "wait=1")
	a.want(t, http.StatusAccepted, "", false)
	if a.header.Get("Preference-Applied") != "wait=1" || time.Since(began) < time.Second || time.Since(began) > time.Minute {
		t.Errorf("after %s: %v", time.Since(began), a.header)
	}
	claim := c.claim(key)
	a = g.post(key, body, "Prefer", "wait=1")
	a.want(t, http.StatusConflict, "request_in_progress", true)
	if a.header.Get("Retry-After") == "" || a.State != "claimed" {
		t.Errorf("%v %s", a.header, a.text)
	}
	g.post(key, body).want(t, http.StatusAccepted, "", true)
	for _, none := range []string{"wait=0", "wait=-1", "wait=x", "wait", "", "respond-async"} {
		if a := g.post(key, body, "Prefer", none); a.status != http.StatusAccepted || a.header.Get("Preference-Applied") != "" {
			t.Errorf("%q: %d, %v", none, a.status, a.header)
		}
	}
	c.record(ledger.Reject(claim, "account_closed", fact("rejected")))
	g.post(key, body, "Prefer", "wait=30").want(t, http.StatusOK, "", true)
}

// TestWait_IsToldByAWorkerInTheSameProcess: without a tick to help.
func TestWait_IsToldByAWorkerInTheSameProcess(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) { o.Tick = time.Hour })
	key := newKey()
	var a answer
	var waiting sync.WaitGroup
	waiting.Go(func() { a = g.mustAsync(wallet(key, "Prefer", "wait=20")) })
	stack.Eventually(t, "accepted", func() bool { _, err := c.ledger.Explain(context.Background(), uuid.MustParse(key)); return err == nil })
	c.record(ledger.Authorize(c.claim(key), "tr_1", fact("authorized")))
	g.Tell(uuid.New()) // nobody waits for it
	ended := make(chan struct{})
	go func() { waiting.Wait(); close(ended) }()
	stack.Eventually(t, "told", func() bool { // told as often as it takes: the request may not wait yet
		g.Tell(uuid.MustParse(key))
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	a.want(t, http.StatusCreated, "", false)
}

// decided is an intake whose orders have an outcome before their request can wait for it.
type decided struct {
	gateway.Intake
	c *city
}

func (d decided) Do(ctx context.Context, o ledger.Order) (ledger.Acceptance, error) {
	a, err := d.Intake.Do(ctx, o)
	if claim, failed := claimOf(d.c.ledger, o.Key); failed == nil {
		d.c.record(ledger.Authorize(claim, "tr_1", fact("authorized")))
	}
	return a, err
}

// TestWait_AnOutcomeThatWasFirstIsFound: without a hint and without a tick.
func TestWait_AnOutcomeThatWasFirstIsFound(t *testing.T) {
	c := newCity(t)
	c.around = func(i gateway.Intake) gateway.Intake { return decided{i, c} }
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) { o.Tick = time.Hour })
	g.post(newKey(), body, "Prefer", "wait=10").want(t, http.StatusCreated, "", false)
}

// TestWait_HoldsNoSlot: those who wait do not keep others out, and too many of them are answered at once.
func TestWait_HoldsNoSlot(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) { o.MaxRequests, o.MaxWaiting = 1, 2 })
	key := newKey()
	g.post(key, body)
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			stack.Eventually(t, "a slot", func() bool {
				a := g.mustAsync(wallet(key, "Prefer", "wait=30"))
				return a.status == http.StatusCreated
			})
		})
	}
	stack.Eventually(t, "answered at once", func() bool {
		began := time.Now()
		a := g.post(newKey(), body, "Prefer", "wait=2")
		return a.status == http.StatusAccepted && time.Since(began) < time.Second
	})
	c.record(ledger.Authorize(c.claim(key), "tr_1", fact("authorized")))
	waiting.Wait()
}

func TestCancel_OnlyWhileOpenAndNotInDoubt(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	cancel := func(key string) answer { return g.must("POST", "/v1/withdrawals/"+key+"/cancel", wallet(""), "") }
	accepted := func() string {
		key := newKey()
		g.post(key, body).want(t, http.StatusAccepted, "", false)
		return key
	}
	open := accepted()
	a := cancel(open)
	a.want(t, http.StatusOK, "", false)
	if a.State != "cancelled" || a.Code != "cancelled_by_source" || a.OutcomeAt == "" {
		t.Error(a.text)
	}
	cancel(open).want(t, http.StatusOK, "", true)
	g.post(open, body).want(t, http.StatusOK, "", true)
	for state, bring := range map[string]func(string){
		"claimed":    func(key string) { c.claim(key) },
		"open":       func(key string) { c.record(ledger.Schedule(c.claim(key), true, time.Hour, fact("unknown"))) },
		"parked":     func(key string) { c.record(ledger.Park(c.claim(key), "mismatch", true, fact("mismatch"))) },
		"authorized": func(key string) { c.record(ledger.Authorize(c.claim(key), "tr_1", fact("authorized"))) },
		"rejected":   func(key string) { c.record(ledger.Reject(c.claim(key), "account_closed", fact("rejected"))) },
	} {
		key := accepted()
		bring(key)
		a := cancel(key)
		a.want(t, http.StatusConflict, "not_cancellable", false)
		if a.State != state {
			t.Errorf("%s: told %q", state, a.State)
		}
	}
	cancel(newKey()).want(t, http.StatusNotFound, "not_found", false)
	cancel("nonsense").want(t, http.StatusNotFound, "not_found", false)
	c.wantCount(1, "cancelled events", `SELECT count(*) FROM outbox WHERE type = 'cancelled'`)
}

// TestCancel_ARaceWithAClaimHasOneWinner, through HTTP.
func TestCancel_ARaceWithAClaimHasOneWinner(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	cancelled := 0
	for range 40 {
		key := newKey()
		g.post(key, body)
		var a answer
		var claimed error
		var both sync.WaitGroup
		both.Go(func() {
			var err error
			if a, err = g.ask("POST", "/v1/withdrawals/"+key+"/cancel", wallet(""), ""); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() { _, claimed = claimOf(c.ledger, uuid.MustParse(key)) })
		both.Wait()
		if won := a.status == http.StatusOK; won != (claimed != nil) || (!won && a.Code != "not_cancellable") {
			t.Fatalf("cancel: %d %s, claim: %v", a.status, a.text, claimed)
		}
		if a.status == http.StatusOK {
			cancelled++
		}
	}
	c.wantCount(cancelled, "cancelled", `SELECT count(*) FROM operations WHERE state = 'cancelled'`)
	c.wantCount(40-cancelled, "claimed", `SELECT count(*) FROM operations WHERE state = 'claimed'`)
}

func TestPaths_UnknownOnesAndOtherMethods(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	for _, path := range []string{"/", "/v1", "/v1/withdrawals/", "/v1/withdrawals/" + newKey() + "/x", "/metrics", "/v2/withdrawals"} {
		g.must("GET", path, wallet(""), "").want(t, http.StatusNotFound, "not_found", false)
	}
	for path, allow := range map[string]string{"/v1/withdrawals": "POST", "/v1/withdrawals/" + newKey(): "GET, HEAD", "/v1/withdrawals/" + newKey() + "/cancel": "POST"} {
		a := g.must("DELETE", path, wallet(""), "")
		a.want(t, http.StatusMethodNotAllowed, "method_not_allowed", false)
		if a.header.Get("Allow") != allow {
			t.Errorf("%s: Allow %q", path, a.header.Get("Allow"))
		}
	}
}

func TestAccessLog_OneLinePerRequestWithoutPayload(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), nil)
	key := newKey()
	g.post(key, body, "X-Request-Id", "req-7")
	g.must("GET", "/v1/withdrawals/"+canaryIBAN+"?x="+canaryAccount, wallet("", "X-Request-Id", canaryName), "").want(t, http.StatusNotFound, "not_found", false)
	stack.Eventually(t, "two lines", func() bool { return strings.Count(c.log.String(), `"message":"request"`) == 2 })
	for _, part := range []string{`"request_id":"req-7"`, `"method":"POST"`, `"path":"/v1/withdrawals"`, `"status":202`, `"source":"wallet"`, `"key":"` + key + `"`,
		`"path":"/v1/withdrawals/{key}"`, `"code":"not_found"`} {
		if !strings.Contains(c.log.String(), part) {
			t.Errorf("no %s in the log:\n%s", part, c.log)
		}
	}
	wantMetric(t, g, `paidonce_gateway_requests_total{code="",path="/v1/withdrawals",status="202"} 1`)
	wantMetric(t, g, `paidonce_gateway_request_seconds_count{path="/v1/withdrawals"} 1`)
}
