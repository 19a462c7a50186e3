package enumerate

import (
	"cmp"
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
		"claim of a refused job that nobody serves", "claim due", "commit attempt", "record", "append", "renew", "look at parked", "pause", "resume", "doubt",
		"stop", "lose a claim", "lose a claim and its attempt", "lose an operation", "purge",
		"answered claimed", "answered claimed in doubt", "answered finished", "answered parked", "answered busy", "answered scheduled", "answered held", "answered conflict",
		"answered other version", "answered not on record", "answered not on record in doubt", "attempt committed", "attempt fenced", "attempt differs", "attempt stopped", "recorded",
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
			if w.rand.IntN(3) > 0 {
				w.dueNow()
			}
			w.sweepBoth(ctx)
		}},
		{8, func() { w.attemptBoth(ctx, w.pick()) }},
		{14, func() { w.recordBoth(ctx) }},
		{3, func() { w.appendBoth(ctx, wish.Key) }},
		{2, func() { w.renewBoth(ctx) }},
		{3, func() { w.lookBoth(ctx) }},
		{1, func() { w.pauseBoth(ctx) }},
		{2, w.resumeBoth},
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

func (w *twins) claimBoth(ctx context.Context, wish ledger.Wish) {
	kind := "claim"
	switch w.rand.IntN(8) {
	case 0:
		wish.Fingerprint.Sum[0]++
		kind = "claim of another job"
	case 1:
		wish.Fingerprint.Version++
		kind = "claim of another version"
	case 2:
		wish.PublishedAt = time.Time{}
		kind = "claim of a job never published"
	case 3:
		wish.Refused = true
		kind = "claim of a refused job"
	case 4:
		wish.Refused, wish.Intention = true, ledger.Intention{}
		kind = "claim of a refused job that nobody serves"
	}
	w.made(kind)
	real := w.real.Claim(ctx, []ledger.Wish{wish})[0]
	model := w.model.claim(wish, w.model.mint())
	if real.Answer == ledger.Claimed && model.Answer == ledger.Claimed {
		w.grant(model.Claim, real.Claim)
	}
	strip := func(a ledger.ClaimAnswer) string {
		return fmt.Sprintf("%s state %q doubt %v fence %d held %q version %d err %v", answerNames()[a.Answer], a.State, a.InDoubt, a.Claim.Fence, a.HeldReason, a.Version, a.Err)
	}
	answer := "answered " + answerNames()[real.Answer]
	if real.InDoubt {
		answer += " in doubt"
	}
	w.made(answer)
	w.same(kind, strip(real), strip(model))
}

func answerNames() map[ledger.Answer]string {
	return map[ledger.Answer]string{ledger.NoAnswer: "nothing", ledger.Claimed: "claimed", ledger.Finished: "finished", ledger.Parked: "parked", ledger.Busy: "busy",
		ledger.Scheduled: "scheduled", ledger.Held: "held", ledger.Conflict: "conflict", ledger.OtherVersion: "other version", ledger.NotOnRecord: "not on record"}
}

// grant keeps a claim, for what is done under it.
func (w *twins) grant(model, real ledger.Claim) {
	for _, c := range w.claims {
		if c.real.Key == real.Key && c.real.OperationID == real.OperationID && c.real.Fence == real.Fence {
			w.made("a fence is issued again")
		}
		if c.real.Key != real.Key && c.real.OperationID == real.OperationID {
			w.made("an id is issued again")
		}
	}
	w.claims = append(w.claims, pair{model, real})
}

// dueNow makes everything due, and lets every lease lapse.
func (w *twins) dueNow() {
	w.touch()
	now := time.Now()
	for _, r := range w.model.ops {
		if !r.dueAt.IsZero() {
			r.dueAt = now.Add(-time.Second)
		}
		if r.state == ledger.StateClaimed {
			r.leaseUntil = now.Add(-time.Second)
		}
	}
	w.exec(`UPDATE operations o SET lease_until = now() - interval '1 s' FROM due d WHERE d.operation_id = o.id AND d.partner = $1 AND o.state = 'claimed'`, w.partner)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE partner = $1`, w.partner)
}

func (w *twins) sweepBoth(ctx context.Context) {
	w.made("claim due")
	w.touch()
	real, err := w.real.ClaimDue(ctx, w.partner, 100)
	model := w.model.claimDue(w.partner, 100, w.model.mint())
	w.sameWorks("claim due", real, err, model)
	for i := range min(len(real), len(model)) {
		if model[i].Paused {
			w.made("due while paused")
		}
		if model[i].Stopped != "" {
			w.made("due while stopped")
		}
		w.grant(model[i].Claim, real[i].Claim)
	}
}

func (w *twins) lookBoth(ctx context.Context) {
	w.made("look at parked")
	if w.rand.IntN(3) > 0 {
		w.dueNow()
	}
	w.touch()
	real, err := w.real.LookAtParked(ctx, w.partner, 100)
	model := w.model.lookAtParked(w.partner, 100)
	w.counts["looked at"] += len(model)
	w.sameWorks("look at parked", real, err, model)
}

// sameWorks sorts both as the wishes are, and compares them.
func (w *twins) sameWorks(what string, real []ledger.Work, err error, model []ledger.Work) {
	place := func(k ledger.Work) int {
		return slices.IndexFunc(w.wishes, func(wish ledger.Wish) bool { return wish.Key == k.Claim.Key })
	}
	inOrder := func(a, b ledger.Work) int { return cmp.Compare(place(a), place(b)) }
	slices.SortFunc(real, inOrder)
	slices.SortFunc(model, inOrder)
	strip := func(works []ledger.Work) (all []string) {
		for _, k := range works {
			all = append(all, fmt.Sprintf("%s fence %d token %v pinned %q key %q epoch %d doubt %v paused %v stopped %q sent %v unobserved %d attempts %d facts %d payload %s",
				k.State, k.Claim.Fence, k.Claim.Token != uuid.Nil, k.Pinned, k.PartnerKey, k.Epoch, k.InDoubt, k.Paused, k.Stopped, !k.FirstSentAt.IsZero(), k.UnobservedClaims,
				len(k.Attempts), len(k.Facts), k.Payload))
		}
		return all
	}
	w.same(what, fmt.Sprint(strip(real), err), fmt.Sprint(strip(model), nil))
}

func (w *twins) renewBoth(ctx context.Context) {
	if len(w.claims) == 0 {
		return
	}
	w.made("renew")
	c := w.pick()
	still, err := w.real.Renew(ctx, []ledger.Claim{c.real})
	model := w.model.renew(c.model)
	if model {
		w.made("renewed")
	} else {
		w.made("not renewed")
	}
	w.same("renew", fmt.Sprint(still, err), fmt.Sprint([]bool{model}, nil))
}

func (w *twins) pauseBoth(ctx context.Context) {
	w.made("pause")
	scopes := []struct {
		scope ledger.Scope
		name  string
	}{{ledger.ScopePartner, w.partner}, {ledger.ScopeRoute, routeName}, {ledger.ScopeSource, source}, {ledger.ScopeAll, ""}}
	at := scopes[w.rand.IntN(len(scopes))]
	w.model.pause(at.scope, at.name, "test")
	w.same("pause "+string(at.scope), w.real.Pause(ctx, at.scope, at.name, "test", "test"), nil)
}

// resumeBoth only ends the pause: what brings held operations back is a person's command.
func (w *twins) resumeBoth() {
	w.made("resume")
	clear(w.model.pauses)
	w.exec(`DELETE FROM pauses`)
	w.calls = append(w.calls, "resume")
}

// doubtBoth is what a recovery writes: claims until now may have been lost.
func (w *twins) doubtBoth() {
	w.made("doubt")
	w.model.doubtBefore = time.Now().Add(time.Minute)
	var since *time.Time
	if w.rand.IntN(2) == 0 {
		w.model.lostSince = time.Now().Add(-time.Hour)
		since = &w.model.lostSince
	}
	w.exec(`UPDATE ledger_identity SET doubt_before = $1, lost_since = coalesce($2, lost_since)`, w.model.doubtBefore, since)
	w.calls = append(w.calls, fmt.Sprint("doubt ", since != nil))
}

// stopBoth is what a cancelled batch run leaves of what it cannot end.
func (w *twins) stopBoth(key uuid.UUID) {
	w.made("stop")
	r := w.model.ops[key]
	if r == nil || r.state.Finished() || r.state == ledger.StateOpen && !r.inDoubt {
		return
	}
	r.stopped = "run_cancelled"
	w.exec(`INSERT INTO stops (operation_id, code) SELECT id, 'run_cancelled' FROM operations WHERE key = $1 ON CONFLICT DO NOTHING`, key)
	w.calls = append(w.calls, "stop")
}

func (w *twins) purgeBoth(ctx context.Context) {
	w.made("purge")
	w.touch()
	w.exec(`SELECT pg_sleep(0.002)`) // what ended just now is older than a millisecond
	w.model.purge()
	_, err := w.desk.PurgePayloads(ctx, ledger.Purge{OlderThan: time.Millisecond, Ease: -1})
	w.same("purge", err, nil)
}

// pick prefers the claims that hold, and of the others, which are stale, the latest.
func (w *twins) pick() pair {
	if len(w.claims) == 0 {
		return pair{}
	}
	if w.rand.IntN(2) == 0 {
		for _, c := range slices.Backward(w.claims) {
			if w.model.holds(c.model) != nil {
				return c
			}
		}
	}
	return w.claims[len(w.claims)-1-w.rand.IntN(min(len(w.claims), 1+w.rand.IntN(5)))]
}

func (w *twins) wishOf(c pair) ledger.Wish {
	i := slices.IndexFunc(w.wishes, func(wish ledger.Wish) bool { return wish.Key == c.real.Key })
	return w.wishes[i]
}

func (w *twins) attemptBoth(ctx context.Context, c pair) {
	if len(w.claims) == 0 {
		return
	}
	w.made("commit attempt")
	w.touched[c.real.Key] = true
	in := w.wishOf(c).Intention
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
	model := w.model.commitAttempt(ledger.Resend{Claim: c.model, Intention: in})
	w.made(map[ledger.AttemptAnswer]string{ledger.AttemptCommitted: "attempt committed", ledger.AttemptFenced: "attempt fenced", ledger.AttemptDiffers: "attempt differs",
		ledger.AttemptStopped: "attempt stopped"}[model])
	w.same("commit attempt", fmt.Sprint(real.Answer, real.Err), fmt.Sprint(model, nil))
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
	if len(w.claims) == 0 {
		return
	}
	w.made("record")
	c := w.pick()
	w.touched[c.real.Key] = true
	rec := w.draw()
	rec.Claim = c.real
	real := w.real.Record(ctx, []ledger.Record{rec})[0]
	rec.Claim = c.model
	model := w.model.record(rec)
	strip := func(r ledger.RecordResult) string {
		return fmt.Sprintf("%s %q refused %v", recordNames()[r.Answer], r.State, r.Err != nil)
	}
	w.made(recordNames()[model.Answer])
	w.same(fmt.Sprintf("record %s doubt %v epoch %v", rec.Next, rec.InDoubt, rec.RaiseEpoch), strip(real), strip(model))
}

func recordNames() map[ledger.RecordAnswer]string {
	return map[ledger.RecordAnswer]string{ledger.NotRecorded: "refused", ledger.Recorded: "recorded", ledger.Fenced: "fenced", ledger.LateAuthorized: "late authorized",
		ledger.LateContradicted: "late contradicted", ledger.Stray: "stray"}
}

func (w *twins) appendBoth(ctx context.Context, key uuid.UUID) {
	w.made("append")
	rec := w.draw()
	if w.rand.IntN(2) == 0 { // which may decide, or contradict
		rec = ledger.Record{Facts: []ledger.Fact{{Verdict: "authorized", TransferID: fmt.Sprintf("tr_%d", w.rand.IntN(3)), Evidence: []byte(`{}`)}}}
	}
	for i := range rec.Facts {
		rec.Facts[i].Kind = ledger.FactLookUp
	}
	real := w.real.Append(ctx, []ledger.Late{{Key: key, Facts: rec.Facts}})[0]
	model := w.model.keepEvidence(ledger.Claim{Key: key, Token: w.model.mint()}, rec.Facts, false)
	w.made(recordNames()[model.Answer])
	w.same("append", fmt.Sprint(recordNames()[real.Answer], real.State, real.Err), fmt.Sprint(recordNames()[model.Answer], model.State, model.Err))
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
