package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/bankclient/reference"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/integration/stack/bank"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/workertest"
)

const (
	partnerID = "northbank"

	margin = 300 * time.Millisecond
)

// pace is how long a claim and a call last. Both are within the timing rules.
type pace struct{ lease, timeout time.Duration }

// paceOf is short for the scenarios that wait for the end of a lease or of a call, or see a claim renewed, and long for all others: there nothing may end by itself, however
// busy the machine is.
func paceOf(name string) pace {
	for _, waits := range []string{"A8_", "B8_", "B12_", "C1_", "D1_", "L1_"} {
		if strings.Contains(name, waits) {
			return pace{6 * time.Second, 3 * time.Second}
		}
	}
	return pace{time.Minute, 20 * time.Second} // forty seconds are left between claim and send
}

var everyStep = flag.Bool("every-step", false, "kill at every step instead of a choice of them")

func TestMain(m *testing.M) {
	if arena.RunChild(func(string, func(string)) (underfire.Around, error) { return underfire.Around{}, nil }) {
		os.Exit(0)
	}
	// Scenarios wait much more than they work. -parallel on the command line still wins.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic("the testing package has a flag named parallel")
	}
	stack.Main(m)
}

// world is a ledger in Postgres and a simulated bank over HTTP.
type world struct {
	pace
	t          testing.TB
	led        *ledger.Ledger
	observer   *ledger.Ledger
	second     *pgxpool.Pool // sees only what is committed, and has nothing to do with the worker
	bank       *bank.Bank
	baseURL    string // how the next process reaches the bank
	credential string
	adapter    bankclient.Adapter
	resets     bool // a lost reply is a reset instead of a 500
	copies     int  // how often the network delivers one request

	mu      sync.Mutex
	script  map[string][]workertest.Fault // by partner key
	sends   map[string]int                // calls so far, by partner key
	arrived map[uuid.UUID][]workertest.Sent
	hook    func(uuid.UUID)
}

func newWorld(t testing.TB, options banksim.Options) *world {
	t.Helper()
	w := &world{pace: paceOf(t.Name()), t: t, copies: 1, credential: "2026-11", adapter: reference.New(), resets: strings.Contains(t.Name(), "/A3_"),
		script: map[string][]workertest.Fault{}, sends: map[string]int{}, arrived: map[uuid.UUID][]workertest.Sent{}}
	urls := stack.Databases(t)
	w.led, w.observer = openLedger(t, urls.Worker, w.lease, 4), openLedger(t, urls.Owner, w.lease, 1)
	var err error
	if w.second, err = pgxpool.New(t.Context(), urls.Superuser+"&pool_max_conns=2"); err != nil {
		t.Fatalf("open a second way to the ledger: %v", err)
	}
	t.Cleanup(w.second.Close)
	options.BeforeExecute = w.arrives
	if w.bank, err = bank.Start(options); err != nil {
		t.Fatal(err)
	}
	w.baseURL = w.bank.URL
	t.Cleanup(w.end)
	return w
}

func openLedger(t testing.TB, url string, lease time.Duration, conns int32) *ledger.Ledger {
	t.Helper()
	led, err := ledger.Open(t.Context(), url, ledger.Options{Lease: lease, MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(led.Close)
	return led
}

// end is what every world ends with: nothing arrived at the bank before its claim and attempt were committed.
func (w *world) end() {
	for _, v := range w.bank.Violations() {
		w.t.Errorf("partner key %s: %s", v.Key, v.Detail)
	}
	if err := w.bank.Stop(); err != nil {
		w.t.Errorf("stop the bank: %v", err)
	}
}

// errNotCommitted is the violation of A2 and I2.
var errNotCommitted = errors.New("a partner key arrived with no committed claim and attempt")

// arrives is called in the bank before a create is judged. The attempt must stand under the claim that holds now, unless the request comes so
// late that its sender gave it up: then what it recorded says unknown, or another claim has followed. Never do more arrive than are committed.
func (w *world) arrives(partnerKey string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var key uuid.UUID
	var attempts int
	err := w.second.QueryRow(ctx, `
SELECT o.key, (SELECT count(*) FROM attempts n WHERE n.operation_id = o.id) FROM operations o JOIN attempts a ON a.operation_id = o.id
 WHERE a.partner_key = $1 AND o.partner_key = $1
   AND (o.state = 'claimed' AND o.fence = a.fence AND o.claim_token = a.claim_token OR o.fence > a.fence
        OR EXISTS (SELECT FROM observations f WHERE f.operation_id = o.id AND f.claim_token = a.claim_token AND f.verdict = 'unknown'))
 LIMIT 1`, partnerKey).Scan(&key, &attempts)
	if errors.Is(err, pgx.ErrNoRows) {
		return errNotCommitted
	}
	if err != nil {
		return fmt.Errorf("look for claim and attempt: %w", err)
	}
	w.mu.Lock()
	w.arrived[key] = append(w.arrived[key], workertest.Sent{PartnerKey: partnerKey, At: time.Now()})
	uncommitted := len(w.arrived[key]) > attempts*w.copies
	hook := w.hook
	w.mu.Unlock()
	if hook != nil {
		hook(key)
	}
	if uncommitted {
		return errNotCommitted
	}
	return nil
}

func (w *world) Ledger() worker.Ledger { return w.led }
func (w *world) PartnerID() string     { return partnerID }
func (w *world) Upgrade()              { w.adapter = extended{w.adapter} }

// Patience covers sends in doubt that are a second apart until the fifth parks, under load.
func (w *world) Patience() time.Duration { return 2 * time.Minute }

// KillPoints keeps a run in real time short: after the claim, after the send, after the record, and near the end.
func (w *world) KillPoints(steps int) []int {
	if *everyStep {
		return nil
	}
	points := []int{2, 4, 6, steps - 1}
	slices.Sort(points)
	return slices.Compact(points)
}

// Partner is a client of its own for each process, as another machine would have.
func (w *world) Partner() worker.Partner {
	partner, err := bankclient.New(bankclient.Config{ID: partnerID, BaseURL: w.baseURL, CredentialID: w.credential,
		Token: func() string { return "secret of " + w.credential }, Timeout: w.timeout, MaxInFlight: 64}, w.adapter)
	if err != nil {
		w.t.Fatalf("new partner: %v", err)
	}
	return worker.Partner{Bank: &scripted{Partner: partner, world: w}, Gate: partner.Gate(),
		LookUps: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}}
}

func (w *world) Options() worker.Options {
	return worker.Options{Lease: w.lease, AckWait: 2 * time.Second, Heartbeat: 600 * time.Millisecond, RecordMargin: margin,
		ShutdownGrace: w.timeout + 2*time.Second, SweepEvery: 50 * time.Millisecond, ParkedEvery: time.Second, RetryInitial: 100 * time.Millisecond}
}

// scripted makes the network refuse those calls of which the script says so; all else is the bank's doing.
type scripted struct {
	*bankclient.Partner
	world *world
}

// Send is one call.
func (s *scripted) Send(ctx context.Context, pr bankclient.Prepared) bankclient.Result {
	w := s.world
	w.mu.Lock()
	nth, script := w.sends[pr.PartnerKey], w.script[pr.PartnerKey]
	w.sends[pr.PartnerKey]++
	w.mu.Unlock()
	if nth >= len(script) || script[nth] != workertest.Refused {
		return s.Partner.Send(ctx, pr)
	}
	id, err := w.bank.SetFault(banksim.Fault{Name: "refuse", DelayMS: time.Hour.Milliseconds()})
	if err != nil {
		w.t.Errorf("close the bank's socket: %v", err)
	}
	said := s.Partner.Send(ctx, pr)
	if err := w.bank.ClearFault(id); err != nil {
		w.t.Errorf("open the bank's socket: %v", err)
	}
	return said
}

// Script sets the bank's faults for the requests of one operation, one after the other. A refused one never arrives.
func (w *world) Script(key uuid.UUID, faults ...workertest.Fault) {
	partnerKey := bankclient.PartnerKey(key, partnerID, w.adapter.Step(), 0).String()
	w.mu.Lock()
	w.script[partnerKey] = append(w.script[partnerKey], faults...)
	w.mu.Unlock()
	arriving := 0
	for _, f := range faults {
		if f == workertest.Refused {
			continue
		}
		if fault := w.fault(f); fault.Name != "" {
			fault.Key, fault.Skip, fault.Next = partnerKey, arriving, 1
			if _, err := w.bank.SetFault(fault); err != nil {
				w.t.Fatalf("set fault %s: %v", f, err)
			}
		}
		arriving++
	}
}

// fault says in the bank's words what the suite asks for.
func (w *world) fault(f workertest.Fault) banksim.Fault {
	yes := true
	switch f {
	case workertest.Calm:
		return banksim.Fault{}
	case workertest.Rejects:
		return banksim.Fault{Name: "reject", Value: "account_closed"}
	case workertest.LostReply:
		if w.resets {
			return banksim.Fault{Name: "reset_after_commit"}
		}
		return banksim.Fault{Name: "error_after_commit"}
	case workertest.Fails:
		return banksim.Fault{Name: "error_before_commit"}
	case workertest.LateBooking:
		return banksim.Fault{Name: "late_commit", DelayMS: (w.timeout + 400*time.Millisecond).Milliseconds()}
	case workertest.SlowAnswer:
		return banksim.Fault{Name: "late_answer", DelayMS: 2050} // longer than a third of the short lease
	case workertest.InUse:
		return banksim.Fault{Name: "status", Status: 409, Value: "request_in_progress"}
	case workertest.RateLimited:
		return banksim.Fault{Name: "rate_limited", RetryAfter: "1"}
	case workertest.DuplicateSaid:
		return banksim.Fault{Name: "status", Status: 409, Value: "duplicate_transfer", Executes: &yes}
	case workertest.Disagrees:
		return banksim.Fault{Name: "echo_differs", Value: "amount"}
	case workertest.StoredFailure:
		return banksim.Fault{Name: "store_error"}
	case workertest.OurFunds:
		return banksim.Fault{Name: "insufficient_funds"}
	}
	panic("fault " + string(f) + " has no counterpart at the simulated bank")
}

// partnerKeys are those that the key could have in a few epochs.
func (w *world) partnerKeys(key uuid.UUID) []string {
	var keys []string
	for epoch := range int16(3) {
		keys = append(keys, bankclient.PartnerKey(key, partnerID, w.adapter.Step(), epoch).String())
	}
	return keys
}

// Executions asks the bank's oracle.
func (w *world) Executions(key uuid.UUID) int {
	n := 0
	for _, partnerKey := range w.partnerKeys(key) {
		history, _ := w.bank.History(partnerKey)
		n += history.Executions
	}
	return n
}

// Sent are the requests that arrived while an attempt of this operation was committed under their partner key.
func (w *world) Sent(key uuid.UUID) []workertest.Sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.arrived[key])
}

// Outcome reads the ledger.
func (w *world) Outcome(key uuid.UUID) (workertest.Outcome, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := w.observer.Explain(ctx, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return workertest.Outcome{}, false
	}
	if err != nil {
		w.t.Errorf("explain: %v", err)
	}
	o := workertest.Outcome{State: e.State, TransferID: e.TransferID, Code: e.Code, Attempts: len(e.Attempts), Facts: e.Facts, InDoubt: e.InDoubt}
	for _, a := range e.Attempts {
		o.BodyHashes = append(o.BodyHashes, a.BodySHA256)
	}
	return o, true
}

// OnSend sets what is called when a request has arrived.
func (w *world) OnSend(hook func(uuid.UUID)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// Resume is a person's decision.
func (w *world) Resume() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := w.observer.Resume(ctx, ledger.ScopePartner, partnerID, "float is filled", "test"); err != nil {
		w.t.Errorf("resume: %v", err)
	}
}
