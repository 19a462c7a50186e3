package file

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/paidonce/paidonce/worker/job"
)

// payment is one row as a test means it.
type payment map[string]string

func drawPayment(t *rapid.T) payment {
	text := func(label string) string {
		return rapid.StringOfN(rapid.SampledFrom([]rune("abzAZ019éßñ你 =+-@\"',;&<>.()/")), 1, 30, -1).Filter(func(s string) bool {
			return strings.TrimSpace(s) == s && s != "" && !encodedTwice(s) && !isExponent(s) && !wholeFraction(s) && sheetCode(s) == ""
		}).Draw(t, label)
	}
	p := payment{"row_ref": text("row_ref"), "debtor_account": text("debtor_account"), "name": text("name")}
	if rapid.Bool().Draw(t, "has a reference") {
		p["reference"] = text("reference")
	}
	amount := rapid.SampledFrom([][2]string{{"49.00", "GBP"}, {"0.01", "EUR"}, {"500", "JPY"}, {"18.600", "KWD"}, {"1.2345", "CLF"}, {"92233720368547.07", "GBP"}}).Draw(t, "amount")
	p["amount"], p["currency"] = amount[0], amount[1]
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		p["iban"] = rapid.SampledFrom([]string{"GB33BUKB20201555555555", "DE89370400440532013000", "IT60X0542811101000000123456"}).Draw(t, "iban")
		p["bic"] = rapid.SampledFrom([]string{"", "BUKBGB22", "DEUTDEFF500"}).Draw(t, "bic")
	case 1:
		p["sort_code"], p["account_number"] = rapid.StringMatching(`[0-9]{6}`).Draw(t, "sort"), rapid.StringMatching(`[0-9]{8}`).Draw(t, "account")
	case 2:
		p["routing_number"], p["account_number"] = "021000021", rapid.StringMatching(`[0-9]{1,17}`).Draw(t, "account")
	default:
		p["pix_key"] = rapid.SampledFrom([]string{"52998224725", "+5561912345678", "a@example.com"}).Draw(t, "pix")
	}
	p["not_before"] = rapid.SampledFrom([]string{"", "2026-12-24T09:00:00Z", "2026-12-24T09:00:00.5+01:00"}).Draw(t, "not_before")
	p["not_after"] = rapid.SampledFrom([]string{"", "2027-01-01T00:00:00Z"}).Draw(t, "not_after")
	return p
}

func sheetCode(s string) string {
	code, _, _ := sheetError(s)
	return code
}

// asCSV writes payments with the library's writer, in a random dialect.
func asCSV(t *rapid.T, list []payment) (string, Dialect) {
	d := Dialect{Delimiter: rapid.SampledFrom([]byte(",;|\t")).Draw(t, "delimiter"), Decimal: rapid.SampledFrom([]byte(".,")).Draw(t, "decimal")}
	var b strings.Builder
	if rapid.Bool().Draw(t, "mark") {
		b.WriteString("\ufeff")
	}
	w := csv.NewWriter(&b)
	w.Comma, w.UseCRLF = rune(d.Delimiter), rapid.Bool().Draw(t, "CRLF")
	_ = w.Write(Columns())
	for _, p := range list {
		var cells []string
		for _, name := range Columns() {
			cell := p[name]
			if name == "amount" {
				cell = strings.Replace(cell, ".", string(d.Decimal), 1)
			}
			cells = append(cells, cell)
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return b.String(), d
}

// asNDJSON writes them with the library's encoder.
func asNDJSON(list []payment) string {
	var b strings.Builder
	for _, p := range list {
		object, beneficiary := map[string]any{}, map[string]string{}
		for name, value := range p {
			switch {
			case value == "":
			case slices.Contains([]string{"name", "iban", "bic", "sort_code", "account_number", "routing_number", "pix_key"}, name):
				beneficiary[name] = value
			default:
				object[name] = value
			}
		}
		object["beneficiary"] = beneficiary
		line, _ := json.Marshal(object)
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// TestWhatCheckAcceptsIsReadRowForRow, as it was meant, and survives the queue.
func TestWhatCheckAcceptsIsReadRowForRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(drawPayment), 1, 6).Draw(t, "payments")
		refs := map[string]bool{}
		for _, p := range list { // one that stands twice is refused
			if refs[p["row_ref"]] {
				p["row_ref"] = ""
			}
			refs[p["row_ref"]] = true
		}
		text, dialect := asCSV(t, list)
		opt := plain()
		opt.Dialect = dialect
		first := checkRows(t, text, FormatCSV, opt, list)
		shuffled := rapid.Permutation(list).Draw(t, "shuffled")
		second := checkRows(t, asNDJSON(shuffled), FormatNDJSON, opt, shuffled)
		if first.ContentDigest != second.ContentDigest || fmt.Sprint(first.Sums) != fmt.Sprint(second.Sums) || first.DuplicateRows != second.DuplicateRows {
			t.Fatal("the same payments as CSV and NDJSON are not the same content")
		}
	})
}

func checkRows(t *rapid.T, text string, format Format, opt Options, list []payment) Report {
	report, err := Check(t.Context(), strings.NewReader(text), format, opt, CheckOptions{})
	if err != nil || !report.Good() || report.Rows != len(list) {
		t.Fatalf("%v, %d rows, %s\n%s", err, report.Rows, codes(report), text)
	}
	r, err := Open(strings.NewReader(text), format, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range list {
		row, err := r.Next()
		if err != nil || row.N != i+1 {
			t.Fatalf("row %d: %v, N %d", i+1, err, row.N)
		}
		b := row.Job.Beneficiary
		got := payment{"row_ref": row.RowRef, "debtor_account": row.Job.DebtorAccount.Reveal(), "name": b.Name.Reveal(), "amount": row.Job.Amount.Decimal(),
			"currency": row.Job.Amount.Currency, "iban": b.IBAN.Reveal(), "bic": b.BIC.Reveal(), "sort_code": b.SortCode.Reveal(),
			"account_number": b.AccountNumber.Reveal(), "routing_number": b.RoutingNumber.Reveal(), "pix_key": b.PixKey.Reveal(), "reference": row.Job.Reference.Reveal()}
		for name, value := range got {
			if p[name] != value {
				t.Fatalf("row %d: %s is %q, want %q", i+1, name, value, p[name])
			}
		}
		survives(t, &row)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("behind the last row: %v", err)
	}
	return report
}

// survives encodes the job of a row under a key, and decodes it again.
func survives(t interface{ Fatalf(string, ...any) }, row *Row) {
	j := row.Job
	j.Key = job.NewKey()
	payload, err := job.Encode(j)
	if err != nil {
		t.Fatalf("row %d: encode: %v", row.N, err)
	}
	back, err := job.Decode(j.Source, j.Route, payload)
	if err != nil || back.Fingerprint() != j.Fingerprint() {
		t.Fatalf("row %d: another job, %v", row.N, err)
	}
}
