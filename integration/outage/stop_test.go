package outage

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/outage/proxy"
)

// stopsWithin is the grace, what a process may take beyond it to flush and to cancel what it has asked for (8 s), and to hang up (5 s), and time for
// a busy machine to notice.
const stopsWithin = grace + 13*time.Second + 15*time.Second

// stopsInTime tells a worker to stop and gives it so long.
func stopsInTime(t *testing.T, w *arena.Worker) {
	t.Helper()
	w.Terminate()
	select {
	case <-w.Done():
		_ = w.Wait() // calls were cut, and it says so
	case <-time.After(stopsWithin):
		t.Errorf("it was still there %s after SIGTERM", stopsWithin)
		w.Kill()
	}
}

// swallow lets a network swallow everything until it is called again with false.
func swallow(p *proxy.Proxy, everything bool) { p.Set(proxy.Way{BlackHole: everything}) }

// TestL1_TermWhileNobodyHearsUs: with a call in flight at the bank, the networks to Postgres and NATS swallow everything, and then comes SIGTERM.
// What the bank says cannot be recorded or acknowledged, and the process ends nevertheless. When both are back, nothing is lost.
func TestL1_TermWhileNobodyHearsUs(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true, Latency: 500 * time.Millisecond}})
	w := r.start(t, "", nil)
	r.atFirst(t, func() { r.load(t, 12) }, func() {
		swallow(r.toLedger, true)
		swallow(r.toBroker, true)
	})
	stopsInTime(t, w)
	if n := r.count(t, "SELECT count(*) FROM operations WHERE state = 'claimed'"); n == 0 {
		t.Error("nothing was in flight: the test proves nothing")
	}
	swallow(r.toLedger, false)
	swallow(r.toBroker, false)
	r.start(t, "", nil)
	r.prove(t)
}

// TestL1_TermWhileEverythingIsSilent: under load all three networks swallow everything for longer than a statement is waited for here, and the
// worker is told to stop in the middle of it, with messages at hand that can only become dead letters.
func TestL1_TermWhileEverythingIsSilent(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	w := r.start(t, "", nil)
	end := r.loading(t)
	awhile(2 * time.Second)
	all := []*proxy.Proxy{r.toBroker, r.toLedger, r.toBank}
	for _, p := range all {
		swallow(p, true)
		awhile(50 * time.Millisecond) // what was delivered last meets a ledger that answers, and one that does not
	}
	stopsInTime(t, w)
	end()
	for _, p := range all {
		swallow(p, false)
	}
	r.start(t, "", nil)
	r.noDeadLettersBut(t, r.prove(t).Dead)
}
