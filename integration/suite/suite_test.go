package suite

import (
	"testing"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/worker/workertest"
)

// TestSuiteOnTheRealLedgerAndBank: what the worker does among fakes in virtual time, it does here.
func TestSuiteOnTheRealLedgerAndBank(t *testing.T) {
	workertest.RunSuite(t, func(t *testing.T, scenario func(*testing.T, workertest.World)) {
		w := newWorld(t, banksim.Options{Calm: true}) // one after the other: to make databases is what costs most
		t.Parallel()
		scenario(t, w)
	})
}
