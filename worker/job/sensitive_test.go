package job

import (
	"bytes"
	stdjson "encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/rs/zerolog"
)

const secret = "GB33BUKB20201555555555"

// leaks says whether the text is in the output, plain, in hexadecimal, or quoted rune by rune.
func leaks(output string) bool {
	output = strings.ToLower(strings.NewReplacer(" ", "", "0x", "", ",", "", "'", "").Replace(output))
	return strings.Contains(output, "bukb") || strings.Contains(output, "5555") || strings.Contains(output, fmt.Sprintf("%x", "BUKB"))
}

func TestSensitive_MaskedUnderEveryVerb(t *testing.T) {
	text := Sensitive(secret)
	values := []any{
		text, &text, []Sensitive{text}, [1]Sensitive{text}, map[string]Sensitive{"a": text}, map[Sensitive]int{text: 1},
		struct{ A Sensitive }{text}, &struct{ A *Beneficiary }{&Beneficiary{IBAN: text}}, Beneficiary{Name: text, PixKey: text},
		Job{DebtorAccount: text, Reference: text, Beneficiary: Beneficiary{AccountNumber: text}, Metadata: map[string]string{"iban": secret}},
	}
	// All verbs of fmt but %T, which prints a type, and %p and %w, which go vet refuses (see the type's comment).
	for _, verb := range strings.Split("v +v #v s +s q +q #q x X #x % x # x d c U b o e g t 40s -40s .3s 08x", " ") {
		for _, value := range values {
			if got := fmt.Sprintf("%"+verb, value); leaks(got) {
				t.Errorf("%%%s of %T prints %s", verb, value, got)
			}
		}
	}
	for _, got := range []string{fmt.Sprint(values...), fmt.Sprintln(values...), text.String()} {
		if leaks(got) {
			t.Errorf("prints %s", got)
		}
	}
	if got := fmt.Sprintf("%s|%q|%#v|%x", text, text, text, text); got != "[masked]|[masked]|[masked]|[masked]" {
		t.Errorf("prints %s", got)
	}
	if text.Reveal() != secret {
		t.Error("Reveal gives something else")
	}
}

func TestSensitive_MaskedInEncodings(t *testing.T) {
	b := Beneficiary{Name: secret, IBAN: secret, BIC: secret, SortCode: secret, AccountNumber: secret, RoutingNumber: secret, PixKey: secret}
	j := Job{DebtorAccount: secret, Reference: secret, Beneficiary: b, Metadata: map[string]string{"iban": secret}}
	for _, value := range []any{Sensitive(secret), b, &b, []any{b.IBAN}, j, &j} {
		v1, err1 := stdjson.Marshal(value)
		v2, err2 := json.Marshal(value)
		if err1 != nil || err2 != nil || leaks(string(v1)) || leaks(string(v2)) {
			t.Errorf("%T in JSON: %s, %s, %v, %v", value, v1, v2, err1, err2)
		}
	}
	x, err := xml.Marshal(b)
	if err != nil || leaks(string(x)) {
		t.Errorf("XML: %s, %v", x, err)
	}
	if got, err := json.Marshal(map[Sensitive]int{secret: 1}); err != nil || leaks(string(got)) {
		t.Errorf("as a key: %s, %v", got, err)
	}
}

func TestSensitive_MaskedInLogsAndErrors(t *testing.T) {
	text := Sensitive(secret)
	j := Job{DebtorAccount: text, Reference: text, Beneficiary: Beneficiary{Name: text, IBAN: text}, Metadata: map[string]string{"iban": secret}}
	var out bytes.Buffer
	err := fmt.Errorf("send to %s: %w", text, errors.New("no"))
	zl := zerolog.New(&out)
	zl.Info().Any("a", text).Interface("b", j).Stringer("c", text).Any("d", j.Beneficiary).Err(err).
		Fields(map[string]any{"e": text, "f": []Sensitive{text}}).Msgf("%v %+v", text, j)
	zl.Info().Fields([]any{"g", text, "h", &j}).Send()
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "a", text, "b", j, "c", err, "d", j.Beneficiary)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "a", text, "b", j, "c", err, "d", j.Beneficiary)
	if leaks(out.String()) || leaks(err.Error()) {
		t.Errorf("logged: %s", out.String())
	}
	if !strings.Contains(out.String(), `"a":"[masked]"`) {
		t.Errorf("the mask is missing: %s", out.String())
	}
}
