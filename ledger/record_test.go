package ledger_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

func TestRecord_AuthorizedWithEntriesAndEvent(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	fact := verdict("authorized")
	fact.TransferID = "tr_1"
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", fact))
	e := explain(t, db.Ledger, w)
	if e.State != ledger.StateAuthorized || e.TransferID != "tr_1" || e.Settlement != "pending" || e.InDoubt || e.OutcomeAt.IsZero() || !e.DueAt.IsZero() {
		t.Errorf("explained %+v", e.Summary)
	}
	type line struct {
		event, account, currency string
		minor                    int64
	}
	var lines []line
	for _, entry := range e.Entries {
		lines = append(lines, line{entry.Event, entry.Account, entry.Currency, entry.AmountMinor})
	}
	want := []line{{"authorized", "customer:wallet/cust-4471", "GBP", -4900}, {"authorized", "transit:northbank", "GBP", 4900}}
	if !slices.Equal(lines, want) {
		t.Errorf("entries %v, want %v", lines, want)
	}
	if !slices.Equal(e.Unpublished, []string{"authorized"}) {
		t.Errorf("events %v, want one authorized", e.Unpublished)
	}
	if len(e.Facts) != 1 || e.Facts[0].Verdict != "authorized" || e.Facts[0].TransferID != "tr_1" || e.Facts[0].Fence != 1 || string(e.Facts[0].Evidence) != `{"status": 201}` {
		t.Errorf("facts %+v", e.Facts)
	}
}

func TestRecord_EachOutcomeLeavesWhatItMust(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for _, c := range []struct {
		name   string
		record func(ledger.Claim) ledger.Record
		events []string
		due    time.Duration // from now; 0 = none
		parked bool
	}{
		{"rejected", func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed") }, []string{"rejected"}, 0, false},
		{"cancelled", func(c ledger.Claim) ledger.Record { return ledger.Cancel(c, "expired") }, []string{"cancelled"}, 0, false},
		{"parked", func(c ledger.Claim) ledger.Record { return ledger.Park(c, "mismatch", true) }, []string{"parked"}, 24 * time.Hour, true},
		{"scheduled", func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, true, time.Minute) }, nil, time.Minute, false},
		{"held", func(c ledger.Claim) ledger.Record { return ledger.Hold(c, "over_limit", false, time.Hour) }, nil, time.Hour, false},
		{"released", func(c ledger.Claim) ledger.Record { return ledger.Release(c, false) }, nil, time.Nanosecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWish()
			r := c.record(mustClaim(t, db.Ledger, w))
			mustRecord(t, db.Ledger, r)
			e := explain(t, db.Ledger, w)
			if e.State != r.Next || e.InDoubt != r.InDoubt || len(e.Entries) != 0 || !slices.Equal(e.Unpublished, c.events) || e.OutcomeAt.IsZero() == r.Next.Finished() {
				t.Errorf("state %s, in doubt %t, entries %v, events %v, outcome at %v", e.State, e.InDoubt, e.Entries, e.Unpublished, e.OutcomeAt)
			}
			if reason := e.Code + e.HeldReason; reason != r.Code {
				t.Errorf("reason %q, want %q", reason, r.Code)
			}
			if in := e.DueAt.Sub(e.Now); e.DueAt.IsZero() != (c.due == 0) || (c.due > 0 && math.Abs(float64(in-c.due)) > float64(5*time.Second)) {
				t.Errorf("due in %v, want %v", in, c.due)
			}
			if c.due != 0 {
				if got := value[bool](db, `SELECT parked FROM due WHERE operation_id = $1`, r.Claim.OperationID); got != c.parked {
					t.Errorf("parked %t, want %t", got, c.parked)
				}
			}
		})
	}
}

func TestRecord_RefusesWhatCannotBe(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, spoil := range map[string]func(*ledger.Record){
		"zero value":                    func(r *ledger.Record) { *r = ledger.Record{Claim: r.Claim} },
		"claimed":                       func(r *ledger.Record) { r.Next = ledger.StateClaimed },
		"authorized without a transfer": func(r *ledger.Record) { r.TransferID = "" },
		"authorized and in doubt":       func(r *ledger.Record) { r.InDoubt = true },
		"rejected without a reason":     func(r *ledger.Record) { r.Next = ledger.StateRejected },
		"parked without a reason":       func(r *ledger.Record) { r.Next = ledger.StateParked },
		"held without a reason":         func(r *ledger.Record) { r.Next, r.Held = ledger.StateOpen, true },
		"new epoch in doubt":            func(r *ledger.Record) { r.Next, r.RaiseEpoch, r.InDoubt = ledger.StateOpen, true, true },
		"a verdict nobody knows":        func(r *ledger.Record) { r.Facts = []ledger.Fact{verdict("fine")} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWish()
			r := ledger.Authorize(mustClaim(t, db.Ledger, w), "tr_1")
			spoil(&r)
			if result := db.Record(context.Background(), []ledger.Record{r})[0]; result.Err == nil || result.Answer != ledger.NotRecorded {
				t.Errorf("answer %s, err %v; want an error", result.Answer, result.Err)
			}
			wantState(t, db.Ledger, w, ledger.StateClaimed)
		})
	}
	db.wantCount(0, "observations", `SELECT count(*) FROM observations`)
}

func TestRecord_BadRowsFailAlone(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	records := make([]ledger.Record, 0, 256)
	for i, a := range db.Claim(context.Background(), newWishes(256)) {
		records = append(records, ledger.Authorize(a.Claim, fmt.Sprintf("tr_%d", i), verdict("authorized")))
	}
	records[17].Facts[0].Evidence = []byte(`{"status":`)
	records[127].Facts[0].Evidence = []byte(`"` + "\x00" + `"`)
	records[128].TransferID = "tr\x00"
	records[129].TransferID = ""
	records[240].Facts[0].Verdict = "fine"
	bad := []int{17, 127, 128, 129, 240}
	for i, r := range db.Record(context.Background(), records) {
		switch isBad := slices.Contains(bad, i); {
		case isBad && r.Err == nil:
			t.Errorf("row %d: answer %s, want an error", i, r.Answer)
		case !isBad && (r.Answer != ledger.Recorded || r.State != ledger.StateAuthorized):
			t.Errorf("row %d: answer %s, err %v; want recorded", i, r.Answer, r.Err)
		}
	}
	db.wantCount(251, "authorized", `SELECT count(*) FROM operations WHERE state = 'authorized'`)
	db.wantCount(251, "observations", `SELECT count(*) FROM observations`)
	db.wantCount(502, "entries", `SELECT count(*) FROM entries`)
	db.wantCount(251, "events", `SELECT count(*) FROM outbox`)
	db.wantCount(5, "still claimed and due", `SELECT count(*) FROM due JOIN operations o ON o.id = operation_id WHERE o.state = 'claimed'`)
}

func TestRecord_TwiceIsRecordedOnce(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for _, make := range []func(ledger.Claim) ledger.Record{
		func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1", verdict("authorized")) },
		func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, true, time.Hour, verdict("unknown")) },
	} {
		r := make(mustClaim(t, db.Ledger, newWish()))
		results := db.Record(context.Background(), []ledger.Record{r, r})
		results = append(results, recordOne(t, db.Ledger, r))
		for i, result := range results {
			if result.Err != nil || result.Answer != ledger.Recorded || result.State != r.Next {
				t.Errorf("record %d: %+v, want recorded", i, result)
			}
		}
		db.wantCount(1, "observations", `SELECT count(*) FROM observations WHERE operation_id = $1`, r.Claim.OperationID)
	}
}

// stale gives a claim that another worker has taken over since.
func stale(t *testing.T, db *database) (ledger.Wish, ledger.Claim, ledger.Work) {
	t.Helper()
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	db.exec(`UPDATE operations SET lease_until = now() - interval '1 ms' WHERE key = $1`, w.Key)
	db.exec(`UPDATE due SET due_at = now() - interval '1 ms' WHERE operation_id = $1`, c.OperationID)
	return w, c, sweepOne(t, db.another(ledger.Options{}))
}

func TestC3_AStaleHolderChangesNothingAndItsEvidenceIsKept(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, r := range map[string]func(ledger.Claim) ledger.Record{
		"rejected": func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed", verdict("rejected")) },
		"parked":   func(c ledger.Claim) ledger.Record { return ledger.Park(c, "mismatch", true, verdict("mismatch")) },
		"open":     func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, true, 0, verdict("unknown")) },
		"released": func(c ledger.Claim) ledger.Record { return ledger.Release(c, false, verdict("not_executed")) },
	} {
		t.Run(name, func(t *testing.T) {
			w, old, takeover := stale(t, db)
			before := value[string](db, `SELECT o::text || d::text FROM operations o JOIN due d ON d.operation_id = o.id WHERE key = $1`, w.Key)
			result := recordOne(t, db.Ledger, r(old))
			if result.Answer != ledger.Fenced || result.State != ledger.StateClaimed {
				t.Errorf("answer %s, state %s; want fenced, claimed", result.Answer, result.State)
			}
			if after := value[string](db, `SELECT o::text || d::text FROM operations o JOIN due d ON d.operation_id = o.id WHERE key = $1`, w.Key); after != before {
				t.Errorf("the stale write changed\n%s to\n%s", before, after)
			}
			e := explain(t, db.Ledger, w)
			if len(e.Facts) != 1 || e.Facts[0].Kind != ledger.FactLate || e.Facts[0].Verdict != r(old).Facts[0].Verdict || e.Facts[0].Fence != old.Fence {
				t.Errorf("facts %+v, want the stale one, late, under its own fence", e.Facts)
			}
			if renewed, err := db.Renew(context.Background(), []ledger.Claim{old}); err != nil || renewed[0] {
				t.Errorf("the stale claim was renewed: %v, err %v", renewed, err)
			}
			wantAttempt(t, db.Ledger, ledger.Resend{Claim: old, Intention: w.Intention}, ledger.AttemptFenced)
			wantEnd := ledger.StateAuthorized
			if name == "parked" { // beside a mismatch, whoever saw it, nothing decides but a person
				wantEnd = ledger.StateParked
			}
			if got := recordOne(t, db.Ledger, ledger.Authorize(takeover.Claim, "tr_2", verdict("authorized"))); got.Answer != ledger.Recorded || got.State != wantEnd {
				t.Errorf("the holder's record: %+v, want %s", got, wantEnd)
			}
			if again := recordOne(t, db.Ledger, r(old)); again.Answer != ledger.Fenced || again.State != wantEnd {
				t.Errorf("afterwards: answer %s, state %s", again.Answer, again.State)
			}
			wantDue := map[ledger.State]int64{ledger.StateParked: 1}[wantEnd]
			db.wantCount(wantDue, "due", `SELECT count(*) FROM due WHERE operation_id = $1`, old.OperationID)
		})
	}
}

func TestInvariant5_EveryPartOfTheClaimIsCompared(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	other := mustClaim(t, db.Ledger, newWish())
	for name, wrong := range map[string]ledger.Claim{
		"token":  {OperationID: c.OperationID, Key: c.Key, Token: other.Token, Fence: c.Fence},
		"fence":  {OperationID: c.OperationID, Key: c.Key, Token: c.Token, Fence: c.Fence + 1},
		"key":    {OperationID: c.OperationID, Key: newWish().Key, Token: c.Token, Fence: c.Fence},
		"both":   {OperationID: c.OperationID, Key: c.Key, Token: uuid.New(), Fence: 7},
		"others": {OperationID: other.OperationID, Key: c.Key, Token: uuid.New(), Fence: c.Fence},
	} {
		t.Run(name, func(t *testing.T) {
			var facts []ledger.Fact // under the right token they would stand where the right record's go
			if name == "key" {
				facts = []ledger.Fact{verdict("rejected")}
			}
			want := ledger.Fenced
			if name == "key" {
				want = ledger.Stray
			}
			if r := recordOne(t, db.Ledger, ledger.Reject(wrong, "x", facts...)); r.Answer != want {
				t.Errorf("record: %s, want %s", r.Answer, want)
			}
			if renewed, err := db.Renew(context.Background(), []ledger.Claim{wrong}); err != nil || renewed[0] {
				t.Errorf("renew: %v, err %v", renewed, err)
			}
			wantAttempt(t, db.Ledger, ledger.Resend{Claim: wrong, Intention: w.Intention}, ledger.AttemptFenced)
			wantState(t, db.Ledger, w, ledger.StateClaimed)
		})
	}
	db.wantCount(1, "strays: evidence for a key that nobody knows", `SELECT count(*) FROM strays`)
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
}

// authorizedLate is evidence of a transfer.
func authorizedLate(transferID string) ledger.Fact {
	return ledger.Fact{Kind: ledger.FactLookUp, Verdict: "authorized", TransferID: transferID}
}

// decided checks that late evidence decided an operation once and for all.
func decided(t *testing.T, db *database, w ledger.Wish, fence int32) {
	t.Helper()
	e := explain(t, db.Ledger, w)
	if e.State != ledger.StateAuthorized || e.TransferID != "tr_late" || e.Fence != fence || e.InDoubt || e.Settlement != "pending" || e.Partner != "northbank" {
		t.Errorf("explained %+v, want authorized as tr_late with fence %d", e.Summary, fence)
	}
	if len(e.Entries) != 2 || e.Entries[0].AmountMinor != -4900 || e.Entries[1].Account != "transit:northbank" {
		t.Errorf("entries %+v", e.Entries)
	}
	db.wantCount(0, "due", `SELECT count(*) FROM due JOIN operations o ON o.id = operation_id WHERE key = $1`, w.Key)
	db.wantCount(1, "authorized events", `SELECT count(*) FROM outbox JOIN operations o ON o.id = operation_id WHERE key = $1 AND type = 'authorized'`, w.Key)
}

func TestInvariant5_LateAuthorizedDecidesWhatIsUnfinished(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, record := range map[string]func(ledger.Claim) ledger.Record{
		"open":    func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, true, time.Hour) },
		"held":    func(c ledger.Claim) ledger.Record { return ledger.Hold(c, "over_limit", true, time.Hour) },
		"parked":  func(c ledger.Claim) ledger.Record { return ledger.Park(c, "patience_over", true) },
		"claimed": nil,
	} {
		t.Run(name+" by append", func(t *testing.T) {
			w := newWish()
			c := mustClaim(t, db.Ledger, w)
			if record != nil {
				mustRecord(t, db.Ledger, record(c))
			}
			result := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]
			if result.Err != nil || result.Answer != ledger.LateAuthorized || result.State != ledger.StateAuthorized {
				t.Errorf("append: %+v", result)
			}
			decided(t, db, w, 2)
			// The holder comes back with the same news, and with another one.
			if r := recordOne(t, db.Ledger, ledger.Authorize(c, "tr_late", authorizedLate("tr_late"))); r.Answer != ledger.Fenced || r.State != ledger.StateAuthorized {
				t.Errorf("the holder's own record: %+v", r)
			}
			decided(t, db, w, 2)
		})
	}
	t.Run("claimed by another, from a stale record", func(t *testing.T) {
		w, old, takeover := stale(t, db)
		r := recordOne(t, db.Ledger, ledger.Authorize(old, "tr_late", authorizedLate("tr_late")))
		if r.Answer != ledger.LateAuthorized || r.State != ledger.StateAuthorized {
			t.Errorf("late record: %+v", r)
		}
		decided(t, db, w, 3)
		if r := recordOne(t, db.Ledger, ledger.Schedule(takeover.Claim, true, 0, verdict("unknown"))); r.Answer != ledger.Fenced {
			t.Errorf("the overtaken holder: %+v, want fenced", r)
		}
		decided(t, db, w, 3)
	})
	t.Run("never attempted", func(t *testing.T) { // as after a failover that lost the claim
		w := newWish()
		w.NotBefore = time.Now().Add(time.Hour)
		wantAnswer(t, db.Ledger, w, ledger.Scheduled)
		if r := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]; r.Answer != ledger.LateAuthorized {
			t.Errorf("append: %+v", r)
		}
		decided(t, db, w, 1)
	})
	t.Run("after a new epoch", func(t *testing.T) {
		w := newWish()
		r := ledger.Schedule(mustClaim(t, db.Ledger, w), false, time.Hour, verdict("rejected"))
		r.RaiseEpoch = true
		mustRecord(t, db.Ledger, r)
		if r := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]; r.Answer != ledger.LateAuthorized {
			t.Errorf("append: %+v", r)
		}
		decided(t, db, w, 2)
		if e := explain(t, db.Ledger, w); e.PartnerKey != w.Intention.PartnerKey || e.FirstSentAt.IsZero() {
			t.Errorf("partner key %q, first sent %v; want the attempt's", e.PartnerKey, e.FirstSentAt)
		}
	})
}

func TestInvariant5_ContradictedOutcomes(t *testing.T) {
	for name, record := range map[string]func(ledger.Claim) ledger.Record{
		"rejected":               func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed") },
		"cancelled":              func(c ledger.Claim) ledger.Record { return ledger.Cancel(c, "expired") },
		"another was authorized": func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1") },
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, ledger.Options{})
			w := newWish()
			r := record(mustClaim(t, db.Ledger, w))
			mustRecord(t, db.Ledger, r)
			before := explain(t, db.Ledger, w)
			for range 2 { // the second time changes nothing
				result := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]
				if result.Err != nil || result.Answer != ledger.LateContradicted || result.State != r.Next {
					t.Errorf("append: %+v", result)
				}
			}
			e := explain(t, db.Ledger, w)
			if e.State != before.State || e.TransferID != before.TransferID || !e.OutcomeAt.Equal(before.OutcomeAt) || len(e.Entries) != len(before.Entries) || e.Code != before.Code {
				t.Errorf("the outcome changed from %+v to %+v", before.Summary, e.Summary)
			}
			if e.ContradictedAt.IsZero() || len(e.Facts) != 2 {
				t.Errorf("contradicted at %v, facts %+v", e.ContradictedAt, e.Facts)
			}
			db.wantCount(1, "contradicted events", `SELECT count(*) FROM outbox WHERE type = 'contradicted'`)
			db.wantCount(1, "pauses of the partner", `SELECT count(*) FROM pauses WHERE (scope, name, by) = ('partner', 'northbank', 'worker')`)
			db.wantCount(1, "pause log", `SELECT count(*) FROM pause_log`)
			wantAnswer(t, db.Ledger, newWish(), ledger.Held)
		})
	}
}

// TestInvariant5_ContradictedBeforeAnyAttemptPausesTheRoute: no partner is on record of what was cancelled before it was sent, yet money left.
func TestInvariant5_ContradictedBeforeAnyAttemptPausesTheRoute(t *testing.T) {
	for name, cancel := range map[string]func(*database, ledger.Order) error{
		"by its source": func(db *database, o ledger.Order) error {
			_, _, err := db.CancelIfOpen(context.Background(), o.Key, o.Source, "cancelled_by_source")
			return err
		},
		"by the sweep": func(db *database, _ ledger.Order) error {
			db.dueNow()
			return recordOne(t, db.Ledger, ledger.Cancel(sweepOne(t, db.Ledger).Claim, "expired")).Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, ledger.Options{})
			o := newOrder()
			wantAccepted(t, db.Ledger, o, ledger.Accepted)
			if err := cancel(db, o); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r := db.Append(context.Background(), []ledger.Late{{Key: o.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]
				if r.Err != nil || r.Answer != ledger.LateContradicted {
					t.Errorf("append: %+v", r)
				}
			}
			db.wantCount(1, "pauses", `SELECT count(*) FROM pauses WHERE (scope, name, reason, by) = ('route', 'gbp-fps', 'contradicted outcome', 'worker')`)
			db.wantCount(1, "pause log", `SELECT count(*) FROM pause_log WHERE (scope, name, act) = ('route', 'gbp-fps', 'pause')`)
			wantAnswer(t, db.Ledger, newWish(), ledger.Held)
		})
	}
}

func TestInvariant5_TheSameTransferAgainContradictsNothing(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, w), "tr_1"))
	result := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_1")}}})[0]
	if result.Err != nil || result.Answer != ledger.Fenced || result.State != ledger.StateAuthorized {
		t.Errorf("append: %+v", result)
	}
	if e := explain(t, db.Ledger, w); !e.ContradictedAt.IsZero() || len(e.Facts) != 1 {
		t.Errorf("contradicted at %v, facts %+v", e.ContradictedAt, e.Facts)
	}
}

// TestInvariant5_AMismatchBesideAuthorizedDecidesNothing: with a Mismatch beside it, it is parked.
func TestInvariant5_AMismatchBesideAuthorizedDecidesNothing(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "patience_over", true))
	result := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_1"), {Kind: ledger.FactLookUp, Verdict: "mismatch"}}}})[0]
	if result.Err != nil || result.Answer != ledger.Fenced || result.State != ledger.StateParked {
		t.Errorf("append: %+v, want the evidence kept and the operation still parked", result)
	}
	db.wantCount(2, "observations", `SELECT count(*) FROM observations`)
}

func TestK2_EvidenceForAnUnknownKeyIsKept(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	result := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{{Kind: ledger.FactWebhook, Verdict: "authorized", TransferID: "tr_1", Evidence: []byte(`{"id":1}`)}}}})[0]
	if result.Err != nil || result.Answer != ledger.Stray || result.State != "" {
		t.Errorf("append: %+v", result)
	}
	db.wantCount(1, "strays", `SELECT count(*) FROM strays WHERE (key, kind, verdict, transfer_id, evidence) = ($1, 'webhook', 'authorized', 'tr_1', '{"id": 1}')`, w.Key)
}

// TestStray_PutsALaterClaimInDoubt: the claim was lost in a failover, its evidence was not. Whoever claims the key again asks first.
func TestStray_PutsALaterClaimInDoubt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w, beside := newWish(), newWish()
	lost := ledger.Claim{OperationID: 7, Key: w.Key, Token: uuid.New(), Fence: 1}
	if r := recordOne(t, db.Ledger, ledger.Authorize(lost, "tr_1", verdict("authorized"))); r.Err != nil || r.Answer != ledger.Stray {
		t.Fatalf("record: %+v, want stray", r)
	}
	answers := db.Claim(context.Background(), []ledger.Wish{w, beside})
	if a := answers[0]; a.Answer != ledger.Claimed || !a.InDoubt {
		t.Errorf("claim: %+v, want claimed in doubt", a)
	}
	if a := answers[1]; a.Answer != ledger.Claimed || a.InDoubt {
		t.Errorf("claim of another key: %+v, want claimed as fresh", a)
	}
	db.wantCount(1, "attempts", `SELECT count(*) FROM attempts`) // only the fresh one's
}

// TestStray_EachKeyOfABatchKeepsItsEvidence: a token is minted per batch.
func TestStray_EachKeyOfABatchKeepsItsEvidence(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	token := uuid.New()
	var records []ledger.Record
	for i := range 3 {
		records = append(records, ledger.Authorize(ledger.Claim{OperationID: int64(i + 1), Key: newWish().Key, Token: token, Fence: 1}, "tr_1", verdict("authorized")))
	}
	for _, r := range db.Record(context.Background(), records) {
		if r.Err != nil || r.Answer != ledger.Stray {
			t.Errorf("record: %+v", r)
		}
	}
	db.wantCount(3, "strays", `SELECT count(*) FROM strays`)
}

// TestStray_TheSweepAsksFirstToo: the job was recorded at the gateway, and evidence of its lost claim came before the sweep.
func TestStray_TheSweepAsksFirstToo(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	db.exec(`INSERT INTO strays (key, claim_token, n, kind, verdict) VALUES ($1, gen_random_uuid(), 0, 'late', 'authorized')`, w.Key)
	db.dueNow()
	if work := sweepOne(t, db.Ledger); !work.InDoubt || work.FirstSentAt.IsZero() {
		t.Errorf("swept %+v, want in doubt", work)
	}
}

// TestClaim_AKeyMadeBeforeARecoveryIsAskedAfter: the job was published again after it, the key says that it is older.
func TestClaim_AKeyMadeBeforeARecoveryIsAskedAfter(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	old := newWish()
	db.exec(`UPDATE ledger_identity SET doubt_before = now()`)
	old.PublishedAt = time.Now().Add(time.Minute)
	if a := claimOne(t, db.Ledger, old); a.Answer != ledger.Claimed || !a.InDoubt {
		t.Errorf("%+v, want claimed in doubt", a)
	}
}

// TestClaimDue_WhatIsPausedTakesNobodysPlace: one route is paused, another of the same partner goes on.
func TestClaimDue_WhatIsPausedTakesNobodysPlace(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	paused := newWishes(40)
	for i := range paused {
		paused[i].Route = "gbp-chaps"
	}
	goesOn := newWish()
	for i, a := range db.Claim(ctx, append(paused, goesOn)) {
		mustRecord(t, db.Ledger, ledger.Schedule(a.Claim, false, time.Duration(i)*time.Millisecond, verdict("not_executed")))
	}
	if err := db.Pause(ctx, ledger.ScopeRoute, "gbp-chaps", "why", "ann"); err != nil {
		t.Fatal(err)
	}
	db.exec(`UPDATE due SET due_at = now() - interval '1 h' + operation_id * interval '1 ms'`)
	work, err := db.ClaimDue(ctx, "northbank", 1)
	if err != nil || len(work) != 1 || work[0].Claim.Key != goesOn.Key {
		t.Errorf("swept %+v, err %v; want the one that goes on", work, err)
	}
}

// TestMismatchFoundOutsideOfAClaim_FencesItsHolderOff: the holder could not know of it.
func TestMismatchFoundOutsideOfAClaim_FencesItsHolderOff(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{{Kind: ledger.FactWebhook, Verdict: "mismatch"}}}})
	if r := recordOne(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized"))); r.Answer != ledger.Fenced || r.State != ledger.StateClaimed {
		t.Errorf("record: %+v, want fenced and nothing decided", r)
	}
	db.dueNow()
	if work := sweepOne(t, db.Ledger); len(work.Facts) != 2 {
		t.Errorf("the next holder sees %+v, want both facts", work.Facts)
	}
}

// TestLookUp_CountsFromWhenItWasAsked: a "not found" that was kept for a minute before it was recorded says nothing of that minute.
func TestLookUp_CountsFromWhenItWasAsked(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	a := claimOne(t, db.Ledger, w)
	old := ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found", AskedAt: a.Now.Add(-time.Minute)}
	ahead := ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found", AskedAt: a.Now.Add(time.Hour)}
	mustRecord(t, db.Ledger, ledger.Schedule(a.Claim, true, 0, old, ahead, verdict("unknown")))
	e := explain(t, db.Ledger, w)
	if !e.Facts[0].At.Equal(old.AskedAt) || e.Facts[1].At.After(e.Now) || e.Facts[2].At.Before(a.Now) {
		t.Errorf("facts at %v, %v, %v", e.Facts[0].At, e.Facts[1].At, e.Facts[2].At)
	}
}

func TestC7_SerializationFailuresAreRetried(t *testing.T) {
	for _, code := range []string{"40001", "40P01", "55P03"} {
		t.Run(code, func(t *testing.T) {
			db := newDatabase(t, ledger.Options{})
			w := newWish()
			c := mustClaim(t, db.Ledger, w)
			db.failTwice("UPDATE ON operations", code)
			mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
			db.wantCount(3, "tries", `SELECT last_value FROM tries`)
			db.wantCount(1, "observations", `SELECT count(*) FROM observations`)
			db.wantCount(2, "entries", `SELECT count(*) FROM entries`)
			db.wantCount(1, "events", `SELECT count(*) FROM outbox`)
			if e := explain(t, db.Ledger, w); e.State != ledger.StateAuthorized || len(e.Attempts) != 1 {
				t.Errorf("state %s, attempts %+v", e.State, e.Attempts)
			}
		})
	}
}

// failTwice lets the first two statements fail with an error code. A sequence counts, since it alone is not rolled back.
func (db *database) failTwice(when, code string) {
	db.t.Helper()
	db.exec(`CREATE SEQUENCE tries`)
	db.exec(`GRANT USAGE ON SEQUENCE tries TO paidonce_worker`)
	db.exec(`CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('tries') <= 2 THEN RAISE EXCEPTION 'made to fail' USING ERRCODE = '` + code + `'; END IF; RETURN NULL; END $$`)
	db.exec(`CREATE TRIGGER zz_fail_twice AFTER ` + when + ` FOR EACH STATEMENT EXECUTE FUNCTION fail_twice()`)
}

func TestD9_ARetryStartsFromTheBeginning(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.failTwice("INSERT ON attempts", "40001")
	wishes := newWishes(10)
	for i, a := range db.Claim(context.Background(), wishes) {
		if a.Err != nil || a.Answer != ledger.Claimed || a.Claim.Fence != 1 {
			t.Errorf("answer %d: %+v", i, a)
		}
	}
	db.wantCount(3, "tries", `SELECT last_value FROM tries`)
	db.wantCount(10, "operations under one token", `SELECT count(*) FROM operations GROUP BY claim_token`)
	db.wantCount(10, "attempts", `SELECT count(*) FROM attempts`)
}

func TestD9_AnAppendIsRetried(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "patience_over", true))
	db.failTwice("INSERT ON outbox", "40P01")
	if r := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{authorizedLate("tr_late")}}})[0]; r.Err != nil || r.Answer != ledger.LateAuthorized {
		t.Errorf("append: %+v", r)
	}
	db.wantCount(1, "observations", `SELECT count(*) FROM observations`)
	decided(t, db, w, 2)
}
