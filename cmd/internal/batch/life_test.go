package batch

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

// refused runs a statement as `paidonce batch` may; the database must refuse it with code.
func (w *world) refused(code, sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), sql, args...)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code {
		w.t.Errorf("%s: %v, want code %s", sql, err, code)
	}
}

// TestApproval_NothingIsEnqueuedBefore and what is approved is what lies in the database, to the byte.
func TestApproval_NothingIsEnqueuedBefore(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	out, err := w.Submit(ctx, w.submission("run-1", csvRows(6)))
	if !errors.Is(err, operate.ErrWaiting) || out.Run.State != Waiting || out.Proposal == nil {
		t.Fatalf("submit of six rows, one more than one person may: %v, %+v", err, out.Run)
	}
	if again, err := w.Submit(ctx, w.submission("run-1", csvRows(6))); !errors.Is(err, operate.ErrWaiting) || again.Proposal.ID != out.Proposal.ID {
		t.Errorf("the same once more: %v, want the same proposal", err)
	}
	if _, err := w.Release(ctx, "run-1", w.people["oscar"], "impatient", WalkOptions{}); !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("release by another operator: %v", err)
	}
	if err := w.Enqueue(ctx, out.Run, EnqueueOptions{}); !errors.Is(err, ErrNotReleased) {
		t.Errorf("enqueue: %v", err)
	}
	w.want(0, `SELECT count(*) FROM operations`)
	id := out.Run.ID
	w.refused("PO022", `INSERT INTO batch_parts (run_id, part, first_n, rows, body) VALUES ($1, 9, 9, 1, 'x')`, id)
	w.refused("PO022", `DELETE FROM batch_parts WHERE run_id = $1`, id)
	w.refused("PO022", `UPDATE batch_parts SET recorded = recorded + 1 WHERE run_id = $1`, id)
	w.refused("42501", `UPDATE batch_parts SET body = 'x' WHERE run_id = $1`, id)
	w.refused("42501", `UPDATE batch_runs SET sums = '{}' WHERE id = $1`, id)
	w.refused("PO023", `UPDATE batch_runs SET state = 'released', changed_by = 'olga' WHERE id = $1`, id)
	if _, err := w.owner.Exec(ctx, `UPDATE batch_runs SET rows = 7 WHERE id = $1`, id); err == nil {
		t.Error("the owner changed what a run pays")
	}
	for name, want := range map[string]error{"olga": operate.ErrNotPermitted, "vera": operate.ErrNotPermitted, "oscar": operate.ErrNotPermitted} {
		if _, _, err := w.Approve(ctx, "run-1", w.people[name], "mine", false); !errors.Is(err, want) {
			t.Errorf("approval by %s: %v, want %v", name, err, want)
		}
	}
	if _, _, err := w.Approve(ctx, "run-1", w.people["ada"], "totals agree", false); err != nil {
		t.Fatal(err)
	}
	w.want(0, `SELECT count(*) FROM operations`)
	out, err = w.Submit(ctx, w.submission("run-1", csvRows(6)))
	if err != nil || out.Run.State != Released {
		t.Fatalf("submit after the approval: %v", err)
	}
	w.enqueue(out.Run)
	w.want(6, `SELECT count(*) FROM operations`)
	w.want(1, `SELECT count(*) FROM executions e JOIN proposals p ON p.id = e.proposal_id WHERE p.act = 'batch_submit'`)
}

// TestApproval_IsForOneContent: what is approved for one run does not release another, and an author who has every role is not two people.
func TestApproval_IsForOneContent(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	s := w.submission("run-1", csvRows(6))
	s.By = w.people["adam"]
	if _, err := w.Submit(ctx, s); !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	if _, _, err := w.Approve(ctx, "run-1", w.people["adam"], "mine", false); !errors.Is(err, operate.ErrOwnProposal) {
		t.Errorf("an author approves: %v", err)
	}
	if _, _, err := w.Approve(ctx, "run-1", w.people["ada"], "agreed", false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Submit(ctx, w.submission("run-2", rowsOf("other", 7))); !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("another run: %v, want it to wait for its own approval", err)
	}
	proposals, err := w.desk.Proposals(ctx, operate.ProposalFilter{Act: ActSubmit, Target: "run-2"})
	if err != nil || len(proposals) != 1 {
		t.Fatalf("%d proposals, %v", len(proposals), err)
	}
	if _, err := w.desk.Approve(ctx, w.people["ada"], proposals[0].ID, make([]byte, 32), "not what I saw"); !errors.Is(err, operate.ErrChanged) {
		t.Errorf("approval of another digest: %v", err)
	}
	w.want(0, `SELECT count(*) FROM operations`)
}

// TestApproval_Expires, and then the same submission asks for another.
func TestApproval_Expires(t *testing.T) {
	w := newWorld(t, operate.Options{ProposalTTL: 700 * time.Millisecond})
	ctx := t.Context()
	out, err := w.Submit(ctx, w.submission("run-1", csvRows(6)))
	if !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	stack.Eventually(t, "the proposal expires", func() bool {
		return value[bool](w, `SELECT expires_at < clock_timestamp() FROM proposals WHERE id = $1`, out.Proposal.ID)
	})
	if _, _, err := w.Approve(ctx, "run-1", w.people["ada"], "late", false); !errors.Is(err, operate.ErrExpired) {
		t.Errorf("approval: %v", err)
	}
	again, err := w.Submit(ctx, w.submission("run-1", csvRows(6)))
	if !errors.Is(err, operate.ErrWaiting) || again.Proposal.ID == out.Proposal.ID {
		t.Errorf("submit: %v, want another proposal", err)
	}
	w.want(0, `SELECT count(*) FROM operations`)
}

// TestJ9_EveryRowIsItsOwnOperation: authorized, rejected, parked and silent ones side by side, and the status is read from them.
func TestJ9_EveryRowIsItsOwnOperation(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	text := csvRows(4) + "r5,cust-5,500,JPY,C Example,GB33BUKB20201555555555\n"
	s := w.submission("run-1", withRoutes(text))
	s.Read.Route = ""
	out, err := w.Submit(ctx, s)
	if err != nil {
		t.Fatal(err, out.Report.Faults)
	}
	w.enqueue(out.Run)
	w.settle(1, ledger.StateAuthorized, 2, ledger.StateRejected, 3, ledger.StateParked)
	status, err := w.Status(ctx, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	want := []Count{{"open", "GBP", 1, 104}, {"open", "JPY", 1, 500}, {"parked", "GBP", 1, 103}, {"authorized", "GBP", 1, 101}, {"rejected", "GBP", 1, 102}}
	if !slices.Equal(status.Counts, want) || status.Enqueued != 5 || status.Finished() != 2 || status.Trouble() != 2 || status.Complete() || status.Oldest.IsZero() {
		t.Errorf("status %+v, want counts %+v", status, want)
	}
	var rejected []RowOutcome
	if err := w.Rows(ctx, out.Run, []string{"rejected"}, func(r RowOutcome) error { rejected = append(rejected, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(rejected) != 1 || rejected[0].N != 2 || rejected[0].RowRef != "r2" || rejected[0].Code != "account_closed" || rejected[0].Line != 3 {
		t.Errorf("rejected %+v", rejected)
	}
	ended, err := w.Cancel(ctx, "run-1", w.people["olga"], "the rest waits", false)
	if err != nil || ended.Never != 0 || ended.Cancelled != 2 || ended.Left != 3 {
		t.Errorf("cancelled %+v, %v", ended, err)
	}
	if status, err = w.Status(ctx, "run-1"); err != nil || !status.Complete() || status.Rows("cancelled") != 2 {
		t.Errorf("status %+v, %v", status, err)
	}
}

// withRoutes adds a column: GBP goes one way, JPY another.
func withRoutes(text string) string {
	text = strings.Replace(text, "row_ref,", "row_ref,route,", 1)
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.Contains(line, ",JPY,"):
			line = strings.Replace(line, ",", ",jpy-zengin,", 1)
		case strings.Contains(line, ",GBP,"):
			line = strings.Replace(line, ",", ",gbp-fps,", 1)
		}
		b.WriteString(line)
	}
	return b.String()
}

// settle takes rows through a claim to a state, as a worker does: pairs of n and state.
func (w *world) settle(pairs ...any) {
	w.t.Helper()
	ctx := w.t.Context()
	l, err := ledger.Open(ctx, w.urls.Worker, ledger.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	for i := 0; i < len(pairs); i += 2 {
		n, state := pairs[i].(int), pairs[i+1].(ledger.State)
		w.exec(`UPDATE due SET due_at = now() - interval '1 s' WHERE operation_id = (SELECT operation_id FROM batch_rows WHERE n = $1)`, n)
		work, err := l.ClaimDue(ctx, "northbank", 1)
		if err != nil || len(work) != 1 {
			w.t.Fatalf("claim row %d: %d, %v", n, len(work), err)
		}
		claim := work[0].Claim
		intention := ledger.Resend{Claim: claim, Intention: ledger.Intention{Partner: "northbank", Credential: "c", Endpoint: "e", Renderer: 1, PartnerKey: "k" + fmt.Sprint(n),
			EndToEndID: "e"}}
		if a := l.CommitAttempts(ctx, []ledger.Resend{intention}); a[0].Err != nil {
			w.t.Fatal(a[0].Err)
		}
		record := ledger.Record{Claim: claim, Next: state, Facts: []ledger.Fact{{Kind: ledger.FactVerdict, Verdict: map[ledger.State]string{
			ledger.StateAuthorized: "authorized", ledger.StateRejected: "rejected", ledger.StateParked: "mismatch"}[state]}}}
		switch state {
		case ledger.StateAuthorized:
			record = ledger.Authorize(claim, "tr_"+fmt.Sprint(n), record.Facts[0])
		case ledger.StateRejected:
			record.Code = "account_closed"
		default:
			record.Code, record.DueIn = "mismatch", time.Hour
		}
		if r := l.Record(ctx, []ledger.Record{record})[0]; r.Err != nil || r.Answer != ledger.Recorded {
			w.t.Fatalf("record row %d: %+v", n, r)
		}
	}
}

// TestJ15_FormulasAreHarmlessForPeopleAndUntouchedForMachines
func TestJ15_FormulasAreHarmlessForPeopleAndUntouchedForMachines(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	text := header + `r1,cust-1,10.00,GBP,"=HYPERLINK(""http://x"",""A"")",GB33BUKB20201555555555` + "\n" + `+r2,cust-2,20.50,GBP,B Example,GB33BUKB20201555555555` + "\n"
	run := w.submit("run-1", text)
	key := w.keys(run)
	report := func(audience Audience) [][]string {
		var out strings.Builder
		if err := w.Report(ctx, run, audience, &out); err != nil {
			t.Fatal(err)
		}
		text, marked := strings.CutPrefix(out.String(), "\ufeff")
		if marked != (audience == ForPeople) {
			t.Errorf("%s: byte order mark %v", audience, marked)
		}
		records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return records
	}
	cell := func(records [][]string, row int, column string) string {
		return records[row][slices.Index(records[0], column)]
	}
	for _, state := range []string{NotEnqueued, "open"} {
		people, machine := report(ForPeople), report(ForMachine)
		for _, c := range []struct {
			column          string
			row             int
			people, machine string
		}{
			{"name", 1, `'=HYPERLINK("http://x","A")`, `=HYPERLINK("http://x","A")`}, {"row_ref", 2, "'+r2", "+r2"}, {"name", 2, "B Example", "B Example"},
			{"amount", 2, "20.50", "20.50"}, {"iban", 1, "GB33BUKB20201555555555", "GB33BUKB20201555555555"}, {"debtor_account", 2, "cust-2", "cust-2"},
			{"route", 1, "gbp-fps", "gbp-fps"}, {"state", 1, state, state}, {"key", 2, key[2].String(), key[2].String()}, {"row", 2, "2", "2"}, {"line", 2, "3", "3"},
		} {
			if got := cell(people, c.row, c.column); got != c.people {
				t.Errorf("%s, for people, %s: %q, want %q", state, c.column, got, c.people)
			}
			if got := cell(machine, c.row, c.column); got != c.machine {
				t.Errorf("%s, for a machine, %s: %q, want %q", state, c.column, got, c.machine)
			}
		}
		w.enqueue(run)
	}
	w.settle(1, ledger.StateAuthorized, 2, ledger.StateRejected)
	w.exec(`DELETE FROM outbox`)
	w.exec(`DELETE FROM unpublished_jobs`)
	w.exec(`DELETE FROM payloads WHERE operation_id = (SELECT operation_id FROM batch_rows WHERE n = 2)`)
	last := report(ForPeople)
	if cell(last, 1, "state") != "authorized" || cell(last, 1, "transfer_id") != "tr_1" || cell(last, 2, "state") != "rejected" || cell(last, 2, "reason") != "account_closed" {
		t.Errorf("final report: %v", last)
	}
	if cell(last, 2, "name") != "" || cell(last, 2, "amount") != "" || cell(last, 2, "row_ref") != "'+r2" {
		t.Errorf("row whose payload was purged: %v", last[2])
	}
}

// TestPauseAndResume: what is recorded stays, the rest waits, and the keys are the same.
func TestPauseAndResume(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	run := w.submit("run-1", csvRows(20)) // five parts
	before := w.keys(run)
	var once sync.Once
	var asked atomic.Bool
	paused := make(chan struct{})
	w.Service.opt.point = func(ctx context.Context, at point) {
		switch {
		case at == pointBefore && asked.Load():
			<-paused // one that has not begun is not faster than the pause
		case at == pointAfter:
			once.Do(func() {
				asked.Store(true)
				if _, err := w.Pause(ctx, "run-1", w.people["oscar"], "the bank asks", WalkOptions{}); err != nil {
					t.Error(err)
				}
				close(paused)
			})
		}
	}
	if err := w.Enqueue(ctx, run, EnqueueOptions{}); !errors.Is(err, ErrPaused) || !strings.Contains(err.Error(), "oscar") {
		t.Fatalf("enqueue: %v, want it paused", err)
	}
	recorded := value[int64](w, `SELECT count(*) FROM operations`)
	if recorded == 0 || recorded == 20 {
		t.Errorf("%d of 20 rows were recorded before the pause", recorded)
	}
	if _, err := w.Submit(ctx, w.submission("run-1", csvRows(20))); !errors.Is(err, ErrPaused) {
		t.Errorf("submit of a paused run: %v", err)
	}
	status, err := w.Status(ctx, "run-1")
	if err != nil || status.Rows(NotEnqueued) != 20-int(recorded) || status.Run.ChangedBy != "oscar" {
		t.Errorf("status %+v, %v", status, err)
	}
	out, err := w.Release(ctx, "run-1", w.people["olga"], "go on", WalkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.enqueue(out.Run)
	w.want(20, `SELECT count(DISTINCT key) FROM operations`)
	w.want(20, `SELECT count(*) FROM batch_rows b JOIN operations o ON o.id = b.operation_id`)
	if after := w.keys(run); !maps.Equal(before, after) {
		t.Error("the keys have changed")
	}
	last := before[1].String()
	for n := 2; n <= 20; n++ {
		if next := before[n].String(); next <= last {
			t.Errorf("key of row %d does not rise", n)
		} else {
			last = next
		}
	}
}

// TestPause_NothingIsRecordedAfterIt: it waits for whoever records at that moment.
func TestPause_NothingIsRecordedAfterIt(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(40))
	var once sync.Once
	var pausing sync.WaitGroup
	var recorded int64
	w.Service.opt.point = func(_ context.Context, at point) {
		if at != pointInside {
			return
		}
		once.Do(func() {
			pausing.Go(func() {
				if _, err := w.Pause(t.Context(), "run-1", w.people["oscar"], "the bank asks", WalkOptions{}); err != nil {
					t.Error(err)
				}
				if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM operations`).Scan(&recorded); err != nil {
					t.Error(err)
				}
			})
			w.awaitLock("paused")
		})
	}
	if err := w.Enqueue(t.Context(), run, EnqueueOptions{}); !errors.Is(err, ErrPaused) {
		t.Errorf("enqueue: %v", err)
	}
	pausing.Wait()
	w.want(recorded, `SELECT count(*) FROM operations`)
}

// awaitLock returns when somebody waits to change the state of a run, or has changed it.
func (w *world) awaitLock(state string) {
	stack.Eventually(w.t, "the change waits or is through", func() bool {
		return value[bool](w, `SELECT EXISTS (SELECT FROM batch_runs WHERE state = $1)
			OR EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND mode = 'ExclusiveLock'
			             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, state)
	})
}

// TestEnqueue_WhoeverComesSecondFindsThatAPartHasMoved: a slice is recorded once, also where no key would tell.
func TestEnqueue_WhoeverComesSecondFindsThatAPartHasMoved(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	run := w.submit("run-1", csvRows(4))
	parts, err := w.partsOf(ctx, run.ID)
	if err != nil || len(parts) != 1 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	for _, rows := range []int{2, 4} { // the first two rows, then with the same stale knowledge all of them
		for i, want := range []bool{true, false} {
			moved := false
			err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) (err error) {
				moved, err = movePart(ctx, tx, run.ID, parts[0], rows)
				return err
			})
			if rows == 4 {
				want = false
			}
			if err != nil || moved != want {
				t.Errorf("%d rows, time %d: moved %v, %v", rows, i, moved, err)
			}
		}
	}
	w.want(1, `SELECT count(*) FROM batch_parts WHERE recorded = 2`)
}

// TestCancel_RacesWithTheEnqueueing: whoever is first at the run's row, no operation is left open, and none comes later.
func TestCancel_RacesWithTheEnqueueing(t *testing.T) {
	for _, where := range []point{pointBefore, pointInside, pointAfter} {
		t.Run(string(where), func(t *testing.T) {
			w := newWorld(t, operate.Options{Limits: wide()})
			ctx := t.Context()
			run := w.submit("run-1", csvRows(40))
			var once sync.Once
			var cancelling sync.WaitGroup
			var ended Ended
			w.Service.opt.point = func(ctx context.Context, at point) {
				if at == where {
					once.Do(func() {
						cancelling.Go(func() {
							var err error
							if ended, err = w.Cancel(t.Context(), "run-1", w.people["oscar"], "wrong month", false); err != nil {
								t.Error(err)
							}
						})
						w.awaitLock("cancelled")
					})
				}
			}
			if err := w.Enqueue(ctx, run, EnqueueOptions{}); !errors.Is(err, ErrCancelled) {
				t.Errorf("enqueue: %v", err)
			}
			cancelling.Wait()
			w.want(0, `SELECT count(*) FROM operations WHERE state <> 'cancelled'`)
			w.want(0, `SELECT (SELECT count(*) FROM unpublished_jobs) + (SELECT count(*) FROM due) + (SELECT count(*) FROM batch_parts)`)
			recorded := value[int64](w, `SELECT count(*) FROM operations`)
			if ended.Never != 40-int(recorded) || ended.Cancelled != int(recorded) || ended.Left != 0 {
				t.Errorf("%d recorded, ended %+v", recorded, ended)
			}
			if _, err := w.Submit(ctx, w.submission("run-1", csvRows(40))); !errors.Is(err, ErrCancelled) {
				t.Errorf("submit of a cancelled run: %v", err)
			}
		})
	}
}

// TestCancel_StopsWhatItCannotEnd: what is under way, in doubt or parked is marked, and whoever takes it up next is told; what has ended is not.
func TestCancel_StopsWhatItCannotEnd(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	w.enqueue(w.submit("run-1", csvRows(6)))
	w.enqueue(w.submit("run-2", rowsOf("other", 7)))
	is := func(n int, change string) {
		w.exec(`UPDATE operations o SET ` + change + ` FROM batch_rows b JOIN batch_runs r ON r.id = b.run_id
			WHERE o.id = b.operation_id AND b.n = ` + fmt.Sprint(n) + ` AND r.run_key = 'run-1'`)
	}
	w.exec(`ALTER TABLE operations DISABLE TRIGGER USER`)
	is(1, `state = 'claimed', fence = 1, claim_token = gen_random_uuid(), lease_until = now() - interval '1 s'`)
	is(2, `in_doubt = true, first_sent_at = now()`)
	is(3, `state = 'parked', in_doubt = true, first_sent_at = now(), code = 'in_doubt'`)
	is(4, `state = 'rejected', outcome_at = now(), code = 'account_closed'`)
	w.exec(`ALTER TABLE operations ENABLE TRIGGER USER`)
	for range 2 { // it can be repeated
		ended, err := w.Cancel(ctx, "run-1", w.people["oscar"], "wrong month", false)
		if err != nil || ended.Cancelled != 2 || ended.Left != 4 {
			t.Fatalf("cancel: %+v, %v", ended, err)
		}
	}
	w.want(3, `SELECT count(*) FROM stops s JOIN batch_rows b USING (operation_id) JOIN batch_runs r ON r.id = b.run_id
		WHERE r.run_key = 'run-1' AND b.n IN (1, 2, 3) AND s.code = 'run_cancelled'`)
	w.want(3, `SELECT count(*) FROM stops`)
	w.exec(`UPDATE due SET due_at = now() - interval '1 s'`)
	work, err := w.worker().ClaimDue(ctx, "northbank", 100)
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for _, one := range work {
		if one.Stopped == "run_cancelled" {
			stopped++
		}
	}
	if len(work) != 9 || stopped != 2 {
		t.Errorf("the sweep has %d operations, %d of them stopped, want 9 and 2", len(work), stopped)
	}
}

// TestCancel_FreesTheContentOnlyIfNothingWasEnqueued: what may have been paid is never paid again without a second person.
func TestCancel_FreesTheContentOnlyIfNothingWasEnqueued(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	w.submit("run-1", twoRows)
	if _, err := w.Cancel(ctx, "run-1", w.people["olga"], "typo in the run key", false); err != nil {
		t.Fatal(err)
	}
	run := w.submit("run-2", twoRows)
	w.enqueue(run)
	if _, err := w.Cancel(ctx, "run-2", w.people["olga"], "wrong month", false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Submit(ctx, w.submission("run-3", twoRows)); !errors.Is(err, ErrSameContent) {
		t.Errorf("submit: %v", err)
	}
	w.want(2, `SELECT count(*) FROM operations`)
}

// TestNotBefore_HoldsForEveryRow of the run: in the job, and in when the sweep looks.
func TestNotBefore_HoldsForEveryRow(t *testing.T) {
	w := newWorld(t, operate.Options{})
	s := w.submission("run-1", twoRows)
	s.Read.NotBefore = time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	out, err := w.Submit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	w.enqueue(out.Run)
	w.want(2, `SELECT count(*) FROM payloads p JOIN due d USING (operation_id) WHERE p.not_before = $1 AND d.due_at = $1
		AND convert_from(p.body, 'UTF8') LIKE '%"not_before":"' || $2 || '"%'`, s.Read.NotBefore, s.Read.NotBefore.Format(time.RFC3339))
}

// TestRate_IsKept: a low rate lets a second's rows pass at once, then waits.
func TestRate_IsKept(t *testing.T) {
	w := newWorld(t, operate.Options{})
	run := w.submit("run-1", csvRows(5))
	began := time.Now()
	if err := w.Enqueue(t.Context(), run, EnqueueOptions{Rate: 3}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 660*time.Millisecond { // three at once, and the third part of a second for each of two
		t.Errorf("5 rows at 3 a second took %s", took)
	}
	w.want(5, `SELECT count(*) FROM operations`)
}

func TestEnqueue_ARouteThatIsGoneStopsIt(t *testing.T) {
	w := newWorld(t, operate.Options{})
	s := w.submission("run-1", twoRows)
	s.Read.Route = "eur-sepa"
	out, err := w.Submit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Enqueue(t.Context(), out.Run, EnqueueOptions{}); !errors.Is(err, ErrRoute) {
		t.Errorf("enqueue: %v", err)
	}
	w.want(0, `SELECT count(*) FROM operations`)
}

// TestSubmit_EveryRowArrivesAsItStands: over many buffers of the reader and many parts, in the order of the file.
func TestSubmit_EveryRowArrivesAsItStands(t *testing.T) {
	const rows = 9000
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 1000})
	run := w.submit("run-1", csvRows(rows))
	w.enqueue(run)
	w.want(rows, `SELECT count(*) FROM batch_rows b JOIN operations o ON o.id = b.operation_id JOIN payloads p ON p.operation_id = o.id
		WHERE b.row_ref = 'r' || b.n AND b.line = b.n + 1 AND o.debtor_account = 'cust-' || b.n AND o.amount_minor = 100 + b.n AND o.source = 'payroll'
		  AND convert_from(p.body, 'UTF8')::jsonb @> jsonb_build_object('key', o.key, 'debtor_account', 'cust-' || b.n, 'currency', 'GBP')
		  AND (convert_from(p.body, 'UTF8')::jsonb ->> 'amount')::numeric * 100 = 100 + b.n`)
	w.want(rows, `SELECT count(*) FROM (SELECT o.key > lag(o.key) OVER (ORDER BY b.n) AS rises FROM batch_rows b JOIN operations o ON o.id = b.operation_id) k
		WHERE rises IS NOT false`)
	w.want(rows, `SELECT (counts ->> 'GBP')::int8 FROM batch_runs`)
}

// TestCancel_NeedsWhoeverCancels: whoever has the password of `paidonce batch` and no operator's token changes nothing of an operation.
func TestCancel_NeedsWhoeverCancels(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	run, other := w.submit("run-1", csvRows(3)), w.submit("run-2", rowsOf("other", 2))
	w.enqueue(run)
	w.enqueue(other)
	for _, sql := range []string{
		`UPDATE operations SET state = 'cancelled', code = 'x'`, `UPDATE operations SET lease_until = now()`, `DELETE FROM due`,
		`INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict) SELECT id, gen_random_uuid(), 0, 0, 'note', '' FROM operations`,
	} {
		w.refused("42501", sql)
	}
	cancelRows := `SELECT cancel_run_rows($1, 0, 100, gen_random_uuid())`
	w.refused("PO023", cancelRows, run.ID)
	for _, state := range []string{"cancelled", "paused"} {
		w.refused("PO023", `UPDATE batch_runs SET state = $2, changed_by = 'olga' WHERE id = $1`, run.ID, state)
	}
	w.refused("PO023", cancelRows, run.ID)
	if _, err := w.cancelRows(ctx, run.ID, w.people["olga"], 0); err == nil {
		t.Error("an operator cancels without a line of the audit log")
	}
	w.want(5, `SELECT count(*) FROM operations WHERE state = 'open'`)
	w.exec(`UPDATE operations SET in_doubt = true, first_sent_at = now() WHERE id = (SELECT operation_id FROM batch_rows WHERE run_id = $1 AND n = 2)`, run.ID)
	for range 2 { // an interrupted one is told the same when it is repeated
		if ended, err := w.Cancel(ctx, "run-1", w.people["olga"], "wrong month", false); err != nil || ended.Cancelled != 2 || ended.Left != 1 || ended.Never != 0 {
			t.Errorf("cancel, one row in doubt: %+v, %v", ended, err)
		}
	}
	if _, err := w.cancelRows(ctx, run.ID, w.people["olga"], 0); err == nil {
		t.Error("a line that has its result is used again")
	}
	w.want(3, `SELECT count(*) FROM operations WHERE state = 'open'`)
	w.want(2, `SELECT count(*) FROM outbox WHERE type = 'cancelled' AND code = 'run_cancelled'`)
	w.want(2, `SELECT count(*) FROM observations WHERE kind = 'note' AND code = 'run_cancelled'`)
	w.want(6, `SELECT (SELECT count(*) FROM due) + (SELECT count(*) FROM unpublished_jobs)`)
}
