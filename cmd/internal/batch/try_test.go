package batch

import (
	"context"
	"errors"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// kept is all that an act on a run could change.
const kept = `SELECT concat_ws('|',
	(SELECT string_agg(o::text, ' ' ORDER BY o.id) FROM operations o), (SELECT string_agg(d::text, ' ' ORDER BY d.operation_id) FROM due d),
	(SELECT string_agg(r::text, ' ' ORDER BY r.id) FROM batch_runs r), (SELECT string_agg(p::text, ' ' ORDER BY p.run_id, p.part) FROM batch_parts p),
	(SELECT string_agg(a::text, ' ' ORDER BY a.id) FROM audit a), (SELECT count(*) FROM audit_results), (SELECT count(*) FROM proposals),
	(SELECT count(*) FROM approvals), (SELECT count(*) FROM observations), (SELECT count(*) FROM outbox), (SELECT count(*) FROM unpublished_jobs))`

// unchanged fails if try changes anything.
func (w *world) unchanged(try func()) {
	w.t.Helper()
	before := value[string](w, kept)
	try()
	if now := value[string](w, kept); now != before {
		w.t.Errorf("a dry run changes\n%s\nto\n%s", before, now)
	}
}

// enqueueOnePart leaves six of ten rows in their parts.
func (w *world) enqueueOnePart(run Run) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.opt.point = func(_ context.Context, at point) {
		if at == pointAfter {
			cancel()
		}
	}
	if err := w.Enqueue(ctx, run, EnqueueOptions{}); !errors.Is(err, context.Canceled) {
		w.t.Fatal(err)
	}
	w.opt.point = nil
	w.want(4, `SELECT count(*) FROM batch_rows`)
}

// TestDryRun_TellsWhatIsDoneThen: each act on a run, tried, says what it then does, and whoever may not do it is told so; nothing changes by it.
func TestDryRun_TellsWhatIsDoneThen(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, PageRows: 3, Workers: 1})
	ctx := t.Context()
	dry := WalkOptions{DryRun: true}
	run := w.submit("run-1", csvRows(10))
	w.enqueueOnePart(run)
	keys := w.keys(run)
	w.claim(w.worker(), keys[1])
	w.exec(`UPDATE operations SET in_doubt = true, first_sent_at = now() WHERE key = $1`, keys[2])
	try := func(what string, state State, hold, back, enqueue int) {
		t.Helper()
		w.unchanged(func() {
			if got, err := w.Pause(ctx, "run-1", w.people["oscar"], "why", dry); (state != Cancelled) != (err == nil) ||
				err == nil && (got.Run.State != state || got.Moved != hold || got.Begun != 2 || got.Left != 6) {
				t.Errorf("%s: pause would come to %+v, %v", what, got, err)
			}
			if got, err := w.Release(ctx, "run-1", w.people["oscar"], "why", dry); (state != Cancelled) != (err == nil) ||
				err == nil && (got.Run.State != state || got.Freed != back || got.Enqueues != enqueue || got.Waits) {
				t.Errorf("%s: resume would come to %+v, %v", what, got, err)
			}
			if got, err := w.Cancel(ctx, "run-1", w.people["oscar"], "why", true); err != nil || got.Run.State != state || got.Never != 6 || got.Cancelled != 2 || got.Left != 2 {
				t.Errorf("%s: cancel would come to %+v, %v", what, got, err)
			}
			_, pause := w.Pause(ctx, "run-1", w.people["vera"], "why", dry)
			_, resume := w.Release(ctx, "run-1", w.people["ada"], "why", dry)
			_, cancel := w.Cancel(ctx, "run-1", w.people["ada"], "why", true)
			for act, err := range map[string]error{"pause": pause, "resume": resume, "cancel": cancel} {
				if !errors.Is(err, operate.ErrNotPermitted) && (act != "resume" || !errors.Is(err, ErrCancelled)) {
					t.Errorf("%s: %s by who may not: %v", what, act, err)
				}
			}
		})
	}
	try("released", Released, 2, 0, 6)
	if walked := w.pause("run-1"); walked.Moved != 2 {
		t.Errorf("%d rows are held", walked.Moved)
	}
	try("paused", Paused, 0, 2, 6)
	if out, err := w.Release(ctx, "run-1", w.people["olga"], "go on", WalkOptions{}); err != nil || out.Freed != 2 {
		t.Errorf("resume: %+v, %v", out, err)
	}
	try("resumed", Released, 2, 0, 6)
	if ended, err := w.Cancel(ctx, "run-1", w.people["olga"], "wrong month", false); err != nil || ended.Never != 6 || ended.Cancelled != 2 || ended.Left != 2 {
		t.Errorf("cancel: %+v, %v", ended, err)
	}
	try("cancelled", Cancelled, 0, 0, 0)
}

// TestDryRun_OfWhatWaits says whether the second person is needed still, and whether this one would be.
func TestDryRun_OfWhatWaits(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	if _, err := w.Submit(ctx, w.submission("run-1", csvRows(6))); !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	resume := func(waits bool, enqueues int) {
		t.Helper()
		w.unchanged(func() {
			out, err := w.Release(ctx, "run-1", w.people["oscar"], "why", WalkOptions{DryRun: true})
			if err != nil || out.Waits != waits || out.Enqueues != enqueues || out.Run.State != Waiting {
				t.Errorf("resume would come to %+v, %v", out, err)
			}
			if _, err := w.Pause(ctx, "run-1", w.people["oscar"], "why", WalkOptions{DryRun: true}); !errors.Is(err, operate.ErrRefused) {
				t.Errorf("pause of what waits: %v", err)
			}
		})
	}
	approve := func(by string, want error) {
		t.Helper()
		w.unchanged(func() {
			if _, _, err := w.Approve(ctx, "run-1", w.people[by], "why", true); !errors.Is(err, want) {
				t.Errorf("approval by %s would come to %v, want %v", by, err, want)
			}
		})
	}
	resume(true, 0)
	approve("olga", operate.ErrNotPermitted)
	approve("ada", nil)
	if _, _, err := w.Approve(ctx, "run-1", w.people["ada"], "totals agree", false); err != nil {
		t.Fatal(err)
	}
	resume(false, 6)
	approve("ada", operate.ErrDecided)
	w.want(0, `SELECT count(*) FROM operations`)
}
