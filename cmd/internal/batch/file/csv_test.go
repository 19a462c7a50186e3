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
	goodRow    = "r1,cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,Withdrawal 1\n"
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

// manyRows is a file of n good rows, of about the size of real ones.
func manyRows(n int) []byte {
	var b bytes.Buffer
	b.WriteString(goodHeader)
	for i := range n {
		fmt.Fprintf(&b, "row-%07d,cust-%d,%d.%02d,GBP,A N Example %d,GB33BUKB20201555555555,Withdrawal %d of November\n", i, i%5000, 10+i%9000, i%100, i, i)
	}
	return b.Bytes()
}

func BenchmarkCheckCSV(b *testing.B) {
	const rows = 200_000
	file := manyRows(rows)
	b.ReportAllocs()
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		report, err := Check(context.Background(), bytes.NewReader(file), FormatCSV, plain(), CheckOptions{})
		if err != nil || !report.Good() {
			b.Fatal(err, report.FaultCount, report.Faults)
		}
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
}
