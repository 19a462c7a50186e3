package job

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/paidonce/paidonce/ledger/money"
)

// drawText draws free text that the contract allows, in any script.
func drawText(t *rapid.T, label string, limit int) Sensitive {
	text := rapid.StringOfN(rapid.RuneFrom(nil, unicode.Letter, unicode.Mn, unicode.Nd, unicode.Sm, unicode.Po, unicode.Zs), 1, limit, -1).
		Filter(func(s string) bool { return strings.TrimSpace(s) == s && s != "" }).Draw(t, label)
	return Sensitive(text)
}

func drawBeneficiary(t *rapid.T) Beneficiary {
	b := Beneficiary{Name: drawText(t, "name", MaxName)}
	digits := func(label string, least, most int) Sensitive {
		return Sensitive(rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), least, most, -1).Draw(t, label))
	}
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		b.IBAN = Sensitive(rapid.SampledFrom(registryIBANs()).Draw(t, "iban"))
		b.BIC = Sensitive(rapid.SampledFrom([]string{"", "BUKBGB22", "DEUTDEFF500"}).Draw(t, "bic"))
	case 1:
		b.SortCode, b.AccountNumber = digits("sort code", 6, 6), digits("account", 8, 8)
	case 2:
		b.RoutingNumber = Sensitive(rapid.SampledFrom([]string{"021000021", "091000019", "322271627"}).Draw(t, "routing number"))
		b.AccountNumber = digits("account", 1, 17)
	default:
		b.PixKey = Sensitive(rapid.SampledFrom([]string{"52998224725", "+5561912345678", "a@example.com"}).Draw(t, "pix key"))
	}
	return b
}

func drawJob(t *rapid.T) Job {
	var key uuid.UUID
	copy(key[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Filter(func(b []byte) bool {
		return string(b) != string(uuid.Nil[:]) && string(b) != string(uuid.Max[:])
	}).Draw(t, "key"))
	j := Job{
		Key:           key,
		Source:        rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,62}`).Draw(t, "source"),
		Route:         rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,62}`).Draw(t, "route"),
		DebtorAccount: drawText(t, "debtor account", MaxAccount),
		Amount: money.Amount{
			Minor:    rapid.Int64Range(1, math.MaxInt64).Draw(t, "minor"),
			Currency: rapid.SampledFrom([]string{"GBP", "JPY", "KWD", "CLF", "EUR"}).Draw(t, "currency"),
		},
		Beneficiary: drawBeneficiary(t),
	}
	if rapid.Bool().Draw(t, "has reference") {
		j.Reference = drawText(t, "reference", MaxReference)
	}
	second := rapid.Int64Range(946684800, 4102444800) // 2000 to 2100
	nano := rapid.SampledFrom([]int64{0, 1, 500_000_000, 999_999_999})
	if rapid.Bool().Draw(t, "has not before") {
		j.NotBefore = time.Unix(second.Draw(t, "not before"), nano.Draw(t, "nanoseconds")).UTC()
	}
	if rapid.Bool().Draw(t, "has not after") {
		j.NotAfter = time.Unix(second.Draw(t, "not after"), nano.Draw(t, "nanoseconds")).UTC()
		if !j.NotBefore.IsZero() && !j.NotAfter.After(j.NotBefore) {
			j.NotAfter = j.NotBefore.Add(1)
		}
	}
	name := rapid.StringMatching(`[a-z0-9][a-z0-9_.-]{0,63}`)
	j.Metadata = rapid.MapOfN(name, rapid.StringMatching(`[ -~é]{0,50}`), 0, 5).Draw(t, "metadata")
	return j
}

func TestPropertyEncodeDecodeRoundTrip(t *testing.T) {
	schema := compiledSchema(t)
	rapid.Check(t, func(t *rapid.T) {
		want := drawJob(t)
		payload, err := Encode(want)
		if err != nil {
			t.Fatalf("Encode: %v", err)
		}
		if err := checkSchema(schema, payload); err != nil {
			t.Fatalf("schema: %v", err)
		}
		got, err := Decode(want.Source, want.Route, payload)
		if err != nil {
			t.Fatalf("Decode: %v", err)
		}
		if !maps.Equal(got.Metadata, want.Metadata) {
			t.Fatal("metadata differs")
		}
		got.Metadata, want.Metadata = nil, nil
		if fmt.Sprintf("%#v", plain(got)) != fmt.Sprintf("%#v", plain(want)) {
			t.Fatalf("got %#v, want %#v", plain(got), plain(want))
		}
	})
}

// plain is a job as a list that prints in full.
func plain(j Job) []any {
	b := j.Beneficiary
	list := []any{j.Key, j.Source, j.Route, j.Amount.Minor, j.Amount.Currency, j.NotBefore.UnixNano(), j.NotAfter.UnixNano()}
	for _, s := range []Sensitive{j.DebtorAccount, j.Reference, b.Name, b.IBAN, b.BIC, b.SortCode, b.AccountNumber, b.RoutingNumber, b.PixKey} {
		list = append(list, s.Reveal())
	}
	return list
}

// respell writes the same document in another way: members in another order, white space, escapes.
func respell(t *rapid.T, raw jsontext.Value) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r\n"}).Draw(t, "space") }
	switch raw.Kind() {
	case '{':
		d := jsontext.NewDecoder(strings.NewReader(string(raw)))
		_, _ = d.ReadToken()
		var members []string
		for d.PeekKind() != '}' {
			name, _ := d.ReadValue()
			name = name.Clone()
			value, _ := d.ReadValue()
			members = append(members, space()+respell(t, name)+space()+":"+space()+respell(t, value.Clone())+space())
		}
		return "{" + strings.Join(rapid.Permutation(members).Draw(t, "order"), ",") + "}"
	case '"':
		text, _ := jsontext.AppendUnquote(nil, raw)
		var b strings.Builder
		b.WriteByte('"')
		for _, c := range string(text) {
			quoted, _ := jsontext.AppendQuote(nil, string(c))
			switch {
			case c <= 0xffff && rapid.IntRange(0, 3).Draw(t, "escape") == 0:
				fmt.Fprintf(&b, `\u%04x`, c)
			default:
				b.Write(quoted[1 : len(quoted)-1])
			}
		}
		b.WriteByte('"')
		return b.String()
	default:
		return string(raw)
	}
}

func TestPropertyB14_RespelledSameFingerprint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJob(t)
		payload, err := Encode(j)
		if err != nil {
			t.Fatal(err)
		}
		other := respell(t, payload)
		got, err := Decode(j.Source, j.Route, []byte(other))
		if err != nil {
			t.Fatalf("Decode: %v\n%s", err, other)
		}
		if got.Fingerprint() != j.Fingerprint() {
			t.Fatalf("fingerprints differ: %s and %s", payload, other)
		}
	})
}

// Two jobs that were drawn apart have one fingerprint only if they are one in every typed field.
func TestPropertyB13_AnotherJobAnotherFingerprint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawJob(t), drawJob(t)
		c := a
		switch rapid.IntRange(0, 6).Draw(t, "member") {
		case 0:
			c.Key = b.Key
		case 1:
			c.Source = b.Source
		case 2:
			c.Route = b.Route
		case 3:
			c.Amount = b.Amount
		case 4:
			c.Beneficiary.PixKey, c.Beneficiary.BIC = b.Beneficiary.BIC, b.Beneficiary.PixKey
		case 5:
			c.NotBefore, c.NotAfter = b.NotBefore, b.NotAfter
		case 6: // the same bytes, with the border between two fields elsewhere
			c.Source, c.Route = a.Source+a.Route[:1], a.Route[1:]
		}
		same := fmt.Sprintf("%#v", plain(a)) == fmt.Sprintf("%#v", plain(c))
		if got := a.Fingerprint() == c.Fingerprint(); got != same {
			t.Fatalf("fingerprints equal: %v, jobs equal: %v", got, same)
		}
	})
}

func TestPropertyDecodeNeverPanicsOnDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := []byte(contractJob)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			at := rapid.IntRange(0, len(payload)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "damage") {
			case 0:
				payload[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				payload = payload[:at+1]
			default:
				payload = append(payload[:at:at], append([]byte{rapid.Byte().Draw(t, "byte")}, payload[at:]...)...)
			}
		}
		if _, err := Decode("wallet", "gbp-fps", payload); err != nil {
			if _, ok := err.(*Fault); !ok {
				t.Fatalf("error is %T", err)
			}
		}
	})
}
