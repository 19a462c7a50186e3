package reference_test

import (
	"testing"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

const id = "5EZRQNYVMEDZKKD7I4C4N5H23U"

func render(t *testing.T, x bankclient.Transfer) string {
	t.Helper()
	body, err := reference.New().Render(1, bankclient.Rendering{EndToEndID: id, Transfer: x})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The exact bytes of renderer 1, written by hand. If this test fails, the change needs a renderer 2: operations in doubt are
// sent again with the bytes that were sent first.
func TestB5_BytesOfRenderer1(t *testing.T) {
	full := bankclient.Beneficiary{
		Name: "N", IBAN: "I", BIC: "B", SortCode: "S", AccountNumber: "A", RoutingNumber: "R", PixKey: "P",
	}
	for _, row := range []struct {
		name     string
		transfer bankclient.Transfer
		want     string
	}{
		{
			"GBP by IBAN",
			bankclient.Transfer{Amount: "49.00", AmountMinor: 4900, Currency: "GBP", Reference: "Withdrawal 88104",
				Beneficiary: bankclient.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"}},
			`{"amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},` +
				`"reference":"Withdrawal 88104","end_to_end_id":"5EZRQNYVMEDZKKD7I4C4N5H23U"}`,
		},
		{
			"every member",
			bankclient.Transfer{Amount: "1", AmountMinor: 1, Currency: "JPY", Beneficiary: full},
			`{"amount":"1","currency":"JPY","beneficiary":{"name":"N","iban":"I","bic":"B","sort_code":"S","account_number":"A",` +
				`"routing_number":"R","pix_key":"P"},"reference":"","end_to_end_id":"5EZRQNYVMEDZKKD7I4C4N5H23U"}`,
		},
		{
			"text that needs escapes",
			bankclient.Transfer{Amount: "1.00", AmountMinor: 100, Currency: "EUR", Reference: "a\"b\\c\n\u2028é",
				Beneficiary: bankclient.Beneficiary{Name: "Zoë \U0001f600"}},
			`{"amount":"1.00","currency":"EUR","beneficiary":{"name":"Zoë ` + "\U0001f600" + `"},"reference":"a\"b\\c\n` + "\u2028é" +
				`","end_to_end_id":"5EZRQNYVMEDZKKD7I4C4N5H23U"}`,
		},
	} {
		for range 3 {
			if got := render(t, row.transfer); got != row.want {
				t.Errorf("%s:\ngot  %s\nwant %s", row.name, got, row.want)
			}
		}
	}
}

func TestH5_AmpersandReachesTheBank(t *testing.T) {
	const want = `{"amount":"1.00","currency":"GBP","beneficiary":{"name":"A & B <C>","sort_code":"200000","account_number":"55779911"},` +
		`"reference":"<&>","end_to_end_id":"5EZRQNYVMEDZKKD7I4C4N5H23U"}`
	got := render(t, bankclient.Transfer{Amount: "1.00", AmountMinor: 100, Currency: "GBP", Reference: "<&>",
		Beneficiary: bankclient.Beneficiary{Name: "A & B <C>", SortCode: "200000", AccountNumber: "55779911"}})
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// I1, I2, I6: what is on the wire for currencies of zero, two, three and four digits, and at the edge of int64.
func TestI1_AmountsOnTheWire(t *testing.T) {
	for _, row := range []struct {
		amount, currency string
		minor            int64
		want             string
	}{
		{"500", "JPY", 500, `{"amount":"500","currency":"JPY",`},
		{"49.00", "GBP", 4900, `{"amount":"49.00","currency":"GBP",`},
		{"0.01", "GBP", 1, `{"amount":"0.01","currency":"GBP",`},
		{"18.600", "KWD", 18600, `{"amount":"18.600","currency":"KWD",`},
		{"18.600", "BHD", 18600, `{"amount":"18.600","currency":"BHD",`},
		{"18.600", "JOD", 18600, `{"amount":"18.600","currency":"JOD",`},
		{"18.600", "OMR", 18600, `{"amount":"18.600","currency":"OMR",`},
		{"18.600", "TND", 18600, `{"amount":"18.600","currency":"TND",`},
		{"1.2345", "CLF", 12345, `{"amount":"1.2345","currency":"CLF",`},
		{"92233720368547758.07", "GBP", 9223372036854775807, `{"amount":"92233720368547758.07","currency":"GBP",`},
	} {
		got := render(t, bankclient.Transfer{Amount: row.amount, AmountMinor: row.minor, Currency: row.currency,
			Beneficiary: bankclient.Beneficiary{Name: "N", IBAN: "I"}})
		if got[:len(row.want)] != row.want {
			t.Errorf("got %s, want %s", got, row.want)
		}
	}
}

// I3: an amount whose digits and minor units disagree is never rendered.
func TestI3_AmountAndMinorUnitsMustAgree(t *testing.T) {
	for _, x := range []bankclient.Transfer{
		{Amount: "500", AmountMinor: 50000, Currency: "JPY"},
		{Amount: "49.0", AmountMinor: 4900, Currency: "GBP"},
		{Amount: "-49.00", AmountMinor: 4900, Currency: "GBP"},
		{Amount: "49.00 ", AmountMinor: 4900, Currency: "GBP"},
		{Amount: "4.9.00", AmountMinor: 4900, Currency: "GBP"},
		{Amount: ".4900", AmountMinor: 4900, Currency: "GBP"},
		{Amount: "4900.", AmountMinor: 4900, Currency: "GBP"},
		{Amount: "4.9e3", AmountMinor: 4900, Currency: "GBP"},
		{Amount: "0.00", AmountMinor: 0, Currency: "GBP"},
		{Amount: "92233720368547758.08", AmountMinor: -9223372036854775808, Currency: "GBP"},
		{Amount: "184467440737095516.17", AmountMinor: 1, Currency: "GBP"},
	} {
		x.Beneficiary.Name = "N"
		if _, err := reference.New().Render(1, bankclient.Rendering{EndToEndID: id, Transfer: x}); err == nil {
			t.Errorf("amount %q with %d minor units was rendered", x.Amount, x.AmountMinor)
		}
	}
}

func TestReadTellsTransferFromError(t *testing.T) {
	read := func(body string) bankclient.Reading {
		return reference.New().Read(bankclient.Response{Body: []byte(body)})
	}
	for body, want := range map[string][2]bool{ // transfer, error
		`{"id":"tr_1"}`:                       {true, false},
		`{"status":"accepted"}`:               {true, false},
		`{"error":{"code":"x"}}`:              {false, true},
		`{"error":{"code":"x"},"id":"tr_1"}`:  {false, false},
		`{"error":{"code":"x","code":"y"}}`:   {false, false},
		`{"error":{"code":7}}`:                {false, false},
		`{"error":null}`:                      {false, false},
		`{"error":"x"}`:                       {false, false},
		`{}`:                                  {false, false},
		`{"ID":"tr_1"}`:                       {false, false},
		`{"error":{"code":"x"}} {"id":"tr1"}`: {false, false},
	} {
		got := read(body)
		if got.HasTransfer != want[0] || got.HasError != want[1] {
			t.Errorf("%s: transfer %t, error %t", body, got.HasTransfer, got.HasError)
		}
	}
}
