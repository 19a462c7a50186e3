package job

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestEncode_Canonical(t *testing.T) {
	j := mustDecode(t, with(`{"ticket":"88104"}`, `{"z":"1","a":"<&>"}`, "2026-12-24T00:00:00Z", "2026-12-24T05:30:00.50+05:30"))
	const want = `{"v":1,"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","debtor_account":"cust-4471","amount":"49.00","currency":"GBP",` +
		`"beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},"reference":"Withdrawal 88104",` +
		`"not_after":"2026-12-24T00:00:00.5Z","metadata":{"a":"<&>","z":"1"}}`
	got, err := Encode(j)
	if err != nil || string(got) != want {
		t.Errorf("Encode = %s, %v", got, err)
	}
}

// A job that was put together in code gets no milder judgement than one that arrived.
func TestEncode_RefusesWhatDecodeWould(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Job)
		code  string
	}{
		"no key":            {func(j *Job) { j.Key = uuid.Nil }, CodeKeyReserved},
		"no source":         {func(j *Job) { j.Source = "" }, CodeSourceName},
		"no account":        {func(j *Job) { j.DebtorAccount = "" }, CodeMissing},
		"no name":           {func(j *Job) { j.Beneficiary.Name = "" }, CodeTextEmpty},
		"I5 zero":           {func(j *Job) { j.Amount.Minor = 0 }, CodeAmountZero},
		"I5 negative":       {func(j *Job) { j.Amount.Minor = -1 }, CodeAmountForm},
		"I2 currency":       {func(j *Job) { j.Amount.Currency = "XXX" }, CodeCurrencyUnknown},
		"two forms":         {func(j *Job) { j.Beneficiary.PixKey = "52998224725" }, CodeBeneficiaryForm},
		"invalid UTF-8":     {func(j *Job) { j.Reference = "\xff" }, CodeNotRoundTripping},
		"metadata UTF-8":    {func(j *Job) { j.Metadata = map[string]string{"a": "\xff"} }, CodeNotRoundTripping},
		"metadata by case":  {func(j *Job) { j.Metadata = map[string]string{"a": "1", "A": "1"} }, CodeCaseVariantName},
		"year 10000":        {func(j *Job) { j.NotAfter = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, CodeTimeForm},
		"empty window":      {func(j *Job) { j.NotBefore = j.NotAfter }, CodeWindowEmpty},
		"control character": {func(j *Job) { j.Reference = "a\x00" }, CodeNULByte},
	} {
		j := mustDecode(t, contractJob)
		c.spoil(&j)
		payload, err := Encode(j)
		if err == nil || payload != nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if fault := faultOf(t, err); fault.Code != c.code {
			t.Errorf("%s: %v, want %s", name, fault, c.code)
		}
	}
}
