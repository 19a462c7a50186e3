package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// park claims a wish and parks it with what was observed.
func park(t *testing.T, db *database, inDoubt bool, facts ...ledger.Fact) ledger.Wish {
	t.Helper()
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "in_doubt", inDoubt, facts...))
	return w
}

func lookUp(verdict string) ledger.Fact {
	return ledger.Fact{Kind: ledger.FactLookUp, Verdict: verdict}
}

// decision is a resolution of what was seen just now.
func decision(t *testing.T, db *database, w ledger.Wish, to ledger.State) ledger.Resolution {
	t.Helper()
	said, err := db.as(db.urls.Desk, ledger.Options{}).Said(context.Background(), w.Key)
	if err != nil {
		t.Fatal(err)
	}
	r := ledger.Resolution{Token: uuid.New(), Key: w.Key, Fence: explain(t, db.Ledger, w).Fence, Said: said, To: to, By: "olga", Reason: "ticket 4711", Evidence: "line 12"}
	switch to {
	case ledger.StateAuthorized:
		r.TransferID = "tr_81"
	case ledger.StateRejected:
		r.Code = "not_received"
	}
	return r
}

func wantObstacle(t *testing.T, db *database, r ledger.Resolution, want ledger.Obstacle) {
	t.Helper()
	desk := db.as(db.urls.Owner, ledger.Options{}) // who owns the tables needs no line of the audit log
	for name, err := range map[string]error{"check": desk.CheckResolution(context.Background(), r), "resolve": func() error {
		_, err := desk.Resolve(context.Background(), r)
		return err
	}()} {
		var o *ledger.ObstacleError
		if !errors.As(err, &o) || o.Obstacle != want || !errors.Is(err, ledger.ErrObstacle) || o.Obstacle.Says() == "" {
			t.Errorf("%s to %s: %v, want obstacle %s", name, r.To, err, want)
		}
	}
}

func mustResolve(t *testing.T, db *database, r ledger.Resolution) {
	t.Helper()
	desk := db.as(db.urls.Owner, ledger.Options{})
	if err := desk.CheckResolution(context.Background(), r); err != nil {
		t.Errorf("check: %v", err)
	}
	for _, want := range []bool{true, false} { // the second time under the same token has no effect
		if changed, err := desk.Resolve(context.Background(), r); err != nil || changed != want {
			t.Errorf("resolve to %s: changed %t, err %v; want %t", r.To, changed, err, want)
		}
	}
}

func TestResolve_AuthorizedWritesWhatARecordWouldAndItsDecision(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := park(t, db, true, verdict("unknown"))
	before := explain(t, db.Ledger, w)
	mustResolve(t, db, decision(t, db, w, ledger.StateAuthorized))
	e := explain(t, db.Ledger, w)
	last := e.Facts[len(e.Facts)-1]
	if e.State != ledger.StateAuthorized || e.TransferID != "tr_81" || e.Settlement != "pending" || e.InDoubt || e.OutcomeAt.IsZero() || e.Fence != before.Fence+1 ||
		last.Kind != ledger.FactResolution || last.Verdict != "" || last.TransferID != "tr_81" {
		t.Errorf("resolved: %+v", e)
	}
	if want := `{"by": "olga", "reason": "ticket 4711", "decision": "authorized", "evidence": "line 12"}`; string(last.Evidence) != want {
		t.Errorf("evidence %s, want %s", last.Evidence, want)
	}
	if len(e.Entries) != 2 || e.Entries[0].AmountMinor != -4900 || e.Entries[1].AmountMinor != 4900 || e.Entries[1].Account != "transit:northbank" {
		t.Errorf("entries %+v", e.Entries)
	}
	db.wantCount(1, "events", `SELECT count(*) FROM outbox WHERE type = 'authorized'`)
	db.wantCount(0, "due", `SELECT count(*) FROM due`)
	wantObstacle(t, db, decision(t, db, w, ledger.StateRejected), ledger.NotParked)
}

func TestResolve_Rejected(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := park(t, db, true, verdict("unknown"))
	mustResolve(t, db, decision(t, db, w, ledger.StateRejected))
	e := explain(t, db.Ledger, w)
	if e.State != ledger.StateRejected || e.Code != "not_received" || e.InDoubt || len(e.Entries) != 0 {
		t.Errorf("resolved: %+v", e)
	}
	db.wantCount(1, "events", `SELECT count(*) FROM outbox WHERE type = 'rejected' AND code = 'not_received'`)
	// Later news still speaks up.
	late := ledger.Late{Key: w.Key, Facts: []ledger.Fact{{Kind: ledger.FactWebhook, Verdict: "authorized", TransferID: "tr_9"}}}
	if result := db.Append(context.Background(), []ledger.Late{late})[0]; result.Answer != ledger.LateContradicted {
		t.Errorf("late news: %+v", result)
	}
}

// TestF1_RetryKeepsAttemptsFirstSendAndEvidence: also the desk's role may change none of them.
func TestF1_RetryKeepsAttemptsFirstSendAndEvidence(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := park(t, db, true, verdict("unknown"), lookUp("not_found"))
	before := explain(t, db.Ledger, w)
	mustResolve(t, db, decision(t, db, w, ledger.StateOpen))
	e := explain(t, db.Ledger, w)
	if e.State != ledger.StateOpen || !e.InDoubt || !e.FirstSentAt.Equal(before.FirstSentAt) || !reflect.DeepEqual(e.Attempts, before.Attempts) ||
		len(e.Facts) != len(before.Facts)+1 || !reflect.DeepEqual(e.Facts[:2], before.Facts) || e.PartnerKey != before.PartnerKey {
		t.Errorf("retried: %+v, before %+v", e, before)
	}
	desk := connect(t, db.urls.Desk)
	for _, sql := range []string{
		`UPDATE operations SET state = 'open'`, `UPDATE operations SET in_doubt = false`, `UPDATE operations SET first_sent_at = now()`, `UPDATE operations SET partner = 'x'`, `UPDATE operations SET partner_key = 'x'`, `UPDATE operations SET epoch = 1`,
		`UPDATE operations SET amount_minor = 1`, `UPDATE operations SET claim_token = NULL`, `DELETE FROM operations`, `INSERT INTO attempts SELECT FROM attempts`,
		`UPDATE attempts SET at = now()`, `DELETE FROM attempts`, `UPDATE observations SET verdict = ''`, `DELETE FROM observations`, `DELETE FROM entries`,
		`UPDATE payloads SET body = ''`, `DELETE FROM pause_log`, `TRUNCATE observations`, `INSERT INTO operations DEFAULT VALUES`,
		`INSERT INTO observations (operation_id) VALUES (1)`, `INSERT INTO entries (operation_id) VALUES (1)`, `INSERT INTO outbox (operation_id) VALUES (1)`,
		`UPDATE due SET parked = false`, `UPDATE due SET due_at = now()`, `DELETE FROM due`, `DELETE FROM pauses`,
		`INSERT INTO pauses (scope, name, reason, by) VALUES ('route', 'x', 'x', 'worker')`, `INSERT INTO pause_log (scope, name, act, reason, by) VALUES ('route', 'x', 'resume', 'x', 'ann')`,
	} {
		refused(t, desk, insufficientRight, sql)
	}
}

// TestF2_RetryGoesThroughTheSameClaim: opened again it is the sweep's, under a higher fence, and no delivery jumps ahead of it.
func TestF2_RetryGoesThroughTheSameClaim(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := park(t, db, true, verdict("unknown"), lookUp("not_found"))
	old := explain(t, db.Ledger, w)
	mustResolve(t, db, decision(t, db, w, ledger.StateOpen))
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	work := sweepOne(t, db.Ledger)
	if work.Claim.Key != w.Key || work.Claim.Fence <= old.Fence || !work.InDoubt || work.UnobservedClaims != 0 || len(work.Attempts) != 1 || len(work.Facts) != 3 {
		t.Errorf("swept %+v", work)
	}
	wantAnswer(t, db.Ledger, w, ledger.Busy)
}

// TestF4_RetryInDoubtNeedsALookUpThatFoundNothingSinceTheLastAttempt
func TestF4_RetryInDoubtNeedsALookUpThatFoundNothingSinceTheLastAttempt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, facts := range map[string][]ledger.Fact{
		"never asked": {verdict("unknown")}, "no answer": {verdict("unknown"), lookUp("no_answer")}, "found at work": {verdict("unknown"), lookUp("in_flight")},
	} {
		w := park(t, db, true, facts...)
		t.Log(name)
		wantObstacle(t, db, decision(t, db, w, ledger.StateOpen), ledger.NotProvedAbsent)
	}
	w := park(t, db, true, verdict("unknown"), lookUp("not_found"))
	db.exec(`ALTER TABLE attempts DISABLE TRIGGER attempts_kept`) // as if it had been sent once more since
	db.exec(`UPDATE attempts SET at = now() + interval '1 s' WHERE operation_id = (SELECT id FROM operations WHERE key = $1)`, w.Key)
	wantObstacle(t, db, decision(t, db, w, ledger.StateOpen), ledger.NotProvedAbsent)
	w = park(t, db, true, verdict("unknown"), lookUp("not_found"))
	found := ledger.Late{Key: w.Key, Facts: []ledger.Fact{lookUp("in_flight")}}
	db.Append(context.Background(), []ledger.Late{found})
	wantObstacle(t, db, decision(t, db, w, ledger.StateOpen), ledger.NotProvedAbsent)
	// What is not in doubt needs none.
	mustResolve(t, db, decision(t, db, park(t, db, false, verdict("not_executed")), ledger.StateOpen))
}

func TestResolve_IsRefusedAgainstTheEvidence(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	mismatch := park(t, db, true, verdict("mismatch"))
	wantObstacle(t, db, decision(t, db, mismatch, ledger.StateOpen), ledger.SaidMismatch)
	said := park(t, db, true, verdict("mismatch"), ledger.Fact{Kind: ledger.FactLookUp, Verdict: "authorized", TransferID: "tr_5"})
	wantObstacle(t, db, decision(t, db, said, ledger.StateRejected), ledger.SaidAuthorized)
	stale := decision(t, db, mismatch, ledger.StateAuthorized)
	stale.Fence += 7
	wantObstacle(t, db, stale, ledger.Moved)
	open := newWish()
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, open), true, 0, verdict("unknown")))
	wantObstacle(t, db, decision(t, db, open, ledger.StateAuthorized), ledger.NotParked)
	mustResolve(t, db, decision(t, db, mismatch, ledger.StateAuthorized))
	wantObstacle(t, db, decision(t, db, said, ledger.StateAuthorized), ledger.TransferElsewhere)
	unknown := decision(t, db, open, ledger.StateOpen)
	unknown.Key = uuid.New()
	if _, err := db.as(db.urls.Owner, ledger.Options{}).Resolve(context.Background(), unknown); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("unknown key: %v", err)
	}
}

// TestResolve_NewsSinceItWasLookedAt: a decision does not outlive what it was taken on.
func TestResolve_NewsSinceItWasLookedAt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	news := func(w ledger.Wish, facts ...ledger.Fact) {
		t.Helper()
		for _, f := range facts {
			if result := db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{f}}})[0]; result.Err != nil {
				t.Fatal(result.Err)
			}
		}
	}
	for name, fact := range map[string]ledger.Fact{"found": lookUp("in_flight"), "mismatch": {Kind: ledger.FactWebhook, Verdict: "mismatch"}} {
		t.Log(name)
		w := park(t, db, true, verdict("unknown"), lookUp("not_found"))
		rejected, authorized := decision(t, db, w, ledger.StateRejected), decision(t, db, w, ledger.StateAuthorized)
		news(w, fact)
		wantObstacle(t, db, rejected, ledger.FoundSince)
		wantObstacle(t, db, authorized, ledger.Moved)
		wantObstacle(t, db, decision(t, db, w, ledger.StateRejected), ledger.FoundSince) // also when looked at again
		news(w, lookUp("not_found"))
		mustResolve(t, db, decision(t, db, w, ledger.StateRejected)) // found nothing since
	}
	w := park(t, db, true, verdict("unknown"), lookUp("in_flight"), lookUp("not_found"))
	rejected := decision(t, db, w, ledger.StateRejected)
	news(w, lookUp("no_answer"), lookUp("not_found")) // the worker goes on asking: no news
	mustResolve(t, db, rejected)
}

// TestResolve_ATransferIsTakenOnce: of two decisions that take it at once, both of them checked, one is carried out.
func TestResolve_ATransferIsTakenOnce(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for range 10 {
		decisions := []ledger.Resolution{decision(t, db, park(t, db, true, verdict("unknown")), ledger.StateAuthorized),
			decision(t, db, park(t, db, true, verdict("unknown")), ledger.StateAuthorized)}
		transfer, results := uuid.NewString(), make([]error, len(decisions))
		person := db.person()
		var both sync.WaitGroup
		for i := range decisions {
			decisions[i].TransferID = transfer
			if err := person.CheckResolution(context.Background(), decisions[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i, r := range decisions {
			both.Go(func() { _, results[i] = person.Resolve(context.Background(), r) })
		}
		both.Wait()
		var o *ledger.ObstacleError
		if err := errors.Join(results...); (results[0] == nil) == (results[1] == nil) || !errors.As(err, &o) || o.Obstacle != ledger.TransferElsewhere {
			t.Fatalf("%v, want one that is refused", results)
		}
	}
}

// TestResolve_TheSearchForATransferMissesNone, wherever the borders of its windows fall.
func TestResolve_TheSearchForATransferMissesNone(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	var ids []int64
	for n := range 5 {
		w := newWish()
		mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, w), fmt.Sprintf("tr_%d", n), verdict("authorized")))
		ids = append(ids, value[int64](db, `SELECT id FROM operations WHERE key = $1`, w.Key))
	}
	for window := int64(1); window < 8; window++ {
		for n := range ids {
			for _, at := range ids {
				found, err := db.person().Elsewhere(context.Background(), at, fmt.Sprintf("tr_%d", n), window)
				if err != nil || found != (at != ids[n]) {
					t.Errorf("windows of %d: transfer of %d beside %d: %t, %v", window, ids[n], at, found, err)
				}
			}
		}
	}
	if found, err := db.person().Elsewhere(context.Background(), ids[0], "tr_9", 2); err != nil || found {
		t.Errorf("of nobody: %t, %v", found, err)
	}
}

// TestResolve_ALookUpOfBeforeARecoveryProvesNothing: a send after it may have been lost.
func TestResolve_ALookUpOfBeforeARecoveryProvesNothing(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := park(t, db, true, verdict("unknown"), lookUp("not_found"))
	db.recovered(time.Time{}, 0)
	wantObstacle(t, db, decision(t, db, w, ledger.StateOpen), ledger.NotProvedAbsent)
}

// TestResolve_TwoDecisionsAtOnce: one of them is carried out, the other finds that the operation has moved.
func TestResolve_TwoDecisionsAtOnce(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	owner := db.as(db.urls.Owner, ledger.Options{})
	for range 10 {
		w := park(t, db, true, verdict("unknown"))
		decisions := []ledger.Resolution{decision(t, db, w, ledger.StateAuthorized), decision(t, db, w, ledger.StateRejected)}
		decisions[0].TransferID = uuid.NewString()
		var done, refused int
		var mu sync.Mutex
		var both sync.WaitGroup
		for _, d := range decisions {
			both.Go(func() {
				changed, err := owner.Resolve(context.Background(), d)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && changed:
					done++
				case errors.Is(err, ledger.ErrObstacle):
					refused++
				default:
					t.Errorf("changed %t, %v", changed, err)
				}
			})
		}
		both.Wait()
		if done != 1 || refused != 1 {
			t.Fatalf("%d done, %d refused", done, refused)
		}
	}
	db.wantCount(10, "outcomes", `SELECT count(*) FROM outbox WHERE type IN ('authorized', 'rejected')`)
}

func TestAskNow_MakesTheLookUpDue(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := park(t, db, true, verdict("unknown"))
	if last, err := db.person().AskNow(context.Background(), ledger.Line{}, w.Key); err != nil || last.IsZero() {
		t.Errorf("last %v, %v", last, err)
	}
	if work, err := db.LookAtParked(context.Background(), "northbank", 10); err != nil || len(work) != 1 || work[0].Claim.Key != w.Key {
		t.Errorf("looked at %+v, %v", work, err)
	}
	if _, err := db.person().AskNow(context.Background(), ledger.Line{}, uuid.New()); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("unknown key: %v", err)
	}
}

func TestList_ByRisk(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	add := func(minor int64, currency string, inDoubt bool) uuid.UUID {
		w := newWish()
		w.Amount.Minor, w.Amount.Currency = minor, currency
		mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "in_doubt", inDoubt, verdict("unknown")))
		return w.Key
	}
	safe, small, euro := add(900000, "GBP", false), add(100, "GBP", true), add(50, "EUR", true)
	large, later := add(5000, "GBP", true), add(5000, "GBP", true)
	list, next, err := db.List(context.Background(), ledger.Filter{States: []ledger.State{ledger.StateParked}, ByRisk: true, Limit: 5})
	var keys []uuid.UUID
	for _, o := range list {
		keys = append(keys, o.Key)
	}
	if want := []uuid.UUID{euro, large, later, small, safe}; err != nil || next != 0 || !reflect.DeepEqual(keys, want) {
		t.Errorf("%v, next %d, %v; want %v", keys, next, err, want)
	}
}

// The largest of each currency come first, whatever they are called; among equals the one whose key's window ends first, not the one sent first.
func TestList_ByRiskAndTheWindowsOfPartners(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	add := func(minor int64, currency, partner string) uuid.UUID {
		w := newWish()
		w.Amount.Minor, w.Amount.Currency, w.Intention.Partner = minor, currency, partner
		mustRecord(t, db.Ledger, ledger.Park(mustClaim(t, db.Ledger, w), "in_doubt", true, verdict("unknown")))
		return w.Key
	}
	unknown, euro, long := add(25_000_000, "GBP", "elsewhere"), add(100, "EUR", "northbank"), add(25_000_000, "GBP", "northbank")
	short, none, smaller := add(25_000_000, "GBP", "southbank"), add(25_000_000, "GBP", "keyless"), add(24_999_999, "GBP", "southbank")
	list, _, err := db.List(context.Background(), ledger.Filter{ByRisk: true, Windows: map[string]time.Duration{"northbank": 24 * time.Hour, "southbank": time.Hour, "keyless": 0}})
	var keys []uuid.UUID
	for _, o := range list {
		keys = append(keys, o.Key)
	}
	if want := []uuid.UUID{none, short, euro, long, unknown, smaller}; err != nil || !reflect.DeepEqual(keys, want) {
		t.Errorf("%v, %v; want %v", keys, err, want)
	}
}

func TestPause_ForDoubtIsSeenBeneathAPersonsPause(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	pause := func(reason, by string) {
		t.Helper()
		if err := db.Pause(ctx, ledger.ScopePartner, "northbank", reason, by); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, want ...string) {
		t.Helper()
		if got, err := db.PausedForDoubt(ctx, ledger.ScopePartner, "northbank"); err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v; want %v", when, got, err, want)
		}
	}
	pause("maintenance", "olga")
	pause(ledger.PausedOurFunds, ledger.ByWorker)
	pause(ledger.PausedMismatch, "olga") // her word for it is no worker's finding
	want("no doubt")
	for range 2 {
		pause(ledger.PausedMismatch, ledger.ByWorker)
	}
	pause(ledger.PausedDoubtLimit, ledger.ByWorker)
	want("beneath maintenance", ledger.PausedDoubtLimit, ledger.PausedMismatch)
	db.wantCount(5, "pause log: each reason once", `SELECT count(*) FROM pause_log`)
	if err := db.person().Resume(ctx, ledger.ScopePartner, "northbank", "cured", "ada"); err != nil {
		t.Fatal(err)
	}
	want("resumed")
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, w), "account_closed", verdict("rejected")))
	pause("maintenance", "olga")
	want("paused again")
	db.Append(ctx, []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{{Kind: ledger.FactWebhook, Verdict: "authorized", TransferID: "tr_1"}}}})
	want("contradicted", ledger.PausedContradicted)
}

func TestClosures_AreForgottenWithTheirWorker(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx, other := context.Background(), db.another(ledger.Options{})
	report := func(l *ledger.Ledger, partners ...string) {
		t.Helper()
		if err := l.ReportClosed(ctx, partners, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	report(db.Ledger, "northbank", "southbank")
	report(other, "northbank")
	list, err := db.as(db.urls.Desk, ledger.Options{}).Closures(ctx)
	if err != nil || len(list) != 2 || list[0].Partner != "northbank" || list[0].Workers != 2 || list[1].Workers != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	report(db.Ledger, "southbank")
	db.exec(`UPDATE closures SET until = now() - interval '1 ms' WHERE partner = 'southbank'`)
	if list, err := db.Closures(ctx); err != nil || len(list) != 1 || list[0].Partner != "northbank" || list[0].Workers != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
