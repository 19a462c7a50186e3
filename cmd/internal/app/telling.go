package app

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
)

// telling is a ledger that says of which operations it has recorded an outcome.
type telling struct {
	worker.Ledger
	tell func([]uuid.UUID)
}

// tellingOf keeps what the worker asks of a ledger besides: its lease.
func tellingOf(l worker.Ledger, tell func([]uuid.UUID)) worker.Ledger {
	if leaser, ok := l.(interface{ Lease() time.Duration }); ok {
		return tellingLeaser{telling{l, tell}, leaser.Lease()}
	}
	return telling{l, tell}
}

type tellingLeaser struct {
	telling
	lease time.Duration
}

// Lease is that of the ledger.
func (t tellingLeaser) Lease() time.Duration { return t.lease }

// Record implements worker.Ledger.
func (t telling) Record(ctx context.Context, records []ledger.Record) []ledger.RecordResult {
	results := t.Ledger.Record(ctx, records)
	finished := make([]uuid.UUID, 0, len(records))
	for i := range records {
		if results[i].Err == nil && records[i].Next.Finished() {
			finished = append(finished, records[i].Claim.Key)
		}
	}
	t.tell(finished)
	return results
}
