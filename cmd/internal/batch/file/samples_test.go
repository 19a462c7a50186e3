package file

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const samples = "../../../../integration/testdata/batch"

// writeGolden writes what the reports are now. Read the difference before you commit it.
var writeGolden = flag.Bool("golden", false, "write the golden reports of the samples")

// optionsOf are the options and expectations with which a sample is read.
func optionsOf(name string) (Options, CheckOptions) {
	opt := plain()
	opt.Location = time.FixedZone("CET", 3600)
	check := CheckOptions{}
	switch name {
	case "good/quotes.csv":
		opt.Dialect.Delimiter = '\t'
	case "good/template.csv", "bad/template.csv", "bad/template_header.csv":
		opt.Dialect = Dialect{Delimiter: ';', Decimal: ',', Thousands: '.', Trailer: "ENDE", Columns: []string{"Personalnummer=row_ref", "Konto=debtor_account",
			"Betrag in €=amount", "Währung = currency", "Empfänger=name", "IBAN=iban", "Kostenstelle=-", "Text=reference"}}
	case "good/semicolon.csv", "bad/decimal_mark.csv", "bad/trailer_missing.csv", "bad/trailer_rows.csv", "bad/trailer_sum.csv", "bad/trailer_not_last.csv":
		opt.Dialect = Dialect{Delimiter: ';', Decimal: ',', Thousands: '.', Trailer: "ENDE",
			Columns: []string{"debtor_account", "amount", "currency", "name", "iban", "reference"}}
	}
	return opt, check
}

func sampleNames(t testing.TB, folder string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(samples, folder))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		if !strings.HasSuffix(entry.Name(), ".golden") {
			names = append(names, folder+"/"+entry.Name())
		}
	}
	if len(names) < 9 {
		t.Fatalf("only %d samples in %s", len(names), folder)
	}
	return names
}

func readSample(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(samples, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func formatOf(name string) Format {
	switch {
	case strings.HasSuffix(name, ".001.03.xml"):
		return FormatPain00103
	case strings.HasSuffix(name, ".001.09.xml"):
		return FormatPain00109
	case strings.HasSuffix(name, ".ndjson"):
		return FormatNDJSON
	}
	return FormatCSV
}

// TestSamples compares the report of every sample with its golden one.
func TestSamples(t *testing.T) {
	for _, name := range append(sampleNames(t, "good"), sampleNames(t, "bad")...) {
		t.Run(name, func(t *testing.T) {
			opt, check := optionsOf(name)
			report := mustCheck(t, string(readSample(t, name)), formatOf(name), opt, check)
			if good := strings.HasPrefix(name, "good/"); report.Good() != good {
				t.Errorf("good %v, want %v", report.Good(), good)
			}
			var text strings.Builder
			if err := report.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(samples, name+".golden")
			if *writeGolden {
				if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil { //nolint:gosec // a golden file is for everybody
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if text.String() != string(want) {
				t.Errorf("report\n%s\nwant\n%s", text.String(), want)
			}
		})
	}
}

// TestSamplesAreDetected: Detect tells the format of every good sample that is text.
func TestSamplesAreDetected(t *testing.T) {
	for _, name := range sampleNames(t, "good") {
		text := readSample(t, name)
		if name == "good/template.csv" {
			continue // whose header is in no words that are known: its template names the format
		}
		if got, err := Detect(text[:min(len(text), DetectBytes)], ""); err != nil || got != formatOf(name) {
			t.Errorf("%s: detected %q, %v", name, got, err)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		first, name string
		want        Format
	}{
		{"a,b\n", "payroll.CSV", FormatCSV}, {"a,b\n", "payroll", ""}, {"x;iban;y\n", "payroll", FormatCSV}, {"", "x.jsonl", FormatNDJSON}, {"", "x", ""},
		{"\ufeff {\"amount\":", "x.csv", FormatNDJSON}, {"PK\x03\x04", "payroll.xlsx", FormatCSV}, {"\xff\xfea\x00", "x", FormatCSV}, {"Zo\xeb", "x.csv", FormatCSV},
		{`<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.001.001.03">`, "x", FormatPain00103},
		{`<Document xmlns='urn:iso:std:iso:20022:tech:xsd:pain.001.001.09'>`, "x", FormatPain00109},
		{`<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.001.001.033">`, "x", ""},
		{`<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.008.001.08">`, "x.csv", ""},
	} {
		got, err := Detect([]byte(c.first), c.name)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q in %s: %q, %v", c.first, c.name, got, err)
		}
	}
}

// TestJ11_ContentDigest: another order, other line ends, other names of rows, another format: the same payments.
func TestJ11_ContentDigest(t *testing.T) {
	digests := map[[32]byte][]string{}
	for _, name := range []string{"good/iban.csv", "good/bom_crlf.csv", "good/reordered.csv", "good/lines.ndjson"} {
		opt, check := optionsOf(name)
		report := mustCheck(t, string(readSample(t, name)), formatOf(name), opt, check)
		digests[report.ContentDigest] = append(digests[report.ContentDigest], name)
	}
	if len(digests) != 1 {
		t.Errorf("%d digests for one list of payments: %v", len(digests), digests)
	}
}

// TestNothingOfTheRowsIsEchoed: no fault names a value of the file.
func TestNothingOfTheRowsIsEchoed(t *testing.T) {
	for _, name := range append(sampleNames(t, "good"), sampleNames(t, "bad")...) {
		opt, check := optionsOf(name)
		report, err := Check(context.Background(), strings.NewReader(string(readSample(t, name))), formatOf(name), opt, check)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"N Example", "GB33", "5555", "DE89", "FR14", "cust-", "4471", "inv-1", "E2E-", "202015", "Somebody", "Zo", "471"} {
			if plain := strings.ReplaceAll(text.String(), report.digests(), ""); strings.Contains(plain, value) {
				t.Errorf("%s: the report contains %q", name, value)
			}
		}
	}
}

// digests is the part of a report that may contain any digits.
func (r *Report) digests() string {
	var text strings.Builder
	_ = r.WriteText(&text)
	_, rest, _ := strings.Cut(text.String(), "digest ")
	return "digest " + rest[:strings.Index(rest, "content")+len("content    ")+64]
}
