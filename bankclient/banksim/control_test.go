package banksim_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

// control is a client of the control API of a rig's bank.
type control struct {
	t    *testing.T
	base string
}

func newControl(t *testing.T, b *banksim.Bank) *control {
	return &control{t: t, base: "http://" + serve(t, b, b.ServeControl)}
}

// call does one request and wants its status and a part of its body.
func (c *control) call(method, path, post string, status int, part string) string {
	c.t.Helper()
	req, err := http.NewRequest(method, c.base+path, strings.NewReader(post))
	if err != nil {
		c.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || !strings.Contains(string(read), part) {
		c.t.Errorf("%s %s: got %d %.400s (%v), want %d with %q", method, path, resp.StatusCode, read, err, status, part)
	}
	return string(read)
}

func TestControlFaults(t *testing.T) {
	r := calm(t)
	c := newControl(t, r.bank)
	c.call("GET", "/", "", 200, "NOT FOR PRODUCTION")
	c.call("GET", "/faults", "", 200, `{"name":"reset_after_commit","on":["create","look_up","get","statement"],"sentence":"The request is processed, then the connection is reset without an answer.","weight":10,"read_weight":0}`)
	c.call("POST", "/faults", `{"name":"unavailable","next":2}`, 201, `{"id":1}`)
	c.call("POST", "/faults", `{"name":"html_page","on":"look_up","status":504}`, 201, `{"id":2}`)
	c.call("POST", "/faults", `{"name":"nonsense"}`, 400, `fault \"nonsense\" is not in the catalogue`)
	c.call("POST", "/faults", `{"name":"hang","nexxt":1}`, 400, `nexxt`)
	r.post("k").want(t, 503, "unavailable")
	c.call("GET", "/faults/active", "", 200, `[{"id":1,"fault":{"name":"unavailable","next":2},"left":1},{"id":2,`)
	r.lookUp("k").want(t, 504, "<html>")
	c.call("DELETE", "/faults/2", "", 204, "")
	r.lookUp("k").want(t, 200, `{"data":[]}`)
	r.post("k").want(t, 503, "unavailable")
	r.post("k").want(t, 201, "accepted")
	c.call("POST", "/faults", `{"name":"unavailable"}`, 201, "")
	r.post("k").want(t, 503, "unavailable")
	c.call("DELETE", "/faults", "", 204, "")
	r.post("k").want(t, 200, "accepted")
}

func TestFaultsBySkipProbabilityAndCombination(t *testing.T) {
	r := calm(t)
	r.set(banksim.Fault{Name: "unavailable", Key: "k", Skip: 2, Next: 1})
	for i, want := range []int{201, 200, 503, 200} {
		if got := r.post("k").status; got != want {
			t.Errorf("create %d: got %d, want %d", i, got, want)
		}
	}
	r.set(banksim.Fault{Name: "lookup_lag", Key: "both", Next: 1})
	r.set(banksim.Fault{Name: "error_after_commit", Key: "both", Next: 1})
	r.post("both").want(t, 500, "internal_error")
	r.lookUp("both").want(t, 200, `{"data":[]}`)
	r.executed("both", 1)
	r.set(banksim.Fault{Name: "unavailable", Probability: 0.3})
	hit := 0
	for i := range 1000 {
		if r.post(fmt.Sprint("p-", i)).status == 503 {
			hit++
		}
	}
	if hit < 250 || hit > 350 {
		t.Errorf("%d of 1000 met a fault of probability 0.3", hit)
	}
}

func TestRetryAfterForms(t *testing.T) {
	r := calm(t)
	for form, want := range map[string]string{"": "1", "none": "", "0": "0", "-5": "-5", "99999999999": "99999999999", "soon": "soon"} {
		r.set(banksim.Fault{Name: "rate_limited", Next: 1, RetryAfter: form})
		if got := r.post("k").header.Get("Retry-After"); got != want {
			t.Errorf("%q: got %q, want %q", form, got, want)
		}
	}
	r.set(banksim.Fault{Name: "rate_limited", Next: 1, RetryAfter: "date+60"})
	at, err := http.ParseTime(r.post("k").header.Get("Retry-After"))
	if ahead := time.Until(at); err != nil || ahead < 50*time.Second || ahead > 61*time.Second {
		t.Errorf("date: %v, %v ahead", err, ahead)
	}
}

func TestControlBehaviour(t *testing.T) {
	r := calm(t)
	c := newControl(t, r.bank)
	c.call("GET", "/idempotency", "", 200, `"per_credential":true,"key_limit":0,"window_ms":86400000,"replay":"current","in_flight":"409","other_body":"422","store_rejections":true,"store_errors":false`)
	c.call("POST", "/idempotency", `{"replay":"conflict_body"}`, 200, `"replay":"conflict_body","in_flight":"409"`)
	c.call("POST", "/idempotency", `{"replay":"x"}`, 400, "not a known shape")
	first := r.post("k")
	r.post("k").want(t, 409, `"accepted"`)
	c.call("DELETE", "/keys/k", "", 204, "")
	r.post("k").want(t, 201, "accepted")
	c.call("POST", "/clock", `{"advance_ms":-1}`, 400, "never goes back")
	c.call("POST", "/clock", `{"advance_ms":86400001}`, 200, `{"now":"`)
	r.post("k").want(t, 201, "accepted")
	c.call("POST", "/transfers/"+idOf(first), `{"status":"returned","code":""}`, 204, "")
	r.get("/v1/transfers/"+idOf(first)).want(t, 200, `"returned"`)
	c.call("POST", "/transfers/tr_x", `{"status":"returned"}`, 400, "no transfer")
	if set := c.call("POST", "/settings", `{"tokens":{"s3cret":"2026-11"},"latency_ms":0}`, 200, `"credentials":["2026-11"]`); strings.Contains(set, "s3cret") {
		t.Errorf("the token came out again: %s", set)
	}
	r.post("k").want(t, 401, "unauthorized")
	r.postAs("s3cret", "/v1/transfers", "k2", body).want(t, 201, "accepted")
}

func TestControlProfile(t *testing.T) {
	r := calm(t)
	c := newControl(t, r.bank)
	c.call("GET", "/profile", "", 200, `{"hostility":0,"max_delay_ms":3000,"time_scale":1,"weights":{`)
	c.call("POST", "/profile", `{"hostility":2}`, 400, "not between 0 and 1")
	c.call("POST", "/profile", `{"weights":{"lookup_flaps":1}}`, 400, "cannot be weighted")
	if err := r.bank.SetProfile(banksim.Profile{Hostility: 1, MaxDelayMS: 10, TimeScale: 1, Weights: map[string]float64{"unavailable": 1}}); err != nil {
		t.Fatal(err)
	}
	r.post("k").want(t, 503, "unavailable")
	c.call("GET", "/schedule?key=k&n=2", "", 200, `{"key":"k","faults":[["unavailable"],["unavailable"]]}`)
	c.call("POST", "/profile", `{"hostility":0}`, 200, `"weights":{"unavailable":1}`)
	r.post("k").want(t, 201, "accepted")
}

func TestControlOracle(t *testing.T) {
	r := calm(t)
	c := newControl(t, r.bank)
	first := r.post("k")
	r.set(banksim.Fault{Name: "ignore_key", Next: 1})
	r.post("k").want(t, 201, "accepted")
	r.post("other")
	c.call("GET", "/oracle/summary", "", 200, `{"requests":3,"creates":3,"look_ups":0,"executions":3,"keys":2,"keys_executed":2,"keys_executed_more_than_once":1,"violations":0,"pending":0}`)
	c.call("GET", "/oracle?key=k", "", 200, `{"key":"k","executions":2,"requests":[{"at":"`)
	c.call("GET", "/oracle?key=k", "", 200, `"kind":"create","status":201,"faults":["ignore_key"],"executed":true}],"transfers":[{"id":"`+idOf(first)+`","key":"k","end_to_end_id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","amount":"49.00","currency":"GBP","status":"accepted","executed":true,"created_at":"`)
	c.call("GET", "/oracle?end_to_end_id=ABCDEFGHIJKLMNOPQRSTUVWXYZ", "", 200, `{"key":"k"`)
	c.call("GET", "/oracle?key=nobody", "", 200, `{"key":"nobody","executions":0,"requests":[],"transfers":[]}`)
	c.call("GET", "/oracle/violations", "", 200, `[]`)
	if all := c.call("GET", "/oracle", "", 200, `"key":"other"`); strings.Count(all, "\n") != 2 {
		t.Errorf("want two lines: %s", all)
	}
	if all := c.call("GET", "/statement", "", 200, `{"id":"`+idOf(first)); strings.Count(all, "\n") != 3 {
		t.Errorf("want three lines: %s", all)
	}
}
