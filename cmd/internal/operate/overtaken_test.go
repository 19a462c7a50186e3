package operate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// asked has somebody ask for a decision, and gives its proposal.
func (d *desk) asked(by string, key uuid.UUID, decision operate.Decision) operate.Proposal {
	d.t.Helper()
	done, err := d.do(by, d.resolution(key, decision, goodRules))
	if !errors.Is(err, operate.ErrWaiting) {
		d.t.Fatalf("%+v, %v", done, err)
	}
	return *done.Proposal
}

// states are the ids of the proposals that a filter gives.
func (d *desk) listed(limit int, states ...operate.ProposalState) (ids []uuid.UUID) {
	d.t.Helper()
	list, err := d.Proposals(d.t.Context(), operate.ProposalFilter{Act: "resolve", States: states, Limit: limit})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	return ids
}

// A proposal whose cause is gone is agreed to by nobody, and says what has happened.
func TestProposals_WhatIsOvertakenIsNotAgreedTo(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx := t.Context()
	rejected, authorized := operate.Decision{Rejected: true, Code: "not_received"}, operate.Decision{Authorized: true, TransferID: "tr_1"}
	resolved, heard, stands, approved := d.operation(parkedInDoubt), d.operation(parkedInDoubt), d.operation(parkedInDoubt), d.operation(parkedInDoubt)
	waits := d.asked("olga", stands, rejected)
	first := d.asked("olga", resolved, rejected)
	second := d.asked("olga", heard, rejected)
	third := d.asked("olga", approved, rejected)
	if _, err := d.Approve(ctx, d.people["ada"], third.ID, third.Digest, "checked"); err != nil {
		t.Fatal(err)
	}
	if done, err := d.do("oscar", d.agreed(resolved, authorized)); err != nil || done.Outcome != "done" {
		t.Fatalf("%+v, %v", done, err)
	}
	d.news(heard, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "in_flight"})
	d.news(approved, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "in_flight"})

	for id, says := range map[uuid.UUID]string{
		first.ID: "the operation is authorized (tr_1) since 20", second.ID: "the partner has been heard of since", third.ID: "the partner has been heard of since",
	} {
		p, err := d.Proposal(ctx, id)
		if err != nil || p.State != operate.ProposalOvertaken || !strings.HasPrefix(p.Overtaken, says) {
			t.Errorf("%s %q, %v; want overtaken: %s", p.State, p.Overtaken, err, says)
		}
		if _, err := d.Approve(ctx, d.people["abel"], id, p.Digest, "yes"); id != third.ID && (!errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), says)) {
			t.Errorf("approve: %v", err)
		} else if id == third.ID && !errors.Is(err, operate.ErrDecided) {
			t.Errorf("approve what was approved: %v", err)
		}
	}
	if lines := d.lines(operate.AuditFilter{Act: "approve", Outcome: "refused"}); len(lines) != 2 || lines[0].Detail != "overtaken" {
		t.Errorf("the audit log says %+v", lines)
	}
	// The newest three are overtaken or executed, so that the one that is open lies beyond the first page.
	if ids := d.listed(1, operate.ProposalOpen); len(ids) != 1 || ids[0] != waits.ID {
		t.Errorf("open: %v, want %v", ids, waits.ID)
	}
	if ids := d.listed(9, operate.ProposalOvertaken); len(ids) != 3 || ids[0] != third.ID || ids[2] != first.ID {
		t.Errorf("overtaken: %v", ids)
	}
	if ids := d.listed(9, operate.ProposalApproved); len(ids) != 0 {
		t.Errorf("approved: %v", ids)
	}
	if ids := d.listed(2); len(ids) != 2 {
		t.Errorf("two of all: %v", ids)
	}
	if p, err := d.Decline(ctx, d.people["abel"], first.ID, first.Digest, "settled otherwise"); err != nil || p.State != operate.ProposalDeclined {
		t.Errorf("decline: %s, %v", p.State, err)
	}
	if _, err := d.Approve(ctx, d.people["abel"], waits.ID, waits.Digest, "yes"); err != nil {
		t.Errorf("what still stands: %v", err)
	}
}

// What cannot be judged now keeps nobody from the others, and says so.
func TestProposals_WhatCannotBeJudgedIsListed(t *testing.T) {
	d := newDesk(t, operate.Options{})
	asked := d.asked("olga", d.operation(parkedInDoubt), operate.Decision{Rejected: true, Code: "not_received"})
	if _, err := d.superuser().Exec(t.Context(), `ALTER FUNCTION said_of(uuid) RENAME TO said_of_later`); err != nil {
		t.Fatal(err)
	}
	list, err := d.Proposals(t.Context(), operate.ProposalFilter{Act: "resolve"})
	if err != nil || len(list) != 1 || list[0].ID != asked.ID || list[0].State != operate.ProposalOpen || !strings.HasPrefix(list[0].Overtaken, "not judged: ") {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestProposals_AnIdentityThatIsThereIsOvertaken(t *testing.T) {
	d := newDesk(t, operate.Options{})
	ctx := t.Context()
	propose := func(roles ...operate.Role) *operate.Proposal {
		act, err := d.AddOperator(ctx, d.people["adam"], "zoe", roles)
		if err != nil {
			t.Fatal(err)
		}
		done, err := d.Do(ctx, operate.Request{By: d.people["adam"], Reason: "joins", Act: act})
		if !errors.Is(err, operate.ErrWaiting) {
			t.Fatal(err)
		}
		return done.Proposal
	}
	p := propose(operate.RoleApprover)
	d.add(d.Service, d.people["adam"], "zoe", operate.RoleOperator)
	if now, err := d.Proposal(ctx, p.ID); err != nil || now.State != operate.ProposalOvertaken || !strings.HasPrefix(now.Overtaken, "there is an operator zoe since 20") {
		t.Errorf("%s %q, %v", now.State, now.Overtaken, err)
	}
}
