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
