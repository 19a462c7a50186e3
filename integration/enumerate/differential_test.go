package enumerate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	t      *testing.T
	rand   *rand.Rand
	model  *memory
	real   *ledger.Ledger
	owner  *pgx.Conn
	wishes []ledger.Wish
	claims []pair
	calls  []string
	ids    map[uuid.UUID]bool // keys that the ledger knows
}

// pair is one claim as each of the two granted it.
type pair struct{ model, real ledger.Claim }

// TestModelAnswersAsPostgresDoes: random calls on both, every answer and every row compared. What the enumerator proves over the model
// holds for the ledger as far as this test reaches.
func TestModelAnswersAsPostgresDoes(t *testing.T) {
	const seeds, length = 40, 60
	urls := stack.Databases(t)
	ctx := context.Background()
	real, err := ledger.Open(ctx, urls.Worker, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(real.Close)
	owner, err := pgx.Connect(ctx, urls.Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Close(ctx) })
	counts := map[string]int{}
	for seed := range uint64(seeds) {
		w := &twins{t: t, rand: rand.New(rand.NewPCG(seed, 1)), model: newMemory(60*time.Second, time.Now), real: real, owner: owner,
			ids: map[uuid.UUID]bool{}}
		partner := fmt.Sprintf("bank%d", seed) // its own, so that one seed never sweeps another's
		for n := range 3 {
			w.wishes = append(w.wishes, w.wish(partner, n))
		}
		w.exec(`UPDATE ledger_identity SET doubt_before = '-infinity'`)
		w.exec(`DELETE FROM pauses`)
		for range length {
			what := w.step(partner)
			counts[what]++
			w.compare(ctx)
			if t.Failed() {
				t.Fatalf("seed %d, after %v", seed, w.calls)
			}
		}
	}
	t.Logf("%d seeds of %d calls: %v", seeds, length, counts)
}

func (w *twins) wish(partner string, n int) ledger.Wish {
	key := uuid.Must(uuid.NewV7())
	wish := ledger.Wish{Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: sha256.Sum256(key[:])}, Source: source, Route: routeName,
		DebtorAccount: "cust-4471", Amount: money.Amount{Minor: 4900, Currency: "GBP"}, Payload: []byte(`{"v":1}`), PublishedAt: time.Now(),
		Intention: ledger.Intention{Partner: partner, Credential: "2026-11", Endpoint: "POST https://bank.example", Renderer: 1,
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

func (w *twins) step(partner string) string {
	ctx := context.Background()
	wish := w.wishes[w.rand.IntN(len(w.wishes))]
	switch n := w.rand.IntN(40); {
	case n < 8:
		w.claimBoth(ctx, wish)
		return "claim"
	case n < 16:
		if w.rand.IntN(3) > 0 {
			w.dueNow(ctx, partner)
		}
		w.sweepBoth(ctx, partner)
		return "claim due"
	case n < 22 && len(w.claims) > 0:
		w.attemptBoth(ctx)
		return "commit attempt"
	case n < 33 && len(w.claims) > 0:
		w.recordBoth(ctx)
		return "record"
	case n < 35:
		w.appendBoth(ctx, wish.Key)
		return "append"
	case n < 36 && len(w.claims) > 0:
		c := w.claims[w.rand.IntN(len(w.claims))]
		still, err := w.real.Renew(ctx, []ledger.Claim{c.real})
		w.same("renew", err == nil && still[0], w.model.renew(c.model))
		return "renew"
	case n < 37:
		w.model.pause(ledger.ScopePartner, partner, "test")
		if err := w.real.Pause(ctx, ledger.ScopePartner, partner, "test", "test"); err != nil {
			w.t.Fatal(err)
		}
		return "pause"
	case n < 39:
		clear(w.model.pauses)
		w.exec(`DELETE FROM pauses`)
		return "resume"
	default:
		w.model.doubtBefore = time.Now().Add(time.Minute)
		w.exec(`UPDATE ledger_identity SET doubt_before = $1`, w.model.doubtBefore)
		return "doubt"
	}
}

func (w *twins) same(what string, real, model any) {
	w.t.Helper()
	w.calls = append(w.calls, fmt.Sprintf("%s: %v", what, real))
	if r, m := fmt.Sprintf("%+v", real), fmt.Sprintf("%+v", model); r != m {
		w.t.Errorf("%s: postgres says %s, the model %s", what, r, m)
	}
}

func (w *twins) claimBoth(ctx context.Context, wish ledger.Wish) {
	switch w.rand.IntN(8) {
	case 0:
		wish.Fingerprint.Sum[0]++
	case 1:
		wish.Fingerprint.Version++
	case 2:
		wish.PublishedAt = time.Time{}
	}
	switch w.rand.IntN(6) {
	case 0:
		wish.Refused = true
	case 1:
		wish.Refused, wish.Intention = true, ledger.Intention{}
	}
	real := w.real.Claim(ctx, []ledger.Wish{wish})[0]
	model := w.model.claim(wish, w.model.mint())
	if real.Answer == ledger.Claimed && model.Answer == ledger.Claimed {
		w.claims = append(w.claims, pair{model.Claim, real.Claim})
	}
	strip := func(a ledger.ClaimAnswer) string {
		return fmt.Sprintf("%s state %q doubt %v fence %d held %q version %d err %v", a.Answer, a.State, a.InDoubt, a.Claim.Fence, a.HeldReason,
			a.Version, a.Err)
	}
	w.ids[wish.Key] = w.ids[wish.Key] || real.Err == nil && real.Answer != ledger.NotOnRecord
	w.same("claim", strip(real), strip(model))
}

func (w *twins) dueNow(_ context.Context, partner string) {
	now := time.Now()
	for _, r := range w.model.ops {
		if !r.dueAt.IsZero() {
			r.dueAt = now.Add(-time.Second)
		}
		if r.state == ledger.StateClaimed {
			r.leaseUntil = now.Add(-time.Second)
		}
	}
	w.exec(`UPDATE operations o SET lease_until = now() - interval '1 s' FROM due d WHERE d.operation_id = o.id AND d.partner = $1 AND o.state = 'claimed'`, partner)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE partner = $1`, partner)
}

func (w *twins) sweepBoth(ctx context.Context, partner string) {
	real, err := w.real.ClaimDue(ctx, partner, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	model := w.model.claimDue(partner, 100, w.model.mint())
	byKey := func(a, b ledger.Work) int { return slices.Compare(a.Claim.Key[:], b.Claim.Key[:]) }
	slices.SortFunc(real, byKey)
	slices.SortFunc(model, byKey)
	strip := func(works []ledger.Work) (all []string) {
		for _, k := range works {
			pin := k.Pinned
			all = append(all, fmt.Sprintf("%s fence %d pinned %q key %q epoch %d doubt %v paused %v sent %v unobserved %d attempts %d facts %d payload %s", k.State,
				k.Claim.Fence, pin, k.PartnerKey, k.Epoch, k.InDoubt, k.Paused, !k.FirstSentAt.IsZero(), k.UnobservedClaims, len(k.Attempts), len(k.Facts), k.Payload))
		}
		return all
	}
	w.same("claim due", strip(real), strip(model))
	for i := range min(len(real), len(model)) {
		w.claims = append(w.claims, pair{model[i].Claim, real[i].Claim})
	}
}

// pick prefers the latest claims; the others are stale.
func (w *twins) pick() (pair, ledger.Wish) {
	c := w.claims[len(w.claims)-1-w.rand.IntN(min(len(w.claims), 1+w.rand.IntN(4)))]
	i := slices.IndexFunc(w.wishes, func(wish ledger.Wish) bool { return wish.Key == c.real.Key })
	return c, w.wishes[i]
}

func (w *twins) attemptBoth(ctx context.Context) {
	c, wish := w.pick()
	in := wish.Intention
	switch w.rand.IntN(12) {
	case 0:
		in.BodySHA256[0]++
	case 1:
		in.Credential = "2026-12"
	case 2:
		in.PartnerKey = uuid.NewString()
	case 3:
		in.Endpoint += "/v2"
	}
	real := w.real.CommitAttempts(ctx, []ledger.Resend{{Claim: c.real, Intention: in}})[0]
	w.same("commit attempt", real.Answer, w.model.commitAttempt(ledger.Resend{Claim: c.model, Intention: in}))
}

func (w *twins) draw() ledger.Record {
	id := fmt.Sprintf("tr_%d", w.rand.IntN(3))
	fact := func(verdict string) ledger.Fact {
		return ledger.Fact{Kind: ledger.FactVerdict, Verdict: verdict, Evidence: []byte(`{}`)}
	}
	authorized := fact("authorized")
	authorized.TransferID = id
	doubt := w.rand.IntN(2) == 0
	switch w.rand.IntN(11) {
	case 0:
		return ledger.Record{Next: ledger.StateAuthorized, TransferID: id, Facts: []ledger.Fact{authorized}}
	case 1:
		return ledger.Record{Next: ledger.StateRejected, Code: "account_closed", Facts: []ledger.Fact{fact("rejected")}, InDoubt: doubt}
	case 2:
		return ledger.Record{Next: ledger.StateCancelled, Code: "expired"}
	case 3:
		return ledger.Record{Next: ledger.StateParked, Code: "mismatch", InDoubt: true, Facts: []ledger.Fact{fact("mismatch"), authorized}}
	case 4:
		return ledger.Record{Next: ledger.StateOpen, Held: true, Code: "over_limit", DueIn: time.Hour, Facts: []ledger.Fact{fact("not_executed")}}
	case 5:
		return ledger.Record{Next: ledger.StateOpen, RaiseEpoch: true, InDoubt: w.rand.IntN(4) == 0, Facts: []ledger.Fact{fact("rejected")}}
	case 6:
		return ledger.Record{Next: ledger.StateAuthorized, Facts: []ledger.Fact{fact("authorized")}} // no transfer id
	case 7:
		return ledger.Record{Next: ledger.StateParked, InDoubt: doubt} // no code
	case 8:
		return ledger.Record{Next: ledger.StateParked, Code: "in_doubt", InDoubt: doubt, Facts: []ledger.Fact{authorized}}
	}
	return ledger.Record{Next: ledger.StateOpen, InDoubt: doubt, DueIn: time.Duration(w.rand.IntN(2)) * time.Hour, Facts: []ledger.Fact{fact("unknown")}}
}

func (w *twins) recordBoth(ctx context.Context) {
	c, _ := w.pick()
	rec := w.draw()
	rec.Claim = c.real
	real := w.real.Record(ctx, []ledger.Record{rec})[0]
	rec.Claim = c.model
	model := w.model.record(rec)
	strip := func(r ledger.RecordResult) string {
		return fmt.Sprintf("%s %q refused %v", r.Answer, r.State, r.Err != nil)
	}
	w.same(fmt.Sprintf("record %s doubt %v epoch %v", rec.Next, rec.InDoubt, rec.RaiseEpoch), strip(real), strip(model))
}

func (w *twins) appendBoth(ctx context.Context, key uuid.UUID) {
	rec := w.draw()
	for i := range rec.Facts {
		rec.Facts[i].Kind = ledger.FactLookUp
	}
	real := w.real.Append(ctx, []ledger.Late{{Key: key, Facts: rec.Facts}})[0]
	model := w.model.keepEvidence(ledger.Claim{Key: key, Token: w.model.mint()}, rec.Facts, false)
	w.same("append", fmt.Sprint(real.Answer, real.State, real.Err), fmt.Sprint(model.Answer, model.State, model.Err))
}

// compare reads every row on both sides.
func (w *twins) compare(ctx context.Context) {
	w.t.Helper()
	for i, wish := range w.wishes {
		e, err := w.real.Explain(ctx, wish.Key)
		r := w.model.ops[wish.Key]
		if errors.Is(err, ledger.ErrNotFound) && r == nil {
			continue
		}
		if err != nil || r == nil {
			w.t.Fatalf("operation %d: postgres: %v; the model knows it: %v", i, err, r != nil)
		}
		code, held := r.code, ""
		if r.held {
			code, held = "", r.code
		}
		w.sameRow(i, "state", fmt.Sprint(e.State, e.InDoubt, e.HeldReason, "/", e.Code, "/", e.TransferID, e.Fence, e.Epoch, e.Partner, e.PartnerKey, e.Credential),
			fmt.Sprint(r.state, r.inDoubt, held, "/", code, "/", r.transferID, r.fence, r.epoch, r.partner, r.partnerKey, r.credential))
		w.sameRow(i, "times", fmt.Sprint(!e.FirstSentAt.IsZero(), !e.ContradictedAt.IsZero(), !e.DueAt.IsZero(), !e.LeaseUntil.IsZero()),
			fmt.Sprint(!r.firstSent.IsZero(), r.contradicted, !r.dueAt.IsZero(), !r.leaseUntil.IsZero()))
		w.sameRow(i, "events", fmt.Sprint(e.Unpublished), fmt.Sprint(r.events))
		w.sameRow(i, "attempts", attemptsOf(e.Attempts), attemptsOf(r.attempts))
		w.sameRow(i, "facts", factsOf(e.Facts), factsOf(r.facts))
		w.sameRow(i, "entries", entriesOf(e.Entries), entriesOf(r.entries))
	}
}

func (w *twins) sameRow(i int, what, real, model string) {
	w.t.Helper()
	if real != model {
		w.t.Errorf("operation %d, %s: postgres has %s, the model %s", i, what, real, model)
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
