package batch

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// recover accepts another server, as `paidonce recover` does.
func (w *world) recover() {
	w.t.Helper()
	l, err := ledger.Open(w.t.Context(), w.urls.Owner, ledger.Options{MaxConns: 2})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	w.exec(`UPDATE ledger_identity SET timeline = timeline + 1`)
	if _, err := l.Recover(w.t.Context(), ledger.Loss{}, "failover", "ann"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) resume(runKey string) Submitted {
	w.t.Helper()
	out, err := w.Release(w.t.Context(), runKey, w.people["olga"], "go on", WalkOptions{})
	if err != nil || out.Run.State != Released {
		w.t.Fatalf("resume: %+v, %v", out, err)
	}
	return out
}

// TestHold_WhatComesInDoubtIsAskedAfter: a paused run sends nothing, but money that may have moved waits for nobody.
func TestHold_WhatComesInDoubtIsAskedAfter(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(4))
	w.enqueue(run)
	keys := w.keys(run)
	other := w.submit("run-2", rowsOf("other", 1))
	w.enqueue(other)
	others := w.keys(other)[1]
	w.pause("run-1")
	w.pause("run-2")
	w.recover()
	status, err := w.Status(t.Context(), "run-1")
	if err != nil || status.Rows(Held) != 0 || status.Rows("open") != 4 || status.InDoubt != 4 || status.AtRest() {
		t.Errorf("status %+v, %v", status, err)
	}
	if walked := w.pause("run-1"); walked.Moved != 0 {
		t.Errorf("a pause holds %d rows in doubt", walked.Moved)
	}
	w.want(5, `SELECT count(*) FROM due WHERE due_at < now() + interval '31 s'`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE due_at < now() + interval '31 s'`)
	worker := w.worker()
	paused := func() map[uuid.UUID]bool {
		work, err := worker.ClaimDue(t.Context(), "northbank", 100)
		if err != nil {
			t.Fatal(err)
		}
		is := map[uuid.UUID]bool{}
		for _, one := range work {
			is[one.Claim.Key] = one.Paused
		}
		return is
	}
	want := func(is bool) map[uuid.UUID]bool {
		return map[uuid.UUID]bool{keys[1]: is, keys[2]: is, keys[3]: is, keys[4]: is, others: true}
	}
	if swept := paused(); !maps.Equal(swept, want(true)) {
		t.Errorf("the sweep takes %v, want 4 rows, of which nothing is sent", swept)
	}
	w.resume("run-1")
	w.exec(`UPDATE operations SET lease_until = now() - interval '1 s'`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s'`)
	if swept := paused(); !maps.Equal(swept, want(false)) {
		t.Errorf("after the resume the sweep takes %v", swept)
	}
}

// TestHold_AMarkThatAnOlderProgramLeftOnDoubt hides nothing: the row is no held one, a person may ask, and a resume lets it go.
func TestHold_AMarkThatAnOlderProgramLeftOnDoubt(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(3))
	w.enqueue(run)
	keys := w.keys(run)
	w.pause("run-1")
	w.exec(`UPDATE operations SET in_doubt = true, first_sent_at = now() WHERE key = ANY($1)`, []uuid.UUID{keys[1], keys[2]})
	status, err := w.Status(t.Context(), "run-1")
	if err != nil || status.Rows(Held) != 1 || status.Rows("open") != 2 || status.AtRest() {
		t.Errorf("status %+v, %v", status, err)
	}
	w.exec(`SELECT ask_operation(0, $1)`, keys[1])
	w.exec(`SELECT ask_operation(0, $1)`, keys[3]) // held, and not in doubt
	if swept := w.sweep(w.worker()); !maps.Equal(swept, map[uuid.UUID]bool{keys[1]: true}) {
		t.Errorf("the sweep takes %v of %v, want the first", swept, keys)
	}
	if out := w.resume("run-1"); out.Freed != 2 {
		t.Errorf("%d rows are let go, want 2", out.Freed)
	}
	w.want(0, `SELECT count(*) FROM operations WHERE held`)
	w.want(0, `SELECT count(*) FROM due WHERE due_at > now() + interval '31 s' AND operation_id <> (SELECT id FROM operations WHERE key = $1)`, keys[1])
}

// TestHold_AMismatchWaitsForNoRun: what the partner says of a held row has the sweep take it, and park it.
func TestHold_AMismatchWaitsForNoRun(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(2))
	w.enqueue(run)
	keys := w.keys(run)
	w.pause("run-1")
	l := w.worker()
	if r := l.Append(t.Context(), []ledger.Late{{Key: keys[1], Facts: []ledger.Fact{{Kind: ledger.FactWebhook, Verdict: "mismatch"}}}}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if swept := w.sweep(l); !maps.Equal(swept, map[uuid.UUID]bool{keys[1]: true}) {
		t.Errorf("the sweep takes %v of %v, want the first", swept, keys)
	}
}

// TestHold_ExpiresInTime: past its not_after a held row is taken, so that it ends; no other, and none before.
func TestHold_ExpiresInTime(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	text := strings.ReplaceAll(csvRows(3), "\n", ",\n")
	text = strings.Replace(text, "iban,", "iban,not_after", 1)
	text = strings.TrimSuffix(text, "\n") + "2098-01-01\n" // the last row
	run := w.submit("run-1", text)
	w.enqueue(run)
	keys := w.keys(run)
	l := w.worker()
	w.pause("run-1")
	w.want(2, `SELECT count(*) FROM due WHERE due_at > now() + interval '99 years'`)
	w.want(1, `SELECT count(*) FROM due WHERE due_at BETWEEN '2098-01-01Z' AND '2098-01-02Z'`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s'`)
	if swept := w.sweep(l); len(swept) != 0 {
		t.Errorf("the sweep takes %v before its time", swept)
	}
	w.exec(`ALTER TABLE payloads DISABLE TRIGGER USER`)
	w.exec(`UPDATE payloads SET not_after = now() WHERE not_after IS NOT NULL`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s'`)
	if swept := w.sweep(l); !maps.Equal(swept, map[uuid.UUID]bool{keys[3]: true}) {
		t.Errorf("the sweep takes %v of %v, want the third", swept, keys)
	}
}

// TestHold_KeepsTheSchedule of what was begun: the partner has said when to come again. And what was held already is held for its own reason again.
func TestHold_KeepsTheSchedule(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(4))
	w.enqueue(run)
	keys := w.keys(run)
	l := w.worker()
	record := func(key uuid.UUID, as func(ledger.Claim) ledger.Record) {
		t.Helper()
		got := w.claim(l, key)
		if r := l.Record(t.Context(), []ledger.Record{as(got.Claim)}); r[0].Err != nil || r[0].Answer != ledger.Recorded {
			t.Fatalf("record %+v under %+v", r[0], got)
		}
	}
	later := func(in time.Duration) func(ledger.Claim) ledger.Record {
		return func(c ledger.Claim) ledger.Record {
			return ledger.Schedule(c, false, in, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "not_executed"})
		}
	}
	record(keys[1], later(time.Hour))
	record(keys[2], later(0))
	record(keys[3], func(c ledger.Claim) ledger.Record {
		return ledger.Hold(c, "our_limits", false, 2*time.Hour, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "not_executed"})
	})
	const due = `SELECT count(*) FROM due d JOIN operations o ON o.id = d.operation_id WHERE o.key = $1 AND d.due_at BETWEEN now() + $2::interval - interval '1 min' AND now() + $2::interval + interval '31 s'`
	for range 2 { // a second pause keeps what the first one kept
		if walked := w.pause("run-1"); walked.Moved != 4 {
			t.Errorf("%d rows are held, want 4", walked.Moved)
		}
		w.pause("run-1")
		w.want(4, `SELECT count(*) FROM due WHERE due_at > now() + interval '99 years'`)
		w.exec(`SELECT bring_back(0, 'all', '', 1000)`)
		w.want(4, `SELECT count(*) FROM due WHERE due_at > now() + interval '99 years'`)
		if out := w.resume("run-1"); out.Freed != 4 {
			t.Errorf("%d rows are let go, want 4", out.Freed)
		}
		w.want(1, due, keys[1], "1 h")
		w.want(1, due, keys[2], "0 h")
		w.want(1, due, keys[3], "2 h")
		w.want(1, due, keys[4], "0 h")
		w.want(1, `SELECT count(*) FROM operations WHERE held AND code = 'our_limits' AND key = $1`, keys[3])
		w.want(1, `SELECT count(*) FROM operations WHERE held`)
		w.want(0, `SELECT count(*) FROM run_holds`)
	}
}

// TestHold_WaitsForOthersMoreThanOnce: somebody has the lock of a row for longer than a page waits for it, and then has it no longer.
func TestHold_WaitsForOthersMoreThanOnce(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, Workers: 2, Patience: 2 * time.Second})
	w.enqueue(w.submit("run-1", csvRows(3)))
	for _, act := range []func() error{
		func() error {
			_, err := w.Pause(t.Context(), "run-1", w.people["oscar"], "wait", WalkOptions{})
			return err
		},
		func() error {
			_, err := w.Release(t.Context(), "run-1", w.people["olga"], "go on", WalkOptions{})
			return err
		},
		func() error {
			_, err := w.Cancel(t.Context(), "run-1", w.people["olga"], "wrong month", false)
			return err
		},
	} {
		tx, err := w.owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT FROM operations FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		lost := 0
		w.opt.point = func(ctx context.Context, at point) {
			if at == pointLost {
				lost++
				_ = tx.Rollback(ctx)
			}
		}
		if err := act(); err != nil || lost != 1 {
			t.Errorf("lost %d times: %v", lost, err)
		}
		_ = tx.Rollback(t.Context())
		w.opt.point = nil
	}
	w.want(3, `SELECT count(*) FROM operations WHERE state = 'cancelled'`)
}

// TestHold_AResumeThatGoesOnComesBehindTheFirst: else both would come at the rate of the partner.
func TestHold_AResumeThatGoesOnComesBehindTheFirst(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, PageRows: 3, Workers: 2})
	w.enqueue(w.submit("run-1", csvRows(6)))
	w.pause("run-1")
	ctx, cancel := context.WithCancel(t.Context())
	w.opt.point = func(_ context.Context, at point) {
		if at == pointWalked {
			cancel()
		}
	}
	if _, err := w.Release(ctx, "run-1", w.people["oscar"], "go on", WalkOptions{Rate: 1}); err == nil {
		t.Fatal("a resume that was interrupted says that it is through")
	}
	w.opt.point = nil
	w.want(3, `SELECT count(*) FROM operations WHERE held`)
	w.exec(`UPDATE due SET due_at = now() + interval '1 h' FROM operations o WHERE o.id = operation_id AND NOT o.held`)
	before := value[time.Time](w, `SELECT now()`)
	if out, err := w.Release(t.Context(), "run-1", w.people["oscar"], "go on", WalkOptions{Rate: 1}); err != nil || out.Freed != 3 {
		t.Fatalf("resume once more: %+v, %v", out, err)
	}
	w.want(6, `SELECT count(*) FROM due WHERE due_at >= $1::timestamptz + interval '3 s'`, before)
}

// TestRoutes_AreThoseOfTheRows where the run names none.
func TestRoutes_AreThoseOfTheRows(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(2))
	w.enqueue(run)
	run.Route = ""
	if got, err := w.Routes(t.Context(), run); err != nil || !slices.Equal(got, []string{"gbp-fps"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestDryRun_OfEveryKindOfRow says what is then done, by a predicate of its own.
func TestDryRun_OfEveryKindOfRow(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	run := w.submit("run-1", csvRows(7))
	w.enqueue(run)
	keys := w.keys(run)
	l := w.worker()
	for n := 1; n <= 4; n++ { // claimed, tried and due later, held for a reason of its own, and finished
		c := w.claim(l, keys[n]).Claim
		fact := ledger.Fact{Kind: ledger.FactVerdict, Verdict: "not_executed"}
		for _, r := range map[int][]ledger.Record{2: {ledger.Schedule(c, false, time.Hour, fact)}, 3: {ledger.Hold(c, "our_limits", false, time.Hour, fact)}, 4: {ledger.Reject(c, "closed", fact)}}[n] {
			if got := l.Record(ctx, []ledger.Record{r})[0]; got.Answer != ledger.Recorded {
				t.Fatalf("row %d: %+v", n, got)
			}
		}
	}
	doubt := func(n int) {
		w.exec(`UPDATE operations SET in_doubt = true, first_sent_at = now() WHERE key = $1`, keys[n])
	}
	doubt(5)
	dry := WalkOptions{DryRun: true}
	if got, err := w.Pause(ctx, "run-1", w.people["oscar"], "why", dry); err != nil || got.Moved != 4 || got.Begun != 3 {
		t.Errorf("pause would come to %+v, %v", got, err)
	}
	if got := w.pause("run-1"); got.Moved != 4 {
		t.Errorf("pause: %+v", got)
	}
	doubt(6) // and marked as held, by an older program
	if got, err := w.Release(ctx, "run-1", w.people["oscar"], "why", dry); err != nil || got.Freed != 4 {
		t.Errorf("resume would come to %+v, %v", got, err)
	}
	if got := w.resume("run-1"); got.Freed != 4 {
		t.Errorf("resume: %+v", got)
	}
	if got, err := w.Cancel(ctx, "run-1", w.people["oscar"], "why", true); err != nil || got.Cancelled != 3 || got.Left != 4 {
		t.Errorf("cancel would come to %+v, %v", got, err)
	}
	if got, err := w.Cancel(ctx, "run-1", w.people["oscar"], "why", false); err != nil || got.Cancelled != 3 || got.Left != 4 {
		t.Errorf("cancel: %+v, %v", got, err)
	}
}
