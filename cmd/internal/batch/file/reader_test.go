package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/paidonce/paidonce/ledger/money"
)

// codes are the codes of all faults, with their lines.
func codes(r Report) string {
	var list []string
	for _, f := range r.Faults {
		list = append(list, fmt.Sprintf("%d:%s", f.Line, f.Code))
	}
	return strings.Join(list, " ")
}

const goodLine = `{"debtor_account":"cust-1","amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`

// TestJ4_ALongLineIsAnErrorWithItsLine, and the rows behind it are read.
func TestJ4_ALongLineIsAnErrorWithItsLine(t *testing.T) {
	for name, long := range map[string]string{
		"70 kB":                   strings.Repeat("x", 70<<10),
		"longer than the buffer":  strings.Repeat("x", 3<<20),
		"exactly one byte more":   goodLine + strings.Repeat(" ", maxLine+1-len(goodLine)),
		"one more, and CRLF":      goodLine + strings.Repeat(" ", maxLine+1-len(goodLine)) + "\r",
		"70 kB inside of a quote": `{"row_ref":"` + strings.Repeat("x", 70<<10) + `"}`,
	} {
		report := mustCheck(t, goodLine+"\n"+long+"\n"+goodLine+"\n", FormatNDJSON, plain(), CheckOptions{})
		if !report.Complete || report.Rows != 3 || report.Bad != 1 || codes(report) != "2:too_large" {
			t.Errorf("%s: %s, %d rows", name, codes(report), report.Rows)
		}
	}
	report := mustCheck(t, goodLine+"\n"+strings.Repeat("x", 70<<10), FormatNDJSON, plain(), CheckOptions{})
	if !report.Complete || codes(report) != "2:too_large" {
		t.Errorf("at the end: %s", codes(report))
	}
	limit := goodLine + strings.Repeat(" ", maxLine-len(goodLine))
	if report := mustCheck(t, limit+"\r\n"+limit, FormatNDJSON, plain(), CheckOptions{}); !report.Good() || report.Rows != 2 {
		t.Errorf("exactly the limit: %s", codes(report))
	}
	cells := strings.TrimSuffix(goodRow, "\n")
	for length, want := range map[int]string{maxLine: "2:text_too_long", maxLine + 1: "2:too_large"} {
		if report := mustCheck(t, goodHeader+cells+strings.Repeat("x", length-len(cells))+"\n", FormatCSV, plain(), CheckOptions{}); codes(report) != want {
			t.Errorf("CSV of %d: %s, want %s", length, codes(report), want)
		}
	}
	report = mustCheck(t, goodHeader+goodRow+"r2,"+strings.Repeat("x", 70<<10)+"\n"+goodRow, FormatCSV, plain(), CheckOptions{})
	if !report.Complete || report.Rows != 3 || codes(report) != "3:too_large" {
		t.Errorf("CSV: %s", codes(report))
	}
}

// TestHowAFileArrivesDoesNotMatter: byte by byte, or all at once with the end of file.
func TestHowAFileArrivesDoesNotMatter(t *testing.T) {
	for _, name := range append(sampleNames(t, "good"), sampleNames(t, "bad")...) {
		opt, check := optionsOf(name)
		text := readSample(t, name)
		want := reportText(t, bytes.NewReader(text), name, opt, check)
		for how, r := range map[string]io.Reader{"byte by byte": iotest.OneByteReader(bytes.NewReader(text)), "with its end": iotest.DataErrReader(bytes.NewReader(text))} {
			if got := reportText(t, r, name, opt, check); got != want {
				t.Errorf("%s %s:\n%s\nwant\n%s", name, how, got, want)
			}
		}
	}
}

func reportText(t *testing.T, r io.Reader, name string, opt Options, check CheckOptions) string {
	t.Helper()
	report, err := Check(context.Background(), r, formatOf(name), opt, check)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestAFileThatCannotBeReadIsNoShortFile: an error of the reader is never taken for the end.
func TestAFileThatCannotBeReadIsNoShortFile(t *testing.T) {
	broken := errors.New("the disk is broken")
	for _, name := range sampleNames(t, "good") {
		opt, check := optionsOf(name)
		text := readSample(t, name)
		for _, cut := range []int{0, 1, len(text) / 2, len(text) - 1, len(text)} {
			r := io.MultiReader(bytes.NewReader(text[:cut]), iotest.ErrReader(broken))
			if report, err := Check(context.Background(), r, formatOf(name), opt, check); !errors.Is(err, broken) {
				t.Errorf("%s cut at %d: err %v, report %v", name, cut, err, codes(report))
			}
			reader, err := Open(io.MultiReader(bytes.NewReader(text[:cut]), iotest.ErrReader(broken)), formatOf(name), opt)
			for err == nil || errors.As(err, new(*Fault)) {
				_, err = reader.Next()
			}
			if _, again := reader.Next(); !errors.Is(err, broken) || !errors.Is(again, broken) {
				t.Errorf("%s cut at %d: Next gives %v, then %v", name, cut, err, again)
			}
		}
	}
}

// TestNextAfterTheEnd gives the same answer again, and never an end of file behind a fault that ended the reading.
func TestNextAfterTheEnd(t *testing.T) {
	r, err := Open(strings.NewReader(goodHeader+"r1"+goodRow), FormatCSV, plain())
	if err != nil {
		t.Fatal(err)
	}
	if row, err := r.Next(); err != nil || row.N != 1 || row.Line != 2 || row.RowRef != "r1" || row.Job.Reference.Reveal() != "Withdrawal 1" {
		t.Fatalf("first row %+v, %v", row, err)
	}
	for range 2 {
		if _, err := r.Next(); err != io.EOF { //nolint:errorlint // exactly this
			t.Fatalf("err %v, want the end", err)
		}
	}
	r, err = Open(strings.NewReader("nothing known\n"+goodRow), FormatCSV, plain())
	if err != nil {
		t.Fatal(err)
	}
	var fault *Fault
	if _, err := r.Next(); !errors.As(err, &fault) || !fault.End || fault.Row != 0 {
		t.Fatalf("err %v, want a fault that ends the reading", err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, ErrEnded) {
			t.Fatalf("err %v, want ErrEnded", err)
		}
	}
}

func TestI6_ExpectedTotals(t *testing.T) {
	two := goodHeader + goodRow + strings.Replace(goodRow, "49.00,GBP", "500,JPY", 1)
	gbp, jpy := money.Amount{Minor: 4900, Currency: "GBP"}, money.Amount{Minor: 500, Currency: "JPY"}
	for name, c := range map[string]struct {
		check CheckOptions
		want  string
	}{
		"both":                    {CheckOptions{ExpectRows: 2, ExpectSums: []money.Amount{jpy, gbp}}, ""},
		"rows":                    {CheckOptions{ExpectRows: 3}, "0:expected_rows"},
		"a sum":                   {CheckOptions{ExpectSums: []money.Amount{{Minor: 4901, Currency: "GBP"}, jpy}}, "0:expected_sums"},
		"a currency is missing":   {CheckOptions{ExpectSums: []money.Amount{gbp}}, "0:expected_sums"},
		"a currency too much":     {CheckOptions{ExpectSums: []money.Amount{gbp, jpy, {Minor: 1, Currency: "EUR"}}}, "0:expected_sums"},
		"a currency stands twice": {CheckOptions{ExpectSums: []money.Amount{gbp, gbp}}, "0:expected_sums"},
	} {
		if report := mustCheck(t, two, FormatCSV, plain(), c.check); codes(report) != c.want {
			t.Errorf("%s: %q, want %q", name, codes(report), c.want)
		}
	}
}

// TestI6_ASumThatDoesNotFit is a fault once, and is compared with nothing.
func TestI6_ASumThatDoesNotFit(t *testing.T) {
	text := goodHeader + strings.Repeat(strings.Replace(goodRow, "49.00", "92233720368547758.07", 1), 3)
	report := mustCheck(t, text, FormatCSV, plain(), CheckOptions{ExpectRows: 3, ExpectSums: []money.Amount{{Minor: 1, Currency: "GBP"}}})
	if codes(report) != "3:sum_range" || len(report.Sums) != 0 || report.Bad != 0 || report.Rows != 3 {
		t.Errorf("%s, sums %v, %d bad", codes(report), report.Sums, report.Bad)
	}
}

func TestPolicyOfTheRoute(t *testing.T) {
	opt := plain()
	asked := 0
	opt.Routes = func(route string) (Policy, bool) {
		asked++
		return Policy{Currencies: []string{"GBP"}, MaxMinor: map[string]int64{"GBP": 5000}}, route == "gbp-fps"
	}
	text := "route,debtor_account,amount,currency,name,iban\n" +
		",cust-1,50.00,GBP,A N Example,GB33BUKB20201555555555\n" +
		"gbp-fps,cust-1,50.01,GBP,A N Example,GB33BUKB20201555555555\n" +
		",cust-1,50.00,EUR,A N Example,GB33BUKB20201555555555\n" +
		"eur-sct,cust-1,50.00,GBP,A N Example,GB33BUKB20201555555555\n"
	report := mustCheck(t, text, FormatCSV, opt, CheckOptions{})
	if codes(report) != "3:route_limit 4:route_currency 5:unknown_route" || asked != 2 || report.Bad != 3 || report.Faults[0].Row != 2 {
		t.Errorf("%s, asked %d times", codes(report), asked)
	}
	opt.Route = ""
	if report := mustCheck(t, text, FormatCSV, opt, CheckOptions{}); !strings.Contains(codes(report), "2:missing") {
		t.Errorf("no route: %s", codes(report))
	}
}

// TestNotBeforeOfTheRun moves rows back and never forward, and changes nothing of what the file is.
func TestNotBeforeOfTheRun(t *testing.T) {
	text := "debtor_account,amount,currency,name,iban,not_before,not_after\n" +
		"cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,,\n" +
		"cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,2026-12-20,\n" +
		"cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,2026-12-28,\n" +
		"cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,,2026-12-23\n"
	opt := plain()
	opt.NotBefore = time.Date(2026, 12, 24, 9, 0, 0, 0, time.UTC)
	var begins []string
	report := mustCheck(t, text, FormatCSV, opt, CheckOptions{Each: func(row *Row) error {
		begins = append(begins, row.Job.NotBefore.Format(time.RFC3339))
		return nil
	}})
	want := "2026-12-24T09:00:00Z 2026-12-24T09:00:00Z 2026-12-28T00:00:00Z"
	if got := strings.Join(begins, " "); got != want || codes(report) != "5:window_empty" {
		t.Errorf("begins %s, want %s; faults %s", got, want, codes(report))
	}
	text = text[:strings.LastIndex(text[:len(text)-1], "\n")+1]
	with, without := mustCheck(t, text, FormatCSV, opt, CheckOptions{}), mustCheck(t, text, FormatCSV, plain(), CheckOptions{})
	if !with.Good() || with.ContentDigest != without.ContentDigest {
		t.Error("the begin of the run changes the content of the file")
	}
}

// TestDatesWithoutATime begin and end where the options say.
func TestDatesWithoutATime(t *testing.T) {
	opt := plain()
	opt.Location = time.FixedZone("CET", 3600)
	text := "debtor_account,amount,currency,name,iban,not_before,not_after\ncust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,2026-12-24,2026-12-24\n"
	report := mustCheck(t, text, FormatCSV, opt, CheckOptions{Each: func(row *Row) error {
		if from, until := row.Job.NotBefore.Format(time.RFC3339), row.Job.NotAfter.Format(time.RFC3339); from != "2026-12-23T23:00:00Z" || until != "2026-12-24T23:00:00Z" {
			t.Errorf("from %s until %s", from, until)
		}
		return nil
	}})
	if !report.Good() {
		t.Error(codes(report))
	}
}

func TestCharsetOfSEPA(t *testing.T) {
	opt := plain()
	opt.Charset = CharsetSEPA
	text := goodHeader + goodRow + strings.Replace(goodRow, "A N Example", "Zoë", 1) + strings.Replace(goodRow, "Withdrawal 1", "a & b", 1) +
		strings.Replace(goodRow, "Withdrawal 1", "aZ0/-?:().'+ x", 1)
	if report := mustCheck(t, text, FormatCSV, opt, CheckOptions{}); codes(report) != "3:charset 4:charset" {
		t.Error(codes(report))
	}
}

// TestFaultsAreCountedBehindTheLimit.
func TestFaultsAreCountedBehindTheLimit(t *testing.T) {
	text := goodHeader + strings.Repeat(strings.Replace(goodRow, "49.00", "49", 1), 7) + strings.Repeat(strings.Replace(goodRow, "GBP", "gbp", 1), 2)
	report := mustCheck(t, text, FormatCSV, plain(), CheckOptions{MaxFaults: 3})
	if len(report.Faults) != 3 || report.FaultCount != 9 || report.Bad != 9 || report.FaultsByCode["amount_digits"] != 7 || report.FaultsByCode["currency_form"] != 2 {
		t.Errorf("%+v", report)
	}
	var out strings.Builder
	if err := report.WriteText(&out); err != nil || !strings.Contains(out.String(), "and 6 more; all by code:\n         7  amount_digits\n         2  currency_form\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestCheckEndsWithItsContextAndItsCaller(t *testing.T) {
	why := errors.New("the caller has had enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Check(ctx, bytes.NewReader(manyRows(2*rowsPerLook)), FormatCSV, plain(), CheckOptions{}); !errors.Is(err, why) {
		t.Errorf("err %v", err)
	}
	n := 0
	_, err := Check(context.Background(), bytes.NewReader(manyRows(10)), FormatCSV, plain(), CheckOptions{Each: func(*Row) error {
		if n++; n == 3 {
			return why
		}
		return nil
	}})
	if !errors.Is(err, why) || n != 3 {
		t.Errorf("err %v after %d rows", err, n)
	}
}

func TestProgress(t *testing.T) {
	var rows []int
	text := manyRows(2*rowsPerLook + 5)
	report := mustCheck(t, string(text), FormatCSV, plain(), CheckOptions{Progress: func(n int, b int64) {
		if b <= 0 || b > int64(len(text)) {
			t.Errorf("%d bytes", b)
		}
		rows = append(rows, n)
	}})
	if fmt.Sprint(rows) != "[4096 8192]" || !report.Good() {
		t.Errorf("progress at %v", rows)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		format Format
		change func(*Options)
	}{
		"no source":                    {FormatCSV, func(o *Options) { o.Source = "" }},
		"a route that is no name":      {FormatCSV, func(o *Options) { o.Route = "a.b" }},
		"an unknown format":            {"xlsx", func(*Options) {}},
		"an unknown charset":           {FormatCSV, func(o *Options) { o.Charset = "ebcdic" }},
		"a delimiter that is a letter": {FormatCSV, func(o *Options) { o.Dialect.Delimiter = 'x' }},
		"a decimal mark that is none":  {FormatCSV, func(o *Options) { o.Dialect.Decimal = ';' }},
		"a thousands mark":             {FormatCSV, func(o *Options) { o.Dialect.Thousands = '_' }},
		"both marks the same":          {FormatCSV, func(o *Options) { o.Dialect.Thousands = '.' }},
		"a trailer with a delimiter":   {FormatCSV, func(o *Options) { o.Dialect.Trailer = "the,end" }},
		"a column twice":               {FormatCSV, func(o *Options) { o.Dialect.Columns = []string{"iban", "iban"} }},
		"a column nobody knows":        {FormatCSV, func(o *Options) { o.Dialect.Columns = []string{"colour"} }},
		"a template without amounts":   {FormatCSV, func(o *Options) { o.Dialect.Columns = []string{"debtor_account", "currency", "name", "iban"} }},
		"an element that must count":   {FormatPain00103, func(o *Options) { o.Ignore = []string{"ChqInstr"} }},
	} {
		opt := plain()
		c.change(&opt)
		if _, err := Open(strings.NewReader(""), c.format, opt); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
