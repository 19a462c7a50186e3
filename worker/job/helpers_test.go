package job

import (
	"errors"
	"strings"
	"testing"
)

// contractJob is the example of the contract, to the byte.
const contractJob = `{"v":1,
 "key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11",
 "debtor_account":"cust-4471",
 "amount":"49.00", "currency":"GBP",
 "beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},
 "reference":"Withdrawal 88104",
 "not_after":"2026-12-24T00:00:00Z",
 "metadata":{"ticket":"88104"}}`

// with replaces parts of the contract's example, pair by pair, and panics when a part is not in it.
func with(pairs ...string) string {
	doc := contractJob
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(doc, pairs[i]) != 1 {
			panic("part does not stand once in the example: " + pairs[i])
		}
		doc = strings.Replace(doc, pairs[i], pairs[i+1], 1)
	}
	return doc
}

// paying is the example with another beneficiary.
func paying(beneficiary string) string {
	return with(`{"name":"A N Example","iban":"GB33BUKB20201555555555"}`, beneficiary)
}

// pixTo is the example with a Pix key.
func pixTo(key string) string { return paying(`{"name":"A N Example","pix_key":"` + key + `"}`) }

// ibanOf is the example with another IBAN.
func ibanOf(iban string) string { return with("GB33BUKB20201555555555", iban) }

func mustDecode(t testing.TB, payload string) Job {
	t.Helper()
	j, err := Decode("wallet", "gbp-fps", []byte(payload))
	if err != nil {
		t.Fatalf("Decode: %v\n%s", err, payload)
	}
	return j
}

func faultOf(t testing.TB, err error) *Fault {
	t.Helper()
	var fault *Fault
	if !errors.As(err, &fault) {
		t.Fatalf("error is %T, want *Fault", err)
	}
	return fault
}

// wantFault wants a refusal with a code at a path.
func wantFault(t testing.TB, name string, err error, code, path string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted", name)
		return
	}
	if fault := faultOf(t, err); fault.Code != code || fault.Path != path {
		t.Errorf("%s: %s at %q, want %s at %q", name, fault.Code, fault.Path, code, path)
	}
}

// jobHead is how the contract's example begins.
const jobHead = "{\"v\":1,\n \"key\":\"" + requestKey + "\",\n"

// headed turns a job document that begins as the contract's example into one with another head.
func headed(doc, head string) (string, bool) {
	at := strings.Index(doc, jobHead)
	if at < 0 || strings.Count(doc, `"v"`)+strings.Count(doc, `"key"`) != 2 {
		return "", false
	}
	return doc[:at] + head + doc[at+len(jobHead):], true
}

// goodUnder gives the good documents under another head, by name, with the documents that they were.
func goodUnder(t testing.TB, head string) map[string]struct{ doc, was string } {
	t.Helper()
	all := map[string]struct{ doc, was string }{}
	for name, was := range goodDocuments() {
		if doc, ok := headed(was, head); ok {
			all[name] = struct{ doc, was string }{doc, was}
		}
	}
	if len(all) < 30 {
		t.Errorf("only %d documents are tried", len(all))
	}
	return all
}

// refusedAlike wants what is refused as a job to be refused under another head, with the same code at the same place.
func refusedAlike(t *testing.T, head string, decode func(doc string) error) {
	t.Helper()
	n := 0
	for name, d := range badDocuments() {
		doc, ok := headed(d.doc, head)
		if !ok || strings.HasPrefix(name, "route in the body") || d.code == CodeTooLarge && len(doc) <= MaxBytes {
			continue
		}
		n++
		wantFault(t, name, decode(doc), d.code, d.path)
	}
	if n < 100 {
		t.Errorf("only %d documents were tried", n)
	}
}

// sameDelivered wants what Encode writes of a job to be decoded as the same job. Only a job that is too large may not be encoded.
func sameDelivered(t *testing.T, j Job) {
	t.Helper()
	payload, err := Encode(j)
	if err != nil {
		if faultOf(t, err).Code == CodeTooLarge {
			return
		}
		t.Fatalf("Encode: %v", err)
	}
	back, err := Decode("wallet", j.Route, payload)
	if err != nil || back.Fingerprint() != j.Fingerprint() {
		t.Fatalf("another job: %s, %v", payload, err)
	}
}

// wantWholeFault wants a refusal that says what, why and in words.
func wantWholeFault(t *testing.T, err error) {
	t.Helper()
	var fault *Fault
	if !errors.As(err, &fault) || fault.Reason == "" || fault.Code == "" || fault.Detail == "" {
		t.Fatalf("no whole fault: %#v", err)
	}
}
