package bankclient_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
)

var secrets = []string{"Example", "GB33BUKB20201555555555", "88104", "s3cret", "49.00"}

func TestNothingPrintsWhatIsSecret(t *testing.T) {
	p := partnerAt(t, "http://127.0.0.1:1")
	pr := prepare(t, p)
	name := "A N Example"
	for _, v := range []any{
		pr, &pr, pr.Transfer, &pr.Transfer, pr.Transfer.Beneficiary,
		bankclient.Seen{Reference: &pr.Transfer.Reference, Amount: &pr.Transfer.Amount, ID: name}, []any{pr, withdrawal()},
	} {
		texts := []string{}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
		j, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(texts, string(j)) {
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%T prints %q", v, secret)
				}
			}
		}
	}
}

// What a partner writes freely can hold names: none of it reaches the evidence, which is one JSON object with what may be kept.
func TestEvidenceKeepsNoFreeText(t *testing.T) {
	for name, answer := range map[string]string{
		"error text": reply(422, jsonType, `{"error":{"code":"no account GB33BUKB20201555555555","transfer_id":"A N Example"}}`),
		"headers": reply(302, "text/html; charset=A N Example", "", "Location: http://u:s3cret@x/A%20b?name=Example",
			"X-Request-Id: paid A N Example"),
		"mismatch": reply(201, jsonType, with("GBP", "EUR")),
		"states":   reply(201, jsonType, with("accepted", "held for A N Example")),
		"garbage":  "Example s3cret\r\n\r\n",
	} {
		e := sendTo(t, say(t, answer)).Evidence
		text := string(e.JSON())
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v in %s", name, err, text)
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s: evidence holds %q: %s", name, secret, text)
			}
		}
	}
}

func TestEvidenceJSON(t *testing.T) {
	e := bankclient.Evidence{
		Phase: "complete", Status: 201, Why: "w", Error: "e", ContentType: "c", Location: "/l", RequestID: "r", TransferID: "t",
		TransferIDs: []string{"a", "b"}, Code: "k", State: "s", Differs: []string{"amount"}, Replayed: true, Reused: true,
		BodyBytes: 7, ElapsedMS: 12,
	}
	const want = `{"phase":"complete","status":201,"why":"w","error":"e","content_type":"c","location":"/l","request_id":"r",` +
		`"transfer_id":"t","code":"k","state":"s","transfer_ids":["a","b"],"differs":["amount"],"replayed":true,"reused":true,` +
		`"body_bytes":7,"elapsed_ms":12}`
	if got := string(e.JSON()); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if got := string(bankclient.Evidence{}.JSON()); got != `{"phase":"","elapsed_ms":0}` {
		t.Fatalf("got %s", got)
	}
}

func TestVerdictNamesRoundTrip(t *testing.T) {
	for v, name := range map[bankclient.Verdict]string{
		unknown: "unknown", authorized: "authorized", rejected: "rejected", notExecuted: "not_executed",
		inFlight: "in_flight", keyReused: "key_reused", mismatch: "mismatch",
	} {
		got, err := bankclient.ParseVerdict(name)
		if err != nil || got != v || v.String() != name {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := bankclient.ParseVerdict("Authorized"); err == nil {
		t.Error("a name that is none was parsed")
	}
	var zero bankclient.Result
	if zero.Verdict != unknown || zero.Scope != operation {
		t.Error("the zero result must be unknown")
	}
}

func TestPrepareRefusesWithoutEchoing(t *testing.T) {
	limited := open(t, config("http://127.0.0.1:1"), vary(func(p *bankclient.Profile) { p.MaxReference = 5 }))
	if _, err := limited.Prepare(uuid.MustParse(opKey), 0, withdrawal()); err == nil || strings.Contains(err.Error(), "Withdrawal") {
		t.Errorf("long reference: %v", err)
	}
	p := partnerAt(t, "http://127.0.0.1:1")
	for name, spoil := range map[string]func(*bankclient.Transfer){
		"amount":      func(x *bankclient.Transfer) { x.Amount = "49.0" },
		"no amount":   func(x *bankclient.Transfer) { x.Amount, x.AmountMinor = "", 0 },
		"minor":       func(x *bankclient.Transfer) { x.AmountMinor = 490000 },
		"currency":    func(x *bankclient.Transfer) { x.Currency = "" },
		"beneficiary": func(x *bankclient.Transfer) { x.Beneficiary = bankclient.Beneficiary{} },
		"UTF-8":       func(x *bankclient.Transfer) { x.Reference = "Example \xff" },
	} {
		x := withdrawal()
		spoil(&x)
		_, err := p.Prepare(uuid.MustParse(opKey), 0, x)
		if err == nil || strings.Contains(err.Error(), "Example") || strings.Contains(err.Error(), "49") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.PrepareAs(2, uuid.MustParse(opKey), 0, withdrawal()); err == nil {
		t.Error("a renderer that does not exist was used")
	}
}
