package worker_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/internal/fake"
	"github.com/paidonce/paidonce/worker/workertest"
)

// world is the fake world in virtual time.
type world struct {
	led    *fake.Ledger
	bank   *fake.Bank
	client fake.Client // copied for every process
	lease  time.Duration
	start  time.Time
	slots  int

	mu    sync.Mutex
	gates []*fake.Gate
}

func newWorld(change ...func(*bankclient.Profile)) *world {
	profile := fake.Profile()
	for _, c := range change {
		c(&profile)
	}
	w := &world{lease: time.Minute, slots: 512, led: fake.NewLedger(time.Minute), bank: fake.NewBank(profile, 20*time.Second), start: time.Now()}
	w.client = fake.Client{Bank: w.bank, Credential: "2026-11", Host: "bank.example", Renderer: 1}
	return w
}

// virtually runs a scenario in virtual time.
func virtually(t *testing.T, scenario func(t *testing.T, w *world), change ...func(*bankclient.Profile)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(change...)
		scenario(t, w)
		synctest.Wait()
		for _, gate := range w.gates {
			if n := gate.InUse(); n != 0 {
				t.Errorf("%d slots were not given back", n)
			}
		}
	})
}

func TestSuiteInVirtualTime(t *testing.T) {
	workertest.RunSuite(t, func(t *testing.T, scenario func(*testing.T, workertest.World)) {
		virtually(t, func(t *testing.T, w *world) { scenario(t, w) })
	})
}

func (w *world) Ledger() worker.Ledger { return w.led }
func (w *world) PartnerID() string     { return "fake" }
func (w *world) Upgrade()              { w.client.Renderer++ }

func (w *world) Partner() worker.Partner {
	client := w.client
	gate := fake.NewGate(w.slots)
	w.mu.Lock()
	w.gates = append(w.gates, gate)
	w.mu.Unlock()
	return worker.Partner{Bank: &client, Gate: gate}
}

func (w *world) Options() worker.Options {
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	return worker.Options{Lease: w.lease, Clock: func() time.Duration { return time.Since(w.start) }, Rand: func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64()
	}}
}

// publishedBeforeARecovery is the delivery of a job that is older than the last recovery of the ledger. If it is booked, then by a worker whose
// claim was lost.
func (w *world) publishedBeforeARecovery(t *testing.T, key uuid.UUID, payload []byte, booked bool) *workertest.Delivery {
	t.Helper()
	d := workertest.NewDelivery(payload)
	<-time.After(time.Minute)
	if booked {
		lost := w.client
		pr, _ := lost.Prepare(key, 0, bankclient.Transfer{Amount: "49.00", Currency: "GBP"})
		lost.Send(t.Context(), pr)
	}
	w.led.DoubtBefore = time.Now()
	return d
}

func (w *world) Script(key uuid.UUID, faults ...workertest.Fault) {
	for _, f := range faults {
		w.bank.Script(key, act(f))
	}
}

func act(f workertest.Fault) fake.Act {
	unknown := &bankclient.Result{Code: "internal_error"}
	switch f {
	case workertest.Calm:
		return fake.Act{}
	case workertest.Rejects:
		return fake.Act{NoBooking: true, Store: true, Say: &bankclient.Result{Verdict: bankclient.Rejected, Authoritative: true, Code: "account_closed"}}
	case workertest.LostReply:
		return fake.Act{Say: unknown}
	case workertest.Fails:
		return fake.Act{NoBooking: true, Say: unknown}
	case workertest.LateBooking:
		return fake.Act{BookAfter: 22 * time.Second, After: time.Hour}
	case workertest.SlowAnswer:
		return fake.Act{After: 19 * time.Second}
	case workertest.InUse:
		return fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.InFlight, Code: "request_in_progress", RetryAfter: time.Second}}
	case workertest.RateLimited:
		return fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.NotExecuted, Scope: bankclient.ScopePartner, RetryAfter: 7 * time.Second}}
	case workertest.Refused:
		return fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.NotExecuted}}
	case workertest.DuplicateSaid:
		return fake.Act{Say: &bankclient.Result{Code: "duplicate_transfer"}}
	case workertest.Disagrees:
		return fake.Act{Say: &bankclient.Result{Verdict: bankclient.Mismatch, TransferID: "tr_other"}}
	case workertest.StoredFailure:
		return fake.Act{NoBooking: true, Store: true, Say: unknown}
	case workertest.OurFunds:
		return fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.NotExecuted, Scope: bankclient.ScopePartner,
			Cause: bankclient.CauseOurFunds, Code: "insufficient_funds"}}
	}
	panic("fault " + string(f) + " is not known to the fake bank")
}

func (w *world) Executions(key uuid.UUID) int { return w.bank.Executions(key) }

func (w *world) Sent(key uuid.UUID) []workertest.Sent {
	var sent []workertest.Sent
	for _, r := range w.bank.Requests(key) {
		sent = append(sent, workertest.Sent{PartnerKey: r.PartnerKey, At: r.At})
	}
	return sent
}

func (w *world) Outcome(key uuid.UUID) (workertest.Outcome, bool) {
	op, known := w.led.Look(key)
	o := workertest.Outcome{State: op.State, TransferID: op.TransferID, Code: op.Code, Attempts: len(op.Attempts), Facts: op.Facts, InDoubt: op.InDoubt}
	for _, a := range op.Attempts {
		o.BodyHashes = append(o.BodyHashes, a.BodySHA256)
	}
	return o, known
}

func (w *world) OnSend(hook func(uuid.UUID)) {
	w.bank.OnSend = func(key uuid.UUID, _ bankclient.Prepared) { hook(key) }
}

func (w *world) Resume() { w.led.Resume(ledger.ScopePartner, "fake") }

// Patience is half of the key window, one delay between look-ups of an hour, and its jitter.
func (w *world) Patience() time.Duration { return 14 * time.Hour }
