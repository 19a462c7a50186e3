package batch

import (
	"context"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// TestBounds_NothingWaitsForEver: a table that somebody holds stands for a server that does not answer.
func TestBounds_NothingWaitsForEver(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4, Workers: 2})
	ctx := context.WithoutCancel(t.Context())
	run := w.submit("run-1", csvRows(8))
	olga := w.people["olga"]
	dry := w.submission("run-2", twoRows)
	dry.DryRun = true
	held, err := w.owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(ctx) }()
	if _, err := held.Exec(ctx, `LOCK TABLE batch_runs, batch_parts, batch_rows, recoveries, unpublished_jobs IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	w.opt.Patience = 100 * time.Millisecond
	w.db = w.connect(unlimited(t, w.urls.Batch))
	asks := map[string]func() error{
		"run":        func() error { _, err := w.Service.Run(ctx, "run-1"); return err },
		"runs":       func() error { _, err := w.Runs(ctx, 10); return err },
		"status":     func() error { _, err := w.Status(ctx, "run-1"); return err },
		"complete":   func() error { return w.completeStatus(ctx, &Status{Run: run}, nil) },
		"rows":       func() error { return w.Rows(ctx, run, nil, func(RowOutcome) error { return nil }) },
		"row":        func() error { _, _, err := w.RowOf(ctx, uuid.New()); return err },
		"report":     func() error { return w.Report(ctx, run, ForPeople, io.Discard) },
		"parts":      func() error { return w.reportParts(ctx, run, nil) },
		"submit":     func() error { _, err := w.Submit(ctx, w.submission("run-3", twoRows)); return err },
		"dry":        func() error { _, err := w.Submit(ctx, dry); return err },
		"same":       func() error { return w.refuseSameContent(ctx, w.pool, dry, run.ContentDigest) },
		"register":   func() error { _, _, err := w.register(ctx, dry, run, 2, &ownSums{}); return err },
		"weigh":      func() error { _, err := w.Service.submission(ctx, run, false); return err },
		"state":      func() error { _, err := w.setState(ctx, run, olga, Released, Paused); return err },
		"end":        func() error { return w.endRun(ctx, run.ID, olga) },
		"cancel":     func() error { _, err := w.cancelRows(ctx, run.ID, olga, 0); return err },
		"discard":    func() error { return (&staging{s: w.Service, run: run.ID}).discard(ctx) },
		"orphans":    func() error { return w.removeOrphans(ctx) },
		"enqueue":    func() error { return w.Enqueue(ctx, run, EnqueueOptions{}) },
		"unfinished": func() error { return w.refuseUnfinished(ctx, run) },
	}
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(asks))
	for name, ask := range asks {
		go func() { answers <- answer{name, ask()} }()
	}
	late := time.After(time.Minute)
	for len(asks) > 0 {
		select {
		case a := <-answers:
			delete(asks, a.name)
			if a.err == nil {
				t.Errorf("%s: no error", a.name)
			}
		case <-late:
			for name := range asks {
				t.Errorf("%s still waits", name)
			}
			return
		}
	}
}

// unlimited logs in without the limits that the role has: they are somebody else's to keep.
func unlimited(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("options", "-c lock_timeout=0 -c statement_timeout=0")
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}
