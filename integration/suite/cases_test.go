package suite

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/workertest"
)

func deliver(t *testing.T, p *workertest.Process, payload []byte, change ...func(*job.Origin)) {
	t.Helper()
	d := workertest.NewDelivery(payload)
	for _, c := range change {
		d.SetOrigin(c)
	}
	p.Deliver(d)
	if how := d.How(); how != "done" {
		t.Fatalf("delivery settled %q, want done", how)
	}
}

func stop(t *testing.T, p *workertest.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func (w *world) setFault(key uuid.UUID, fault banksim.Fault) {
	w.t.Helper()
	fault.Key = bankclient.PartnerKey(key, partnerID, "create", 0).String()
	if _, err := w.bank.SetFault(fault); err != nil {
		w.t.Fatal(err)
	}
}

func wantAuthorizedOnce(t *testing.T, w *world, key uuid.UUID) workertest.Outcome {
	t.Helper()
	o := workertest.AwaitEnd(t, w, key)
	if o.State != ledger.StateAuthorized || w.Executions(key) != 1 {
		t.Errorf("state %s, executions %d, want authorized and 1", o, w.Executions(key))
	}
	history, _ := w.bank.History(bankclient.PartnerKey(key, partnerID, "create", 0).String())
	if len(history.Transfers) != 1 || history.Transfers[0].ID != o.TransferID {
		t.Errorf("the ledger names transfer %q, the bank has %v", o.TransferID, history.Transfers)
	}
	workertest.CheckPromise(t, w, key)
	return o
}

// TestA2_NothingArrivesBeforeItsClaimAndAttempt: fifty withdrawals at a hostile bank; the bank looks into the ledger at every arrival.
func TestA2_NothingArrivesBeforeItsClaimAndAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Seed: 2, Hostility: 0.4, MaxDelay: 500 * time.Millisecond, Never: arena.NeedAPerson()})
	p := workertest.Start(t, w, nil)
	var keys []uuid.UUID
	for range 50 {
		key, payload := workertest.Order(t)
		keys = append(keys, key)
		go p.Deliver(workertest.NewDelivery(payload))
	}
	arrivals := 0
	for _, key := range keys {
		workertest.AwaitEnd(t, w, key)
		arrivals += len(w.Sent(key))
	}
	stop(t, p)
	if arrivals < 50 || w.bank.Summary().Creates < 50 {
		t.Errorf("%d requests were judged, want one at least for each of 50 operations", arrivals)
	}
	workertest.CheckPromise(t, w, keys...)
	if n := len(w.bank.Violations()); n != 0 {
		t.Errorf("%d requests came before their claim and attempt", n)
	}
}

// TestA2_TheHookSeesASendBeforeTheClaim: the hook that every world holds up is one that can fall.
func TestA2_TheHookSeesASendBeforeTheClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	key, payload := workertest.Order(t)
	bank := w.Partner().Bank
	prepared, err := bank.Prepare(key, 0, bankclient.Transfer{Amount: "49.00", AmountMinor: 4900, Currency: "GBP", Reference: "Withdrawal 88104",
		Beneficiary: bankclient.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.arrives(prepared.PartnerKey); err != errNotCommitted {
		t.Errorf("before any claim: %v, want %v", err, errNotCommitted)
	}
	// An attempt whose claim was finished is no leave to send either.
	p := workertest.Start(t, w, nil)
	deliver(t, p, payload)
	wantAuthorizedOnce(t, w, key)
	stop(t, p)
	if err := w.arrives(prepared.PartnerKey); err != errNotCommitted {
		t.Errorf("after the outcome: %v, want %v", err, errNotCommitted)
	}
}

// TestA8_SuccessAfterOurTimeoutIsAdopted: booked at once, answered after we left; the redelivery adopts it.
func TestA8_SuccessAfterOurTimeoutIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	key, payload := workertest.Order(t)
	w.setFault(key, banksim.Fault{Name: "late_answer", Next: 1, DelayMS: (w.timeout + 500*time.Millisecond).Milliseconds()})
	first := workertest.Start(t, w, nil)
	deliver(t, first, payload)
	if o, _ := w.Outcome(key); o.State == ledger.StateRejected || o.State == ledger.StateCancelled {
		t.Errorf("after the timeout the state is %s, and nobody knows", o)
	}
	stop(t, first)
	second := workertest.Start(t, w, nil)
	deliver(t, second, payload, func(o *job.Origin) { o.Deliveries = 2 })
	wantAuthorizedOnce(t, w, key)
	stop(t, second)
	if n := len(w.Sent(key)); n != 1 {
		t.Errorf("the bank saw %d requests, want 1: the look-up finds the first", n)
	}
}

// TestB12_500AfterBooking: the bank books, says 500, and the job comes again to another process.
func TestB12_500AfterBooking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	key, payload := workertest.Order(t)
	w.setFault(key, banksim.Fault{Name: "error_after_commit", Status: 500})
	first := workertest.Start(t, w, nil)
	deliver(t, first, payload)
	first.Kill()
	second := workertest.Start(t, w, nil)
	deliver(t, second, payload, func(o *job.Origin) { o.Deliveries = 2 })
	wantAuthorizedOnce(t, w, key)
	stop(t, second)
}

// TestB3_OnePartnerKeyWhateverChanges: between the attempts of one operation the credential, the host, the process, the date and the number of
// deliveries change. Nothing is in doubt, so that all five are sent; the key that the bank sees is one.
func TestB3_OnePartnerKeyWhateverChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	f := startFront(t, w, false, false)
	key, payload := workertest.Order(t)
	id, err := w.bank.SetFault(banksim.Fault{Name: "unavailable", RetryAfter: "1"}) // however often it is sent before the last change
	if err != nil {
		t.Fatal(err)
	}
	changes := []func(){
		func() {},
		func() { w.credential = "2026-12" },
		func() { w.baseURL = strings.Replace(f.URL, "127.0.0.1", "localhost", 1) },
		func() { w.bank.Advance(40 * time.Hour) },
		func() { w.credential, w.baseURL = "2027-01", f.URL },
	}
	for i, change := range changes {
		change()
		if i == len(changes)-1 {
			if err := w.bank.ClearFault(id); err != nil {
				t.Fatal(err)
			}
		}
		before := len(f.seen())
		p := workertest.Start(t, w, nil)
		deliver(t, p, payload, func(o *job.Origin) { o.Deliveries, o.Sequence = 1+3*i, uint64(i+1) })
		workertest.Eventually(t, w.Patience(), "sent once more", func() bool { return len(f.seen()) > before })
		stop(t, p)
	}
	p := workertest.Start(t, w, nil)
	wantAuthorizedOnce(t, w, key)
	stop(t, p)
	credentials := map[string]bool{}
	for _, post := range f.seen() {
		credentials[post.credential] = true
		if post.key != f.seen()[0].key || post.key == "" {
			t.Errorf("the bank saw keys %q and %q", f.seen()[0].key, post.key)
		}
	}
	if len(credentials) < 3 {
		t.Errorf("%d credentials were used, want 3: the test changes nothing", len(credentials))
	}
}

// extended is a later build of the adapter: new operations get one more member, old ones their old bytes.
type extended struct{ bankclient.Adapter }

func (extended) Renderer() int16 { return 2 }

func (e extended) Render(renderer int16, in bankclient.Rendering) ([]byte, error) {
	body, err := e.Adapter.Render(1, in)
	if renderer == 2 {
		body = append(bytes.TrimSuffix(body, []byte("}")), `,"priority":"normal"}`...)
	}
	return body, err
}

// careless is a later build that changed the renderer instead of adding one.
type careless struct{ bankclient.Adapter }

func (c careless) Render(renderer int16, in bankclient.Rendering) ([]byte, error) {
	body, err := c.Adapter.Render(renderer, in)
	return append(bytes.TrimSuffix(body, []byte("}")), `,"priority":"normal"}`...), err
}

// TestB5_ABuildWithOneMoreMember between attempt 1 and 2: the old bytes, or nothing.
func TestB5_ABuildWithOneMoreMember(t *testing.T) {
	for name, c := range map[string]struct {
		build func(bankclient.Adapter) bankclient.Adapter
		state ledger.State
		sent  int
	}{
		"beside the old renderer": {func(a bankclient.Adapter) bankclient.Adapter { return extended{a} }, ledger.StateAuthorized, 2},
		"in the old renderer":     {func(a bankclient.Adapter) bankclient.Adapter { return careless{a} }, ledger.StateParked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, banksim.Options{Calm: true})
			f := startFront(t, w, false, false)
			key, payload := workertest.Order(t)
			w.setFault(key, banksim.Fault{Name: "rate_limited", Next: 1})
			first := workertest.Start(t, w, nil)
			deliver(t, first, payload)
			stop(t, first)
			w.adapter = c.build(w.adapter)
			second := workertest.Start(t, w, nil)
			if o := workertest.AwaitEnd(t, w, key); o.State != c.state {
				t.Errorf("state %s, want %s", o, c.state)
			}
			newKey, newPayload := workertest.Order(t)
			deliver(t, second, newPayload)
			workertest.AwaitEnd(t, w, newKey)
			stop(t, second)
			posts := f.seen()
			var old []posted
			for _, post := range posts {
				if post.key == posts[0].key {
					old = append(old, post)
				}
			}
			if len(old) != c.sent || old[0].body != old[len(old)-1].body {
				t.Errorf("the bank saw %d requests with bodies %x, want %d with one body", len(old), old, c.sent)
			}
			if len(posts) == len(old) {
				t.Error("the new build sent nothing of its own")
			}
			workertest.CheckPromise(t, w, key, newKey)
		})
	}
}

// TestG5_AProxyThatDuplicatesEveryPost: one transfer and one outcome, whichever of the two answers comes back.
func TestG5_AProxyThatDuplicatesEveryPost(t *testing.T) {
	for name, last := range map[string]bool{"first answer": false, "second answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, banksim.Options{Calm: true, Latency: 50 * time.Millisecond})
			f := startFront(t, w, true, last)
			p := workertest.Start(t, w, nil)
			var keys []uuid.UUID
			for range 20 {
				key, payload := workertest.Order(t)
				keys = append(keys, key)
				go p.Deliver(workertest.NewDelivery(payload))
			}
			for _, key := range keys {
				wantAuthorizedOnce(t, w, key)
			}
			stop(t, p)
			if summary := w.bank.Summary(); summary.Creates < 40 || summary.Executions != 20 {
				t.Errorf("the bank saw %d creates and executed %d, want 40 or more and 20", summary.Creates, summary.Executions)
			}
			wantOneEvent(t, w, "authorized", keys)
			if len(f.seen()) == 0 {
				t.Error("nothing went through the proxy")
			}
		})
	}
}

// wantOneEvent asks the outbox: one outcome is one event.
func wantOneEvent(t *testing.T, w *world, kind string, keys []uuid.UUID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var rows, operations int
	err := w.second.QueryRow(ctx, `SELECT count(*), count(DISTINCT b.operation_id) FROM outbox b JOIN operations o ON o.id = b.operation_id
 WHERE o.key = ANY ($1) AND b.type = $2`, keys, kind).Scan(&rows, &operations)
	if err != nil {
		t.Fatal(err)
	}
	if rows != len(keys) || operations != len(keys) {
		t.Errorf("%d events %s of %d operations, want one each of %d", rows, kind, operations, len(keys))
	}
}

// TestG8_ThreeAttemptsOneBodyOnTheWire: the bytes that leave are those whose hash was committed, three times.
func TestG8_ThreeAttemptsOneBodyOnTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	f := startFront(t, w, false, false)
	key, payload := workertest.Order(t)
	w.setFault(key, banksim.Fault{Name: "error_before_commit", Next: 2})
	first := workertest.Start(t, w, nil)
	deliver(t, first, payload)
	stop(t, first)
	second := workertest.Start(t, w, nil)
	o := wantAuthorizedOnce(t, w, key)
	stop(t, second)
	posts := f.seen()
	if len(posts) != 3 || len(o.BodyHashes) != 3 {
		t.Fatalf("%d requests, %d attempts, want 3 of each", len(posts), len(o.BodyHashes))
	}
	for i, post := range posts {
		if post.body != posts[0].body || post.key != posts[0].key || o.BodyHashes[i] != post.body {
			t.Errorf("request %d: key %s, body %x, committed %x, want those of the first", i+1, post.key, post.body, o.BodyHashes[i])
		}
	}
}

// TestC10_BankAwayWithTheSweepOn: nothing is refunded, nothing is called failed; when the bank is back, everything is paid.
func TestC10_BankAwayWithTheSweepOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	id, err := w.bank.SetFault(banksim.Fault{Name: "refuse", DelayMS: time.Hour.Milliseconds()})
	if err != nil {
		t.Fatal(err)
	}
	p := workertest.Start(t, w, nil)
	var keys []uuid.UUID
	for range 10 {
		key, payload := workertest.Order(t)
		keys = append(keys, key)
		go p.Deliver(workertest.NewDelivery(payload))
	}
	// The breaker lets few through; those that it let through are tried again by the sweep.
	workertest.Eventually(t, w.Patience(), "a second attempt", func() bool { return w.count(t, "SELECT coalesce(max(fence), 0) FROM attempts") >= 2 })
	if n := w.count(t, "SELECT count(*) FROM operations WHERE state IN ('rejected', 'cancelled', 'parked', 'authorized')"); n != 0 {
		t.Errorf("%d operations ended while the bank was away", n)
	}
	if err := w.bank.ClearFault(id); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		wantAuthorizedOnce(t, w, key)
	}
	stop(t, p)
	if n := w.count(t, "SELECT count(*) FROM entries WHERE event NOT IN ('authorized')"); n != 0 {
		t.Errorf("%d entries of something else than authorized", n)
	}
}

func (w *world) count(t *testing.T, query string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	n := 0
	if err := w.second.QueryRow(ctx, query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestInvariant7_TheSweepSendsNoPayloadThatIsAnotherJobs: whoever may insert an operation gives it the payload of a job that was paid a day ago.
func TestInvariant7_TheSweepSendsNoPayloadThatIsAnotherJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, banksim.Options{Calm: true})
	paid, payload := workertest.Order(t)
	p := workertest.Start(t, w, nil)
	deliver(t, p, payload)
	wantAuthorizedOnce(t, w, paid)
	w.bank.Advance(25 * time.Hour) // the bank has forgotten the key
	row := job.NewKey()
	_, err := w.second.Exec(t.Context(), `WITH o AS (INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)
		VALUES ($1, 100, 1, sha256('x'), 'GBP', $3, $4, 'cust-1', 'open') RETURNING id),
		b AS (INSERT INTO payloads (operation_id, body) SELECT id, $2 FROM o)
		INSERT INTO due (operation_id, due_at, partner) SELECT id, now(), $5 FROM o`, row, payload, workertest.SourceName, workertest.RouteName, partnerID)
	if err != nil {
		t.Fatal(err)
	}
	if o := workertest.AwaitEnd(t, w, row); o.State != ledger.StateParked || o.Code != "payload_differs" {
		t.Errorf("%s (%s), want parked (payload_differs)", o.State, o.Code)
	}
	if n := w.Executions(paid); n != 1 {
		t.Errorf("the bank executed %d times, want once", n)
	}
	stop(t, p)
}
