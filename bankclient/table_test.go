package bankclient_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
)

const (
	unknown     = bankclient.Unknown
	authorized  = bankclient.Authorized
	rejected    = bankclient.Rejected
	notExecuted = bankclient.NotExecuted
	inFlight    = bankclient.InFlight
	keyReused   = bankclient.KeyReused
	mismatch    = bankclient.Mismatch
	operation   = bankclient.ScopeOperation
	partner     = bankclient.ScopePartner
)

const jsonType = "application/json"

func with(old, new string) string { return strings.Replace(agreeing, old, new, 1) }

// One row per condition that arrives as a complete answer.
func TestA5_ConditionTable(t *testing.T) {
	for _, row := range []struct {
		name, answer string
		verdict      bankclient.Verdict
		scope        bankclient.Scope
	}{
		{"created", reply(201, jsonType, agreeing), authorized, operation},
		{"created, charset", reply(201, "application/json; charset=utf-8", agreeing), authorized, operation},
		{"replayed", reply(200, jsonType, agreeing, "Idempotent-Replayed: true"), authorized, operation},
		{"pending", reply(201, jsonType, with("accepted", "pending")), authorized, operation},
		{"settled", reply(200, jsonType, with("accepted", "settled")), authorized, operation},
		{"unknown member", reply(201, jsonType, with(`{"id"`, `{"fee":1.5,"id"`)), authorized, operation},
		{"listed failed state", reply(201, jsonType, with(`"accepted"`, `"rejected","reject_code":"account_closed"`)), rejected, operation},
		{"unlisted state", reply(201, jsonType, with("accepted", "DENIED")), unknown, operation},
		{"no state", reply(201, jsonType, with(`"status":"accepted",`, "")), unknown, operation},
		{"no id", reply(201, jsonType, with(`"id":"tr_1",`, "")), unknown, operation},
		{"id is a sentence", reply(201, jsonType, with("tr_1", "A N Example")), unknown, operation},
		{"amount as number", reply(201, jsonType, with(`"49.00"`, `49.00`)), unknown, operation},
		{"no amount", reply(201, jsonType, with(`"amount":"49.00",`, "")), unknown, operation},
		{"amount null", reply(201, jsonType, with(`"49.00"`, "null")), unknown, operation},
		{"no beneficiary", reply(201, jsonType, with(`"beneficiary"`, `"payee"`)), unknown, operation},
		{"no reference", reply(201, jsonType, with(`"reference"`, `"memo"`)), unknown, operation},
		{"no end-to-end id", reply(201, jsonType, with(`"end_to_end_id"`, `"e2e"`)), unknown, operation},
		{"rejected, not ours to see", reply(201, jsonType,
			with(`"accepted"`, `"rejected"`)[:20]+`"}`), unknown, operation},

		{"other amount", reply(201, jsonType, with("49.00", "48.00")), mismatch, operation},
		{"other minor units", reply(201, jsonType, with("49.00", "4900")), mismatch, operation},
		{"other currency", reply(201, jsonType, with("GBP", "EUR")), mismatch, operation},
		{"other name", reply(201, jsonType, with("A N Example", "B N Example")), mismatch, operation},
		{"other account", reply(201, jsonType, with("GB33BUKB20201555555555", "GB82WEST12345698765432")), mismatch, operation},
		{"truncated reference", reply(201, jsonType, with("Withdrawal 88104", "Withdrawal")), mismatch, operation},
		{"other operation", reply(201, jsonType, with(opEndToEnd, "D2BULYRLQYQ642WBN3534PU4UA")), mismatch, operation},
		{"prefix of our id", reply(201, jsonType, with(opEndToEnd, opEndToEnd[:25])), mismatch, operation},
		{"other key in the body", reply(201, jsonType, with(`{"id"`, `{"idempotency_key":"`+opKey+`","id"`)), mismatch, operation},
		{"other key in a header", reply(201, jsonType, agreeing, "Idempotency-Key: "+opKey), mismatch, operation},
		{"our key in a header", reply(201, jsonType, agreeing, "Idempotency-Key: "+opPartner), authorized, operation},
		{"error for another key", reply(422, jsonType, errorBody("account_closed"), "Idempotency-Key: "+opKey), mismatch, operation},
		{"rejected with other amount", reply(200, jsonType, strings.Replace(with("accepted", "rejected"), "49.00", "1.00", 1)), mismatch, operation},

		{"html", reply(200, "text/html", "<html>ok</html>"), unknown, operation},
		{"html says json", reply(200, jsonType, "<html>ok</html>"), unknown, operation},
		{"json says html", reply(200, "text/html", agreeing), unknown, operation},
		{"no content type", reply(201, "", agreeing), unknown, operation},
		{"empty 200", reply(200, jsonType, ""), unknown, operation},
		{"empty 201 with Location", reply(201, "", "", "Location: /v1/transfers/tr_1"), unknown, operation},
		{"null", reply(201, jsonType, "null"), unknown, operation},
		{"list", reply(201, jsonType, "["+agreeing+"]"), unknown, operation},
		{"doubled document", reply(201, jsonType, agreeing+agreeing), unknown, operation},
		{"trailing bracket", reply(201, jsonType, agreeing+"]"), unknown, operation},
		{"trailing NUL", reply(201, jsonType, agreeing+"\x00"), unknown, operation},
		{"trailing white space", reply(201, jsonType, agreeing+" \n"), authorized, operation},
		{"duplicate name", reply(201, jsonType, with(`"amount":"49.00"`, `"amount":"48.00","amount":"49.00"`)), unknown, operation},
		{"names in other case", reply(201, jsonType, with(`"amount"`, `"Amount"`)), unknown, operation},
		{"invalid UTF-8", reply(201, jsonType, with("A N Example", "A \xff Example")), unknown, operation},
		{"transfer and error", reply(201, jsonType, with(`{"id"`, `{"error":{"code":"x"},"id"`)), unknown, operation},
		{"oversized", reply(201, jsonType, with(`{"id"`, `{"pad":"`+strings.Repeat("x", 300<<10)+`","id"`)), unknown, operation},

		{"oversized without a length", "HTTP/1.1 201 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
			with(`{"id"`, `{"pad":"`+strings.Repeat("x", 300<<10)+`","id"`), unknown, operation},

		{"202", reply(202, jsonType, agreeing), unknown, operation},
		{"202 that disagrees", reply(202, jsonType, with("49.00", "48.00")), mismatch, operation},
		{"204", "HTTP/1.1 204 X\r\n\r\n", unknown, operation},

		{"listed 422", reply(422, jsonType, errorBody("invalid_beneficiary")), rejected, operation},
		{"unlisted 422", reply(422, jsonType, errorBody("odd")), unknown, operation},
		{"listed under another status", reply(400, jsonType, errorBody("account_closed")), unknown, operation},
		{"key reused", reply(422, jsonType, `{"error":{"code":"idempotency_key_reused","transfer_id":"tr_9"}}`), keyReused, operation},
		{"our funds", reply(422, jsonType, errorBody("insufficient_funds")), notExecuted, partner},
		{"404 on create", reply(404, jsonType, errorBody("not_found")), unknown, operation},
		{"401 listed", reply(401, jsonType, errorBody("unauthorized")), notExecuted, partner},
		{"401 in its own schema", reply(401, jsonType, errorBody("token_expired")), notExecuted, partner},
		{"401 of a proxy", reply(401, "text/html", "<html>log in</html>"), unknown, operation},
		{"401 of a JSON proxy", reply(401, jsonType, `{"message":"no"}`), unknown, operation},
		{"403 of a proxy", reply(403, "text/plain", "no"), unknown, operation},
		{"403 in its own schema", reply(403, jsonType, errorBody("forbidden")), notExecuted, partner},
		{"415 in its own schema", reply(415, jsonType, errorBody("unsupported_media_type")), notExecuted, partner},
		{"413 of a proxy", reply(413, "text/html", "<html>"), unknown, operation},
		{"409 in progress", reply(409, jsonType, errorBody("request_in_progress"), "Retry-After: 2"), inFlight, operation},
		{"409 without a code", reply(409, jsonType, "{}"), inFlight, operation},
		{"409 of a proxy", reply(409, "text/html", "<html>"), inFlight, operation},
		{"409 with an unlisted code", reply(409, jsonType, errorBody("duplicate")), unknown, operation},
		{"409 with a rejection code", reply(409, jsonType, errorBody("account_closed")), unknown, operation},
		{"409 with the transfer", reply(409, jsonType, agreeing), unknown, operation},
		{"423", reply(423, "text/plain", "locked"), inFlight, operation},
		{"425", reply(425, "text/plain", "early"), notExecuted, operation},
		{"429 listed", reply(429, jsonType, errorBody("rate_limited"), "Retry-After: 7"), notExecuted, operation},
		{"429 of a proxy", reply(429, "text/html", "<html>", "Retry-After: 7"), inFlight, operation},
		{"503 listed", reply(503, jsonType, errorBody("unavailable")), notExecuted, operation},
		{"503 of a proxy", reply(503, "text/html", "<html>"), inFlight, operation},
		{"500 with a listed code", reply(500, jsonType, errorBody("account_closed")), unknown, operation},
		{"502", reply(502, "text/html", "<html>"), unknown, operation},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := say(t, row.answer)
			wantVerdict(t, sendTo(t, b), row.verdict, row.scope)
			if n := len(b.seen()); n != 1 {
				t.Fatalf("%d requests arrived, want 1", n)
			}
		})
	}
}

func TestA5_ResultNamesWhatThePartnerSaid(t *testing.T) {
	r := sendTo(t, say(t, reply(200, jsonType, with("accepted", "settled"), "Idempotent-Replayed: true", "X-Request-Id: rq-7")))
	if !r.Settled || r.TransferID != "tr_1" || !r.Evidence.Replayed || r.Evidence.RequestID != "rq-7" || r.Evidence.State != "settled" {
		t.Errorf("settled: %s", r.Evidence.JSON())
	}
	r = sendTo(t, say(t, reply(422, jsonType, errorBody("compliance_rejected"))))
	if !r.Authoritative || r.Code != "compliance_rejected" {
		t.Errorf("rejection stored under the key: authoritative %t, code %q", r.Authoritative, r.Code)
	}
	r = sendTo(t, say(t, reply(201, jsonType, with(`"accepted"`, `"rejected","reject_code":"account_closed"`))))
	if !r.Authoritative || r.Code != "account_closed" || r.TransferID != "tr_1" {
		t.Errorf("rejected state: authoritative %t, code %q", r.Authoritative, r.Code)
	}
	r = sendTo(t, say(t, reply(422, jsonType, errorBody("insufficient_funds"))))
	if r.Cause != bankclient.CauseOurFunds || r.Authoritative {
		t.Errorf("our funds: cause %s, authoritative %t", r.Cause, r.Authoritative)
	}
	r = sendTo(t, say(t, reply(422, jsonType, `{"error":{"code":"idempotency_key_reused","transfer_id":"tr_9"}}`)))
	if r.TransferID != "tr_9" || r.Evidence.TransferID != "tr_9" {
		t.Errorf("key reused: transfer %q", r.TransferID)
	}
	r = sendTo(t, say(t, reply(201, "", "", "Location: https://elsewhere.example/v1/transfers/tr_5?name=A+N")))
	if r.Evidence.Location != "/v1/transfers/tr_5" {
		t.Errorf("location kept as %q", r.Evidence.Location)
	}
	r = sendTo(t, say(t, reply(429, jsonType, errorBody("rate_limited"), "Retry-After: 7")))
	if r.RetryAfter != 7*time.Second {
		t.Errorf("retry after %s", r.RetryAfter)
	}
}

// G12: every status with a body that proves nothing, one by one.
func TestG12_EveryStatus(t *testing.T) {
	want := map[int]bankclient.Verdict{409: inFlight, 423: inFlight, 425: notExecuted, 429: inFlight, 503: inFlight}
	bodies := []struct{ contentType, body string }{
		{"text/html", "<html>gateway</html>"},
		{"", ""},
		{jsonType, "{}"},
		{jsonType, `{"error":{"code":"never_listed"}}`},
	}
	var current atomic.Value
	b := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		answer := current.Load().(string)
		_, _ = io.WriteString(c, answer)
		return !strings.HasPrefix(answer, "HTTP/1.1 1") // 1xx alone, then the end
	})
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	for status := 100; status <= 599; status++ {
		for i, body := range bodies {
			if status < 200 && i > 0 || (status == 204 || status == 304) && body.body != "" {
				continue
			}
			answer := reply(status, body.contentType, body.body)
			if status < 200 || status == 204 || status == 304 {
				answer = fmt.Sprintf("HTTP/1.1 %d X\r\n\r\n", status)
			}
			current.Store(answer)
			r := p.Send(t.Context(), pr)
			expected := want[status]
			if i == 3 {
				switch status { // the partner's own schema, a code that is not listed
				case 401, 403, 405, 406, 413, 414, 415, 431:
					expected = notExecuted
				case 409:
					expected = unknown
				}
			}
			if r.Verdict != expected {
				t.Errorf("%d with body %d: %s, want %s; %s", status, i, r.Verdict, expected, r.Evidence.JSON())
			}
		}
	}
}

// G12: a status whose whole kind may not prove anything stays Unknown even with codes that are listed elsewhere.
func TestG12_ListedCodesDoNotLoosenOtherStatuses(t *testing.T) {
	var current atomic.Value
	b := startBank(t, func(c net.Conn, _ int, _ arrival) bool {
		_, _ = io.WriteString(c, current.Load().(string))
		return true
	})
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	for _, status := range []int{203, 206, 300, 307, 400, 402, 404, 408, 410, 424, 500, 501, 502, 504, 520, 521, 522, 523, 524, 525, 526, 527} {
		for _, code := range []string{"account_closed", "unauthorized", "rate_limited", "unavailable", "insufficient_funds"} {
			current.Store(reply(status, jsonType, errorBody(code)))
			if r := p.Send(t.Context(), pr); r.Verdict != unknown {
				t.Errorf("%d %s: %s", status, code, r.Verdict)
			}
		}
	}
}

func TestA5_DurableAcceptedIsAuthorizedWithAnIDOnly(t *testing.T) {
	durable := vary(func(p *bankclient.Profile) { p.AcceptedIsDurable = true })
	for answer, want := range map[string]bankclient.Verdict{
		reply(202, jsonType, agreeing):                 authorized,
		reply(202, jsonType, with(`"id":"tr_1",`, "")): unknown,
		reply(202, jsonType, ""):                       unknown,
	} {
		p := open(t, config(say(t, answer).URL), durable)
		wantVerdict(t, p.Send(t.Context(), prepare(t, p)), want, operation)
	}
}

func TestA5_LocalCheckSendsNothing(t *testing.T) {
	b := say(t, reply(201, jsonType, agreeing))
	p := partnerAt(t, b.URL)
	good := prepare(t, p)
	for name, spoil := range map[string]func(*bankclient.Prepared){
		"partner":    func(pr *bankclient.Prepared) { pr.PartnerID = "southbank" },
		"credential": func(pr *bankclient.Prepared) { pr.CredentialID = "2026-12" },
		"endpoint":   func(pr *bankclient.Prepared) { pr.Endpoint = "POST http://other.invalid/v1/transfers" },
		"body":       func(pr *bankclient.Prepared) { pr.Body = append([]byte(" "), pr.Body...) },
		"no body":    func(pr *bankclient.Prepared) { pr.Body = nil },
		"key length": func(pr *bankclient.Prepared) { pr.PartnerKey = strings.Repeat("0", 65) },
		"key chars":  func(pr *bankclient.Prepared) { pr.PartnerKey = strings.ToUpper(pr.PartnerKey) },
		"no key":     func(pr *bankclient.Prepared) { pr.PartnerKey = "" },
	} {
		pr := good
		spoil(&pr)
		if err := p.Check(pr); err == nil {
			t.Errorf("%s: check passed", name)
		}
		wantVerdict(t, p.Send(t.Context(), pr), notExecuted, operation)
	}
	if n := len(b.seen()); n != 0 {
		t.Fatalf("%d requests arrived, want none", n)
	}
	if r := p.Send(t.Context(), good); r.Verdict != authorized || len(b.seen()) != 1 {
		t.Fatalf("the good one: %s", r.Evidence.JSON())
	}
}

func TestWireHeaders(t *testing.T) {
	b := say(t, reply(201, jsonType, agreeing))
	sendTo(t, b)
	got := b.seen()[0]
	want := http.Header{
		"Accept": {"application/json"}, "Authorization": {"Bearer s3cret"}, "Content-Type": {"application/json"},
		"Content-Length": {fmt.Sprint(len(got.Body))}, "Idempotency-Key": {opPartner}, "User-Agent": {"paidonce"},
	}
	if fmt.Sprint(got.Header) != fmt.Sprint(want) || got.Method != "POST" || got.Target != "/v1/transfers" {
		t.Fatalf("%s %s %v, want %v", got.Method, got.Target, got.Header, want)
	}
}
