package batch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// recovered is what `paidonce recover` leaves after a failover that lost what was recorded of all runs: rows and operations. lost names what else.
func (w *world) recovered(lost ...string) {
	w.t.Helper()
	for _, table := range append([]string{"batch_rows", "operations", "payloads", "due", "outbox", "unpublished_jobs"}, lost...) {
		w.exec(`ALTER TABLE ` + table + ` DISABLE TRIGGER USER`)
		w.exec(`DELETE FROM ` + table)
		w.exec(`ALTER TABLE ` + table + ` ENABLE TRIGGER USER`)
	}
	w.exec(`UPDATE ledger_identity SET doubt_before = now()`)
	w.exec(`INSERT INTO recoveries (by, reason, from_system, from_timeline, to_system, to_timeline, put_in_doubt) VALUES ('ann', 'failover', '1', 1, '1', 2, 0)`)
}

// TestRecovery_ACancelledRunOfBeforeMayHaveBeenPaid: its content is not free for another run key, and its keys are kept.
func TestRecovery_ACancelledRunOfBeforeMayHaveBeenPaid(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	run := w.submit("run-1", csvRows(8)) // and enqueued, all of which is lost but the parts
	w.recovered()
	for range 2 {
		ended, err := w.Cancel(ctx, "run-1", w.people["olga"], "wrong month", false)
		if err != nil || ended.Run.State != Cancelled {
			t.Fatalf("cancel: %+v, %v", ended, err)
		}
	}
	if n := len(w.keys(run)); n != 8 {
		t.Errorf("%d keys are left of 8", n)
	}
	if _, err := w.Submit(ctx, w.submission("run-2", csvRows(8))); !errors.Is(err, ErrSameContent) {
		t.Errorf("the same file under another run key: %v", err)
	}
	w.want(1, `SELECT count(*) FROM batch_runs WHERE content_guard IS NOT NULL`)
	again := w.submission("run-2", csvRows(8))
	again.AgainReason = "the bank knows none of the keys"
	if _, err := w.Submit(ctx, again); !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("again, with a word: %v", err)
	}
}

// TestRecovery_NothingIsCancelledOnAServerThatNobodyHasAccepted: there nobody knows yet whether anything is missing.
func TestRecovery_NothingIsCancelledOnAServerThatNobodyHasAccepted(t *testing.T) {
	w := newWorld(t, operate.Options{})
	w.submit("run-1", twoRows)
	w.exec(`UPDATE ledger_identity SET timeline = timeline + 7`)
	if _, err := w.Cancel(t.Context(), "run-1", w.people["olga"], "wrong month", false); !errors.Is(err, ledger.ErrMoved) {
		t.Errorf("cancel: %v", err)
	}
	w.want(1, `SELECT count(*) FROM batch_runs WHERE state = 'released' AND content_guard IS NOT NULL`)
}

// TestRecovery_ANewRunNeedsASecondPerson for as long as the broker delivers again: a run of the same file may be lost, with its keys.
func TestRecovery_ANewRunNeedsASecondPerson(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	before := w.submit("before", otherRows)
	w.submit("run-1", twoRows)
	w.exec(`ALTER TABLE batch_runs DISABLE TRIGGER USER`)
	w.exec(`DELETE FROM batch_runs WHERE run_key = 'run-1'`)
	w.exec(`ALTER TABLE batch_runs ENABLE TRIGGER USER`)
	w.recovered()
	dry := w.submission("run-1", twoRows)
	dry.DryRun = true
	if out, err := w.Submit(ctx, dry); err != nil || !out.Waits {
		t.Errorf("dry run: waits %v, %v", out.Waits, err)
	}
	out, err := w.Submit(ctx, w.submission("run-1", twoRows))
	if !errors.Is(err, operate.ErrWaiting) || out.Recovered.IsZero() || !strings.Contains(string(out.Proposal.Content), `"after_recovery":"20`) {
		t.Fatalf("two rows, which one person may submit: %v, recovered %v", err, out.Recovered)
	}
	if _, _, err := w.Approve(ctx, "run-1", w.people["ada"], "there was none before", false); err != nil {
		t.Fatal(err)
	}
	if out, err = w.Release(ctx, "run-1", w.people["olga"], "approved", WalkOptions{}); err != nil {
		t.Fatal(err)
	}
	w.enqueue(out.Run)
	w.enqueue(before) // on record before, so with the keys that it had
	w.exec(`ALTER TABLE recoveries DISABLE TRIGGER USER`)
	w.exec(`UPDATE recoveries SET at = at - interval '30 days'`)
	w.submit("later", csvRows(3))
}

// TestRecovery_RowsOfBeforeAreInDoubt though the submitter's clock, which is in their keys, was fast.
func TestRecovery_RowsOfBeforeAreInDoubt(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(8))
	w.recovered()
	// As with a fast clock: the keys are younger than the recovery, the parts are not.
	w.exec(`ALTER TABLE batch_parts DISABLE TRIGGER USER`)
	w.exec(`UPDATE batch_parts SET at = at - interval '2 h'`)
	w.exec(`ALTER TABLE batch_parts ENABLE TRIGGER USER`)
	w.exec(`UPDATE ledger_identity SET doubt_before = now() - interval '1 h'`)
	w.enqueue(run)
	w.want(8, `SELECT count(*) FROM operations WHERE in_doubt`)
	w.want(8, `SELECT count(*) FROM batch_rows b JOIN operations o ON o.id = b.operation_id`)
}

// TestRecovery_WhatWasLostOfACancelledRunIsStopped: its jobs come again, before the cancellation or after it, and none is sent any more. A run
// that nobody cancels goes on.
func TestRecovery_WhatWasLostOfACancelledRunIsStopped(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	run := w.submit("run-1", csvRows(6))
	other := w.submit("run-2", otherRows)
	w.recovered() // all rows are lost, the parts are there
	l := w.worker()
	early := w.redelivered(l, run, 1) // before somebody cancels
	if ended, err := w.Cancel(ctx, "run-1", w.people["olga"], "wrong month", false); err != nil || ended.Run.State != Cancelled {
		t.Fatalf("cancel: %+v, %v", ended, err)
	}
	for name, c := range map[string]struct {
		got  ledger.ClaimAnswer
		want ledger.AttemptAnswer
	}{
		"claimed before": {early, ledger.AttemptStopped}, "claimed after": {w.redelivered(l, run, 6), ledger.AttemptStopped},
		"of another run": {w.redelivered(l, other, 1), ledger.AttemptCommitted},
	} {
		if !c.got.InDoubt {
			t.Errorf("%s: not in doubt, so it is sent at once", name)
		}
		r := l.CommitAttempts(ctx, []ledger.Resend{{Claim: c.got.Claim, Intention: ledger.Intention{
			Partner: "northbank", Credential: "c", Endpoint: "https://bank.example", Renderer: 1, PartnerKey: c.got.Claim.Key.String(), BodySHA256: [32]byte{1},
		}}})
		if r[0].Err != nil || r[0].Answer != c.want {
			t.Errorf("%s: %+v, want %d", name, r[0], c.want)
		}
	}
	w.want(6, `SELECT count(*) FROM key_stops WHERE code = 'run_cancelled'`)
}

// redelivered claims a row of a part as its job comes from the broker, which has it from before.
func (w *world) redelivered(l *ledger.Ledger, run Run, n int) ledger.ClaimAnswer {
	w.t.Helper()
	u, err := newUnpacker()
	if err != nil {
		w.t.Fatal(err)
	}
	defer u.decoder.Close()
	part, rows := (n-1)/4, min(4, run.Rows-(n-1)/4*4)
	items, err := u.unpack(value[[]byte](w, `SELECT body FROM batch_parts WHERE run_id = $1 AND first_n = $2`, run.ID, part*4+1), rows)
	if err != nil {
		w.t.Fatal(err)
	}
	i := items[(n-1)%4]
	return l.Claim(w.t.Context(), []ledger.Wish{{
		Key: i.key, Fingerprint: i.print, Source: run.Source, Route: i.route, DebtorAccount: i.debtor, Amount: i.amount, Payload: i.payload,
		PublishedAt: value[time.Time](w, `SELECT now() - interval '1 h'`),
		Intention:   ledger.Intention{Partner: "northbank", Credential: "c", Endpoint: "e", Renderer: 1, PartnerKey: i.key.String(), EndToEndID: "x"},
	}})[0]
}

// TestRecovery_TheSweepIsToldOfAStopByKey, and of no other.
func TestRecovery_TheSweepIsToldOfAStopByKey(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run, other := w.submit("run-1", csvRows(2)), w.submit("run-2", otherRows)
	w.recovered()
	l := w.worker()
	stopped := w.redelivered(l, run, 1).Claim.Key
	if claimed := w.redelivered(l, other, 1); !claimed.InDoubt {
		t.Fatalf("claimed %+v", claimed)
	}
	if _, err := w.Cancel(t.Context(), "run-1", w.people["olga"], "wrong month", false); err != nil {
		t.Fatal(err)
	}
	w.exec(`UPDATE operations SET lease_until = now() - interval '1 s'`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s'`)
	found, err := l.ClaimDue(t.Context(), "northbank", 100)
	if err != nil || len(found) != 2 {
		t.Fatalf("the sweep takes %d, %v", len(found), err)
	}
	for _, one := range found {
		if want := map[bool]string{true: "run_cancelled"}[one.Claim.Key == stopped]; one.Stopped != want {
			t.Errorf("%s: stopped %q, want %q", one.Claim.Key, one.Stopped, want)
		}
	}
}
