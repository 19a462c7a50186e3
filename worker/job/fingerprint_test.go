package job

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
)

// contractFingerprint was computed by a program in another language, from the description of fingerprint1 alone. So were
// the others below. They never change: rows are compared with them.
const contractFingerprint = "29992ae3bee5bd954cd5a80e7631e19ad904d76beaad66cc129ad83197fb0c56"

func sumOf(j Job) string {
	f := j.Fingerprint()
	return hex.EncodeToString(f.Sum[:])
}

func TestFingerprint_GoldenVectors(t *testing.T) {
	contract := mustDecode(t, contractJob)
	bare := contract
	bare.Reference, bare.NotAfter, bare.Metadata = "", time.Time{}, nil
	kuwait := bare
	kuwait.Route = "eur-sct"
	kuwait.Amount = money.Amount{Minor: 18600, Currency: "KWD"}
	kuwait.Beneficiary = Beneficiary{Name: "A N Example", IBAN: "KW81CBKU0000000000001234560101", BIC: "CBKUKWKW"}
	for want, j := range map[string]Job{
		contractFingerprint: contract,
		"908e600ac5a03ca23911201095dbeaa941c83edd7a9395326b7fd104869c722b": bare,
		"0d95172ee9811dade86b1cc45c8866b502b4e641f70342ea761e77f6da6a18ba": {
			Key: uuid.MustParse("9b2f1d1e-0c55-4a52-8f0e-5a5f3a0c7e01"), Source: "payroll", Route: "gbp-fps", DebtorAccount: "cust-1",
			Amount:      money.Amount{Minor: 123456, Currency: "GBP"},
			Beneficiary: Beneficiary{Name: "Zoe\u0308 Muller", SortCode: "202015", AccountNumber: "55555555"},
			NotBefore:   time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC),
			NotAfter:    time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		},
		"f1bb365142558759b29abbb8f4c4ac313091259ba15b665418fbf4ca5f8beb73": {
			Key: uuid.MustParse("ffffffff-ffff-ffff-ffff-fffffffffffe"), Source: "wallet", Route: "usd-ach", DebtorAccount: "cust-2",
			Amount:      money.Amount{Minor: 1, Currency: "USD"},
			Beneficiary: Beneficiary{Name: "A & B <C>", RoutingNumber: "021000021", AccountNumber: "1"},
		},
		"381097b7e0072d0ca7021f761ee58639e397c52af75c44fecd50afcc1983fad6": {
			Key: uuid.MustParse("00000000-0000-0000-0000-000000000001"), Source: "wallet", Route: "brl-pix", DebtorAccount: "田中",
			Amount:      money.Amount{Minor: math.MaxInt64, Currency: "BRL"},
			Beneficiary: Beneficiary{Name: "João", PixKey: "joao@example.com"},
			Reference:   "r",
		},
		"71a385e29a25b315c671c208f9db52e1a18aff38a9748a804829293c5036b52c": kuwait,
	} {
		if got := sumOf(j); got != want {
			t.Errorf("fingerprint of %v = %s, want %s", j, got, want)
		}
	}
}

func TestFingerprint_Versions(t *testing.T) {
	j := mustDecode(t, contractJob)
	if got := j.Fingerprint().Version; got != 1 {
		t.Errorf("version = %d, want 1", got)
	}
	if got, ok := j.FingerprintAs(1); !ok || got.Version != 1 || hex.EncodeToString(got.Sum[:]) != contractFingerprint {
		t.Errorf("FingerprintAs(1) = %v, %v", got, ok)
	}
	for _, version := range []int16{-1, 0, 2, math.MaxInt16} {
		if got, ok := j.FingerprintAs(version); ok {
			t.Errorf("FingerprintAs(%d) = %v, but nobody has defined it", version, got)
		}
	}
}

func TestB14_SpellingDoesNotMatter(t *testing.T) {
	for name, doc := range map[string]string{
		"members permuted": `{"metadata":{"ticket":"88104"},"not_after":"2026-12-24T00:00:00Z","reference":"Withdrawal 88104",` +
			`"beneficiary":{"iban":"GB33BUKB20201555555555","name":"A N Example"},"currency":"GBP","amount":"49.00",` +
			`"debtor_account":"cust-4471","key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","v":1}`,
		"white space":    strings.ReplaceAll(contractJob, `":`, "\"\t:\r\n ") + "\n\n",
		"escaped values": with("A N Example", `\u0041 N Ex\u0061mple`, "GB33BUKB", `\u0047B33BUKB`, "49.00", `\u00349.00`),
		"escaped names":  with(`"amount"`, `"\u0061\u006d\u006F\u0075nt"`, `"name"`, `"n\u0061me"`),
		"upper-case key": with("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11"),
		"another offset": with("2026-12-24T00:00:00Z", "2026-12-24T05:30:00.000+05:30"),
		"other metadata": with(`{"ticket":"88104"}`, `{"other":"1","more":"2"}`),
		"no metadata":    with(",\n \"metadata\":{\"ticket\":\"88104\"}", ""),
		"escaped space":  with("Withdrawal 88104", `Withdrawal\u002088104`),
	} {
		if got := sumOf(mustDecode(t, doc)); got != contractFingerprint {
			t.Errorf("%s: fingerprint %s, want that of the example", name, got)
		}
	}
}

func TestB14_CompositionOfFreeTextDoesNotMatter(t *testing.T) {
	for _, c := range [][2]string{{"Zoë", "Zoe\u0308"}, {"Å", "\u212b"}, {"한", "\u1112\u1161\u11ab"}, {"Zoë", `Zoe\u0308`}} {
		for _, place := range []string{"A N Example", "Withdrawal 88104", "cust-4471"} {
			a, b := mustDecode(t, with(place, c[0])), mustDecode(t, with(place, c[1]))
			if a.Fingerprint() != b.Fingerprint() {
				t.Errorf("%q and %q in place of %q differ", c[0], c[1], place)
			}
		}
	}
	for _, c := range [][2]string{{"ﬁ", "fi"}, {"①", "1"}, {"A", "a"}, {"A", "А"}} { // compatibility and look-alikes are no composition
		if mustDecode(t, with("A N Example", c[0])).Fingerprint() == mustDecode(t, with("A N Example", c[1])).Fingerprint() {
			t.Errorf("%q and %q are one", c[0], c[1])
		}
	}
}

// changes alter one member each of the example, so that it asks for something else.
func changes() map[string]string {
	return map[string]string{
		"B13 amount":       with("49.00", "94.00"),
		"amount by 1":      with("49.00", "49.01"),
		"currency":         with("GBP\",", "EUR\","),
		"B15 key":          with("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12"),
		"debtor account":   with("cust-4471", "cust-447"),
		"name":             with("A N Example", "A N Exampl"),
		"case of a name":   with("A N Example", "a N Example"),
		"iban":             with("GB33BUKB20201555555555", "GB29NWBK60161331926819"),
		"bic":              with(`555555"}`, `555555","bic":"BUKBGB22"}`),
		"bic of a branch":  with(`555555"}`, `555555","bic":"BUKBGB22XXX"}`),
		"another form":     paying(`{"name":"A N Example","sort_code":"202015","account_number":"55555555"}`),
		"sort code":        paying(`{"name":"A N Example","sort_code":"202016","account_number":"55555555"}`),
		"account number":   paying(`{"name":"A N Example","sort_code":"202015","account_number":"55555556"}`),
		"routing number":   paying(`{"name":"A N Example","routing_number":"021000021","account_number":"55555555"}`),
		"pix key":          pixTo("52998224725"),
		"another pix key":  pixTo("11222333000181"),
		"reference":        with("Withdrawal 88104", "Withdrawal 88105"),
		"no reference":     with(`"reference":"Withdrawal 88104",`, ""),
		"not after":        with("2026-12-24T00:00:00Z", "2026-12-24T00:00:00.000000001Z"),
		"no not after":     with(`"not_after":"2026-12-24T00:00:00Z",`, ""),
		"not before":       with(`"not_after"`, `"not_before":"2026-12-01T00:00:00Z","not_after"`),
		"before for after": with(`"not_after"`, `"not_before"`),
		"text moved":       with("cust-4471", "cust-4471A", "A N Example", "N Example"),
	}
}

func TestB13_B15_EveryMemberMatters(t *testing.T) {
	seen := map[string]string{contractFingerprint: "the example"}
	for name, doc := range changes() {
		sum := sumOf(mustDecode(t, doc))
		if other, ok := seen[sum]; ok {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[sum] = name
	}
}

func TestB16_SourceAndRouteMatter(t *testing.T) {
	seen := map[string]bool{contractFingerprint: true}
	for _, c := range [][2]string{{"payroll", "gbp-fps"}, {"wallet", "gbp-bacs"}, {"gbp-fps", "wallet"}, {"walle", "tgbp-fps"}} {
		j, err := Decode(c[0], c[1], []byte(contractJob))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sumOf(j); seen[sum] {
			t.Errorf("%v has the fingerprint of another", c)
		} else {
			seen[sum] = true
		}
	}
}
