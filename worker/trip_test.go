package worker_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/workertest"
)

// trippedWorld has a ledger that says of its gauges what a test sets, and refuses records with a code of the database.
type trippedWorld struct {
	*world
	doubt  atomic.Int64
	refuse string
}

type trippedLedger struct {
	worker.Ledger
	of *trippedWorld
}

func (w *trippedWorld) Ledger() worker.Ledger { return trippedLedger{w.world.Ledger(), w} }

func (w *trippedWorld) Partner() worker.Partner {
	p := w.world.Partner()
	p.DoubtLimits = map[string]int64{"GBP": 5000}
	return p
}

func (l trippedLedger) Gauges(context.Context) (ledger.Gauges, error) {
	return ledger.Gauges{InDoubtAt: map[string]map[string]int64{"fake": {"GBP": l.of.doubt.Load(), "EUR": 1 << 40}, "other": {"GBP": 1 << 40}}}, nil
}

func (l trippedLedger) Record(ctx context.Context, records []ledger.Record) []ledger.RecordResult {
	if l.of.refuse == "" {
		return l.Ledger.Record(ctx, records)
	}
	results := make([]ledger.RecordResult, len(records))
	for i := range results {
		results[i].Err = fmt.Errorf("record: %w", &pgconn.PgError{Code: l.of.refuse})
	}
	return results
}

func wantPauses(t *testing.T, w *trippedWorld, when string, want map[string]string) {
	t.Helper()
	if got := w.led.Pauses(); !maps.Equal(got, want) {
		t.Errorf("%s: paused %v, want %v", when, got, want)
	}
}

// TestTrip_MoneyInDoubtAboveItsLimitPausesThePartner: once each time it rises above, so that whoever resumes is not overruled at once.
func TestTrip_MoneyInDoubtAboveItsLimitPausesThePartner(t *testing.T) {
	virtually(t, func(t *testing.T, inner *world) {
		w := &trippedWorld{world: inner}
		p := workertest.Start(t, w, nil)
		tripped := map[string]string{"partner/fake": "doubt_limit"}
		for _, step := range []struct {
			when   string
			doubt  int64
			resume bool
			want   map[string]string
		}{
			{"at the limit", 5000, false, map[string]string{}},
			{"above it", 5001, false, tripped},
			{"resumed while above", 6000, true, map[string]string{}},
			{"below again", 4000, false, map[string]string{}},
			{"above again", 5001, false, tripped},
		} {
			if step.resume {
				w.Resume()
			}
			w.doubt.Store(step.doubt)
			time.Sleep(25 * time.Second) // virtual
			synctest.Wait()
			wantPauses(t, w, step.when, step.want)
		}
		stop(t, p)
	})
}

// TestTrip_ARefusalThatBreaksAnInvariantPausesEverything; one that does not, does not.
func TestTrip_ARefusalThatBreaksAnInvariantPausesEverything(t *testing.T) {
	for code, want := range map[string]map[string]string{
		"PO004": {"all/": "invariant_violation"}, "PO006": {"all/": "invariant_violation"}, "PO009": {"all/": "invariant_violation"},
		"23514": {"all/": "invariant_violation"}, "23505": {"all/": "invariant_violation"}, "40001": {}, "57P01": {},
	} {
		t.Run(code, func(t *testing.T) {
			virtually(t, func(t *testing.T, inner *world) {
				w := &trippedWorld{world: inner, refuse: code}
				_, payload := workertest.Order(t)
				p := workertest.Start(t, w, nil)
				p.Deliver(workertest.NewDelivery(payload))
				time.Sleep(5 * time.Second) // virtual
				synctest.Wait()
				wantPauses(t, w, "after a refusal", want)
				p.Kill()
				p.Bury()
			})
		})
	}
}
