package operate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// act is one whose every property a test sets.
type act struct {
	name, target, content string
	role                  operate.Role
	weight                operate.Weight
	check                 error
	run                   func() (string, error)
}

func (a *act) Name() string                                  { return a.name }
func (a *act) Role() operate.Role                            { return a.role }
func (a *act) Target() string                                { return a.target }
func (a *act) Content() ([]byte, error)                      { return []byte(a.content), nil }
func (a *act) Weight() operate.Weight                        { return a.weight }
func (a *act) Check(context.Context, operate.Operator) error { return a.check }
func (a *act) Run(context.Context, operate.Operator) (string, error) {
	if a.run == nil {
		return operate.OutcomeDone, nil
	}
	return a.run()
}

// heavy is an act that always needs a second person.
func heavy() *act {
	return &act{name: "replay", target: "plan-1", content: `{"plan":"1"}`, role: operate.RoleOperator, weight: operate.Weight{Count: 3, Always: true}}
}

func (d *desk) lines(f operate.AuditFilter) []operate.AuditLine {
	d.t.Helper()
	var lines []operate.AuditLine
	for l, err := range d.Audit(d.t.Context(), f) {
		if err != nil {
			d.t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestDo_LineBeforeTheActAndResultAfter(t *testing.T) {
	d := newDesk(t, operate.Options{})
	a := &act{name: "look_up", target: "k1", content: `{}`, role: operate.RoleOperator}
	a.run = func() (string, error) {
		if lines := d.lines(operate.AuditFilter{Act: "look_up"}); len(lines) != 1 || lines[0].Outcome != operate.OutcomeBegun {
			t.Errorf("during the act: %+v, want one line that is begun", lines)
		}
		return "", nil
	}
	if _, err := d.Do(t.Context(), operate.Request{By: d.people["olga"], Reason: "asked by the customer", Act: a}); err != nil {
		t.Fatal(err)
	}
	lines := d.lines(operate.AuditFilter{Act: "look_up"})
	if len(lines) != 1 || lines[0].Outcome != "done" || lines[0].By != "olga" || lines[0].Reason != "asked by the customer" || lines[0].Target != "k1" {
		t.Errorf("afterwards: %+v", lines)
	}
}

func TestDo_FourEyes(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx, a := t.Context(), heavy()
	ran := 0
	a.run = func() (string, error) { ran++; return "done", nil }
	r := operate.Request{By: d.people["olga"], Reason: "fixed", Act: a}
	first, err := d.Do(ctx, r)
	if !errors.Is(err, operate.ErrWaiting) || first.Proposal == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := d.Do(ctx, r)
	if !errors.Is(err, operate.ErrWaiting) || again.Proposal.ID != first.Proposal.ID {
		t.Errorf("asked twice: %+v, %v, want the same proposal", again.Proposal, err)
	}
	p, err := d.Approve(ctx, d.people["ada"], first.Proposal.ID, first.Proposal.Digest, "looked at it")
	if err != nil || p.State != operate.ProposalApproved {
		t.Fatalf("%+v, %v", p, err)
	}
	if ran != 0 {
		t.Error("ran before it was asked for again")
	}
	if done, err := d.Do(ctx, r); err != nil || done.Outcome != "done" || ran != 1 {
		t.Errorf("%+v, %v, ran %d times", done, err, ran)
	}
	if p, _ := d.Proposal(ctx, p.ID); p.State != operate.ProposalExecuted {
		t.Errorf("afterwards %s", p.State)
	}
	if next, err := d.Do(ctx, r); !errors.Is(err, operate.ErrWaiting) || next.Proposal.ID == p.ID || ran != 1 {
		t.Errorf("an approval was used twice: %+v, %v", next, err)
	}
}

// proposed asks for a heavy act and gives its proposal.
func (d *desk) proposed(by string, a *act) operate.Proposal {
	d.t.Helper()
	done, err := d.Do(d.t.Context(), operate.Request{By: d.people[by], Reason: "fixed", Act: a})
	if !errors.Is(err, operate.ErrWaiting) {
		d.t.Fatalf("%+v, %v", done, err)
	}
	return *done.Proposal
}

func TestDo_WhatOneMayDoAlone(t *testing.T) {
	d := newDesk(t, operate.Options{Limits: operate.Limits{Counts: map[string]int{"replay": 3}, Amounts: map[string]int64{"GBP": 5000}}})
	for n, c := range []struct {
		weight operate.Weight
		alone  bool
	}{
		{operate.Weight{}, true}, {operate.Weight{Count: 3}, true}, {operate.Weight{Count: 4}, false},
		{operate.Weight{Amounts: map[string]int64{"GBP": 5000}}, true}, {operate.Weight{Amounts: map[string]int64{"GBP": 5001}}, false},
		{operate.Weight{Amounts: map[string]int64{"GBP": 1, "EUR": 1}}, false}, {operate.Weight{Always: true}, false},
	} {
		a := heavy()
		a.content, a.weight = fmt.Sprintf(`{"n":%d}`, n), c.weight
		r := operate.Request{By: d.people["olga"], Reason: "fixed", Act: a, DryRun: true}
		if done, err := d.Do(t.Context(), r); err != nil || done.Waits == c.alone || done.Outcome != "dry_run" {
			t.Errorf("%+v, dry: %+v, %v", c.weight, done, err)
		}
		r.DryRun = false
		if _, err := d.Do(t.Context(), r); (err == nil) != c.alone || (err != nil) != errors.Is(err, operate.ErrWaiting) {
			t.Errorf("%+v: %v", c.weight, err)
		}
	}
	if lines := d.lines(operate.AuditFilter{By: "olga"}); len(lines) != 7 {
		t.Errorf("%d lines, want 7: a dry run leaves none", len(lines))
	}
}

func TestDo_RefusalsAreLoggedAndRunNothing(t *testing.T) {
	d := newDesk(t, operate.Options{})
	a := &act{name: "look_up", target: "k1", content: `{}`, role: operate.RoleOperator, run: func() (string, error) { t.Error("ran"); return "", nil }}
	do := func(by operate.Operator, reason string, want error) {
		t.Helper()
		if _, err := d.Do(t.Context(), operate.Request{By: by, Reason: reason, Act: a}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	do(d.people["olga"], "", operate.ErrNoReason)
	do(operate.Operator{Name: "adam", Roles: operate.Roles()}, "I say I am", operate.ErrUnknownOperator)
	do(d.people["vera"], "I may not", operate.ErrNotPermitted)
	do(d.people["ada"], "an approver does not ask", operate.ErrNotPermitted)
	a.check = operate.Refuse("not_parked", "it is not parked")
	do(d.people["olga"], "it may not be done", operate.ErrRefused)
	a.check = errors.New("the database is away")
	do(d.people["olga"], "nobody knows", a.check)
	want := []string{"olga refused not_parked", "ada refused ", "vera refused "}
	var got []string
	for _, l := range d.lines(operate.AuditFilter{Act: "look_up"}) {
		got = append(got, l.By+" "+l.Outcome+" "+l.Detail)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDo_ResultsOfWhatRan(t *testing.T) {
	d := newDesk(t, operate.Options{})
	for name, c := range map[string]struct {
		outcome string
		err     error
		want    string
	}{
		"done": {"", nil, "done "}, "said": {"no_effect", nil, "no_effect "}, "failed": {"", errors.New("canary Beneficiary"), "failed "},
		"partial": {"partial", errors.New("canary"), "partial "}, "refused": {"", operate.Refuse("moved", "canary"), "refused moved"},
		"sql": {"", &pgconn.PgError{Code: "23514", Message: "canary"}, "failed sql_23514"}, "interrupted": {"", context.Canceled, "interrupted "},
	} {
		a := &act{name: "look_up", target: name, content: `{}`, role: operate.RoleOperator, run: func() (string, error) { return c.outcome, c.err }}
		if _, err := d.Do(t.Context(), operate.Request{By: d.people["olga"], Reason: "why", Act: a}); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if l := d.lines(operate.AuditFilter{Target: name}); len(l) != 1 || l[0].Outcome+" "+l[0].Detail != c.want {
			t.Errorf("%s: %+v, want %s", name, l, c.want)
		}
	}
}

// TestDo_InterruptedCallerStillLeavesAResult
func TestDo_InterruptedCallerStillLeavesAResult(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	a := &act{name: "replay", target: "p", content: `{}`, role: operate.RoleOperator, run: func() (string, error) { cancel(); return "partial", ctx.Err() }}
	if _, err := d.Do(ctx, operate.Request{By: d.people["olga"], Reason: "why", Act: a}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if l := d.lines(operate.AuditFilter{Target: "p"}); len(l) != 1 || l[0].Outcome != "partial" {
		t.Errorf("%+v", l)
	}
}

// TestDo_KilledInTheMiddle: the log shows what was begun, and the same act goes on under the same approval.
func TestDo_KilledInTheMiddle(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx, a := t.Context(), heavy()
	p := d.proposed("olga", a)
	if _, err := d.Approve(ctx, d.people["ada"], p.ID, p.Digest, "looked at it"); err != nil {
		t.Fatal(err)
	}
	r := operate.Request{By: d.people["olga"], Reason: "fixed", Act: a}
	half := 0
	a.run = func() (string, error) { half++; runtime.Goexit(); return "", nil } // as a killed program: nothing after it runs
	var killed sync.WaitGroup
	killed.Go(func() { _, _ = d.Do(ctx, r) })
	killed.Wait()
	if l := d.lines(operate.AuditFilter{Outcome: operate.OutcomeBegun}); half != 1 || len(l) != 1 || l[0].Act != "replay" || l[0].Proposal != p.ID || !l[0].EndedAt.IsZero() {
		t.Errorf("begun %d times: %+v", half, l)
	}
	if p, _ = d.Proposal(ctx, p.ID); p.State != operate.ProposalBegun {
		t.Errorf("proposal is %s", p.State)
	}
	a.run = func() (string, error) { return "done", nil }
	r.By = d.people["oscar"] // whoever is on the next shift
	if done, err := d.Do(ctx, r); err != nil || done.Proposal == nil || done.Proposal.ID != p.ID {
		t.Errorf("gone on: %+v, %v", done, err)
	}
	if p, _ = d.Proposal(ctx, p.ID); p.State != operate.ProposalExecuted || p.ExecutedBy != "olga" {
		t.Errorf("proposal is %s by %s", p.State, p.ExecutedBy)
	}
}

func TestApprove_NeverByTheAuthorThroughAnyDoor(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx := t.Context()
	d.add(d.Service, d.people["adam"], "both", operate.RoleOperator, operate.RoleApprover)
	for _, author := range []string{"both", "adam"} { // an admin, too
		a := heavy()
		a.content = `{"by":"` + author + `"}`
		p := d.proposed(author, a)
		if _, err := d.Approve(ctx, d.people[author], p.ID, p.Digest, "me"); !errors.Is(err, operate.ErrOwnProposal) {
			t.Errorf("%s approves own: %v", author, err)
		}
		// Through the database, with their own token, and in another's name.
		insert := `INSERT INTO approvals (proposal_id, by, decision, digest, reason) VALUES ($1, $2, 'approved', $3, 'me')`
		d.refusedAs(author, "PO012", insert, p.ID, author, p.Digest)
		d.refusedAs(author, "PO011", insert, p.ID, "ada", p.Digest)
		d.refusedAs("", "PO011", insert, p.ID, "ada", p.Digest)
		d.refusedAs("olga", "PO011", insert, p.ID, "olga", p.Digest)
		d.refusedAs("ada", "PO013", insert, p.ID, "ada", make([]byte, 32))
		// Nor is it executed without an approval.
		d.refusedAs(author, "PO014", `WITH l AS (INSERT INTO audit (by, act, target, reason, digest, proposal_id) VALUES ($2, 'replay', 'x', 'me', $3, $1) RETURNING id)
			INSERT INTO executions (proposal_id, audit_id, by, digest) SELECT $1, id, $2, $3 FROM l`, p.ID, author, p.Digest)
		if _, err := d.Do(ctx, operate.Request{By: d.people[author], Reason: "fixed", Act: a}); !errors.Is(err, operate.ErrWaiting) {
			t.Errorf("%s: %v", author, err)
		}
	}
	// Nor by an identity that the author makes for it: since others decide, they agree to it first.
	puppet, err := d.AddOperator(ctx, d.people["adam"], "puppet", []operate.Role{operate.RoleApprover})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(ctx, operate.Request{By: d.people["adam"], Reason: "me again", Act: puppet}); !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("a puppet: %v", err)
	}
	d.refusedAs("adam", "PO011", `INSERT INTO operators (name, roles, made_by) VALUES ('puppet', '{approver}', 'adam')`)
	d.refusedAs("adam", "PO011", `INSERT INTO operator_tokens (digest, operator, made_by) VALUES (sha256('x'), 'ada', 'adam')`)
	d.refusedAs("olga", "PO011", `INSERT INTO operator_tokens (digest, operator, made_by) VALUES (sha256('x'), 'ada', 'ada')`)
	d.refusedAs("olga", "PO011", `INSERT INTO operators (name, roles, made_by) VALUES ('puppet', '{viewer}', 'adam')`)
	stolen, err := d.RotateToken(ctx, d.people["adam"], "oscar", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := operate.Request{By: d.people["adam"], Reason: "lost his", Act: stolen}
	done, err := d.Do(ctx, r)
	if !errors.Is(err, operate.ErrWaiting) || stolen.Token != "" {
		t.Fatalf("another's token: %v", err)
	}
	if _, err := d.Approve(ctx, d.people["ada"], done.Proposal.ID, done.Proposal.Digest, "he called me"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(ctx, r); err != nil || stolen.Token == "" {
		t.Errorf("agreed: %v", err)
	}
	d.refusedAs("adam", "PO011", `INSERT INTO operator_tokens (digest, operator, made_by) VALUES (sha256('x'), 'oscar', 'adam')`) // one token, not two
}

// refusedAs runs SQL as the desk's role with an operator's proof ("" = none); it must fail with the code.
func (d *desk) refusedAs(name, code, sql string, args ...any) {
	d.t.Helper()
	err := d.in(name, func(tx pgx.Tx) error {
		_, err := tx.Exec(d.t.Context(), sql, args...)
		return err
	})
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code {
		d.t.Errorf("%s as %q: %v, want code %s", sql, name, err, code)
	}
}

func TestApprove_TwoAtOnceDecideOnce(t *testing.T) {
	d := newDesk(t, operate.Options{})
	for n := range 8 {
		a := heavy()
		a.content = fmt.Sprintf(`{"n":%d}`, n)
		p := d.proposed("olga", a)
		var won, late atomic.Int32
		var both sync.WaitGroup
		for who, decide := range map[string]func(context.Context, operate.Operator, uuid.UUID, []byte, string) (operate.Proposal, error){"ada": d.Approve, "abel": d.Decline} {
			both.Go(func() {
				switch _, err := decide(t.Context(), d.people[who], p.ID, p.Digest, "looked"); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, operate.ErrDecided):
					late.Add(1)
				default:
					t.Errorf("%s: %v", who, err)
				}
			})
		}
		both.Wait()
		if won.Load() != 1 || late.Load() != 1 {
			t.Fatalf("%d won, %d late", won.Load(), late.Load())
		}
	}
}

func TestApprove_AndExpiry(t *testing.T) {
	d := newDesk(t, operate.Options{ProposalTTL: 250 * time.Millisecond})
	ctx := t.Context()
	for n := range 4 {
		a := heavy()
		a.content = fmt.Sprintf(`{"n":%d}`, n)
		p := d.proposed("olga", a)
		for { // whoever approves around the end either is in time by the database's clock, or is told
			if n == 0 && time.Until(p.ExpiresAt) > 0 {
				continue // too late for certain
			}
			decided, err := d.Approve(ctx, d.people["ada"], p.ID, p.Digest, "looked")
			if err == nil && !decided.DecidedAt.Before(p.ExpiresAt) {
				t.Errorf("decided at %v, expired at %v", decided.DecidedAt, p.ExpiresAt)
			}
			if err != nil && !errors.Is(err, operate.ErrExpired) {
				t.Error(err)
			}
			if n == 0 && err == nil {
				t.Error("an expired proposal was approved")
			}
			break
		}
		for d.state(p) != operate.ProposalExpired { // also what was approved: the approval holds no longer than the proposal
			if ctx.Err() != nil {
				t.Fatal("never expires")
			}
		}
		if _, err := d.Do(ctx, operate.Request{By: d.people["olga"], Reason: "fixed", Act: a}); !errors.Is(err, operate.ErrWaiting) {
			t.Errorf("under an expired approval: %v", err)
		}
		d.refusedAs("abel", "PO014", `INSERT INTO approvals (proposal_id, by, decision, digest, reason) VALUES ($1, 'abel', 'approved', $2, 'late')`, p.ID, p.Digest)
	}
}

func (d *desk) state(p operate.Proposal) operate.ProposalState {
	d.t.Helper()
	p, err := d.Proposal(d.t.Context(), p.ID)
	if err != nil {
		d.t.Fatal(err)
	}
	return p.State
}

func TestApprove_OtherRefusals(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx := t.Context()
	p := d.proposed("olga", heavy())
	for who, want := range map[string]error{"vera": operate.ErrNotPermitted, "oscar": operate.ErrNotPermitted, "olga": operate.ErrNotPermitted} {
		if _, err := d.Approve(ctx, d.people[who], p.ID, p.Digest, "me"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", who, err, want)
		}
	}
	if _, err := d.Approve(ctx, d.people["ada"], p.ID, []byte("another"), "read something else"); !errors.Is(err, operate.ErrChanged) {
		t.Error(err)
	}
	if _, err := d.Approve(ctx, d.people["ada"], uuid.New(), p.Digest, "which"); !errors.Is(err, operate.ErrNoProposal) {
		t.Error(err)
	}
	if _, err := d.Approve(ctx, d.people["ada"], p.ID, p.Digest, ""); !errors.Is(err, operate.ErrNoReason) {
		t.Error(err)
	}
	if got, err := d.Decline(ctx, d.people["olga"], p.ID, p.Digest, "withdrawn"); err != nil || got.State != operate.ProposalDeclined || got.Decision != "withdrawn" {
		t.Errorf("an author withdraws: %+v, %v", got, err)
	}
	if again := d.proposed("olga", heavy()); again.ID == p.ID {
		t.Error("a declined proposal was found again")
	}
	changed := heavy()
	changed.content = `{"plan":"2"}`
	if other := d.proposed("olga", changed); other.ID == p.ID {
		t.Error("another content has the same proposal")
	}
}

// TestEvidenceOfTheDeskIsKept: by right from the desk, by trigger from the owner.
func TestEvidenceOfTheDeskIsKept(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx := t.Context()
	p := d.proposed("olga", heavy())
	if _, err := d.Approve(ctx, d.people["ada"], p.ID, p.Digest, "looked"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(ctx, operate.Request{By: d.people["olga"], Reason: "fixed", Act: heavy()}); err != nil {
		t.Fatal(err)
	}
	super := d.superuser()
	for _, table := range []string{"audit", "audit_results", "proposals", "approvals", "executions"} {
		for _, sql := range []string{"DELETE FROM " + table, "UPDATE " + table + " SET at = now()"} {
			d.refusedAs("adam", "42501", sql)
			_, err := super.Exec(ctx, sql)
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "PO009" {
				t.Errorf("%s as superuser: %v", sql, err)
			}
		}
	}
	d.refusedAs("adam", "42501", `DELETE FROM operators`)
	d.refusedAs("adam", "42501", `UPDATE operators SET roles = '{admin}'`)
	d.refusedAs("olga", "PO011", `UPDATE operators SET disabled_at = now(), disabled_by = 'olga' WHERE name = 'ada'`)
	d.refusedAs("adam", "42501", `SELECT digest FROM operator_tokens`)
	d.refusedAs("olga", "PO011", `INSERT INTO audit (by, act, target, reason, digest) VALUES ('ada', 'approve', 'x', 'y', sha256('x'))`)
	d.refusedAs("olga", "23514", `INSERT INTO proposals (id, by, act, target, reason, content, digest, expires_at) VALUES (gen_random_uuid(), 'olga', 'replay', 'x', 'y', '{}', sha256('z'), now() + interval '1 hour')`)
	d.refusedAs("olga", "PO011", `INSERT INTO audit_results (audit_id, by, outcome) SELECT min(id), 'olga', 'done' FROM audit WHERE by = 'adam'`)
	d.resultsTakeTheToken()
	for name, url := range map[string]string{"worker": d.urls.Worker} {
		service := d.as(url, operate.Options{})
		if _, err := service.Identify(ctx, d.tokens["adam"]); !errors.Is(err, operate.ErrNotPermitted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// resultsTakeTheToken of the line's operator, also one that ran out in between.
func (d *desk) resultsTakeTheToken() {
	d.t.Helper()
	insert := `INSERT INTO audit_results (audit_id, by, outcome) VALUES ($1, 'olga', 'done')`
	line := d.line("olga", "resolve", "k9", nil)
	d.refusedAs("", "PO011", insert, line)
	d.refusedAs("oscar", "PO011", insert, line)
	if _, err := d.superuser().Exec(d.t.Context(), `UPDATE operator_tokens SET valid_until = now() WHERE operator = 'olga'`); err != nil {
		d.t.Fatal(err)
	}
	err := d.in("olga", func(tx pgx.Tx) error {
		_, err := tx.Exec(d.t.Context(), insert, line)
		return err
	})
	if err != nil {
		d.t.Errorf("a token that ran out: %v", err)
	}
}

func TestOperators(t *testing.T) {
	d := emptyDesk(t, operate.Options{})
	ctx := t.Context()
	if _, err := d.Identify(ctx, "po_nothing"); !errors.Is(err, operate.ErrNoOperators) {
		t.Errorf("before the first: %v", err)
	}
	if _, err := d.Owner(ctx); !errors.Is(err, operate.ErrNotPermitted) {
		t.Errorf("the desk is not the owner: %v", err)
	}
	owner := d.as(d.urls.Owner, operate.Options{})
	by := d.owner(owner)
	add := func(s *operate.Service, by operate.Operator, name string, roles ...operate.Role) (*operate.Person, error) {
		act, err := s.AddOperator(ctx, by, name, roles)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Do(ctx, operate.Request{By: by, Reason: "joins", Act: act})
		return act, err
	}
	if _, err := add(owner, by, "olga", operate.RoleOperator); !errors.Is(err, operate.ErrNotPermitted) {
		t.Errorf("the first is an admin: %v", err)
	}
	for _, bad := range []string{"", "Olga", "olga b", "worker", "paidonce", "database:paidonce_owner", "-x"} {
		if _, err := add(owner, by, bad, operate.RoleAdmin); !errors.Is(err, operate.ErrRefused) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	d.add(owner, by, "adam", operate.RoleAdmin)
	d.add(owner, by, "ada", operate.RoleApprover)
	if _, err := add(owner, by, "third", operate.RoleApprover); !errors.Is(err, operate.ErrNotPermitted) {
		t.Errorf("two can decide, so the owner of the database makes no more: %v", err)
	}
	if _, err := add(d.Service, d.people["adam"], "ada", operate.RoleViewer); !errors.Is(err, operate.ErrKnownOperator) {
		t.Errorf("taken: %v", err)
	}
	if vera, err := add(d.Service, d.people["adam"], "vera", operate.RoleViewer); err != nil || vera.Token == "" {
		t.Errorf("a viewer needs nobody's agreement: %v", err)
	}
	if _, err := add(d.Service, d.people["ada"], "x", operate.RoleViewer); !errors.Is(err, operate.ErrNotPermitted) {
		t.Errorf("an approver makes nobody: %v", err)
	}
	d.rotates()
	if _, err := d.Do(ctx, operate.Request{By: d.people["adam"], Reason: "left", Act: d.DisableOperator("ada")}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Identify(ctx, d.tokens["ada"]); !errors.Is(err, operate.ErrUnknownOperator) {
		t.Errorf("disabled: %v", err)
	}
	if _, err := add(d.Service, d.people["adam"], "puppet", operate.RoleApprover); !errors.Is(err, operate.ErrWaiting) {
		t.Errorf("disabling the others does not free one's hands: %v", err)
	}
	list, err := d.Operators(ctx)
	if err != nil || len(list) != 3 || list[0].Name != "ada" || list[0].DisabledAt.IsZero() || len(list[0].Tokens) != 0 || len(list[1].Tokens) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// rotates gives ada two new tokens, one after the other, and adam one by the owner of the database.
func (d *desk) rotates() {
	t, ctx := d.t, d.t.Context()
	t.Helper()
	tokens := []string{d.tokens["ada"]}
	for range 2 {
		act, err := d.RotateToken(ctx, d.people["ada"], "ada", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Do(ctx, operate.Request{By: d.people["ada"], Reason: "yearly", Act: act}); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, act.Token)
		if d.people["ada"], err = d.Identify(ctx, act.Token); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range []error{operate.ErrUnknownOperator, nil, nil} { // two at once, no more
		if _, err := d.Identify(ctx, tokens[n]); !errors.Is(err, want) {
			t.Errorf("token %d: %v, want %v", n, err, want)
		}
	}
	d.tokens["ada"] = tokens[2]
	owner := d.as(d.urls.Owner, operate.Options{})
	act, err := owner.RotateToken(ctx, d.owner(owner), "adam", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Do(ctx, operate.Request{By: d.owner(owner), Reason: "lost it", Act: act}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Identify(ctx, d.tokens["adam"]); !errors.Is(err, operate.ErrUnknownOperator) {
		t.Errorf("a lost token still holds: %v", err)
	}
	if d.people["adam"], err = d.Identify(ctx, act.Token); err != nil {
		t.Error(err)
	}
}
