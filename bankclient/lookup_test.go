package bankclient_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
)

func list(transfers ...string) string {
	return reply(200, jsonType, `{"data":[`+strings.Join(transfers, ",")+`],"next_cursor":null}`)
}

func lookUp(t *testing.T, answer string) bankclient.Finding {
	t.Helper()
	p := partnerAt(t, say(t, answer).URL)
	return p.LookUp(t.Context(), prepare(t, p))
}

func TestLookUpTable(t *testing.T) {
	for _, row := range []struct {
		name, answer string
		found        bankclient.Answer
		verdict      bankclient.Verdict
	}{
		{"found", list(agreeing), bankclient.Found, authorized},
		{"found settled", list(with("accepted", "settled")), bankclient.Found, authorized},
		{"found rejected", list(with("accepted", "rejected")), bankclient.Found, rejected},
		{"found in an unlisted state", list(with("accepted", "held")), bankclient.Found, unknown},
		{"found with another amount", list(with("49.00", "48.00")), bankclient.Found, mismatch},
		{"found without our id", list(with("end_to_end_id", "e2e")), bankclient.Found, unknown},
		{"null in the list", list("null"), bankclient.Found, unknown},
		{"not found", list(), bankclient.NotFound, unknown},
		{"404 in its own schema", reply(404, jsonType, errorBody("not_found")), bankclient.NotFound, unknown},
		{"404 of a proxy", reply(404, "text/html", "<html>"), bankclient.NoAnswer, unknown},
		{"no list", reply(200, jsonType, "{}"), bankclient.NoAnswer, unknown},
		{"list null", reply(200, jsonType, `{"data":null}`), bankclient.NoAnswer, unknown},
		{"empty, but more pages", reply(200, jsonType, `{"data":[],"next_cursor":"c"}`), bankclient.NoAnswer, unknown},
		{"one, but more pages", reply(200, jsonType, `{"data":[`+agreeing+`],"next_cursor":"c"}`), bankclient.NoAnswer, unknown},
		{"html", reply(200, "text/html", "<html>"), bankclient.NoAnswer, unknown},
		{"empty 200", reply(200, jsonType, ""), bankclient.NoAnswer, unknown},
		{"204", "HTTP/1.1 204 X\r\n\r\n", bankclient.NoAnswer, unknown},
		{"doubled", reply(200, jsonType, `{"data":[]}{"data":[]}`), bankclient.NoAnswer, unknown},
		{"cut", reply(200, jsonType, `{"data":[`), bankclient.NoAnswer, unknown},
		{"list with an error", reply(200, jsonType, `{"data":[],"error":{"code":"x"}}`), bankclient.NoAnswer, unknown},
		{"500", reply(500, jsonType, errorBody("x")), bankclient.NoAnswer, unknown},
		{"429", reply(429, jsonType, errorBody("rate_limited")), bankclient.NoAnswer, unknown},
		{"301", reply(301, "", "", "Location: /"), bankclient.NoAnswer, unknown},
		{"closed", "", bankclient.NoAnswer, unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := lookUp(t, row.answer)
			if f.Answer != row.found || f.Result.Verdict != row.verdict {
				t.Fatalf("%s %s, want %s %s; %s", f.Answer, f.Result.Verdict, row.found, row.verdict, f.Result.Evidence.JSON())
			}
			if f.Result.Verdict == authorized && f.Result.TransferID != "tr_1" {
				t.Fatalf("transfer %q", f.Result.TransferID)
			}
		})
	}
}

// TestComposition_OneJobOneBody: a job that was recorded decomposed and is delivered composed has one fingerprint. It is one body, and what the bank
// shows of it is ours, whichever form the bank keeps.
func TestComposition_OneJobOneBody(t *testing.T) {
	const composed, decomposed = "Zo\u00eb Example", "Zoe\u0308 Example"
	sum := func(p *bankclient.Partner, name string) bankclient.Prepared {
		w := withdrawal()
		w.Beneficiary.Name, w.Reference = name, name
		pr, err := p.Prepare(uuid.MustParse(opKey), 0, w)
		if err != nil {
			t.Fatal(err)
		}
		return pr
	}
	for _, shown := range []string{composed, decomposed} {
		agrees := strings.Replace(strings.Replace(agreeing, withdrawal().Beneficiary.Name, shown, 1), withdrawal().Reference, shown, 1)
		p := partnerAt(t, say(t, list(agrees)).URL)
		if sum(p, composed).BodySHA256 != sum(p, decomposed).BodySHA256 {
			t.Error("two bodies")
		}
		if f := p.LookUp(t.Context(), sum(p, decomposed)); f.Result.Verdict != authorized {
			t.Errorf("shown as %q: %s, differs %v", shown, f.Result.Verdict, f.Result.Evidence.Differs)
		}
		if f := p.LookUp(t.Context(), sum(p, "Zoe Example")); f.Result.Verdict != mismatch {
			t.Errorf("another name: %s, want a mismatch", f.Result.Verdict)
		}
	}
}

// A12: whatever a loose search shows beside or instead of ours is not ours, and is not "not found" either.
func TestA12_PrefixesAreNeverConfused(t *testing.T) {
	prefix := with(opEndToEnd, opEndToEnd[:25])
	longer := with(opEndToEnd, opEndToEnd+"0")
	lower := with(opEndToEnd, strings.ToLower(opEndToEnd))
	for name, answer := range map[string]string{"prefix": prefix, "longer": longer, "other case": lower} {
		f := lookUp(t, list(answer))
		if f.Answer != bankclient.Found || f.Result.Verdict != mismatch || f.Result.TransferID != "" {
			t.Errorf("%s alone: %s %s", name, f.Answer, f.Result.Verdict)
		}
		f = lookUp(t, list(strings.Replace(answer, "tr_1", "tr_2", 1), agreeing))
		if f.Answer != bankclient.Found || f.Result.Verdict != authorized || f.Result.TransferID != "tr_1" {
			t.Errorf("%s beside ours: %s %s %s", name, f.Answer, f.Result.Verdict, f.Result.TransferID)
		}
	}
	// Keys asked for are exact and whole, and ids of partners that are prefixes of each other share nothing.
	b := say(t, list())
	p := partnerAt(t, b.URL)
	p.LookUp(t.Context(), prepare(t, p))
	if got := b.seen()[0]; got.Target != "/v1/transfers?idempotency_key="+opPartner || got.Method != "GET" || got.Key != "" {
		t.Errorf("asked %s %s", got.Method, got.Target)
	}
}

// B18: the reply was lost, the retry is answered 409 with the transfer; the look-up finds the first transfer.
func TestB18_DuplicateConflictIsAdoptedByLookUp(t *testing.T) {
	b := startBank(t, func(c net.Conn, n int, a arrival) bool {
		switch {
		case n == 1:
			return false // taken, reply lost
		case a.Method == "POST":
			_, _ = io.WriteString(c, reply(409, jsonType, agreeing))
		default:
			_, _ = io.WriteString(c, list(agreeing))
		}
		return true
	})
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	wantVerdict(t, p.Send(t.Context(), pr), unknown, operation)
	r := p.Send(t.Context(), pr)
	wantVerdict(t, r, unknown, operation)
	if r.Evidence.TransferID != "tr_1" {
		t.Errorf("evidence %s", r.Evidence.JSON())
	}
	f := p.LookUp(t.Context(), pr)
	if f.Answer != bankclient.Found || f.Result.Verdict != authorized || f.Result.TransferID != "tr_1" {
		t.Fatalf("%s %s", f.Answer, f.Result.Evidence.JSON())
	}
}

// G7: our retry collides with our own first success and is answered with it.
func TestG7_ReplayOfOurOwnSuccessIsAdopted(t *testing.T) {
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		if n == 1 {
			return false
		}
		_, _ = io.WriteString(c, reply(200, jsonType, agreeing, "Idempotent-Replayed: true"))
		return true
	})
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	wantVerdict(t, p.Send(t.Context(), pr), unknown, operation)
	r := p.Send(t.Context(), pr)
	wantVerdict(t, r, authorized, operation)
	arrivals := b.seen()
	if !r.Evidence.Replayed || r.TransferID != "tr_1" || arrivals[0].Key != arrivals[1].Key {
		t.Fatalf("evidence %s", r.Evidence.JSON())
	}
}

// B19: 409 "in use" again and again: in flight with its delay, the same key every time.
func TestB19_InUseIsInFlight(t *testing.T) {
	b := startBank(t, func(c net.Conn, n int, _ arrival) bool {
		answer := reply(409, jsonType, errorBody("request_in_progress"), "Retry-After: 4")
		if n == 11 {
			answer = reply(200, jsonType, agreeing)
		}
		_, _ = io.WriteString(c, answer)
		return true
	})
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	for range 10 {
		r := p.Send(t.Context(), pr)
		wantVerdict(t, r, inFlight, operation)
		if r.RetryAfter != 4*time.Second {
			t.Fatalf("retry after %s", r.RetryAfter)
		}
	}
	wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
	for _, a := range b.seen() {
		if a.Key != opPartner {
			t.Fatalf("key %q", a.Key)
		}
	}
}

// B20: two transfers under one key are a Mismatch that names both.
func TestB20_TwoTransfersUnderOneKey(t *testing.T) {
	f := lookUp(t, list(agreeing, strings.Replace(agreeing, "tr_1", "tr_2", 1)))
	if f.Answer != bankclient.Found || f.Result.Verdict != mismatch {
		t.Fatalf("%s %s", f.Answer, f.Result.Verdict)
	}
	if !slices.Equal(f.Result.Evidence.TransferIDs, []string{"tr_1", "tr_2"}) {
		t.Fatalf("evidence %s", f.Result.Evidence.JSON())
	}
}

// Answers that were crossed on the wire are told by their end-to-end id.
func TestA5_CrossedAnswersAreMismatches(t *testing.T) {
	other := partnerAt(t, "http://127.0.0.1:1")
	otherPrepared, err := other.Prepare(uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12"), 0, withdrawal())
	if err != nil {
		t.Fatal(err)
	}
	crossed := strings.Replace(agreeing, opEndToEnd, otherPrepared.EndToEndID, 1)
	r := sendTo(t, say(t, reply(201, jsonType, crossed)))
	wantVerdict(t, r, mismatch, operation)
	if !slices.Equal(r.Evidence.Differs, []string{"end_to_end_id"}) {
		t.Fatalf("differs %v", r.Evidence.Differs)
	}
	wantVerdict(t, sendTo(t, say(t, reply(200, jsonType, strings.Replace(crossed, "accepted", "rejected", 1)))), mismatch, operation)
}

func TestLookUpByIDAndLocation(t *testing.T) {
	b := startBank(t, func(c net.Conn, _ int, a arrival) bool {
		answer := reply(404, jsonType, errorBody("not_found"))
		switch a.Target {
		case "/v1/transfers/tr_1":
			answer = reply(200, jsonType, agreeing)
		case "/v1/transfers/tr_2":
			answer = reply(200, jsonType, agreeing) // another one's
		}
		_, _ = io.WriteString(c, answer)
		return true
	})
	p := partnerAt(t, b.URL)
	pr := prepare(t, p)
	want := func(f bankclient.Finding, a bankclient.Answer, v bankclient.Verdict) {
		t.Helper()
		if f.Answer != a || f.Result.Verdict != v {
			t.Errorf("%s %s, want %s %s; %s", f.Answer, f.Result.Verdict, a, v, f.Result.Evidence.JSON())
		}
	}
	want(p.LookUpID(t.Context(), pr, "tr_1"), bankclient.Found, authorized)
	want(p.LookUpID(t.Context(), pr, "tr_2"), bankclient.Found, mismatch)
	want(p.LookUpID(t.Context(), pr, "tr_3"), bankclient.NotFound, unknown)
	want(p.LookUpID(t.Context(), pr, "../admin"), bankclient.NotFound, unknown)
	want(p.LookUpID(t.Context(), pr, ""), bankclient.NoAnswer, unknown)
	want(p.LookUpLocation(t.Context(), pr, "/v1/transfers/tr_1"), bankclient.Found, authorized)
	want(p.LookUpLocation(t.Context(), pr, b.URL+"/v1/transfers/tr_1"), bankclient.Found, authorized)
	before := len(b.seen())
	for _, elsewhere := range []string{"http://elsewhere.invalid/v1/transfers/tr_1", "//elsewhere.invalid/v1", "v1", "/../x", "%zz", ""} {
		want(p.LookUpLocation(t.Context(), pr, elsewhere), bankclient.NoAnswer, unknown)
	}
	arrivals := b.seen()
	if len(arrivals) != before {
		t.Error("a foreign location was asked")
	}
	if arrivals[3].Target != "/v1/transfers/..%2Fadmin" {
		t.Errorf("id on the wire: %s", arrivals[3].Target)
	}
}

// TestLookUpFollowsWhatAnEarlierAnswerNamed: a 201 with nothing but a Location, and a listing that lags behind.
func TestLookUpFollowsWhatAnEarlierAnswerNamed(t *testing.T) {
	b := startBank(t, func(c net.Conn, _ int, a arrival) bool {
		answer := reply(404, jsonType, errorBody("not_found"))
		switch {
		case strings.Contains(a.Target, "idempotency_key="):
			answer = reply(200, jsonType, `{"data":[]}`)
		case a.Target == "/v1/transfers/tr_1":
			answer = reply(200, jsonType, agreeing)
		case a.Target == "/v1/transfers/tr_5":
			answer = reply(503, "text/html", "<html>")
		}
		_, _ = io.WriteString(c, answer)
		return true
	})
	p := partnerAt(t, b.URL)
	for name, c := range map[string]struct {
		trace     bankclient.Trace
		answer    bankclient.Answer
		verdict   bankclient.Verdict
		exchanges int
	}{
		"nothing named":        {bankclient.Trace{}, bankclient.NotFound, unknown, 1},
		"location":             {bankclient.Trace{Location: "/v1/transfers/tr_1"}, bankclient.Found, authorized, 2},
		"id":                   {bankclient.Trace{TransferID: "tr_1", Location: "/elsewhere"}, bankclient.Found, authorized, 2},
		"named and not there":  {bankclient.Trace{TransferID: "tr_404"}, bankclient.NotFound, unknown, 2},
		"named and not told":   {bankclient.Trace{TransferID: "tr_5"}, bankclient.NoAnswer, unknown, 2},
		"named somewhere else": {bankclient.Trace{Location: "//elsewhere.invalid/v1"}, bankclient.NoAnswer, unknown, 1},
	} {
		pr := prepare(t, p)
		pr.Trace = c.trace
		before := len(b.seen())
		f := p.LookUp(t.Context(), pr)
		if n := len(b.seen()) - before; f.Answer != c.answer || f.Result.Verdict != c.verdict || n != c.exchanges {
			t.Errorf("%s: %s %s in %d exchanges, want %s %s in %d", name, f.Answer, f.Result.Verdict, n, c.answer, c.verdict, c.exchanges)
		}
	}
}

func TestStatementPages(t *testing.T) {
	b := startBank(t, func(c net.Conn, _ int, a arrival) bool {
		answer := reply(200, jsonType, `{"data":[`+agreeing+`],"next_cursor":"a b"}`)
		if strings.Contains(a.Target, "cursor=a+b") {
			answer = list()
		}
		if strings.Contains(a.Target, "cursor=gone") {
			answer = reply(500, "text/html", "<html>")
		}
		_, _ = io.WriteString(c, answer)
		return true
	})
	p := partnerAt(t, b.URL)
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	page, next, err := p.Statement(t.Context(), from, from.Add(24*time.Hour), "")
	if err != nil || len(page) != 1 || next != "a b" || page[0].ID != "tr_1" || page[0].CreatedAt.Hour() != 10 {
		t.Fatalf("%d transfers, next %q, %v", len(page), next, err)
	}
	page, next, err = p.Statement(t.Context(), from, from.Add(24*time.Hour), next)
	if err != nil || len(page) != 0 || next != "" {
		t.Fatalf("%d transfers, next %q, %v", len(page), next, err)
	}
	if _, _, err = p.Statement(t.Context(), from, from, "gone"); err == nil {
		t.Fatal("an error page is no statement")
	}
	const want = "/v1/transfers?created_from=2026-11-01T00%3A00%3A00Z&created_to=2026-11-02T00%3A00%3A00Z&limit=100"
	if got := b.seen()[0].Target; got != want {
		t.Fatalf("asked %s, want %s", got, want)
	}
}
