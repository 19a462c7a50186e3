package banksim_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

// check sets a fault for the next request of the key "k" and asserts what a client sees and the oracle knows.
type check func(t *testing.T, r *rig, f banksim.Fault)

// sees posts once and wants a whole answer and so many executions.
func sees(status int, part string, executions int) check {
	return func(t *testing.T, r *rig, f banksim.Fault) {
		r.set(f)
		r.post("k").want(t, status, part)
		r.executed("k", executions)
		r.met("k", f.Name)
	}
}

// ends posts raw bytes and wants the connection to end after an answer that begins so and lacks an end.
func ends(reset bool, prefix, lacks string, executions int) check {
	return func(t *testing.T, r *rig, f banksim.Fault) {
		r.set(f)
		got, wasReset := r.raw("k")
		if wasReset != reset || !strings.HasPrefix(got, prefix) || (prefix == "" && got != "") || (lacks != "" && strings.Contains(got, lacks)) {
			t.Errorf("got %q, reset %t; want prefix %q without %q, reset %t", got, wasReset, prefix, lacks, reset)
		}
		r.met("k", f.Name)
		r.executed("k", executions)
	}
}

func transportChecks() map[string]check {
	const created = "HTTP/1.1 201 Created\r\n"
	return map[string]check{
		"reset_after_headers": ends(true, "", "", 0),
		"reset_after_body":    ends(true, "", "", 0),
		"close_after_body":    ends(false, "", "", 0),
		"reset_after_commit":  ends(true, "", "", 1),
		"close_after_commit":  ends(false, "", "", 1),
		"cut_headers":         ends(false, "HTTP/1.1 201 Cre", "\r\n\r\n", 1),
		"cut_body_length":     ends(false, created, `"created_at"`, 1),
		"cut_body_chunked":    ends(false, created, "\r\n0\r\n", 1),
		"cut_body_close":      ends(false, created, "Content-Length", 1),
		"kill_reused_connection": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			r.post("k").want(t, 201, "accepted") // a new connection is spared
			if a := r.postBody("k", body); a.err == nil {
				t.Errorf("on a reused connection: %+v", a)
			}
			r.executed("k", 1)
		},
	}
}

func timingChecks() map[string]check {
	return map[string]check{
		"late_answer": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			late := r.later("k")
			r.until("it executes", func() bool { h, _ := r.bank.History("k"); return h.Executions == 1 })
			select {
			case a := <-late:
				t.Errorf("answered too early: %+v", a)
			default:
			}
			r.comes(late, 30*time.Second)
		},
		"hang": func(t *testing.T, r *rig, f banksim.Fault) {
			f.DelayMS = 50
			ends(true, "", "", 1)(t, r, f)
		},
		"late_commit": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			late := r.later("k")
			r.spent()
			r.until("it holds the lock", func() bool {
				return r.postBody("k", strings.Replace(body, "49.00", "50.00", 1)).status == 422
			})
			r.post("k").want(t, 409, `{"error":{"code":"request_in_progress"}}`)
			r.executed("k", 0)
			r.until("it commits when its time has passed", func() bool {
				r.bank.Advance(30 * time.Second)
				h, _ := r.bank.History("k")
				return h.Executions == 1
			})
			(<-late).want(t, 201, "accepted")
		},
		"late_arrival": func(t *testing.T, r *rig, f banksim.Fault) {
			ends(true, "", "", 0)(t, r, f)
			if pending := r.bank.Summary().Pending; pending != 1 {
				t.Errorf("pending: %d", pending)
			}
			r.bank.Advance(30 * time.Second)
			r.quiesce()
			r.executed("k", 1)
		},
		"delivered_twice": sees(201, "accepted", 1),
		"delivered_twice_last": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			a := r.post("k")
			a.want(t, 200, "accepted")
			if a.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("not a replay: %+v", a)
			}
			r.executed("k", 1)
		},
	}
}

func answerChecks() map[string]check {
	return map[string]check{
		"processing_only": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			if line := r.firstLine("k"); line != "HTTP/1.1 102 Processing" {
				t.Errorf("got %q", line)
			}
			r.executed("k", 1)
		},
		"redirect": func(t *testing.T, r *rig, f banksim.Fault) {
			for _, status := range []int{301, 302, 303, 307, 308} {
				f.Status, f.Value = status, "http://elsewhere.test/"
				r.set(f)
				a := r.post("k")
				if a.status != status || a.header.Get("Location") != "http://elsewhere.test/" {
					t.Errorf("%d: %+v", status, a)
				}
			}
			r.executed("k", 0)
		},
		"html_page":              sees(502, "<html>", 0),
		"html_page_after_commit": sees(504, "<html>", 1),
		"wrong_content_type": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			a := r.post("k")
			a.want(t, 201, `"accepted"`)
			if a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("content type: %q", a.header.Get("Content-Type"))
			}
			r.executed("k", 1)
		},
		"two_documents": sees(201, "}\n{", 1),
	}
}

func bodyChecks() map[string]check {
	return map[string]check{
		"truncated_json": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			a := r.post("k")
			a.want(t, 201, `{"id":"tr_`)
			if strings.Contains(a.body, "created_at") || a.header.Get("Content-Length") != fmt.Sprint(len(a.body)) {
				t.Errorf("not cut, or not a whole HTTP answer: %+v", a)
			}
			r.executed("k", 1)
		},
		"huge_body": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			if a := r.post("k"); a.status != 201 || len(a.body) < 4<<20 || !strings.HasSuffix(a.body, `xxx"}`) {
				t.Errorf("status %d, %d bytes", a.status, len(a.body))
			}
			r.executed("k", 1)
		},
		"empty_body": func(t *testing.T, r *rig, f banksim.Fault) {
			f.Status = 200
			r.set(f)
			if a := r.post("k"); a.status != 200 || a.body != "" {
				t.Errorf("got %+v", a)
			}
			r.executed("k", 1)
		},
		"empty_created": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			a := r.post("k")
			if a.status != 201 || a.body != "" {
				t.Errorf("got %+v", a)
			}
			r.get(a.header.Get("Location")).want(t, 200, `"accepted"`)
			r.executed("k", 1)
		},
		"crossed_answer": func(t *testing.T, r *rig, f banksim.Fault) {
			other := r.postBody("other", strings.Replace(body, "49.00", "7.00", 1))
			r.set(f)
			if a := r.post("k"); a.status != 201 || a.body != other.body {
				t.Errorf("got %+v", a)
			}
			r.executed("k", 1)
		},
		"status": func(t *testing.T, r *rig, f banksim.Fault) {
			for status := 200; status < 600; status++ {
				f.Status = status
				r.set(f)
				if a := r.post("k"); a.err != nil || a.status != status || a.body != "" {
					t.Errorf("%d: %+v", status, a)
				}
			}
			f.Status, f.Value = 424, "dependency"
			r.set(f)
			r.post("k").want(t, 424, `{"error":{"code":"dependency"}}`)
			f.Status = 101
			r.set(f)
			if line := r.firstLine("k"); line != "HTTP/1.1 101 Switching Protocols" {
				t.Errorf("got %q", line)
			}
			r.executed("k", 0)
		},
	}
}

func businessChecks() map[string]check {
	return map[string]check{
		"error_before_commit": sees(500, `{"error":{"code":"internal_error"}}`, 0),
		"error_after_commit":  sees(500, `{"error":{"code":"internal_error"}}`, 1),
		"reject": func(t *testing.T, r *rig, f banksim.Fault) {
			f.Value = "compliance_rejected"
			sees(422, `{"error":{"code":"compliance_rejected"}}`, 0)(t, r, f)
			r.post("k").want(t, 422, `"compliance_rejected"`) // stored
			r.executed("k", 0)
		},
		"insufficient_funds": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(422, `{"error":{"code":"insufficient_funds"}}`, 0)(t, r, f)
			r.post("k").want(t, 201, "accepted") // not stored
		},
		"rate_limited": func(t *testing.T, r *rig, f banksim.Fault) {
			f.RetryAfter = "1800"
			r.set(f)
			a := r.post("k")
			a.want(t, 429, `{"error":{"code":"rate_limited"}}`)
			if a.header.Get("Retry-After") != "1800" {
				t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
			}
			r.executed("k", 0)
		},
		"unavailable":      sees(503, `{"error":{"code":"unavailable"}}`, 0),
		"unauthorized":     sees(401, `{"error":{"code":"unauthorized"}}`, 0),
		"rejected_created": sees(201, `"status":"rejected","amount":"49.00"`, 0),
		"in_progress": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(409, `{"error":{"code":"request_in_progress"}}`, 0)(t, r, f)
			r.post("k").want(t, 409, "request_in_progress")
			r.bank.Advance(2 * time.Second)
			r.quiesce()
			r.executed("k", 1)
			r.post("k").want(t, 200, "accepted")
		},
	}
}

func stateChecks() map[string]check {
	return map[string]check{
		"unknown_state": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(201, `"status":"under_review"`, 1)(t, r, f)
			r.bank.Advance(2 * time.Second)
			r.lookUp("k").want(t, 200, `"status":"accepted"`)
		},
		"pending": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(201, `"status":"pending"`, 1)(t, r, f)
			r.bank.Advance(5 * time.Second)
			r.lookUp("k").want(t, 200, `"status":"settled"`)
		},
		"needs_approval": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			a := r.post("k")
			a.want(t, 201, `"status":"requires_approval"`)
			if err := r.bank.SetTransfer(idOf(a), "accepted", ""); err != nil {
				t.Error(err)
			}
			r.lookUp("k").want(t, 200, `"status":"accepted"`)
		},
		"fails_later": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(201, `"status":"accepted"`, 1)(t, r, f)
			r.bank.Advance(5 * time.Second)
			r.lookUp("k").want(t, 200, `"status":"failed"`)
		},
		"returned_later": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(201, `"status":"accepted"`, 1)(t, r, f)
			r.bank.Advance(24 * time.Hour)
			r.lookUp("k").want(t, 200, `"status":"settled"`)
			r.bank.Advance(48 * time.Hour)
			r.lookUp("k").want(t, 200, `"status":"returned"`)
		},
		"content_guard": sees(409, `{"error":{"code":"possible_duplicate"}}`, 0),
		"amount_as": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			r.post("k").want(t, 201, `"amount":49.00,`)
			f.Value = "minor"
			r.set(f)
			r.post("k").want(t, 200, `"amount":4900,`)
		},
		"truncated_reference": func(t *testing.T, r *rig, f banksim.Fault) {
			f.Value = "10"
			sees(201, `"reference":"Withdrawal","end`, 1)(t, r, f)
		},
		"echo_differs": func(t *testing.T, r *rig, f banksim.Fault) {
			for member, part := range map[string]string{
				"amount": `"amount":"949.00"`, "currency": `"currency":"XTS"`, "beneficiary": `"name":"Somebody Else"`,
				"reference": `"reference":"another reference"`, "end_to_end_id": `"end_to_end_id":"AAAAAAAAAAAAAAAAAAAAAAAAAA"`,
			} {
				f.Value = member
				r.set(f)
				if a := r.post("k"); !strings.Contains(a.body, part) {
					t.Errorf("%s: %+v", member, a)
				}
			}
		},
	}
}

func keyChecks() map[string]check {
	return map[string]check{
		"ignore_key": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k").want(t, 201, "accepted")
			sees(201, "accepted", 2)(t, r, f)
			r.post("k").want(t, 200, "accepted")
		},
		"lose_key_record": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(201, "accepted", 1)(t, r, f)
			r.post("k").want(t, 201, "accepted")
			r.executed("k", 2)
		},
		"leak_lock": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(201, "accepted", 1)(t, r, f)
			for range 3 {
				r.post("k").want(t, 409, "request_in_progress")
			}
			r.executed("k", 1)
		},
		"store_error": func(t *testing.T, r *rig, f banksim.Fault) {
			sees(500, "internal_error", 0)(t, r, f)
			r.post("k").want(t, 500, "internal_error")
			r.executed("k", 0)
		},
		"replay_shape": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k")
			f.Value = "conflict_body"
			sees(409, `"status":"accepted"`, 1)(t, r, f)
		},
		"in_flight_shape": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(banksim.Fault{Name: "in_progress", Key: "k", Next: 1})
			r.post("k").want(t, 409, "request_in_progress")
			sees(201, "accepted", 1)(t, r, f)
			r.bank.Advance(2 * time.Second)
			r.quiesce()
			r.executed("k", 2)
		},
		"other_body_shape": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k")
			f.Value = "400"
			r.set(f)
			r.postBody("k", strings.Replace(body, "49.00", "50.00", 1)).want(t, 400, "idempotency_key_reused")
		},
	}
}

func lookUpChecks() map[string]check {
	return map[string]check{
		"lookup_lag": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(f)
			a := r.post("k")
			r.lookUp("k").want(t, 200, `{"data":[]}`)
			r.get("/v1/transfers/"+idOf(a)).want(t, 404, "not_found")
			r.bank.Advance(2 * time.Second)
			r.lookUp("k").want(t, 200, `"accepted"`)
		},
		"lookup_flaps": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k")
			f.Next = 0
			r.set(f)
			for range 2 {
				r.lookUp("k").want(t, 200, `{"data":[]}`)
				r.lookUp("k").want(t, 200, `"accepted"`)
			}
		},
		"lookup_not_found": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k")
			f.Next = 2
			r.set(f)
			r.lookUp("k").want(t, 200, `{"data":[]}`)
			r.bank.Advance(365 * 24 * time.Hour)
			r.lookUp("k").want(t, 200, `{"data":[]}`)
			r.lookUp("k").want(t, 200, `"accepted"`)
		},
		"lookup_other_amount": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k")
			r.set(f)
			r.lookUp("k").want(t, 200, `"amount":"949.00"`)
		},
	}
}

func connectionChecks() map[string]check {
	return map[string]check{
		"refuse": func(t *testing.T, r *rig, f banksim.Fault) {
			r.post("k0").want(t, 201, "accepted") // leaves an idle connection, which must not survive
			r.set(banksim.Fault{Name: f.Name})
			r.refused()
			r.clear()
			r.post("k").want(t, 201, "accepted")
			r.set(banksim.Fault{Name: f.Name, DelayMS: 60_000})
			r.refused()
			r.bank.Advance(time.Minute)
			r.quiesce()
			r.post("k").want(t, 200, "accepted")
		},
		"black_hole": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(banksim.Fault{Name: f.Name, Next: 1})
			conn := r.dial()
			defer func() { _ = conn.Close() }()
			_, _ = conn.Write([]byte(rawRequest("k")))
			r.spent()
			r.post("other").want(t, 201, "accepted")
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
				t.Errorf("got %d bytes, %v", n, err)
			}
			r.executed("k", 0)
		},
		"slow_accept": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(banksim.Fault{Name: f.Name, Next: 1, DelayMS: 3_600_000})
			late := r.later("k")
			r.spent()
			r.comes(late, time.Hour)
		},
		"reset_on_accept": func(t *testing.T, r *rig, f banksim.Fault) {
			r.set(banksim.Fault{Name: f.Name, Next: 1})
			if a := r.post("k"); a.err == nil {
				t.Errorf("got %+v", a)
			}
			r.executed("k", 0)
			r.post("k").want(t, 201, "accepted")
		},
		"tls_client_refused": checkTLSRefused,
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestEveryFaultDoesWhatItSays(t *testing.T) {
	checks := map[string]check{}
	for _, group := range []map[string]check{
		connectionChecks(), transportChecks(), timingChecks(), answerChecks(), bodyChecks(), businessChecks(), stateChecks(), keyChecks(), lookUpChecks(),
	} {
		for name, c := range group {
			checks[name] = c
		}
	}
	for _, info := range banksim.New(banksim.Options{}).Faults() {
		c := checks[info.Name]
		if c == nil {
			t.Errorf("fault %s has no check", info.Name)
			continue
		}
		if info.Sentence == "" || len(info.On) == 0 {
			t.Errorf("fault %s says nothing of itself", info.Name)
		}
		delete(checks, info.Name)
		t.Run(info.Name, func(t *testing.T) {
			f := banksim.Fault{Name: info.Name, Next: 1}
			if info.On[0] != "connection" {
				f.Key = "k"
			}
			c(t, calm(t), f)
		})
	}
	for name := range checks {
		t.Errorf("%s is checked and not in the catalogue", name)
	}
}
