package job

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Encode writes the canonical payload of a job: v first, then the members in the order of the contract, metadata by name,
// no white space, times in UTC. It reads back what it wrote: a job that Decode would refuse, or read otherwise, is an
// error, and that error is a *Fault.
func Encode(j Job) ([]byte, error) {
	b := make([]byte, 0, 512)
	b = append(b, `{"v":1,"key":"`...)
	b = append(b, j.Key.String()...)
	b = append(b, '"')
	b = appendMember(b, `,"debtor_account":`, j.DebtorAccount)
	b = appendMember(b, `,"amount":`, Sensitive(j.Amount.Decimal()))
	b = appendMember(b, `,"currency":`, Sensitive(j.Amount.Currency))
	b = append(b, `,"beneficiary":{"name":`...)
	b = appendString(b, j.Beneficiary.Name.Reveal())
	b = appendMember(b, `,"iban":`, j.Beneficiary.IBAN)
	b = appendMember(b, `,"bic":`, j.Beneficiary.BIC)
	b = appendMember(b, `,"sort_code":`, j.Beneficiary.SortCode)
	b = appendMember(b, `,"routing_number":`, j.Beneficiary.RoutingNumber)
	b = appendMember(b, `,"account_number":`, j.Beneficiary.AccountNumber)
	b = appendMember(b, `,"pix_key":`, j.Beneficiary.PixKey)
	b = append(b, '}')
	b = appendMember(b, `,"reference":`, j.Reference)
	b = appendTime(b, `,"not_before":"`, j.NotBefore)
	b = appendTime(b, `,"not_after":"`, j.NotAfter)
	b = appendMetadata(b, j.Metadata)
	b = append(b, '}')

	back, err := Decode(j.Source, j.Route, b)
	if err != nil {
		return nil, err
	}
	if back.Fingerprint() != j.Fingerprint() || !maps.Equal(back.Metadata, j.Metadata) {
		return nil, refuse(CodeNotRoundTripping, "", "holds something that the contract cannot carry")
	}
	return b, nil
}

// appendString quotes text. Invalid UTF-8 becomes U+FFFD here, which the reading back then finds.
func appendString(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

func appendMember(b []byte, name string, value Sensitive) []byte {
	if value == "" {
		return b
	}
	return appendString(append(b, name...), value.Reveal())
}

func appendTime(b []byte, name string, at time.Time) []byte {
	if at.IsZero() {
		return b
	}
	b = append(b, name...)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

func appendMetadata(b []byte, metadata map[string]string) []byte {
	if len(metadata) == 0 {
		return b
	}
	b = append(b, `,"metadata":`...)
	separator := byte('{')
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		b = appendString(append(b, separator), name)
		b = appendString(append(b, ':'), metadata[name])
		separator = ','
	}
	return append(b, '}')
}
