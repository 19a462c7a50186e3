package job

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
)

func TestDecode_TheContractsExample(t *testing.T) {
	got := mustDecode(t, contractJob)
	if got.Key != uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11") || got.Source != "wallet" || got.Route != "gbp-fps" {
		t.Errorf("key, source, route = %s, %s, %s", got.Key, got.Source, got.Route)
	}
	if got.Amount != (money.Amount{Minor: 4900, Currency: "GBP"}) {
		t.Errorf("amount = %d %s", got.Amount.Minor, got.Amount.Currency)
	}
	if got.DebtorAccount.Reveal() != "cust-4471" || got.Reference.Reveal() != "Withdrawal 88104" {
		t.Errorf("account, reference = %s, %s", got.DebtorAccount.Reveal(), got.Reference.Reveal())
	}
	if got.Beneficiary != (Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"}) {
		t.Error("another beneficiary")
	}
	if !got.NotBefore.IsZero() || !got.NotAfter.Equal(time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("not before %s, not after %s", got.NotBefore, got.NotAfter)
	}
	if !maps.Equal(got.Metadata, map[string]string{"ticket": "88104"}) {
		t.Errorf("metadata = %v", got.Metadata)
	}
}

func TestDecode_EveryMember(t *testing.T) {
	uk := mustDecode(t, paying(`{"name":"A","sort_code":"202015","account_number":"55555555"}`)).Beneficiary
	us := mustDecode(t, paying(`{"name":"A","routing_number":"021000021","account_number":"1"}`)).Beneficiary
	pix := mustDecode(t, pixTo("52998224725")).Beneficiary
	bic := mustDecode(t, with(`555555"}`, `555555","bic":"BUKBGB22"}`)).Beneficiary
	if uk != (Beneficiary{Name: "A", SortCode: "202015", AccountNumber: "55555555"}) ||
		us != (Beneficiary{Name: "A", RoutingNumber: "021000021", AccountNumber: "1"}) ||
		pix != (Beneficiary{Name: "A N Example", PixKey: "52998224725"}) ||
		bic != (Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555", BIC: "BUKBGB22"}) {
		t.Error("a member of the beneficiary was lost or went elsewhere")
	}
	late := mustDecode(t, with(`"not_after"`, `"not_before":"2026-01-02T03:04:05.000000006+01:00","not_after"`))
	if want := time.Date(2026, 1, 2, 2, 4, 5, 6, time.UTC); late.NotBefore != want {
		t.Errorf("not before %s, want %s", late.NotBefore, want)
	}
}

// isH2 is true of the documents about what stands behind the object, which have a test of their own.
func isH2(name string) bool { return strings.HasPrefix(name, "H2 ") }

func TestH1_E14_I5_GoodDocumentsAccepted(t *testing.T) {
	for name, doc := range goodDocuments() {
		if !isH2(name) {
			t.Run(name, func(t *testing.T) { accepted(t, doc) })
		}
	}
}

func accepted(t *testing.T, doc string) {
	t.Helper()
	j := mustDecode(t, doc)
	out, err := Encode(j)
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	back := mustDecode(t, string(out))
	if back.Fingerprint() != j.Fingerprint() || !maps.Equal(back.Metadata, j.Metadata) {
		t.Errorf("what Encode wrote is another job: %s", out)
	}
}

func refused(t *testing.T, doc, code, path string) {
	t.Helper()
	j, err := Decode("wallet", "gbp-fps", []byte(doc))
	if err == nil {
		t.Fatal("accepted")
	}
	fault := faultOf(t, err)
	if fault.Code != code || fault.Path != path {
		t.Errorf("%s at %q, want %s at %q", fault.Code, fault.Path, code, path)
	}
	if fault.Detail == "" {
		t.Error("no detail for people")
	}
	if j.Key != uuid.Nil || j.Source != "" {
		t.Error("a part of a job came with the fault")
	}
}

func TestH2_OneObjectAndNothingBehind(t *testing.T) {
	good, bad := 0, 0
	for name, doc := range goodDocuments() {
		if isH2(name) {
			good++
			t.Run(name, func(t *testing.T) { accepted(t, doc) })
		}
	}
	for name, d := range badDocuments() {
		if isH2(name) {
			bad++
			t.Run(name, func(t *testing.T) { refused(t, d.doc, d.code, d.path) })
		}
	}
	if good == 0 || bad < 3 {
		t.Errorf("%d good documents and %d bad ones", good, bad)
	}
}

func TestH1_E14_I5_BadDocumentsRefusedEachForItsReason(t *testing.T) {
	seen := make(map[string]bool)
	for name, d := range badDocuments() {
		seen[d.code] = true
		if !isH2(name) {
			t.Run(name, func(t *testing.T) { refused(t, d.doc, d.code, d.path) })
		}
	}
	for _, code := range strings.Fields(`too_large empty bom invalid_utf8 nul_byte syntax truncated trailing_data not_an_object
		duplicate_name case_variant_name unknown_name null_value wrong_type missing text_empty text_too_long text_space
		control_character version_unknown key_missing key_form key_reserved currency_form currency_unknown amount_form amount_digits
		amount_zero amount_range beneficiary_form iban_form iban_country iban_length iban_check_digits bic_form sort_code_form
		account_number_form routing_number_form routing_number_check_digit pix_key_form pix_key_check_digits time_form time_range
		window_empty metadata_too_many metadata_name`) {
		if !seen[code] {
			t.Errorf("no bad document for %s", code)
		}
	}
}

func TestE14_ReasonOfTheDeadLetter(t *testing.T) {
	for _, c := range []struct {
		doc  string
		want Reason
	}{
		{"", "undecodable"},
		{"hello", "undecodable"},
		{contractJob + "]", "undecodable"},
		{with(`"amount"`, `"Amount"`), "undecodable"},
		{strings.Repeat(" ", 5<<20), "too_large"},
		{`{"v":1}`, "key_missing"},
		{with("49.00", "49"), "invalid"},
		{with(`"GBP",`, "null,"), "invalid"},
		{with(`"reference"`, `"memo"`), "invalid"},
	} {
		_, err := Decode("wallet", "gbp-fps", []byte(c.doc))
		if fault := faultOf(t, err); fault.Reason != c.want {
			t.Errorf("%.40q: reason %s, want %s", c.doc, fault.Reason, c.want)
		}
	}
}

func TestE14_WrongSubject(t *testing.T) {
	for _, name := range []string{"", "Wallet", "wal.let", "wal let", "*", ">", "-wallet", "_wallet", "wallet\n", strings.Repeat("w", 64), "wället"} {
		if ValidName(name) {
			t.Errorf("ValidName(%q)", name)
		}
		_, err := Decode(name, "gbp-fps", []byte(contractJob))
		if fault := faultOf(t, err); fault.Code != CodeSourceName || fault.Reason != ReasonInvalid {
			t.Errorf("source %q: %v", name, fault)
		}
		_, err = Decode("wallet", name, []byte(contractJob))
		if fault := faultOf(t, err); fault.Code != CodeRouteName || fault.Reason != ReasonUnknownRoute {
			t.Errorf("route %q: %v", name, fault)
		}
	}
	for _, name := range []string{"w", "0", "wallet-2_b", strings.Repeat("w", 63)} {
		if !ValidName(name) {
			t.Errorf("ValidName(%q) is false", name)
		}
	}
}

// A fault goes to logs, to headers of dead letters and to answers. What it was about must not.
func TestFault_NeverEchoesValues(t *testing.T) {
	for name, d := range badDocuments() {
		_, err := Decode("wallet", "gbp-fps", []byte(d.doc))
		text := err.Error()
		for _, secret := range []string{"4471", "49.0", "Example", "BUKB", "5555", "88104", "01939e1c", "52998", "021000", "Jane", "ticket\":"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q says %q", name, text, secret)
			}
		}
	}
	// The same with a mark in place of every value, so that no list of secrets has to be complete.
	const mark = "QZXQZX"
	for _, value := range []string{
		"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "cust-4471", "49.00", "GBP\",", "A N Example", "GB33BUKB20201555555555",
		"Withdrawal 88104", "2026-12-24T00:00:00Z", "\"metadata\"", "\"ticket\"", "\"amount\"", "\"iban\"",
	} {
		for _, marked := range []string{mark, mark + `\u0000`, `\ud800` + mark, mark + `\n`, mark + `\x`, mark + strings.Repeat("Q", 999)} {
			doc := with(value, marked)
			if strings.HasPrefix(value, `"`) {
				doc = with(value, `"`+marked+`"`)
			} else if strings.HasSuffix(value, `",`) {
				doc = with(value, marked+`",`)
			}
			if _, err := Decode("wallet", "gbp-fps", []byte(doc)); err != nil && strings.Contains(err.Error(), "QZX") {
				t.Errorf("echoed: %v", err)
			}
		}
	}
}

func TestFault_SaysReasonCodeAndPlace(t *testing.T) {
	_, err := Decode("wallet", "gbp-fps", []byte(with("49.00", "49")))
	if got, want := err.Error(), "job invalid: amount_digits at /amount: must have exactly the digits of its currency"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	_, err = Decode("wallet", "gbp-fps", nil)
	if got, want := err.Error(), "job undecodable: empty at the document: there is nothing in it"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestH3_NeighboursBeyondFloatsDiffer(t *testing.T) {
	a := mustDecode(t, with("49.00", "9007199254740993", "GBP\",", "JPY\","))
	b := mustDecode(t, with("49.00", "9007199254740992", "GBP\",", "JPY\","))
	if a.Amount.Minor != 9007199254740993 || b.Amount.Minor != 9007199254740992 || a.Fingerprint() == b.Fingerprint() {
		t.Errorf("%d and %d", a.Amount.Minor, b.Amount.Minor)
	}
	c := mustDecode(t, with(`"88104"}`, `"9007199254740993"}`))
	if c.Metadata["ticket"] != "9007199254740993" {
		t.Errorf("metadata = %v", c.Metadata)
	}
}

func TestI6_TheGreatestAmount(t *testing.T) {
	if got := mustDecode(t, with("49.00", "92233720368547758.07")).Amount.Minor; got != math.MaxInt64 {
		t.Errorf("amount = %d", got)
	}
}

func TestH5_NameArrivesAsItIs(t *testing.T) {
	for _, doc := range []string{with("A N Example", "A & B <C>"), with("A N Example", `A \u0026 B \u003cC\u003e`)} {
		j := mustDecode(t, doc)
		if j.Beneficiary.Name.Reveal() != "A & B <C>" {
			t.Errorf("name = %q", j.Beneficiary.Name.Reveal())
		}
		out, err := Encode(j)
		if err != nil || !strings.Contains(string(out), `"name":"A & B <C>"`) {
			t.Errorf("Encode = %s, %v", out, err)
		}
	}
}

// A payload lies in a buffer of the broker's client; a job must not change with it.
func TestDecode_KeepsNothingOfTheBuffer(t *testing.T) {
	payload := []byte(contractJob)
	j := mustDecode(t, contractJob)
	k, err := Decode("wallet", "gbp-fps", payload)
	if err != nil {
		t.Fatal(err)
	}
	if string(payload) != contractJob {
		t.Error("Decode changed the payload")
	}
	for i := range payload {
		payload[i] = 'x'
	}
	if k.Fingerprint() != j.Fingerprint() || k.Metadata["ticket"] != "88104" {
		t.Error("the job changed with the buffer")
	}
}

func TestEveryIBANCountry(t *testing.T) {
	// Length by country of the registry, by hand in another order than in the code.
	const lengths = `AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29
		ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32
		LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22
		RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30`
	want := make(map[string]string)
	for entry := range strings.FieldsSeq(lengths) {
		want[entry[:2]] = entry[2:]
	}
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			country := string(a) + string(b)
			length := ""
			if n := ibanLength(country); n > 0 {
				length = string(rune('0'+n/10)) + string(rune('0'+n%10))
			}
			if length != want[country] {
				t.Errorf("length of %s is %q, want %q", country, length, want[country])
			}
		}
	}
	for _, iban := range registryIBANs() {
		for i := 4; i < len(iban); i++ { // one wrong digit, and one wrong letter, is always found
			c := iban[i] + 1
			if c == '9'+1 || c == 'Z'+1 {
				c = iban[i] - 1
			}
			if fault := checkIBAN(iban[:i] + string(c) + iban[i+1:]); fault == nil {
				t.Errorf("wrong character %d of an IBAN of %s accepted", i, iban[:2])
			}
		}
	}
}
