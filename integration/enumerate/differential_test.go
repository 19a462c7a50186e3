package enumerate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// twins are the model and Postgres, given the same calls.
type twins struct {
	t       testing.TB
	rand    *rand.Rand
	model   *memory
	real    *ledger.Ledger
	desk    *ledger.Ledger // as who may purge
	owner   *pgx.Conn      // of everything, triggers too
	partner string
	wishes  []ledger.Wish
	claims  []pair
	lost    []pair // claims that a failover took back
	calls   []string
	counts  map[string]int
	touched map[uuid.UUID]bool // by the step under way
	wrong   []string           // where the two differ
}

// pair is one claim as each of the two granted it.
type pair struct{ model, real ledger.Claim }

// pool is Postgres as it is opened for many seeds of calls.
type pool struct {
	t          testing.TB
	real, desk *ledger.Ledger
	owner      *pgx.Conn
}

// open opens a ledger by two URLs; the third is the superuser's.
func open(t testing.TB, worker, desk, super string) *pool {
	t.Helper()
	ctx := context.Background()
	p := &pool{t: t}
	var err error
	if p.real, err = ledger.Open(ctx, worker, ledger.Options{MaxConns: 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.real.Close)
	if p.desk, err = ledger.Open(ctx, desk, ledger.Options{MaxConns: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.desk.Close)
	if p.owner, err = pgx.Connect(ctx, super); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.owner.Close(ctx) })
	return p
}

const seeds, length = 40, 60

// run makes the calls of one seed on both, and compares every answer and every row, until they differ.
func (p *pool) run(seed uint64, counts map[string]int) *twins {
	w := &twins{t: p.t, rand: rand.New(rand.NewPCG(seed, 1)), model: newMemory(60*time.Second, time.Now), real: p.real, desk: p.desk, owner: p.owner,
		partner: "bank-" + uuid.NewString(), // its own, so that one seed never sweeps another's
		counts:  counts, touched: map[uuid.UUID]bool{}}
	for n := range 4 {
		w.wishes = append(w.wishes, w.wish(n))
	}
	w.exec(`UPDATE ledger_identity SET doubt_before = '-infinity', lost_since = NULL`)
	w.exec(`DELETE FROM pauses`)
	for range length {
		w.step()
		w.compare()
		if len(w.wrong) > 0 {
			return w
		}
	}
	return w
}

// leastOften is how often, over all seeds, a kind of call is made at least. The draws are always the same, but for what the clock says.
const leastOften = 5

// TestModelAnswersAsPostgresDoes: random calls on both, every answer and every row compared. What the enumerator proves over the model
// holds for the ledger as far as this test reaches.
func TestModelAnswersAsPostgresDoes(t *testing.T) {
	urls := stack.Databases(t)
	p := open(t, urls.Worker, urls.Desk, urls.Superuser)
	counts := map[string]int{}
	for seed := range uint64(seeds) {
		if w := p.run(seed, counts); len(w.wrong) > 0 {
			t.Fatalf("seed %d: %s\nafter %s", seed, strings.Join(w.wrong, "\n"), strings.Join(w.calls, "\n      "))
		}
	}
	t.Logf("%d seeds of %d calls: %v", seeds, length, counts)
	for _, kind := range []string{"claim", "claim of another job", "claim of another version", "claim of a job never published", "claim of a refused job",
		"claim of a refused job that nobody serves", "accept", "claim due", "commit attempt", "record", "append", "renew", "look at parked", "pause", "resume", "doubt",
		"stop", "lose a claim", "lose a claim and its attempt", "lose an operation", "purge",
		"answered claimed", "answered claimed in doubt", "answered finished", "answered parked", "answered busy", "answered scheduled", "answered held", "answered conflict",
		"accepted", "accepted before", "accept conflict", "accept other version", "answered other version", "answered not on record", "answered not on record in doubt", "attempt committed", "attempt fenced", "attempt differs", "attempt stopped", "recorded",
		"fenced", "late authorized", "late contradicted", "stray", "refused", "renewed", "not renewed", "looked at", "due while paused", "due while stopped",
		"a fence is issued again", "an id is issued again"} {
		if counts[kind] < leastOften {
			t.Errorf("%s: %d times, want at least %d", kind, counts[kind], leastOften)
		}
	}
}

func (w *twins) wish(n int) ledger.Wish {
	key := uuid.Must(uuid.NewV7())
	if n == 3 {
		key = uuid.New() // which tells no time
	}
	wish := ledger.Wish{Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: sha256.Sum256(key[:])}, Source: source, Route: routeName,
		DebtorAccount: "cust-4471", Amount: money.Amount{Minor: 4900, Currency: "GBP"}, Payload: []byte(`{"v":1}`), PublishedAt: time.Now(),
		Intention: ledger.Intention{Partner: w.partner, Credential: "2026-11", Endpoint: "POST https://bank.example", Renderer: 1,
			BodySHA256: sha256.Sum256([]byte("body")), PartnerKey: uuid.NewString(), EndToEndID: "E2E"}}
	if n == 1 {
		wish.NotBefore = time.Now().Add(time.Duration(w.rand.IntN(3)-1) * time.Hour)
	}
	if n == 2 && w.rand.IntN(2) == 0 {
		wish.NotAfter = time.Now().Add(time.Hour - time.Duration(w.rand.IntN(2))*2*time.Hour)
	}
	return wish
}

func (w *twins) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// step makes one call on both, drawn by weight.
func (w *twins) step() {
	ctx := context.Background()
	wish := w.wishes[w.rand.IntN(len(w.wishes))]
	clear(w.touched)
	w.touched[wish.Key] = true
	kinds := []struct {
		weight int
		do     func()
	}{
		{10, func() { w.claimBoth(ctx, wish) }},
		{9, func() {
			if n := w.rand.IntN(4); n > 0 {
				w.dueNow(n > 1)
			}
			w.sweepBoth(ctx)
		}},
		{8, func() { w.attemptBoth(ctx, w.pick()) }},
		{14, func() { w.recordBoth(ctx, w.pick()) }},
		{4, func() { w.acceptBoth(ctx, wish) }},
		{5, func() { w.appendBoth(ctx, wish.Key) }},
		{3, func() { w.renewBoth(ctx) }},
		{3, func() { w.lookBoth(ctx) }},
		{1, func() { w.pauseBoth(ctx) }},
		{3, w.resumeBoth},
		{1, w.doubtBoth},
		{3, func() { w.stopBoth(wish.Key) }},
		{5, func() { w.loseClaim(ctx, wish) }},
		{1, w.loseOperation},
		{2, func() { w.purgeBoth(ctx) }},
	}
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	for n, i := w.rand.IntN(sum), 0; ; i++ {
		if n -= kinds[i].weight; n < 0 {
			kinds[i].do()
			return
		}
	}
}

// made counts a call, or what came of one.
func (w *twins) made(what string) { w.counts[what]++ }

func (w *twins) same(what string, real, model any) {
	w.calls = append(w.calls, fmt.Sprintf("%s: %v", what, real))
	if r, m := fmt.Sprintf("%+v", real), fmt.Sprintf("%+v", model); r != m {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: postgres says %s, the model %s", what, r, m))
	}
}

// touch has every row compared after the step.
func (w *twins) touch() {
	for _, wish := range w.wishes {
		w.touched[wish.Key] = true
	}
}

// compare reads what the step touched, and the pauses, on both sides.
func (w *twins) compare() {
	ctx := context.Background()
	for i, wish := range w.wishes {
		if !w.touched[wish.Key] {
			continue
		}
		e, err := w.real.Explain(ctx, wish.Key)
		r := w.model.ops[wish.Key]
		if errors.Is(err, ledger.ErrNotFound) && r == nil {
			continue
		}
		if err != nil || r == nil {
			w.wrong = append(w.wrong, fmt.Sprintf("operation %d: postgres: %v; the model knows it: %v", i, err, r != nil))
			continue
		}
		w.compareRow(i, &e, r)
	}
	pauses, err := w.real.Pauses(ctx)
	var real []string
	for _, p := range pauses {
		real = append(real, string(p.Scope)+"/"+p.Name)
	}
	slices.Sort(real)
	if model := slices.Sorted(maps.Keys(w.model.pauses)); err != nil || !slices.Equal(real, model) {
		w.wrong = append(w.wrong, fmt.Sprintf("pauses: postgres has %v (%v), the model %v", real, err, model))
	}
}

func (w *twins) compareRow(i int, e *ledger.Explanation, r *row) {
	code, held := r.code, ""
	if r.held {
		code, held = "", r.code
	}
	w.sameRow(i, "state", fmt.Sprint(e.State, e.InDoubt, e.HeldReason, "/", e.Code, "/", e.TransferID, e.Fence, e.Epoch, e.Partner, e.PartnerKey, e.Credential),
		fmt.Sprint(r.state, r.inDoubt, held, "/", code, "/", r.transferID, r.fence, r.epoch, r.partner, r.partnerKey, r.credential))
	w.sameRow(i, "contradicted, payload", fmt.Sprint(!e.ContradictedAt.IsZero(), string(e.Payload)), fmt.Sprint(r.contradicted, string(r.wish.Payload)))
	w.sameTime(i, "first sent", e.FirstSentAt, r.firstSent)
	w.sameTime(i, "due", e.DueAt, r.dueAt)
	w.sameTime(i, "end of the lease", e.LeaseUntil, r.leaseUntil)
	w.sameRow(i, "events", fmt.Sprint(e.Unpublished), fmt.Sprint(r.events))
	w.sameRow(i, "attempts", attemptsOf(e.Attempts), attemptsOf(r.attempts))
	w.sameRow(i, "facts", factsOf(e.Facts), factsOf(r.facts))
	w.sameRow(i, "entries", entriesOf(e.Entries), entriesOf(r.entries))
}

func (w *twins) sameRow(i int, what, real, model string) {
	if real != model {
		w.wrong = append(w.wrong, fmt.Sprintf("operation %d, %s: postgres has %s, the model %s", i, what, real, model))
	}
}

// sameTime allows for what lies between two calls, and for what the ledger spreads. Whatever means something differs by more.
func (w *twins) sameTime(i int, what string, real, model time.Time) {
	if real.IsZero() != model.IsZero() || real.Sub(model).Abs() > 40*time.Second {
		w.wrong = append(w.wrong, fmt.Sprintf("operation %d, %s: postgres has %v, the model %v", i, what, real, model))
	}
}

func attemptsOf(all []ledger.Attempt) string {
	var s []string
	for _, a := range all {
		s = append(s, fmt.Sprintf("%d %s %s %x", a.Fence, a.PartnerKey, a.Credential, a.BodySHA256[:4]))
	}
	return fmt.Sprint(s)
}

func factsOf(all []ledger.Fact) string {
	var s []string
	for _, f := range all {
		s = append(s, fmt.Sprintf("%s %s %d %s %s", f.Kind, f.Verdict, f.Fence, f.TransferID, f.Code))
	}
	return fmt.Sprint(s)
}

func entriesOf(all []ledger.Entry) string {
	var s []string
	for _, e := range all {
		s = append(s, fmt.Sprintf("%s %s %d %s", e.Event, e.Account, e.AmountMinor, e.Currency))
	}
	slices.Sort(s)
	return fmt.Sprint(s)
}
