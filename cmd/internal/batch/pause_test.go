package batch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// worker is a ledger as a worker has it.
func (w *world) worker() *ledger.Ledger {
	w.t.Helper()
	l, err := ledger.Open(w.t.Context(), w.urls.Worker, ledger.Options{MaxConns: 4})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	return l
}

// claim has a worker wish to start a row, as its message does.
func (w *world) claim(l *ledger.Ledger, key uuid.UUID) ledger.ClaimAnswer {
	w.t.Helper()
	wish := ledger.Wish{Key: key, Intention: ledger.Intention{Partner: "northbank", Credential: "c", Endpoint: "e", Renderer: 1, PartnerKey: key.String(), EndToEndID: "x"}}
	var sum []byte
	err := w.owner.QueryRow(context.Background(), `SELECT o.fingerprint_version, o.fingerprint, o.source, o.route, o.debtor_account, o.amount_minor, o.currency, p.body
		FROM operations o JOIN payloads p ON p.operation_id = o.id WHERE o.key = $1`, key).
		Scan(&wish.Fingerprint.Version, &sum, &wish.Source, &wish.Route, &wish.DebtorAccount, &wish.Amount.Minor, &wish.Amount.Currency, &wish.Payload)
	if err != nil {
		w.t.Fatal(err)
	}
	wish.Fingerprint.Sum = [32]byte(sum)
	return l.Claim(w.t.Context(), []ledger.Wish{wish})[0]
}

// sweep claims what is due, and gives the keys.
func (w *world) sweep(l *ledger.Ledger) map[uuid.UUID]bool {
	w.t.Helper()
	found, err := l.ClaimDue(w.t.Context(), "northbank", 100)
	if err != nil {
		w.t.Fatal(err)
	}
	keys := map[uuid.UUID]bool{}
	for _, one := range found {
		keys[one.Claim.Key] = true
	}
	return keys
}

func (w *world) pause(runKey string) Walked {
	w.t.Helper()
	walked, err := w.Pause(w.t.Context(), runKey, w.people["oscar"], "the bank asks", WalkOptions{})
	if err != nil || walked.Run.State != Paused {
		w.t.Fatalf("pause %s: %+v, %v", runKey, walked, err)
	}
	return walked
}

// TestPause_HoldsWhatNobodyHasBegun: neither a message, nor the sweep, nor the end of another pause, nor a look-up begins a row of a paused run. What
// was begun, or is in doubt, or is another run's, is as it was. Resumed, all of it comes back, in time.
func TestPause_HoldsWhatNobodyHasBegun(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	l := w.worker()
	text := strings.ReplaceAll(csvRows(6), "\n", ",\n")
	text = strings.Replace(text, "iban,", "iban,not_before", 1)
	text = strings.TrimSuffix(text, "\n") + "2099-01-01\n" // the last row has its time
	run, other := w.submit("run-1", text), w.submit("run-2", rowsOf("other", 2))
	w.enqueue(run)
	w.enqueue(other)
	keys, others := w.keys(run), w.keys(other)
	if got := w.claim(l, keys[1]); got.Answer != ledger.Claimed {
		t.Fatalf("row 1 before the pause: %+v", got)
	}
	w.exec(`UPDATE operations SET in_doubt = true, first_sent_at = now() WHERE key = $1`, keys[2])
	if walked := w.pause("run-1"); walked.Moved != 4 {
		t.Errorf("%d rows are held, want 4", walked.Moved)
	}
	if walked := w.pause("run-1"); walked.Moved != 0 {
		t.Errorf("once more: %d rows are held", walked.Moved)
	}
	if got := w.claim(l, keys[3]); got.Answer != ledger.Held || got.HeldReason != ledger.HeldByRun {
		t.Errorf("a message of a held row: %+v", got)
	}
	status, err := w.Status(ctx, "run-1")
	if err != nil || status.Rows(Held) != 4 || status.Rows("open") != 1 || status.Rows("claimed") != 1 || status.AtRest() || status.Complete() {
		t.Errorf("status %+v, %v", status, err)
	}
	var held []int
	if err := w.Rows(ctx, run, []string{Held}, func(r RowOutcome) error { held = append(held, r.N); return nil }); err != nil || !slices.Equal(held, []int{3, 4, 5, 6}) {
		t.Errorf("held rows %v, %v", held, err)
	}

	// Another pause begins and ends, somebody has the partner asked, and the sweep comes.
	for _, act := range []operate.Act{w.desk.Pause(ledger.ScopeRoute, "gbp-fps", "maintenance"), w.desk.Resume(ledger.ScopeRoute, "gbp-fps", "over")} {
		if _, err := w.desk.Do(ctx, operate.Request{By: w.people["oscar"], Reason: "maintenance", Act: act}); err != nil {
			t.Fatal(err)
		}
	}
	w.exec(`SELECT ask_operation(0, $1)`, keys[3])
	w.want(4, `SELECT count(*) FROM due WHERE due_at > now() + interval '99 years'`)                  // a worker of an older program goes by this alone
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE due_at < now() + interval '1 year'`) // all that has its time
	if swept := w.sweep(l); !maps.Equal(swept, map[uuid.UUID]bool{keys[2]: true, others[1]: true, others[2]: true}) {
		t.Errorf("the sweep takes %v of %v and %v", swept, keys, others)
	}
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE operation_id = (SELECT id FROM operations WHERE key = $1)`, keys[4]) // by whatever mistake
	if swept := w.sweep(l); len(swept) != 0 {
		t.Errorf("the sweep takes %v, which is held", swept)
	}

	out, err := w.Release(ctx, "run-1", w.people["olga"], "go on", WalkOptions{Rate: 2})
	if err != nil || out.Run.State != Released || out.Freed != 4 {
		t.Fatalf("resume: %+v, %v", out, err)
	}
	w.want(0, `SELECT count(*) FROM operations WHERE held OR code IS NOT NULL`)
	w.want(3, `SELECT count(*) FROM due d JOIN operations o ON o.id = d.operation_id WHERE o.state = 'open' AND d.due_at < now() + 512 * interval '1 s'`)
	w.want(1, `SELECT count(*) FROM due d JOIN operations o ON o.id = d.operation_id WHERE d.due_at = '2099-01-01Z' AND o.key = $1`, keys[6])
	if got := w.claim(l, keys[3]); got.Answer != ledger.Claimed {
		t.Errorf("a message after the resume: %+v", got)
	}
}

// TestPause_InterruptedIsGoneOnWith: whoever pauses or resumes and dies half-way does it again, and the last word is what remains.
func TestPause_InterruptedIsGoneOnWith(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	run := w.submit("run-1", csvRows(5))
	w.enqueue(run)
	dying := func(at point) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		w.Service.opt.point = func(_ context.Context, now point) {
			if now == at {
				cancel(errors.New("the connection of the person is gone"))
			}
		}
		return ctx
	}
	if _, err := w.Pause(dying(pointState), "run-1", w.people["oscar"], "wait", WalkOptions{}); err == nil {
		t.Fatal("a pause that was interrupted says that it is through")
	}
	w.want(0, `SELECT count(*) FROM operations WHERE held`)
	w.Service.opt.point = nil
	if walked := w.pause("run-1"); walked.Moved != 5 {
		t.Errorf("%d rows are held", walked.Moved)
	}
	if _, err := w.Release(dying(pointState), "run-1", w.people["oscar"], "go on", WalkOptions{}); err == nil {
		t.Fatal("a resume that was interrupted says that it is through")
	}
	w.Service.opt.point = nil
	w.want(5, `SELECT count(*) FROM operations WHERE held`)
	out, err := w.Release(ctx, "run-1", w.people["olga"], "go on", WalkOptions{})
	if err != nil || out.Freed != 5 {
		t.Errorf("resume once more: %+v, %v", out, err)
	}
	w.want(0, `SELECT count(*) FROM operations WHERE held`)
	w.want(5, `SELECT count(*) FROM due WHERE due_at < now() + interval '31 s'`)
	if out, err := w.Release(ctx, "run-1", w.people["olga"], "go on", WalkOptions{}); err != nil || out.Freed != 0 {
		t.Errorf("resume of what runs: %+v, %v", out, err)
	}
}

// TestPause_TheLastWordRemains: a resume that comes while a pause goes through the rows stops it, and nothing stays held.
func TestPause_TheLastWordRemains(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(5))
	w.enqueue(run)
	begun := false
	w.Service.opt.point = func(ctx context.Context, at point) {
		if at != pointWalked || begun {
			return
		}
		begun = true
		if out, err := w.Release(ctx, "run-1", w.people["olga"], "go on", WalkOptions{}); err != nil || out.Freed != 5 {
			t.Errorf("resume: %+v, %v", out, err)
		}
	}
	if _, err := w.Pause(t.Context(), "run-1", w.people["oscar"], "wait", WalkOptions{}); err == nil {
		t.Error("a pause that somebody ended says that it is through")
	}
	w.want(0, `SELECT count(*) FROM operations WHERE held`)
	w.want(1, `SELECT count(*) FROM batch_runs WHERE state = 'released'`)
}

// TestPause_NeedsWhoeverPauses: whoever has the password of `paidonce batch` and no operator's token holds nothing, and lets nothing go; and no row of
// a run that is not released becomes an operation.
func TestPause_NeedsWhoeverPauses(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(3))
	w.enqueue(run)
	w.refused("PO023", `SELECT hold_run_rows($1, 0, 100)`, run.ID)
	w.refused("PO023", `SELECT free_run_rows($1, 0, 100, 0, 0)`, run.ID)
	w.refused("42501", `SELECT rows_under($1, 'batch_pause', 'paused', 0, 100)`, run.ID)
	w.pause("run-1")
	w.refused("PO023", `SELECT hold_run_rows($1, 0, 100)`, run.ID)
	w.refused("PO023", `UPDATE batch_runs SET state = 'released', changed_by = 'oscar' WHERE id = $1`, run.ID)
	w.refused("42501", `INSERT INTO batch_runs (id, run_key, by, reason, format, source, route, rows, sums, counts, digest, content_digest, content_guard, changed_by, state)
		SELECT gen_random_uuid(), 'forged', by, reason, format, source, route, rows, sums, counts, digest, sha256('x'), sha256('x'), changed_by, 'released' FROM batch_runs WHERE id = $1`, run.ID)
	w.refused("PO022", `INSERT INTO batch_rows (run_id, n, line, operation_id) VALUES ($1, 4, 4, 4)`, run.ID)
	w.refused("PO022", `INSERT INTO batch_rows (run_id, n, line, operation_id) VALUES (gen_random_uuid(), 4, 4, 4)`)
	w.want(3, `SELECT count(*) FROM operations WHERE held`)
}

// TestApproval_WhoWasAskedMustAnswer: a run for which a second person was asked is not released without that person, whatever the limits are then.
func TestApproval_WhoWasAskedMustAnswer(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	if _, err := w.Submit(ctx, w.submission("run-1", csvRows(6))); !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	l, err := ledger.Open(ctx, w.urls.Batch, ledger.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raised := New(l, w.pool, operate.New(l, w.pool, operate.Options{Limits: wide()}), w.Service.opt)
	if _, err := raised.Release(ctx, "run-1", w.people["olga"], "the limits are higher now", WalkOptions{}); err == nil {
		t.Error("it was released without the second person")
	}
	w.want(1, `SELECT count(*) FROM batch_runs WHERE state = 'waiting'`)
	if _, _, err := w.Approve(ctx, "run-1", w.people["ada"], "totals agree", false); err != nil {
		t.Fatal(err)
	}
	if out, err := w.Release(ctx, "run-1", w.people["olga"], "approved", WalkOptions{}); err != nil || out.Run.State != Released {
		t.Errorf("with the second person: %+v, %v", out, err)
	}
}

// TestRates_AreThoseOfThePartners of the rows, also where every row names its own route.
func TestRates_AreThoseOfThePartners(t *testing.T) {
	items := make([]item, 12)
	for i := range items {
		items[i].route = []string{"gbp-fps", "jpy-zengin"}[i%2]
	}
	p := newPaces(map[string]string{"gbp-fps": "northbank", "jpy-zengin": "eastbank"}, EnqueueOptions{Rates: map[string]int{"northbank": 3, "eastbank": 0}})
	before := time.Now()
	slice, err := p.wait(t.Context(), items)
	after := time.Now()
	if err != nil || len(slice) != 6 { // three of northbank; the seventh would be the fourth
		t.Fatalf("%d rows pass, %v", len(slice), err)
	}
	limit := p.each["northbank"].limit
	if may := limit.TokensAt(after); may > 3*after.Sub(before).Seconds()+0.001 || limit.TokensAt(after.Add(time.Second)) != 3 { // three at three a second
		t.Errorf("%.3f more may pass %v later", may, after.Sub(before))
	}
	if len(p.each) != 1 {
		t.Errorf("%d partners have a rate", len(p.each))
	}
	p = newPaces(nil, EnqueueOptions{})
	if slice, err := p.wait(t.Context(), items); err != nil || len(slice) != 12 {
		t.Errorf("without rates %d rows pass, %v", len(slice), err)
	}
}
