package batch

import (
	"maps"
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
	if _, err := l.Recover(w.t.Context(), "failover", "ann"); err != nil {
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
	w.pause("run-1")
	w.recover()
	status, err := w.Status(t.Context(), "run-1")
	if err != nil || status.Rows(Held) != 0 || status.Rows("open") != 4 || status.InDoubt != 4 || status.AtRest() {
		t.Errorf("status %+v, %v", status, err)
	}
	if walked := w.pause("run-1"); walked.Moved != 0 {
		t.Errorf("a pause holds %d rows in doubt", walked.Moved)
	}
	w.want(4, `SELECT count(*) FROM due WHERE due_at < now() + interval '31 s'`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE due_at < now() + interval '31 s'`)
	if swept := w.sweep(w.worker()); !maps.Equal(swept, map[uuid.UUID]bool{keys[1]: true, keys[2]: true, keys[3]: true, keys[4]: true}) {
		t.Errorf("the sweep takes %d rows of 4", len(swept))
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
