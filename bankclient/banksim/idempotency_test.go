package banksim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

func (r *rig) idempotency(edit func(*banksim.Idempotency)) {
	r.t.Helper()
	i := banksim.ReferenceIdempotency()
	edit(&i)
	if err := r.bank.SetIdempotency(i); err != nil {
		r.t.Fatal(err)
	}
}

func TestKeyWindowByTheBanksClock(t *testing.T) {
	r := calm(t)
	r.post("k").want(t, 201, "accepted")
	r.bank.Advance(24*time.Hour - time.Minute)
	r.post("k").want(t, 200, "accepted")
	r.bank.Advance(2 * time.Minute)
	r.post("k").want(t, 201, "accepted")
	r.executed("k", 2)

	r.idempotency(func(i *banksim.Idempotency) { i.WindowMS = 0 })
	r.bank.Advance(10 * 365 * 24 * time.Hour)
	r.post("k").want(t, 200, "accepted")
}

func TestReplayShapes(t *testing.T) {
	for shape, want := range map[string]struct {
		status   int
		part     string
		replayed string
		location bool
	}{
		"current":               {200, `"status":"settled"`, "true", false},
		"cached":                {201, `"status":"pending"`, "true", false},
		"created_current":       {201, `"status":"settled"`, "", false},
		"empty_location":        {201, "", "", true},
		"conflict_body":         {409, `{"id":"tr_`, "", false},
		"conflict_link":         {409, `{"error":{"code":"idempotent_creation_conflict","transfer_id":"tr_`, "", true},
		"bad_request_duplicate": {400, `{"error":{"code":"duplicate","transfer_id":"tr_`, "", false},
		"error_link":            {400, `{"error":{"code":"USER_BUSINESS_ERROR","href":"/v1/transfers/tr_`, "", true},
	} {
		t.Run(shape, func(t *testing.T) {
			r := calm(t)
			r.idempotency(func(i *banksim.Idempotency) { i.Replay = shape })
			r.set(banksim.Fault{Name: "pending", Next: 1})
			r.post("k").want(t, 201, `"pending"`)
			r.bank.Advance(time.Minute)
			a := r.post("k")
			a.want(t, want.status, want.part)
			if a.header.Get("Idempotent-Replayed") != want.replayed || (a.header.Get("Location") != "") != want.location {
				t.Errorf("headers: %v", a.header)
			}
			r.executed("k", 1)
		})
	}
}

func TestInFlightShapes(t *testing.T) {
	for shape, status := range map[string]int{"409": 409, "422": 422, "423": 423, "429": 429} {
		r := calm(t)
		r.idempotency(func(i *banksim.Idempotency) { i.InFlight = shape })
		r.set(banksim.Fault{Name: "in_progress", Next: 1})
		r.post("k").want(t, 409, "request_in_progress")
		a := r.post("k")
		a.want(t, status, "request_in_progress")
		if a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After %q", shape, a.header.Get("Retry-After"))
		}
		r.executed("k", 0)
	}
}

func TestInFlightWaitAndBothExecute(t *testing.T) {
	r := calm(t)
	r.idempotency(func(i *banksim.Idempotency) { i.InFlight = "wait" })
	r.set(banksim.Fault{Name: "in_progress", Next: 1})
	r.post("k").want(t, 409, "request_in_progress")
	waiting := r.later("k")
	r.until("the duplicate has arrived", func() bool { return r.bank.Summary().Creates == 2 })
	r.bank.Advance(2 * time.Second)
	(<-waiting).want(t, 200, "accepted")
	r.executed("k", 1)

	r.idempotency(func(i *banksim.Idempotency) { i.InFlight = "both_execute" })
	r.set(banksim.Fault{Name: "in_progress", Next: 1})
	r.post("k2").want(t, 409, "request_in_progress")
	r.post("k2").want(t, 201, "accepted")
	r.bank.Advance(2 * time.Second)
	r.quiesce()
	r.executed("k2", 2)
	if s := r.bank.Summary(); s.KeysTwice != 1 || s.KeysExecuted != 2 || s.Executions != 3 {
		t.Errorf("summary: %+v", s)
	}
}

func TestB13_OtherBodyShapes(t *testing.T) {
	other := strings.Replace(body, "49.00", "50.00", 1)
	for shape, want := range map[string]struct {
		status, executions int
		part               string
	}{
		"422": {422, 1, "idempotency_key_reused"}, "409": {409, 1, "idempotency_key_reused"}, "400": {400, 1, "idempotency_key_reused"},
		"first_answer": {200, 1, `"49.00"`}, "execute": {201, 2, `"50.00"`},
	} {
		r := calm(t)
		r.idempotency(func(i *banksim.Idempotency) { i.OtherBody = shape })
		r.post("k").want(t, 201, "accepted")
		r.postBody("k", other).want(t, want.status, want.part)
		r.executed("k", want.executions)
	}
	r := calm(t) // while the first is in flight it is a conflict, not "busy"
	r.set(banksim.Fault{Name: "in_progress", Next: 1})
	r.post("k").want(t, 409, "request_in_progress")
	r.postBody("k", other).want(t, 422, "idempotency_key_reused")
}

func TestKeyScopes(t *testing.T) {
	post := func(r *rig, token, path, key string) int { return r.postAs(token, path, key, body).status }
	for name, c := range map[string]struct {
		edit                     func(*banksim.Idempotency)
		again, credential, route int
	}{
		"reference":        {func(*banksim.Idempotency) {}, 200, 201, 201},
		"account wide":     {func(i *banksim.Idempotency) { i.PerCredential = false }, 200, 200, 201},
		"shared by routes": {func(i *banksim.Idempotency) { i.SharedRoutes = true }, 200, 201, 200},
		"ignored":          {func(i *banksim.Idempotency) { i.Ignored = true }, 201, 201, 201},
		"ignored on one":   {func(i *banksim.Idempotency) { i.IgnoredRoutes = []string{"transfers"} }, 201, 201, 201},
	} {
		r := calm(t)
		r.idempotency(c.edit)
		if got := post(r, "token", "/v1/transfers", "k"); got != 201 {
			t.Errorf("%s: first: %d", name, got)
		}
		if got := post(r, "token", "/v1/transfers", "k"); got != c.again {
			t.Errorf("%s: again: %d", name, got)
		}
		if got := post(r, "rotated", "/v1/transfers", "k"); got != c.credential {
			t.Errorf("%s: other credential: %d", name, got)
		}
		if got := post(r, "token", "/v1/payouts", "k"); got != c.route {
			t.Errorf("%s: other route: %d", name, got)
		}
	}
	r := calm(t)
	r.idempotency(func(i *banksim.Idempotency) { i.IgnoredRoutes = []string{"transfers"} })
	r.postAs("token", "/v1/payouts", "k", body).want(t, 201, "accepted")
	r.postAs("token", "/v1/payouts", "k", body).want(t, 200, "accepted")
}

func TestLongKeysAreCut(t *testing.T) {
	r := calm(t)
	r.idempotency(func(i *banksim.Idempotency) { i.KeyLimit = 8 })
	r.post("12345678-a").want(t, 201, "accepted")
	r.post("12345678-b").want(t, 200, "accepted")
	r.post("1234567-c").want(t, 201, "accepted")
	r.executed("12345678-b", 0)
}

func TestB23_StoredErrors(t *testing.T) {
	r := calm(t)
	r.idempotency(func(i *banksim.Idempotency) { i.StoreErrors = true })
	r.set(banksim.Fault{Name: "error_before_commit", Key: "before", Next: 1})
	r.set(banksim.Fault{Name: "error_after_commit", Key: "after", Next: 1})
	for key, executions := range map[string]int{"before": 0, "after": 1} {
		for range 3 {
			r.post(key).want(t, 500, "internal_error")
		}
		r.executed(key, executions)
	}
	r.lookUp("after").want(t, 200, `"accepted"`)

	r = calm(t)
	r.set(banksim.Fault{Name: "error_before_commit", Next: 1})
	r.post("k").want(t, 500, "internal_error")
	r.post("k").want(t, 201, "accepted")
}

func TestRejectionsNotStored(t *testing.T) {
	r := calm(t)
	r.idempotency(func(i *banksim.Idempotency) { i.StoreRejections = false })
	r.set(banksim.Fault{Name: "reject", Next: 1})
	r.post("k").want(t, 422, "account_closed")
	r.post("k").want(t, 201, "accepted")
}

func TestForgetLosesTheRecordAndOpensTheLock(t *testing.T) {
	r := calm(t)
	r.set(banksim.Fault{Name: "leak_lock", Next: 1})
	r.post("k").want(t, 201, "accepted")
	r.post("k").want(t, 409, "request_in_progress")
	r.bank.Forget("k")
	r.post("k").want(t, 201, "accepted")
	r.executed("k", 2)
}

func TestContentGuardAndB15_LegitimateTwins(t *testing.T) {
	r := calm(t)
	r.post("twin-1").want(t, 201, "accepted")
	r.post("twin-2").want(t, 201, "accepted")
	r.bank.SetContentGuard(15 * time.Minute)
	r.post("twin-3").want(t, 201, "accepted")
	r.post("twin-4").want(t, 409, "possible_duplicate")
	r.executed("twin-4", 0)
	r.bank.Advance(15 * time.Minute)
	r.post("twin-4").want(t, 201, "accepted")
}

func TestIdempotencyIsValidated(t *testing.T) {
	r := calm(t)
	bad := banksim.Idempotency{Replay: "x", InFlight: "x", OtherBody: "x", KeyLimit: -1}
	err := r.bank.SetIdempotency(bad)
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("want four problems, got %v", err)
	}
	for _, f := range []banksim.Fault{
		{Name: "none"}, {Name: "hang", On: "connection"}, {Name: "hang", Probability: 2}, {Name: "hang", Next: -1},
		{Name: "status", Status: 99}, {Name: "replay_shape", Value: "x"}, {Name: "unavailable", RetryAfter: "1\r\nX: y"},
	} {
		if _, err := r.bank.SetFault(f); err == nil {
			t.Errorf("accepted: %+v", f)
		}
	}
}
