//go:build unix

package file

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// cpu is what this process has used so far, in nanoseconds. On a machine that does other things too, wall time says nothing.
func cpu() int64 {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return used.Utime.Nano() + used.Stime.Nano()
}

func benchmarkCheck(b *testing.B, file []byte, format Format, rows int) {
	b.ReportAllocs()
	b.SetBytes(int64(len(file)))
	before := cpu()
	for b.Loop() {
		report, err := Check(context.Background(), bytes.NewReader(file), format, plain(), CheckOptions{})
		if err != nil || !report.Good() {
			b.Fatal(err, report.Faults)
		}
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N)/float64(rows), "cpu-ns/row")
	b.ReportMetric(float64(rows)*float64(b.N)*1e9/float64(cpu()-before), "rows/cpu-s")
}

func BenchmarkCheckCSV(b *testing.B) { benchmarkCheck(b, manyRows(1_000_000), FormatCSV, 1_000_000) }

func BenchmarkCheckNDJSON(b *testing.B) {
	const rows = 100_000
	var text strings.Builder
	for i := range rows {
		fmt.Fprintf(&text, `{"row_ref":"r%d","debtor_account":"cust-%d","amount":"%d.00","currency":"GBP",`+
			`"beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},"reference":"Withdrawal %d"}`+"\n", i, i, i+1, i)
	}
	benchmarkCheck(b, []byte(text.String()), FormatNDJSON, rows)
}

func BenchmarkCheckPain00103(b *testing.B) {
	benchmarkCheck(b, painDocument(FormatPain00103, 100_000), FormatPain00103, 100_000)
}

func BenchmarkCheckPain00109(b *testing.B) {
	benchmarkCheck(b, painDocument(FormatPain00109, 100_000), FormatPain00109, 100_000)
}
