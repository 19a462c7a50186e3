package batch

import (
	"context"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// BenchmarkRun checks a file of 100,000 rows, puts it on record and enqueues it: ns/op is per row.
func BenchmarkRun(b *testing.B) {
	const rows = 100_000
	w := newWorldAs(b, operate.Options{Limits: wide()}, Options{})
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += rows {
		b.StopTimer()
		label := fmt.Sprintf("bench-%d-%d", b.N, done)
		sub := w.submission(label, rowsOf(label, min(rows, b.N-done)))
		sub.DuplicatesReason = "equal on purpose"
		b.StartTimer()
		out, err := w.Submit(context.Background(), sub)
		if err != nil {
			b.Fatal(err, out.Report.Faults)
		}
		if err := w.Enqueue(context.Background(), out.Run, EnqueueOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
