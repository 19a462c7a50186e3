package app

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
)

// recorder answers as the ledger does; what has no key could not be written.
type recorder struct{ worker.Ledger }

func (recorder) Lease() time.Duration { return 7 * time.Second }

func (recorder) Record(_ context.Context, records []ledger.Record) []ledger.RecordResult {
	results := make([]ledger.RecordResult, len(records))
	for i := range records {
		if records[i].Claim.Key == uuid.Nil {
			results[i].Err = errors.New("away")
		}
	}
	return results
}

// TestTelling_OutcomesThatAreWritten, in one call per batch, and the lease is still that of the ledger.
func TestTelling_OutcomesThatAreWritten(t *testing.T) {
	var told [][]uuid.UUID
	l := tellingOf(recorder{}, func(keys []uuid.UUID) { told = append(told, keys) })
	claim := func() ledger.Claim { return ledger.Claim{Key: uuid.New()} }
	paid, refused, later, parked := claim(), claim(), claim(), claim()
	results := l.Record(t.Context(), []ledger.Record{
		ledger.Authorize(paid, "tr_1"), ledger.Schedule(later, false, time.Second), ledger.Reject(refused, "account_closed"),
		ledger.Park(parked, "mismatch", true), ledger.Authorize(ledger.Claim{}, "tr_2"),
	})
	if len(results) != 5 || results[4].Err == nil {
		t.Errorf("results %v", results)
	}
	if len(told) != 1 || !slices.Equal(told[0], []uuid.UUID{paid.Key, refused.Key}) {
		t.Errorf("told %v", told)
	}
	if leaser, ok := l.(interface{ Lease() time.Duration }); !ok || leaser.Lease() != 7*time.Second {
		t.Error("the worker cannot compare its lease with the ledger's any more")
	}
}
