package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// inNameOf runs statements in one transaction of the batch login, with somebody's token.
func (w *world) inNameOf(name string, statements ...string) error {
	return pgx.BeginFunc(context.Background(), w.pool, func(tx pgx.Tx) error {
		proof := sha256.Sum256([]byte(w.tokens[name]))
		if _, err := tx.Exec(context.Background(), `SELECT set_config('paidonce.proof', $1, true)`, hex.EncodeToString(proof[:])); err != nil {
			return err
		}
		for _, sql := range statements {
			if _, err := tx.Exec(context.Background(), sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// wantRefusal fails unless the database refused with code.
func wantRefusal(t *testing.T, what string, err error, code string) {
	t.Helper()
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code {
		t.Errorf("%s: %v, want code %s", what, err, code)
	}
}

const (
	lineUnder = `INSERT INTO audit (by, act, target, reason, digest, proposal_id) `
	letGo     = `UPDATE batch_runs SET state = 'released', changed_at = now(), changed_by = 'olga' WHERE run_key = 'run-1'`
)

// TestApproval_OfSomethingElseReleasesNothing: what a second person has agreed to is this run, and what lies in it.
func TestApproval_OfSomethingElseReleasesNothing(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	if _, err := w.Submit(ctx, w.submission("run-1", csvRows(6))); !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	other, err := w.Submit(ctx, w.submission("run-2", rowsOf("other", 7)))
	if !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	if _, _, err := w.Approve(ctx, "run-2", w.people["ada"], "totals agree", false); err != nil {
		t.Fatal(err)
	}
	if other, err = w.Submit(ctx, w.submission("run-2", rowsOf("other", 7))); err != nil || other.Run.State != Released {
		t.Fatalf("the run that was agreed to: %v", err)
	}
	for what, of := range map[string]string{
		"of a colleague":                    `SELECT 'olga', 'batch_submit', 'run-1', 'x', e.digest, e.proposal_id FROM executions e JOIN proposals p ON p.id = e.proposal_id WHERE p.act = 'operator_add' LIMIT 1`,
		"of another run":                    `SELECT 'olga', 'batch_submit', 'run-1', 'x', e.digest, e.proposal_id FROM executions e JOIN proposals p ON p.id = e.proposal_id WHERE p.target = 'run-2'`,
		"of the run, by nobody":             `SELECT 'olga', 'batch_submit', 'run-1', 'x', digest, id FROM proposals WHERE target = 'run-1'`,
		"of a colleague, with other digest": `SELECT 'olga', 'batch_submit', 'run-1', 'x', (SELECT digest FROM proposals WHERE target = 'run-1'), e.proposal_id FROM executions e LIMIT 1`,
	} {
		wantRefusal(t, "released under the agreement "+what, w.inNameOf("olga", lineUnder+of, letGo), "PO023")
	}
	// An agreement to the run key, of content that names no run, or another one.
	forged := `WITH p AS (INSERT INTO proposals (id, by, act, target, reason, content, digest, expires_at)
		SELECT gen_random_uuid(), 'olga', 'batch_submit', 'run-1', 'x', c, sha256(convert_to(E'batch_submit\n', 'UTF8') || c), now() + interval '1 h'
		  FROM convert_to('{"run":"run-1","id":"` + other.Run.ID.String() + `"}', 'UTF8') c RETURNING id, digest)
		` + lineUnder + `SELECT 'olga', 'batch_submit', 'run-1', 'x', digest, id FROM p`
	if err := w.inNameOf("olga", forged); err != nil {
		t.Fatal(err)
	}
	const last = `(SELECT id FROM proposals WHERE target = 'run-1' ORDER BY at DESC LIMIT 1)`
	if err := w.inNameOf("ada", `INSERT INTO approvals (proposal_id, by, decision, digest, reason) SELECT id, 'ada', 'approved', digest, 'x' FROM proposals WHERE id = `+last); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "released under the agreement to another content", w.inNameOf("olga",
		`INSERT INTO executions (proposal_id, audit_id, by, digest) SELECT proposal_id, id, by, digest FROM audit WHERE proposal_id = `+last+` ORDER BY id DESC LIMIT 1`, letGo), "PO023")
	w.want(1, `SELECT count(*) FROM batch_runs WHERE state = 'waiting'`)
}

// TestState_NeedsAnOperatorsToken: a viewer changes no state, and nobody does under the line of somebody whose program died.
func TestState_NeedsAnOperatorsToken(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	w.submit("run-1", csvRows(3))
	for _, c := range [][2]string{{"batch_pause", "paused"}, {"batch_cancel", "cancelled"}} {
		wantRefusal(t, "a viewer's "+c[0], w.inNameOf("vera",
			`INSERT INTO audit (by, act, target, reason, digest) VALUES ('vera', '`+c[0]+`', 'run-1', 'x', sha256('x'))`,
			`UPDATE batch_runs SET state = '`+c[1]+`', changed_at = now(), changed_by = 'vera' WHERE run_key = 'run-1'`), "PO023")
	}
	const line = `INSERT INTO audit (by, act, target, reason, digest) VALUES ('olga', 'batch_cancel', 'run-1', 'x', sha256('x'))`
	const end = `UPDATE batch_runs SET state = 'cancelled', changed_at = now(), changed_by = 'olga' WHERE run_key = 'run-1'`
	if err := w.inNameOf("olga", line); err != nil {
		t.Fatal(err)
	}
	w.refused("PO023", end)
	wantRefusal(t, "cancelled with another's token", w.inNameOf("oscar", end), "PO023")
	w.want(1, `SELECT count(*) FROM batch_runs WHERE state = 'released'`)
	if err := w.inNameOf("olga", end); err != nil {
		t.Errorf("with the token and the line: %v", err)
	}
}

// TestApproval_WhoWasAskedIsAskedUnderAnotherRunKey: the same payments under another run key, and with other limits, wait for a second person too.
func TestApproval_WhoWasAskedIsAskedUnderAnotherRunKey(t *testing.T) {
	w := newWorld(t, operate.Options{})
	ctx := t.Context()
	if _, err := w.Submit(ctx, w.submission("run-1", csvRows(6))); !errors.Is(err, operate.ErrWaiting) {
		t.Fatal(err)
	}
	l, err := ledger.Open(ctx, w.urls.Batch, ledger.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	loose := New(l, w.pool, operate.New(l, w.pool, operate.Options{Limits: wide()}), w.opt)
	if _, err := loose.Cancel(ctx, "run-1", w.people["olga"], "typo", false); err != nil {
		t.Fatal(err)
	}
	out, err := loose.Submit(ctx, w.submission("run-2", csvRows(6)))
	if !errors.Is(err, operate.ErrWaiting) || out.Run.State != Waiting {
		t.Fatalf("the same payments under another run key: %v, state %s", err, out.Run.State)
	}
	wantRefusal(t, "released alone by hand", w.inNameOf("olga", `INSERT INTO audit (by, act, target, reason, digest) VALUES ('olga', 'batch_submit', 'run-2', 'x', sha256('x'))`,
		`UPDATE batch_runs SET state = 'released', changed_at = now(), changed_by = 'olga' WHERE run_key = 'run-2'`), "PO023")
	if _, _, err := loose.Approve(ctx, "run-2", w.people["ada"], "the name was wrong", false); err != nil {
		t.Fatal(err)
	}
	if out, err = loose.Submit(ctx, w.submission("run-2", csvRows(6))); err != nil || out.Run.State != Released {
		t.Fatalf("after the agreement: %v", err)
	}
	if out, err = loose.Submit(ctx, w.submission("run-3", rowsOf("other", 60))); err != nil || out.Run.State != Released {
		t.Errorf("other payments, for which nobody was asked: %v", err)
	}
}

// TestRows_AreOfTheRunOnly: rows of a run are operations of its source that were made with them, or that no other run has.
func TestRows_AreOfTheRunOnly(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4})
	mine, theirs := w.submit("mine", csvRows(9)), w.submit("theirs", rowsOf("other", 3))
	w.enqueue(theirs)
	w.exec(`INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)
		VALUES (gen_random_uuid(), 1, 1, sha256('x'), 'GBP', 'wallet', 'gbp-fps', 'a', 'open')`)
	w.refused("PO022", `INSERT INTO batch_rows (run_id, n, line, operation_id) SELECT $1, n, 1, operation_id FROM batch_rows WHERE run_id = $2`, mine.ID, theirs.ID)
	w.refused("PO022", `INSERT INTO batch_rows (run_id, n, line, operation_id) SELECT $1, 1, 1, id FROM operations WHERE source = 'wallet'`, mine.ID)
	w.refused("PO022", `INSERT INTO batch_rows (run_id, n, line, operation_id) VALUES ($1, 1, 1, 4711)`, mine.ID)
	w.refused("PO022", `INSERT INTO batch_rows (run_id, n, line, operation_id) SELECT $1, 10, 1, min(operation_id) FROM batch_rows`, mine.ID)
	w.enqueue(mine)
	w.want(9, `SELECT count(*) FROM batch_rows WHERE run_id = $1`, mine.ID)
}

// TestEvents_OfOutcomesAreNotTheBatchs and none is put before those of others.
func TestEvents_OfOutcomesAreNotTheBatchs(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	run := w.submit("run-1", csvRows(2))
	w.enqueue(run)
	w.refused("42501", `INSERT INTO outbox (operation_id, fence, type) SELECT id, 1, 'rejected' FROM operations LIMIT 1`)
	w.refused("42501", `INSERT INTO outbox (operation_id, fence, type, code) SELECT id, 1, 'rejected', 'account_closed' FROM operations LIMIT 1`)
	w.refused("42501", `INSERT INTO outbox (id, operation_id, fence, type) OVERRIDING SYSTEM VALUE VALUES (-1, -1, 0, 'accepted')`)
	if _, err := w.Cancel(t.Context(), "run-1", w.people["olga"], "wrong month", false); err != nil {
		t.Fatal(err)
	}
	w.want(2, `SELECT count(*) FROM outbox WHERE type = 'accepted'`)
	w.want(2, `SELECT count(*) FROM outbox WHERE type = 'cancelled'`)
}

// TestDesk_EndsNobodysTokenAndTakesNoLeaseOfTheWorkers by its login alone.
func TestDesk_EndsNobodysTokenAndTakesNoLeaseOfTheWorkers(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	w.refused("42501", `INSERT INTO leases (name, holder, until) VALUES ('relay', gen_random_uuid(), 'infinity')`)
	if _, err := w.worker().Unpublished(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.refused("42501", `UPDATE leases SET until = 'infinity', holder = gen_random_uuid() WHERE name = 'relay'`)
	w.refused("42501", `DELETE FROM leases WHERE name = 'relay'`)
	w.want(1, `SELECT count(*) FROM leases WHERE name = 'relay'`)
	w.refused("PO011", `UPDATE operator_tokens SET valid_until = now()`)
	wantRefusal(t, "another's token ended by an operator", w.inNameOf("olga", `UPDATE operator_tokens SET valid_until = now() WHERE operator = 'oscar'`), "PO011")
	for name, of := range map[string]string{"olga": "olga", "adam": "oscar"} {
		if err := w.inNameOf(name, `UPDATE operator_tokens SET valid_until = now() WHERE operator = '`+of+`'`); err != nil {
			t.Errorf("%s ends the token of %s: %v", name, of, err)
		}
	}
}

// TestLimits_OfTheOwnerHoldWhateverTheSettingsSay, also by hand.
func TestLimits_OfTheOwnerHoldWhateverTheSettingsSay(t *testing.T) {
	w := newWorld(t, operate.Options{Limits: wide()})
	ctx := t.Context()
	w.refused("42501", `INSERT INTO operator_limits (what, most) VALUES ('batch_submit', 1000000)`)
	w.refused("42501", `DELETE FROM operator_limits`)
	w.submit("before", csvRows(6)) // without a row they bind nobody
	w.exec(`INSERT INTO operator_limits (what, most) VALUES ('batch_submit', 5), ('GBP', 600)`)
	w.submit("small", rowsOf("small", 5)) // 5.00 GBP
	many, err := w.Submit(ctx, w.submission("many", rowsOf("many", 6)))
	if !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("six rows, one more than one person may: %v", err)
	}
	if _, err := w.Submit(ctx, w.submission("much", "row_ref,debtor_account,amount,currency,name,iban\nr1,c-1,6.01,GBP,A N Example,GB33BUKB20201555555555\n")); !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("6.01 GBP, 0.01 more than one person may: %v", err)
	}
	if _, _, err := w.Approve(ctx, "many", w.people["ada"], "totals agree", false); err != nil {
		t.Fatal(err)
	}
	if many, err = w.Submit(ctx, w.submission("many", rowsOf("many", 6))); err != nil || many.Run.State != Released {
		t.Errorf("with the second person: %v", err)
	}
	w.exec(`DROP TABLE operator_limits`) // as in a schema before it
	w.pause("small")
}

// TestLimits_OfTheOwnerHoldByHand: a run for which nobody was asked yet.
func TestLimits_OfTheOwnerHoldByHand(t *testing.T) {
	w := newWorldAs(t, operate.Options{Limits: wide()}, Options{PartRows: 4})
	ctx, cancel := context.WithCancel(t.Context())
	w.opt.point = func(_ context.Context, at point) {
		if at == pointRegistered {
			cancel()
		}
	}
	if _, err := w.Submit(ctx, w.submission("run-1", csvRows(6))); err == nil {
		t.Fatal("the submission was to end before the release")
	}
	w.want(1, `SELECT count(*) FROM batch_runs WHERE state = 'waiting'`)
	alone := []string{`INSERT INTO audit (by, act, target, reason, digest) VALUES ('olga', 'batch_submit', 'run-1', 'x', sha256('x'))`, letGo}
	for _, limits := range []string{`('batch_submit', 5), ('GBP', 1000000)`, `('batch_submit', 6), ('GBP', 1)`, `('batch_submit', 6), ('EUR', 1000000)`} {
		w.exec(`DELETE FROM operator_limits`)
		w.exec(`INSERT INTO operator_limits (what, most) VALUES ` + limits)
		wantRefusal(t, "released alone, with "+limits, w.inNameOf("olga", alone...), "PO023")
	}
	w.exec(`DELETE FROM operator_limits`)
	w.exec(`INSERT INTO operator_limits (what, most) VALUES ('batch_submit', 6), ('GBP', 1000000)`)
	if err := w.inNameOf("olga", alone...); err != nil {
		t.Errorf("within the limits: %v", err)
	}
}
