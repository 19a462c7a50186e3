package file

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
)

const (
	goodHeader = "row_ref,debtor_account,amount,currency,name,iban,reference\n"
	goodRow    = ",cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,Withdrawal 1\n"
)

func plain() Options { return Options{Source: "finance", Route: "gbp-fps"} }

func mustCheck(t testing.TB, text string, format Format, opt Options, check CheckOptions) Report {
	t.Helper()
	report, err := Check(context.Background(), strings.NewReader(text), format, opt, check)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestCheckGoodCSV(t *testing.T) {
	report := mustCheck(t, goodHeader+goodRow+goodRow, FormatCSV, plain(), CheckOptions{})
	if !report.Good() || report.Rows != 2 || report.Sums[0].String() != "98.00 GBP" || report.DuplicateRows != 1 || report.Duplicates[0].Lines[1] != 3 {
		t.Fatalf("report %+v", report)
	}
}

// declared is a template with a header and a trailer.
func declared() Options {
	opt := plain()
	opt.Dialect = Dialect{Columns: []string{"debtor_account", "amount", "currency", "name", "iban"}, Trailer: "END"}
	return opt
}

// TestJ7_TheHeaderOfATemplateIsExact: swapped, unknown, missing and doubled columns are refused, each with its word.
func TestJ7_TheHeaderOfATemplateIsExact(t *testing.T) {
	row := "cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555\nEND,1,GBP,49.00\n"
	for header, want := range map[string]string{
		"debtor_account,amount,currency,name,iban":           "",
		"debtor_account,currency,amount,name,iban":           "1:columns_swapped",
		"name,amount,currency,debtor_account,iban":           "1:columns_swapped",
		"debtor_account,amount,currency,name,bic":            "1:column_unknown",
		"debtor_account,amount,currency,name,colour":         "1:column_unknown",
		"debtor_account,amount,currency,name":                "1:column_missing",
		"debtor_account,amount,currency,name,iban,iban":      "1:column_twice",
		"debtor_account,amount,currency,name,iban,reference": "1:column_unknown",
		"debtor_account,amount,currency,name, iban":          "1:column_unknown",
		"Debtor_account,amount,currency,name,iban":           "1:column_unknown",
		`"debtor_account","amount","currency","name","iban"`: "",
		`"debtor_account,amount,currency,name,iban`:          "1:quote_open",
	} {
		if report := mustCheck(t, header+"\n"+row, FormatCSV, declared(), CheckOptions{}); codes(report) != want || report.Complete != (want == "") {
			t.Errorf("%s: %q, want %q", header, codes(report), want)
		}
	}
}

func TestTrailer(t *testing.T) {
	head := "debtor_account,amount,currency,name,iban\ncust-1,49.00,GBP,A N Example,GB33BUKB20201555555555\n"
	for trailer, want := range map[string]string{
		"END,1,GBP,49.00":               "",
		"END,1,GBP,49.00,,,":            "",
		"END,1":                         "0:trailer_sums",
		"END,2,GBP,49.00":               "0:trailer_rows",
		"END,0,GBP,49.00":               "0:trailer_rows",
		"END,1,GBP,49.01":               "0:trailer_sums",
		"END,1,GBP,49.00,EUR,1.00":      "0:trailer_sums",
		"END,1,GBP,49.00,GBP,49.00":     "3:trailer_form",
		"END,1,GBP,49":                  "3:trailer_form",
		"END,1,GBP":                     "3:trailer_form",
		"END,-1":                        "3:trailer_form",
		"END":                           "3:trailer_form",
		"END,one,GBP,49.00":             "3:trailer_form",
		"END,1,GBP,49.00\n\n":           "",
		"END,1,GBP,49.00\nEND,1":        "4:after_trailer",
		"end,1,GBP,49.00":               "3:cells_missing 3:trailer_missing",
		"END,1,GBP,49.00\n" + head[:20]: "4:after_trailer",
	} {
		if report := mustCheck(t, head+trailer, FormatCSV, declared(), CheckOptions{}); codes(report) != want {
			t.Errorf("%q: %q, want %q", trailer, codes(report), want)
		}
	}
	bad := mustCheck(t, head+"cust-1,49,GBP,A N Example,GB33BUKB20201555555555\nEND,2,GBP,98.00\n", FormatCSV, declared(), CheckOptions{})
	if codes(bad) != "3:amount_digits" {
		t.Errorf("sums are compared though a row could not be read: %s", codes(bad))
	}
}

// TestH7_AmountsOfADialect: 1 or 0 spellings of one amount.
func TestH7_AmountsOfADialect(t *testing.T) {
	for _, c := range []struct {
		decimal, thousands byte
		text, want         string
	}{
		{'.', 0, "1234.50", "1234.50"}, {'.', 0, "1,234.50", "amount_mark"}, {'.', 0, "1 234.50", "amount_groups"}, {'.', 0, "1'234.50", "amount_groups"},
		{'.', 0, "1234,50", "amount_mark"}, {'.', 0, "1.234.50", "amount_form"}, {'.', 0, "01234.50", "amount_form"}, {'.', 0, "NaN", "amount_symbol"},
		{'.', 0, "0x10", "amount_symbol"}, {'.', 0, "1_000.00", "amount_form"}, {'.', 0, "1e2", "amount_symbol"}, {'.', 0, "(49.00)", "amount_sign"},
		{'.', ',', "1,234.50", "1234.50"}, {'.', ',', "1234.50", "1234.50"}, {'.', ',', "12,34.50", "amount_groups"}, {'.', ',', "1,234", "amount_digits"},
		{'.', ',', ",234.50", "amount_groups"}, {'.', ',', "1,234,567.50", "1234567.50"}, {'.', ',', "1234,567.50", "amount_groups"},
		{'.', ',', "1,2345.50", "amount_groups"}, {'.', ',', "0,234.50", "amount_form"},
		{',', 0, "1234,50", "1234.50"}, {',', 0, "1234.50", "amount_mark"}, {',', '.', "1.234,50", "1234.50"}, {',', '.', "1234.50", "amount_groups"},
		{',', ' ', "1 234,50", "1234.50"}, {',', '\'', "1'234,50", "1234.50"}, {',', '.', "1.234", "amount_digits"}, {',', '.', "", "missing"},
		{',', '.', "1,2,3", "amount_form"}, {'.', 0, "49.00 ", "amount_groups"}, {'.', 0, "١٢.٠٠", "amount_form"},
	} {
		opt := plain()
		opt.Dialect = Dialect{Delimiter: ';', Decimal: c.decimal, Thousands: c.thousands}
		got := ""
		report := mustCheck(t, "debtor_account;amount;currency;name;iban\ncust-1;"+c.text+";GBP;A N Example;GB33BUKB20201555555555\n", FormatCSV, opt,
			CheckOptions{Each: func(r *Row) error { got = r.Job.Amount.Decimal(); return nil }})
		if len(report.Faults) > 0 {
			got = report.Faults[0].Code
		}
		if got != c.want {
			t.Errorf("%q with %q and %q: %s, want %s", c.text, c.decimal, c.thousands, got, c.want)
		}
	}
}

// TestJ1_Encodings are told by their name.
func TestJ1_Encodings(t *testing.T) {
	latin, utf8 := "cust-1,49.00,GBP,Zo\xeb,GB33BUKB20201555555555,\n", "Zo\xc3\xab"
	for text, want := range map[string]string{
		goodHeader + "r," + latin:                                     "2:encoding_latin1",
		goodHeader + "r," + strings.Replace(latin, "cust-1", utf8, 1): "2:invalid_utf8",
		strings.Replace(goodHeader, "amount", "amo\xebnt", 1):         "1:encoding_latin1",
		"\x00\x00\xfe\xff" + goodHeader:                               "1:encoding_utf32",
		"\x1f\x8b" + goodHeader:                                       "1:compressed",
		"%PDF-1.7\n":                                                  "1:no_text",
		"\xd0\xcf\x11\xe0\n":                                          "1:workbook",
		"\ufeff":                                                      "1:header_missing",
	} {
		if report := mustCheck(t, text, FormatCSV, plain(), CheckOptions{}); codes(report) != want {
			t.Errorf("%q: %q, want %q", text, codes(report), want)
		}
	}
	report := mustCheck(t, goodLine+"\n"+strings.Replace(goodLine, "A N", "Zo\xeb", 1), FormatNDJSON, plain(), CheckOptions{})
	if codes(report) != "2:encoding_latin1" {
		t.Errorf("NDJSON: %s", codes(report))
	}
}

// manyRows is a file of n good rows, of about the size of real ones.
func manyRows(n int) []byte {
	var b bytes.Buffer
	b.WriteString(goodHeader)
	for i := range n {
		fmt.Fprintf(&b, "row-%07d,cust-%d,%d.%02d,GBP,A N Example %d,GB33BUKB20201555555555,Withdrawal %d of November\n", i, i%5000, 10+i%9000, i%100, i, i)
	}
	return b.Bytes()
}
