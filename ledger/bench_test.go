package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

const benchBatch = 256

// mustClaimAll claims a whole batch.
func mustClaimAll(b *testing.B, l *ledger.Ledger, wishes []ledger.Wish) []ledger.Record {
	b.Helper()
	answers := l.Claim(context.Background(), wishes)
	records := make([]ledger.Record, len(answers))
	for i, a := range answers {
		if a.Answer != ledger.Claimed {
			b.Fatalf("answer %s, err %v", a.Answer, a.Err)
		}
		records[i] = ledger.Authorize(a.Claim, fmt.Sprintf("tr_%d", a.Claim.OperationID), verdict("authorized"))
	}
	return records
}

func mustRecordAll(b *testing.B, l *ledger.Ledger, records []ledger.Record) {
	b.Helper()
	for _, r := range l.Record(context.Background(), records) {
		if r.Answer != ledger.Recorded {
			b.Fatalf("answer %s, err %v", r.Answer, r.Err)
		}
	}
}

// BenchmarkClaimRecord drives whole batches through claim and record: ns/op is per operation.
func BenchmarkClaimRecord(b *testing.B) {
	l, _ := open(b, ledger.Options{})
	b.ReportAllocs()
	for done := 0; done < b.N; done += benchBatch {
		b.StopTimer()
		wishes := newWishes(benchBatch)
		b.StartTimer()
		mustRecordAll(b, l, mustClaimAll(b, l, wishes))
	}
}

// BenchmarkClaimBatch claims batches of one and of 256 fresh operations: everything is per batch.
func BenchmarkClaimBatch(b *testing.B) {
	for _, rows := range []int{1, benchBatch} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			l, _ := open(b, ledger.Options{})
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				wishes := newWishes(rows)
				b.StartTimer()
				if a := l.Claim(context.Background(), wishes); a[0].Answer != ledger.Claimed {
					b.Fatalf("answer %s, err %v", a[0].Answer, a[0].Err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*rows), "us/row")
		})
	}
}

// BenchmarkRecordBatch records batches of one and of 256 authorized operations: everything is per batch.
func BenchmarkRecordBatch(b *testing.B) {
	for _, rows := range []int{1, benchBatch} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			l, _ := open(b, ledger.Options{})
			b.ReportAllocs()
			for range b.N {
				b.StopTimer()
				records := mustClaimAll(b, l, newWishes(rows))
				b.StartTimer()
				mustRecordAll(b, l, records)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*rows), "us/row")
		})
	}
}

// BenchmarkClaimFinished judges redeliveries of finished operations, the commonest duplicates: everything is per batch of 256.
func BenchmarkClaimFinished(b *testing.B) {
	l, _ := open(b, ledger.Options{})
	wishes := newWishes(benchBatch)
	mustRecordAll(b, l, mustClaimAll(b, l, wishes))
	b.ReportAllocs()
	for b.Loop() {
		if a := l.Claim(context.Background(), wishes); a[0].Answer != ledger.Finished {
			b.Fatalf("answer %s, err %v", a[0].Answer, a[0].Err)
		}
	}
}
