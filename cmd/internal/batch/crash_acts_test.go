package batch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// TestSIGKILL_OfAnAct: whoever cancels, pauses or resumes a run and is killed on the way does the same again, and it is done once.
func TestSIGKILL_OfAnAct(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, PageRows: 4, Workers: 2})
	const open = `SELECT count(*) FROM batch_rows b JOIN operations o ON o.id = b.operation_id WHERE b.run_id = $1 AND o.state = 'open'`
	for _, c := range []struct {
		what   string
		at     point
		passes int
		left   int64 // open and not held after the kill
	}{
		{ActCancel, pointEnded, 1, crashRows}, {ActCancel, pointWalked, 1, crashRows - 4}, {ActCancel, pointWalked, 4, crashRows - 16},
		{ActPause, pointState, 1, crashRows}, {ActPause, pointWalked, 2, crashRows - 8},
		{ActResume, pointState, 1, 0}, {ActResume, pointWalked, 3, 12},
	} {
		label := fmt.Sprintf("%s.%s.%d", c.what, c.at, c.passes)
		t.Run(label, func(t *testing.T) {
			ctx, olga := t.Context(), w.people["olga"]
			run := w.submit(label, rowsOf(label, crashRows))
			w.enqueue(run)
			if c.what == ActResume {
				w.pause(label)
			}
			w.killed(t, "", label, c.at, c.passes, c.what)
			w.want(c.left, open+` AND NOT o.held`, run.ID)
			switch c.what {
			case ActCancel:
				ended, err := w.Cancel(ctx, label, olga, "wrong month", false)
				if err != nil || ended.Cancelled != crashRows || ended.Left != 0 || ended.Never != 0 {
					t.Errorf("cancel again: %+v, %v", ended, err)
				}
				w.want(0, open, run.ID)
				for _, table := range []string{"outbox e WHERE e.type = 'cancelled'", "observations e WHERE e.kind = 'note'"} {
					w.want(crashRows, `SELECT count(*) FROM `+table+` AND EXISTS (SELECT FROM batch_rows b WHERE b.run_id = $1 AND b.operation_id = e.operation_id)`, run.ID)
				}
			case ActPause:
				if walked := w.pause(label); walked.Moved != int(c.left) {
					t.Errorf("pause again holds %d rows, want %d", walked.Moved, c.left)
				}
				w.want(crashRows, open+` AND o.held`, run.ID)
			case ActResume:
				out, err := w.Release(ctx, label, olga, "go on", WalkOptions{})
				if err != nil || out.Run.State != Released || out.Freed != crashRows-int(c.left) {
					t.Errorf("resume again: %d rows come back, %v", out.Freed, err)
				}
				w.want(crashRows, open+` AND NOT o.held`, run.ID)
			}
		})
	}
}

// TestSIGKILL_WithASecondPerson: killed before the question, with the agreement in use, and behind it. Nothing is enqueued before the agreement, and
// in the end every row is, once.
func TestSIGKILL_WithASecondPerson(t *testing.T) {
	w := newWorldAs(t, operate.Options{}, Options{PartRows: 4, PageRows: 4, Workers: 2})
	server, nc := broker(t)
	for _, at := range []point{pointReleasing, pointReleased, pointInside} {
		t.Run(string(at), func(t *testing.T) {
			ctx, label := t.Context(), "asked."+string(at)
			rows := `SELECT count(*) FROM operations WHERE debtor_account LIKE '` + label + `-%'`
			w.killed(t, server.URL(), label, pointRegistered, 1, "ask")
			if _, err := w.Submit(ctx, w.submission(label, rowsOf(label, crashRows))); !errors.Is(err, operate.ErrWaiting) {
				t.Fatalf("submit again: %v", err)
			}
			w.want(1, `SELECT count(*) FROM proposals WHERE target = $1`, label)
			if _, _, err := w.Approve(ctx, label, w.people["ada"], "totals agree", false); err != nil {
				t.Fatal(err)
			}
			w.killed(t, server.URL(), label, at, 1, "ask")
			w.want(0, rows)
			if err := w.pay(ctx, nc, w.submission(label, rowsOf(label, crashRows))); err != nil {
				t.Fatalf("submit after the kill: %v", err)
			}
			w.want(crashRows, rows)
			w.want(1, `SELECT count(*) FROM executions e JOIN proposals p ON p.id = e.proposal_id WHERE p.target = $1`, label)
		})
	}
}
