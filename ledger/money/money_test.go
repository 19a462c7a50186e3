package money

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/bojanz/currency"
	"pgregory.net/rapid"
)

// iso4217 is the active list of ISO 4217 by number of minor digits, written down by hand from the standard's table A.1 and
// not from the package that is tested. A release of that package which changes a currency fails here, and somebody decides.
func iso4217() map[string]int {
	list := map[int]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW " +
			"CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS " +
			"INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN " +
			"NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC " +
			"SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG",
		3: "BHD IQD JOD KWD LYD OMR TND",
		4: "CLF UYW",
	}
	digits := make(map[string]int)
	for n, codes := range list {
		for code := range strings.FieldsSeq(codes) {
			digits[code] = n
		}
	}
	return digits
}

func TestI2_DigitsOfEveryActiveCurrency(t *testing.T) {
	want := iso4217()
	for code, digits := range want {
		if got, ok := Digits(code); !ok || got != digits {
			t.Errorf("Digits(%s) = %d, %v, want %d", code, got, ok, digits)
		}
	}
	known := currency.GetCurrencyCodes()
	for _, code := range known {
		if _, ok := want[code]; !ok {
			t.Errorf("%s is known, but is not in the list of this test", code)
		}
	}
	if len(known) != len(want) {
		t.Errorf("%d currencies are known, want %d", len(known), len(want))
	}
}

func TestI2_UnknownCodesRefused(t *testing.T) {
	for _, code := range []string{
		"", "XXX", "XTS", "XAU", "XAG", "XPT", "XPD", "XDR", "XBA", "XBB", "XBC", "XBD", "XSU", "XUA",
		"gbp", "Gbp", "GB", "GBPX", " GBP", "GBP ", "BTC", "HRK", "DEM", "826", "£", "ＧＢＰ",
	} {
		if _, ok := Digits(code); ok {
			t.Errorf("Digits(%q) is known", code)
		}
		for _, decimal := range []string{"1", "1.0", "1.00", "1.000"} {
			if _, err := Parse(decimal, code); !errors.Is(err, ErrCurrency) {
				t.Errorf("Parse(%s, %q) = %v, want ErrCurrency", decimal, code, err)
			}
		}
	}
}

func TestI1_I2_ParseByHandWrittenConstants(t *testing.T) {
	for _, c := range []struct {
		decimal, currency string
		minor             int64
	}{
		{"500", "JPY", 500},
		{"1", "JPY", 1},
		{"49.00", "GBP", 4900},
		{"0.01", "GBP", 1},
		{"0.10", "GBP", 10},
		{"250000.00", "GBP", 25000000},
		{"18.600", "KWD", 18600},
		{"0.001", "KWD", 1},
		{"18.600", "BHD", 18600},
		{"18.600", "JOD", 18600},
		{"18.600", "OMR", 18600},
		{"18.600", "TND", 18600},
		{"1.2345", "CLF", 12345},
		{"0.0001", "CLF", 1},
		{"9007199254740993", "JPY", 9007199254740993}, // H3: no float can tell it from ...992
		{"9007199254740992", "JPY", 9007199254740992},
		{"9223372036854775807", "JPY", 9223372036854775807},
		{"92233720368547758.07", "GBP", 9223372036854775807},
	} {
		got, err := Parse(c.decimal, c.currency)
		if err != nil || got != (Amount{Minor: c.minor, Currency: c.currency}) {
			t.Errorf("Parse(%s, %s) = %d %s, %v, want %d", c.decimal, c.currency, got.Minor, got.Currency, err, c.minor)
		}
		if text := (Amount{Minor: c.minor, Currency: c.currency}).Decimal(); text != c.decimal {
			t.Errorf("Decimal of %d %s = %s, want %s", c.minor, c.currency, text, c.decimal)
		}
	}
}

func TestH7_I3_I5_I6_ParseRefuses(t *testing.T) {
	for _, c := range []struct {
		decimal, currency string
		want              error
	}{
		{"1.0", "GBP", ErrDigits}, // H7: of its nine spellings only 1.00 is a GBP amount
		{"01.00", "GBP", ErrForm},
		{"1", "GBP", ErrDigits},
		{"+1.00", "GBP", ErrForm},
		{"1e2", "GBP", ErrForm},
		{"1_000", "GBP", ErrForm},
		{"0x10", "GBP", ErrForm},
		{"NaN", "GBP", ErrForm},
		{"1.001", "GBP", ErrDigits}, // I3: never rounded, not even when nothing would be lost
		{"1.000", "GBP", ErrDigits},
		{"18.60", "KWD", ErrDigits},
		{"18.6000", "KWD", ErrDigits},
		{"500.00", "JPY", ErrDigits},
		{"500.0", "JPY", ErrDigits},
		{"0.00", "GBP", ErrZero}, // I5
		{"0", "JPY", ErrZero},
		{"0.0000", "CLF", ErrZero},
		{"-0.00", "GBP", ErrForm},
		{"-1.00", "GBP", ErrForm},
		{"-0", "JPY", ErrForm},
		{"-1", "JPY", ErrForm},
		{"", "GBP", ErrForm},
		{"", "JPY", ErrForm},
		{"null", "GBP", ErrForm},
		{"9223372036854775808", "JPY", ErrOverflow}, // I6
		{"92233720368547758.08", "GBP", ErrOverflow},
		{"99999999999999999999999999.00", "GBP", ErrOverflow},
		{"00", "JPY", ErrForm},
		{"00.01", "GBP", ErrForm},
		{".50", "GBP", ErrForm},
		{"1.", "JPY", ErrForm},
		{"1.", "GBP", ErrForm},
		{".", "GBP", ErrForm},
		{"1.0.0", "GBP", ErrForm},
		{"1..00", "GBP", ErrForm},
		{"1,00", "GBP", ErrForm},
		{"1,000.00", "GBP", ErrForm},
		{"1 000.00", "GBP", ErrForm},
		{" 1.00", "GBP", ErrForm},
		{"1.00 ", "GBP", ErrForm},
		{"1.00\n", "GBP", ErrForm},
		{"1.00\x00", "GBP", ErrForm},
		{"1e2.00", "GBP", ErrForm},
		{"Inf", "JPY", ErrForm},
		{"０.01", "GBP", ErrForm},
		{"١.00", "GBP", ErrForm},
		{"£1.00", "GBP", ErrForm},
	} {
		got, err := Parse(c.decimal, c.currency)
		if err != c.want || got != (Amount{}) {
			t.Errorf("Parse(%q, %s) = %v, %v, want %v", c.decimal, c.currency, got, err, c.want)
		}
	}
}

func TestString(t *testing.T) {
	for want, a := range map[string]Amount{
		"49.00 GBP":                 {4900, "GBP"},
		"-49.00 GBP":                {-4900, "GBP"}, // an entry of the journal
		"-0.05 GBP":                 {-5, "GBP"},
		"0.00 GBP":                  {0, "GBP"},
		"-5 JPY":                    {-5, "JPY"},
		"-92233720368547758.08 EUR": {math.MinInt64, "EUR"},
		"4900? XXX":                 {4900, "XXX"},
		"0? ":                       {},
	} {
		if got := a.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestI6_AddIsChecked(t *testing.T) {
	for _, c := range []struct {
		a, b, want int64
		err        error
	}{
		{1, 2, 3, nil},
		{-5, 5, 0, nil},
		{math.MaxInt64 - 1, 1, math.MaxInt64, nil},
		{math.MaxInt64, 1, 0, ErrOverflow},
		{1, math.MaxInt64, 0, ErrOverflow},
		{math.MaxInt64, math.MaxInt64, 0, ErrOverflow},
		{math.MinInt64 + 1, -1, math.MinInt64, nil},
		{math.MinInt64, -1, 0, ErrOverflow},
		{-1, math.MinInt64, 0, ErrOverflow},
		{math.MinInt64, math.MaxInt64, -1, nil},
	} {
		got, err := Amount{c.a, "GBP"}.Add(Amount{c.b, "GBP"})
		if err != c.err || got.Minor != c.want {
			t.Errorf("%d + %d = %d, %v, want %d, %v", c.a, c.b, got.Minor, err, c.want, c.err)
		}
	}
	if _, err := (Amount{1, "GBP"}).Add(Amount{1, "EUR"}); err != ErrCurrency {
		t.Errorf("GBP + EUR: %v, want ErrCurrency", err)
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b int64
		want int
	}{{1, 2, -1}, {2, 2, 0}, {3, 2, 1}, {math.MinInt64, math.MaxInt64, -1}} {
		if got, err := (Amount{c.a, "GBP"}).Compare(Amount{c.b, "GBP"}); err != nil || got != c.want {
			t.Errorf("Compare(%d, %d) = %d, %v, want %d", c.a, c.b, got, err, c.want)
		}
	}
	if _, err := (Amount{1, "GBP"}).Compare(Amount{1, "EUR"}); err != ErrCurrency {
		t.Errorf("GBP with EUR: %v, want ErrCurrency", err)
	}
}

func TestPropertyOneSpellingPerAmount(t *testing.T) {
	codes := slices.Sorted(maps.Keys(iso4217()))
	rapid.Check(t, func(t *rapid.T) {
		want := Amount{
			Minor:    rapid.Int64Range(1, math.MaxInt64).Draw(t, "minor"),
			Currency: rapid.SampledFrom(codes).Draw(t, "currency"),
		}
		text := want.Decimal()
		if got, err := Parse(text, want.Currency); err != nil || got != want {
			t.Fatalf("Parse(%s, %s) = %v, %v, want %d", text, want.Currency, got, err, want.Minor)
		}
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		extra := rapid.SampledFrom([]string{"0", ".", "-", "+", " ", "e", "_", ",", "\x00"}).Draw(t, "extra")
		other := text[:at] + extra + text[at:]
		if got, err := Parse(other, want.Currency); err == nil && got == want {
			t.Fatalf("%q and %q are the same amount of %s", text, other, want.Currency)
		}
	})
}

func FuzzParseAmount(f *testing.F) {
	f.Add("49.00", "GBP")
	f.Add("500", "JPY")
	f.Add("18.600", "KWD")
	f.Fuzz(func(t *testing.T, decimal, code string) {
		a, err := Parse(decimal, code)
		if err != nil {
			if a != (Amount{}) {
				t.Fatalf("an amount came with an error")
			}
			return
		}
		if a.Minor <= 0 || a.Currency != code || a.Decimal() != decimal {
			t.Fatalf("Parse(%q, %q) = %d %s, which is written %q", decimal, code, a.Minor, a.Currency, a.Decimal())
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("250000.00", "GBP"); err != nil {
			b.Fatal(err)
		}
	}
}
