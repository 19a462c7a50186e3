package operate_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

const (
	canaryAccount = "cust-canary-4471"
	canaryName    = "Canary Beneficiary"
	canaryIBAN    = "GB33BUKB20201555555555"
)

// operation leaves one operation as a worker would have recorded it.
func (d *desk) operation(record func(ledger.Claim) ledger.Record) uuid.UUID {
	d.t.Helper()
	worker, err := ledger.Open(d.t.Context(), d.urls.Worker, ledger.Options{MaxConns: 2})
	if err != nil {
		d.t.Fatal(err)
	}
	defer worker.Close()
	key := uuid.Must(uuid.NewV7())
	claim := worker.Claim(d.t.Context(), []ledger.Wish{{
		Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: sha256.Sum256(key[:])}, Source: "wallet", Route: "gbp-fps", DebtorAccount: canaryAccount,
		Amount: money.Amount{Minor: 4900, Currency: "GBP"}, PublishedAt: time.Now(), Payload: []byte(`{"v":1,"name":"` + canaryName + `","iban":"` + canaryIBAN + `"}`),
		Intention: ledger.Intention{Partner: "northbank", Credential: "2026-11", Endpoint: "POST http://127.0.0.1:1/v1/transfers", Renderer: 1,
			BodySHA256: sha256.Sum256([]byte("body")), PartnerKey: uuid.NewString(), EndToEndID: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
	}})[0]
	if result := worker.Record(d.t.Context(), []ledger.Record{record(claim.Claim)})[0]; result.Answer != ledger.Recorded {
		d.t.Fatalf("claim %+v, record %+v", claim, result)
	}
	return key
}

func parkedInDoubt(c ledger.Claim) ledger.Record {
	return ledger.Park(c, "in_doubt", true, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown"}, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found"})
}

func parkedSafe(c ledger.Claim) ledger.Record {
	return ledger.Park(c, "local_check", false, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "not_executed"})
}

func openUntouched(c ledger.Claim) ledger.Record { return ledger.Schedule(c, false, time.Hour) }

func goodRules(string) *operate.Rules {
	return &operate.Rules{HonoursKeys: true, KeyWindow: 24 * time.Hour, LooksUp: true}
}

func (d *desk) resolution(key uuid.UUID, decision operate.Decision, rules func(string) *operate.Rules) *operate.Resolution {
	d.t.Helper()
	act, err := d.Resolve(d.t.Context(), key, decision, rules, "ticket 4711", "line 12")
	if err != nil {
		d.t.Fatal(err)
	}
	return act
}

func (d *desk) do(by string, act operate.Act) (operate.Done, error) {
	return d.Do(d.t.Context(), operate.Request{By: d.people[by], Reason: "ticket 4711", Evidence: "line 12", Act: act})
}

// agreed asks, has ada agree, and gives the act to run.
func (d *desk) agreed(key uuid.UUID, decision operate.Decision) *operate.Resolution {
	d.t.Helper()
	act := d.resolution(key, decision, goodRules)
	done, err := d.do("olga", act)
	if !errors.Is(err, operate.ErrWaiting) {
		d.t.Fatalf("%+v, %v", done, err)
	}
	if _, err := d.Approve(d.t.Context(), d.people["ada"], done.Proposal.ID, done.Proposal.Digest, "checked"); err != nil {
		d.t.Fatal(err)
	}
	return act
}

// TestF4_RetryInDoubtNeedsALookUpAndASecondPerson; what was surely never executed needs neither, up to what one person decides upon.
func TestF4_RetryInDoubtNeedsALookUpAndASecondPerson(t *testing.T) {
	d := newDesk(t, operate.Options{Limits: operate.Limits{Amounts: map[string]int64{"GBP": 4900}}})
	retry := operate.Decision{Retry: true}
	never := d.operation(func(c ledger.Claim) ledger.Record {
		return ledger.Park(c, "in_doubt", true, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown"})
	})
	if _, err := d.do("olga", d.resolution(never, retry, goodRules)); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "no look-up since its last attempt") {
		t.Errorf("never asked: %v", err)
	}
	key := d.operation(parkedInDoubt)
	for name, rules := range map[string]*operate.Rules{
		"keys not honoured": {KeyWindow: time.Hour}, "no window": {HonoursKeys: true}, "window over": {HonoursKeys: true, KeyWindow: time.Millisecond}, "not configured": nil,
	} {
		if _, err := d.do("olga", d.resolution(key, retry, func(string) *operate.Rules { return rules })); !errors.Is(err, operate.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	act := d.agreed(key, retry)
	if done, err := d.do("olga", act); err != nil || done.Outcome != "done" {
		t.Errorf("%+v, %v", done, err)
	}
	if e, _ := d.ledger.Explain(t.Context(), key); e.State != ledger.StateOpen || !e.InDoubt {
		t.Errorf("afterwards %s, in doubt %t", e.State, e.InDoubt)
	}
	if done, err := d.do("olga", d.resolution(d.operation(parkedSafe), retry, goodRules)); err != nil || done.Outcome != "done" || done.Proposal != nil {
		t.Errorf("what was not executed: %+v, %v", done, err)
	}
	strict := operate.New(d.ledger, d.pool, operate.Options{Limits: operate.Limits{Amounts: map[string]int64{"GBP": 4899}}})
	safe := d.operation(parkedSafe)
	request := operate.Request{By: d.people["olga"], Reason: "mended", Act: d.resolution(safe, retry, goodRules)}
	done, err := strict.Do(t.Context(), request)
	if !errors.Is(err, operate.ErrWaiting) || done.Proposal.Weight.Amounts["GBP"] != 4900 || done.Proposal.Weight.Always {
		t.Fatalf("what was not executed, above the limit: %+v, %v", done, err)
	}
	if _, err := strict.Approve(t.Context(), d.people["ada"], done.Proposal.ID, done.Proposal.Digest, "mended, I looked"); err != nil {
		t.Fatal(err)
	}
	if done, err := strict.Do(t.Context(), request); err != nil || done.Outcome != "done" {
		t.Errorf("agreed to: %+v, %v", done, err)
	}
}

// TestResolve_AnApprovalDoesNotOutliveItsEvidence: the partner speaks after both had agreed.
func TestResolve_AnApprovalDoesNotOutliveItsEvidence(t *testing.T) {
	d := newDesk(t, operate.Options{})
	for verdict, decision := range map[string]operate.Decision{
		"in_flight": {Rejected: true, Code: "not_received"}, "mismatch": {Rejected: true, Code: "not_received"}, "key_reused": {Authorized: true, TransferID: "tr_1"},
	} {
		key := d.operation(parkedInDoubt)
		act := d.agreed(key, decision)
		d.news(key, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "no_answer"}, ledger.Fact{Kind: ledger.FactLookUp, Verdict: verdict})
		if done, err := d.do("olga", act); !errors.Is(err, operate.ErrRefused) {
			t.Errorf("%s, what was agreed to: %+v, %v", verdict, done, err)
		}
		done, err := d.do("olga", d.resolution(key, decision, goodRules)) // as the command does it: made again
		if decision.Rejected && (!errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), "may be executed still")) {
			t.Errorf("%s, rejected: %+v, %v", verdict, done, err)
		}
		if decision.Authorized && (!errors.Is(err, operate.ErrWaiting) || !strings.Contains(string(done.Proposal.Content), verdict)) {
			t.Errorf("%s, authorized: %+v, %v; want another proposal", verdict, done, err)
		}
	}
	key := d.operation(parkedInDoubt)
	act := d.agreed(key, operate.Decision{Rejected: true, Code: "not_received"})
	d.news(key, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found"}) // the worker goes on asking
	if done, err := d.do("olga", act); err != nil || done.Outcome != "done" {
		t.Errorf("no news: %+v, %v", done, err)
	}
}

// news is what a worker records of a parked operation.
func (d *desk) news(key uuid.UUID, facts ...ledger.Fact) {
	d.t.Helper()
	worker, err := ledger.Open(d.t.Context(), d.urls.Worker, ledger.Options{MaxConns: 1})
	if err != nil {
		d.t.Fatal(err)
	}
	defer worker.Close()
	for _, f := range facts {
		if result := worker.Append(d.t.Context(), []ledger.Late{{Key: key, Facts: []ledger.Fact{f}}})[0]; result.Err != nil {
			d.t.Fatal(result.Err)
		}
	}
}

// TestResolve_TwoOperatorsRunTheSameAtOnce: one of them has the effect.
func TestResolve_TwoOperatorsRunTheSameAtOnce(t *testing.T) {
	d := newDesk(t, operate.Options{})
	for range 4 {
		key := d.operation(parkedInDoubt)
		act := d.agreed(key, operate.Decision{Authorized: true, TransferID: "tr_" + key.String()})
		var mu sync.Mutex
		outcomes := map[string]int{}
		var both sync.WaitGroup
		for _, by := range []string{"olga", "oscar"} {
			both.Go(func() {
				done, err := d.do(by, act)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, operate.ErrRefused) || errors.Is(err, operate.ErrWaiting) {
					done.Outcome = "no_effect" // the other was done before this one had begun
				} else if err != nil {
					t.Error(err)
				}
				outcomes[done.Outcome]++
			})
		}
		both.Wait()
		if outcomes["done"] != 1 || outcomes["no_effect"] != 1 {
			t.Errorf("%v, want one that was done", outcomes)
		}
		if e, _ := d.ledger.Explain(t.Context(), key); e.State != ledger.StateAuthorized || len(e.Entries) != 2 {
			t.Errorf("afterwards %s with %d entries", e.State, len(e.Entries))
		}
	}
}

// line writes one of the audit log with the desk's login and its operator's token, and no result.
func (d *desk) line(by, act, target string, proposal *operate.Proposal) (id int64) {
	d.t.Helper()
	digest, of := make([]byte, 32), (*uuid.UUID)(nil)
	if proposal != nil {
		digest, of = proposal.Digest, &proposal.ID
	}
	err := d.in(by, func(tx pgx.Tx) error {
		return tx.QueryRow(d.t.Context(), `INSERT INTO audit (by, act, target, reason, digest, proposal_id) VALUES ($1, $2, $3, 'x', $4, $5) RETURNING id`,
			by, act, target, digest, of).Scan(&id)
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return id
}

// TestDesk_ApprovedIsAnotherAct: what looks like the decision, agreed to as something else.
func TestDesk_ApprovedIsAnotherAct(t *testing.T) {
	d := newDesk(t, operate.Options{})
	key := d.operation(parkedInDoubt)
	a := heavy()
	a.target, a.content = key.String(), `{"key":"`+key.String()+`","fence":1,"to":"authorized","transfer_id":"tr_1","said":"verdict unknown"}`
	p := d.proposed("olga", a)
	if _, err := d.Approve(t.Context(), d.people["ada"], p.ID, p.Digest, "a replay, fine"); err != nil {
		t.Fatal(err)
	}
	execute := `INSERT INTO executions (proposal_id, audit_id, by, digest) VALUES ($1, $2, 'olga', $3)`
	d.refusedAs("olga", "PO014", execute, p.ID, d.line("olga", "resolve", key.String(), &p), p.Digest)
	replay := d.line("olga", "replay", key.String(), &p)
	err := d.in("olga", func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), execute, p.ID, replay, p.Digest)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.refusedAs("olga", "PO014", `SELECT resolve_operation($1, $2, 1, 'authorized', 'tr_1', '', gen_random_uuid(), '{}')`,
		d.line("olga", "resolve", key.String(), &p), key)
}

// TestDesk_ATransferThatAnotherPersonHasTaken, for an operation that is old: found in the log, after the search.
func TestDesk_ATransferThatAnotherPersonHasTaken(t *testing.T) {
	d := newDesk(t, operate.Options{})
	old := d.operation(parkedInDoubt)
	if _, err := d.superuser().Exec(t.Context(), `ALTER TABLE operations ALTER COLUMN id RESTART WITH 1000000`); err != nil {
		t.Fatal(err)
	}
	key, taken := d.operation(parkedInDoubt), operate.Decision{Authorized: true, TransferID: "tr_1"}
	first := d.agreed(old, taken)
	d.agreed(key, taken)
	p := d.proposals(key)[0]
	line := d.line("olga", "resolve", key.String(), &p)
	err := d.in("olga", func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO executions (proposal_id, audit_id, by, digest) VALUES ($1, $2, 'olga', $3)`, p.ID, line, p.Digest)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := d.do("oscar", first); err != nil || done.Outcome != "done" {
		t.Fatalf("%+v, %v", done, err)
	}
	d.refusedAs("olga", "PO016", `SELECT resolve_operation($1, $2, 1, 'authorized', 'tr_1', '', gen_random_uuid(), '{}')`, line, key)
}

// TestDesk_PausesAndDueTimesTakeALine: with the desk's login and a token alone nothing is paused, resumed, made due or locked.
func TestDesk_PausesAndDueTimesTakeALine(t *testing.T) {
	d := newDesk(t, operate.Options{})
	key := d.operation(parkedInDoubt)
	pause, resume := `SELECT pause_scope($1, 'partner', 'northbank', 'x', $2)`, `SELECT resume_scope($1, 'partner', 'northbank', 'x', $2)`
	d.refusedAs("olga", "PO011", `SELECT ask_operation($1, $2)`, 0, key)
	d.refusedAs("olga", "PO011", `SELECT ask_operation($1, $2)`, d.line("olga", "cancel", key.String(), nil), key)
	d.refusedAs("olga", "PO011", `SELECT lock_operation($1, $2)`, 0, key)
	d.refusedAs("olga", "PO011", `SELECT bring_back($1, 'all', '', 1000)`, d.line("olga", "resume", "partner northbank", nil))
	d.refusedAs("olga", "PO011", pause, 0, "worker")
	d.refusedAs("olga", "PO011", pause, d.line("oscar", "pause", "partner northbank", nil), "oscar")
	worker, err := ledger.Open(t.Context(), d.urls.Worker, ledger.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(worker.Close)
	do := func(by string, act operate.Act) {
		t.Helper()
		if done, err := d.do(by, act); err != nil || done.Outcome != "done" {
			t.Errorf("%s by %s: %+v, %v", act.Name(), by, done, err)
		}
	}
	for _, reason := range ledger.DoubtReasons() {
		do("olga", d.Pause(ledger.ScopePartner, "northbank", "maintenance"))
		if err := worker.Pause(t.Context(), ledger.ScopePartner, "northbank", reason, ledger.ByWorker); err != nil {
			t.Fatal(err)
		}
		d.refusedAs("olga", "PO011", resume, 0, "ada")
		d.refusedAs("olga", "PO011", resume, d.line("olga", "resume", "partner northbank", nil), "ada") // an operator: money is in doubt
		do("adam", d.Resume(ledger.ScopePartner, "northbank", "looked into"))
	}
	do("olga", d.Pause(ledger.ScopeAll, "", "maintenance"))
	do("oscar", d.Resume(ledger.ScopeAll, "", "over"))
	var log string
	if err := d.superuser().QueryRow(t.Context(), `SELECT string_agg(by || ' ' || act, ', ' ORDER BY id) FROM pause_log WHERE scope = 'all'`).Scan(&log); err != nil || log != "olga pause, oscar resume" {
		t.Errorf("logged %q, %v", log, err)
	}
}

// TestDesk_TheDatabaseAsksTheSame: whoever has the desk's login and a token, but no line, no approval, or another one, changes no operation.
func TestDesk_TheDatabaseAsksTheSame(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx := t.Context()
	key, other := d.operation(parkedInDoubt), d.operation(parkedInDoubt)
	resolve := `SELECT resolve_operation($1, $2, 1, $3, $4, '', gen_random_uuid(), '{}')`
	d.refusedAs("olga", "PO011", resolve, 0, key, "authorized", "tr_1")
	line := func(by, act, target string, proposal *uuid.UUID) (id int64) {
		t.Helper()
		err := d.in(by, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `INSERT INTO audit (by, act, target, reason, digest, proposal_id) VALUES ($1, $2, $3, 'x', sha256('x'), $4) RETURNING id`,
				by, act, target, proposal).Scan(&id)
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	d.refusedAs("olga", "PO014", resolve, line("olga", "resolve", key.String(), nil), key, "authorized", "tr_1")           // not approved
	d.refusedAs("olga", "PO011", resolve, line("olga", "resolve", other.String(), nil), key, "authorized", "tr_1")         // of another key
	d.refusedAs("olga", "PO011", resolve, line("olga", "cancel", key.String(), nil), key, "authorized", "tr_1")            // of another act
	d.refusedAs("olga", "PO011", resolve, line("oscar", "resolve", key.String(), nil), key, "authorized", "tr_1")          // of another operator
	d.refusedAs("vera", "PO011", resolve, line("vera", "resolve", key.String(), nil), key, "authorized", "tr_1")           // of one who only looks
	d.refusedAs("olga", "PO014", resolve, line("olga", "resolve", key.String(), nil), key, "open", "")                     // in doubt
	d.refusedAs("olga", "PO011", `SELECT cancel_operation($1, $2, 'x', gen_random_uuid())`, 0, d.operation(openUntouched)) // without a line
	act := d.agreed(key, operate.Decision{Retry: true})
	var proposal uuid.UUID
	for _, p := range d.proposals(key) {
		proposal = p.ID
	}
	// Approved and begun, as after a crash, but for another decision, or for another transfer than the one approved.
	err := d.in("olga", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH l AS (INSERT INTO audit (by, act, target, reason, digest, proposal_id) SELECT 'olga', 'resolve', $2::text, 'x', digest, id FROM proposals WHERE id = $1 RETURNING id, digest)
			INSERT INTO executions (proposal_id, audit_id, by, digest) SELECT $1, id, 'olga', digest FROM l`, proposal, key.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := d.lines(operate.AuditFilter{Proposal: proposal, Outcome: operate.OutcomeBegun})
	if len(begun) != 1 {
		t.Fatalf("%+v", begun)
	}
	d.refusedAs("olga", "PO014", resolve, begun[0].ID, key, "authorized", "tr_1")
	if done, err := d.do("oscar", act); err != nil || done.Outcome != "done" {
		t.Errorf("what was approved: %+v, %v", done, err)
	}
}

func (d *desk) proposals(key uuid.UUID) []operate.Proposal {
	d.t.Helper()
	list, err := d.Proposals(d.t.Context(), operate.ProposalFilter{Target: key.String()})
	if err != nil || len(list) != 1 {
		d.t.Fatalf("%d proposals, %v", len(list), err)
	}
	return list
}

// in runs a transaction as the desk's role with an operator's proof.
func (d *desk) in(name string, body func(pgx.Tx) error) error {
	d.t.Helper()
	return pgx.BeginFunc(d.t.Context(), d.pool, func(tx pgx.Tx) error {
		sum := sha256.Sum256([]byte(d.tokens[name]))
		if _, err := tx.Exec(d.t.Context(), `SELECT set_config('paidonce.proof', $1, true)`, hex.EncodeToString(sum[:])); err != nil {
			return err
		}
		return body(tx)
	})
}

func TestCancelAndLookUp(t *testing.T) {
	d := newDesk(t, operate.Options{})
	cancel := func(key uuid.UUID) (operate.Done, error) {
		t.Helper()
		act, err := d.Cancel(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return d.do("olga", act)
	}
	key := d.operation(openUntouched)
	for _, want := range []string{"done", "no_effect"} {
		if done, err := cancel(key); err != nil || done.Outcome != want {
			t.Errorf("%+v, %v; want %s", done, err, want)
		}
	}
	for _, record := range []func(ledger.Claim) ledger.Record{parkedInDoubt, parkedSafe, func(c ledger.Claim) ledger.Record {
		return ledger.Schedule(c, true, time.Hour, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown"})
	}} {
		if done, err := cancel(d.operation(record)); !errors.Is(err, operate.ErrRefused) {
			t.Errorf("%+v, %v", done, err)
		}
	}
	// Seen open, and in doubt by the time it is cancelled: the row decides.
	raced := d.operation(openUntouched)
	act, err := d.Cancel(t.Context(), raced)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.superuser().Exec(t.Context(), `UPDATE operations SET in_doubt = true WHERE key = $1`, raced); err != nil {
		t.Fatal(err)
	}
	if done, err := d.do("olga", act); !errors.Is(err, operate.ErrRefused) {
		t.Errorf("%+v, %v", done, err)
	}
	blind := func(string) *operate.Rules { return &operate.Rules{} }
	ask, err := d.AskNow(t.Context(), d.operation(parkedInDoubt), blind, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.do("olga", ask); !errors.Is(err, operate.ErrRefused) {
		t.Errorf("a partner without look-up: %v", err)
	}
}

// TestDesk_NothingItKeepsNamesAPerson: the audit log, proposals and errors of every act on an operation.
func TestDesk_NothingItKeepsNamesAPerson(t *testing.T) {
	d := newDesk(t, operate.Options{})
	key := d.operation(parkedInDoubt)
	var said strings.Builder
	note := func(err error) {
		if err != nil {
			said.WriteString(err.Error())
		}
	}
	for _, decision := range []operate.Decision{{}, {Authorized: true}, {Authorized: true, TransferID: "tr_1"}, {Rejected: true, Code: "x"}, {Retry: true}} {
		_, err := d.do("olga", d.resolution(key, decision, goodRules))
		note(err)
	}
	cancel, err := d.Cancel(t.Context(), key)
	note(err)
	_, err = d.do("olga", cancel)
	note(err)
	_, err = d.do("olga", operate.Reveal(key.String()))
	note(err)
	_, err = d.do("vera", operate.Reveal(key.String()))
	note(err)
	if said.Len() < 100 {
		t.Errorf("few errors: %s", &said)
	}
	var kept string
	err = d.superuser().QueryRow(context.Background(), `SELECT coalesce((SELECT string_agg(a::text, '') FROM audit a), '') || (SELECT string_agg(r::text, '') FROM audit_results r)
		|| (SELECT string_agg(p::text || convert_from(p.content, 'UTF8'), '') FROM proposals p)`).Scan(&kept)
	if err != nil || len(kept) < 500 {
		t.Fatalf("%d characters, %v", len(kept), err)
	}
	for _, canary := range []string{canaryAccount, canaryName, canaryIBAN} {
		if strings.Contains(kept+said.String(), canary) {
			t.Errorf("%q is kept or said", canary)
		}
	}
}
