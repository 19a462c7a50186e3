package bankclient

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// fuzzAdapter reads answers as plainly as an adapter can, so that this package can be fuzzed from inside. The real adapters are
// fuzzed through FuzzAnswer.
type fuzzAdapter struct{}

func (fuzzAdapter) Profile() Profile {
	return Profile{
		Adapter: "fuzz", Version: 1, Key: Carrier{Header: "Idempotency-Key"}, HonoursKeys: true, KeyWindow: time.Hour,
		LookUp: LookUpByKey, Timeout: time.Second, MaxInFlight: 1, OwnSchemaIsRefusal: true, AcceptedIsDurable: true,
		Codes: []CodeRule{
			{Status: 422, Code: "closed", Means: MeansRejected, StoredUnderKey: true},
			{Status: 422, Code: "funds", Means: MeansNotExecuted, Cause: CauseOurFunds},
			{Status: 429, Code: "slow", Means: MeansNotExecuted},
		},
		States: []StateRule{{State: "accepted", Verdict: Authorized}, {State: "rejected", Verdict: Rejected}},
	}
}
func (fuzzAdapter) Step() string                                  { return "create" }
func (fuzzAdapter) Renderer() int16                               { return 1 }
func (fuzzAdapter) Render(int16, Rendering) ([]byte, error)       { return []byte("{}"), nil }
func (fuzzAdapter) CreatePath() string                            { return "/t" }
func (fuzzAdapter) KeyPath(pr Prepared) string                    { return "/t?k=" + pr.PartnerKey }
func (fuzzAdapter) IDPath(id string) string                       { return "/t/" + id }
func (fuzzAdapter) ListPath(_, _ time.Time, cursor string) string { return "/t?c=" + cursor }

type fuzzBody struct {
	ID       string  `json:"id"`
	Status   string  `json:"status"`
	Amount   *string `json:"amount"`
	Currency *string `json:"currency"`
	Name     *string `json:"name"`
	Ref      *string `json:"reference"`
	E2E      *string `json:"end_to_end_id"`
	Code     string  `json:"code"`
}

func (b fuzzBody) seen() Seen {
	s := Seen{ID: b.ID, State: b.Status, Amount: b.Amount, Currency: b.Currency, Reference: b.Ref, EndToEndID: b.E2E}
	if b.Name != nil {
		s.Beneficiary = &Beneficiary{Name: *b.Name}
	}
	return s
}

func (fuzzAdapter) Read(r Response) Reading {
	var b fuzzBody
	if json.Unmarshal(r.Body, &b) != nil {
		return Reading{}
	}
	if b.Code != "" {
		return Reading{HasError: true, Code: b.Code}
	}
	return Reading{HasTransfer: b.ID != "" || b.Status != "", Transfer: b.seen()}
}

func (fuzzAdapter) ReadList(r Response) (Listing, bool) {
	var bodies []fuzzBody
	if json.Unmarshal(r.Body, &bodies) != nil || bodies == nil {
		return Listing{}, false
	}
	var l Listing
	for _, b := range bodies {
		l.Transfers = append(l.Transfers, b.seen())
	}
	return l, true
}

// FuzzVerdict judges arbitrary answers. It never panics, the evidence is always one JSON object, a delay is never negative, and
// Authorized needs every one of our five values in the body.
func FuzzVerdict(f *testing.F) {
	p, pr := fuzzPartner(f)
	good := `{"id":"t1","status":"accepted","amount":"49.00","currency":"GBP","name":"Zed","reference":"Q7","end_to_end_id":"` +
		pr.EndToEndID + `"}`
	f.Add(201, "application/json", "Retry-After", "1", good)
	f.Add(200, "application/json; charset=utf-8", "Location", "/t/t1", "["+good+"]")
	f.Add(422, "application/json", "Retry-After", "Mon, 02 Nov 2026 10:00:00 GMT", `{"code":"closed"}`)
	f.Add(429, "application/json", "RateLimit-Reset", "-1", `{"code":"slow"}`)
	f.Add(202, "text/html", "Idempotency-Key", "x", "<html>")
	f.Add(409, "application/problem+json", "Location", "http://[::1", good+good)
	f.Fuzz(func(t *testing.T, status int, contentType, name, value, body string) {
		h := http.Header{"Content-Type": {contentType}}
		h.Add(name, value)
		x := &exchange{status: status, answer: h, body: []byte(body)}
		x.phase.Store(uint32(PhaseComplete))
		if status == 0 {
			x.answer = nil
		}
		sent := p.judge(&pr, x)
		p.delay(&sent, x)
		found := Result{Evidence: p.evidence(x)}
		if x.status != 0 {
			p.judgeList(&found, &pr, x)
			one := Result{Evidence: p.evidence(x)}
			p.judgeOne(&one, &pr, x, "t1")
			checkVerdict(t, one, &pr, body)
		}
		checkVerdict(t, sent, &pr, body)
		checkVerdict(t, found, &pr, body)
	})
}

func checkVerdict(t *testing.T, r Result, pr *Prepared, body string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(r.Evidence.JSON(), &object); err != nil {
		t.Fatalf("evidence is no JSON: %v", err)
	}
	if r.RetryAfter < 0 || r.RetryAfter > 24*time.Hour {
		t.Fatalf("retry after %s", r.RetryAfter)
	}
	if r.Verdict == Authorized {
		for _, ours := range []string{"49", "GBP", "Zed", "Q7", pr.EndToEndID} {
			// A value can be written with escapes; without any it must be there as it is.
			if !strings.Contains(body, ours) && !strings.Contains(body, `\`) {
				t.Fatalf("authorized, but the body does not show %q", ours)
			}
		}
		if r.TransferID == "" {
			t.Fatal("authorized without a transfer id")
		}
	}
	if r.Verdict == Rejected && r.Evidence.Status != 422 && r.Evidence.Status != 200 && r.Evidence.Status != 201 && r.Evidence.Status != 202 {
		t.Fatalf("rejected by status %d", r.Evidence.Status)
	}
}
