package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

// BenchmarkClaimRecord drives whole batches through claim and record: ns/op is per operation.
func BenchmarkClaimRecord(b *testing.B) {
	const batch = 256
	l, _ := open(b, ledger.Options{})
	ctx := context.Background()
	b.ReportAllocs()
	for done := 0; done < b.N; done += batch {
		b.StopTimer()
		wishes := newWishes(batch)
		b.StartTimer()
		answers := l.Claim(ctx, wishes)
		records := make([]ledger.Record, len(answers))
		for i, a := range answers {
			if a.Answer != ledger.Claimed {
				b.Fatalf("answer %s, err %v", a.Answer, a.Err)
			}
			records[i] = ledger.Authorize(a.Claim, fmt.Sprintf("tr_%d", a.Claim.OperationID), verdict("authorized"))
		}
		for _, r := range l.Record(ctx, records) {
			if r.Answer != ledger.Recorded {
				b.Fatalf("answer %s, err %v", r.Answer, r.Err)
			}
		}
	}
}
