package ledger_test

import (
	"context"
	"crypto/sha256"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

func TestA1_OneOfAHundredRacersClaims(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ledgers := []*ledger.Ledger{db.Ledger, db.another(ledger.Options{})}
	w := newWish()
	start := make(chan struct{})
	answers := make(chan ledger.ClaimAnswer, 100)
	var racers sync.WaitGroup
	for i := range 100 {
		racers.Go(func() {
			<-start
			answers <- ledgers[i%2].Claim(context.Background(), []ledger.Wish{w})[0]
		})
	}
	close(start)
	racers.Wait()
	close(answers)
	count := map[ledger.Answer]int{}
	for a := range answers {
		if a.Err != nil {
			t.Error(a.Err)
		}
		count[a.Answer]++
	}
	if want := map[ledger.Answer]int{ledger.Claimed: 1, ledger.Busy: 99}; !reflect.DeepEqual(count, want) {
		t.Errorf("answers %v, want %v", count, want)
	}
	db.wantCount(1, "operations", `SELECT count(*) FROM operations`)
	db.wantCount(1, "attempts", `SELECT count(*) FROM attempts`)
	db.wantCount(1, "payloads", `SELECT count(*) FROM payloads`)
	db.wantCount(1, "due", `SELECT count(*) FROM due`)
}

func TestInvariant2_ClaimCommitsTheAttempt(t *testing.T) {
	db := newDatabase(t, ledger.Options{Lease: 42 * time.Second})
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	if c.Key != w.Key || c.Fence != 1 || c.Token == uuid.Nil || c.OperationID == 0 {
		t.Errorf("claim %+v of key %s: want its key, a token, an id and fence 1", c, w.Key)
	}
	e := explain(t, db.another(ledger.Options{}), w) // from another connection
	if e.State != ledger.StateClaimed || !e.InDoubt || e.FirstSentAt.IsZero() || e.Partner != "northbank" {
		t.Errorf("state %s, in doubt %t, first sent %v, partner %q", e.State, e.InDoubt, e.FirstSentAt, e.Partner)
	}
	if len(e.Attempts) != 1 || e.Attempts[0].Intention != w.Intention || e.Attempts[0].Token != c.Token || e.Attempts[0].Fence != 1 {
		t.Errorf("attempts %+v, want the wish's intention under the claim", e.Attempts)
	}
	if d := e.LeaseUntil.Sub(e.FirstSentAt); d != 42*time.Second || !e.DueAt.Equal(e.LeaseUntil) {
		t.Errorf("lease of %v, due %v; want 42s and due at its end %v", d, e.DueAt, e.LeaseUntil)
	}
}

// otherAmount is another job under the same key.
func otherAmount(w ledger.Wish) ledger.Wish {
	w.Fingerprint.Sum = sha256.Sum256([]byte("another job"))
	w.Amount.Minor++
	return w
}

func wantConflict(t *testing.T, l *ledger.Ledger, w ledger.Wish) {
	t.Helper()
	a := claimOne(t, l, w)
	if want := (ledger.ClaimAnswer{Answer: ledger.Conflict, Now: a.Now}); a != want {
		t.Errorf("answer %+v, want a conflict that tells nothing of the first job", a)
	}
}

func TestB13_OtherAmountUnderTheSameKeyConflicts(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, end := range map[string]func(ledger.Claim) ledger.Record{
		"claimed":    nil,
		"authorized": func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1", verdict("authorized")) },
		"rejected":   func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed", verdict("rejected")) },
		"cancelled":  func(c ledger.Claim) ledger.Record { return ledger.Cancel(c, "expired") },
		"parked":     func(c ledger.Claim) ledger.Record { return ledger.Park(c, "mismatch", true) },
		"scheduled":  func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, true, time.Hour) },
		"held":       func(c ledger.Claim) ledger.Record { return ledger.Hold(c, "over_limit", false, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWish()
			c := mustClaim(t, db.Ledger, w)
			if end != nil {
				mustRecord(t, db.Ledger, end(c))
			}
			wantConflict(t, db.Ledger, otherAmount(w))
			db.wantCount(4900, "amount", `SELECT amount_minor FROM operations WHERE key = $1`, w.Key)
			db.wantCount(1, "attempts", `SELECT count(*) FROM attempts WHERE operation_id = $1`, c.OperationID)
		})
	}
}

func TestB13_ConflictWhileTheFirstWaitsForItsTime(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	other := otherAmount(w)
	other.NotBefore = time.Time{} // this one could start at once
	wantConflict(t, db.Ledger, other)
	db.wantCount(0, "attempts", `SELECT count(*) FROM attempts`)
}

func TestB15_TwoHonestEqualWithdrawalsBothClaim(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	first, second := newWish(), newWish()
	second.Fingerprint = first.Fingerprint // equal in everything but the key
	answers := db.Claim(context.Background(), []ledger.Wish{first, second})
	noErrors(t, answers)
	if answers[0].Answer != ledger.Claimed || answers[1].Answer != ledger.Claimed {
		t.Errorf("answers %s and %s, want both claimed", answers[0].Answer, answers[1].Answer)
	}
}

func TestB16_AnotherSourceUnderTheSameKeyConflicts(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	c := mustClaim(t, db.Ledger, w)
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_secret", verdict("authorized")))
	other := w
	other.Source, other.Fingerprint.Sum = "payroll", sha256.Sum256([]byte("the source is part of the fingerprint"))
	wantConflict(t, db.Ledger, other)
}

func TestB17_FinishedAfterThePayloadWasPurged(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, w), "tr_1", verdict("authorized")))
	db.exec(`DELETE FROM payloads`)
	wantAnswer(t, db.Ledger, w, ledger.Finished)
	wantConflict(t, db.Ledger, otherAmount(w))
	db.wantCount(0, "payloads", `SELECT count(*) FROM payloads`)
	if e := explain(t, db.Ledger, w); e.Payload != nil || e.TransferID != "tr_1" {
		t.Errorf("payload %q, transfer %q", e.Payload, e.TransferID)
	}
}

func TestClaim_AnswersByState(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for _, c := range []struct {
		record func(ledger.Claim) ledger.Record
		want   ledger.Answer
		reason string
	}{
		{func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1") }, ledger.Finished, ""},
		{func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed") }, ledger.Finished, ""},
		{func(c ledger.Claim) ledger.Record { return ledger.Cancel(c, "expired") }, ledger.Finished, ""},
		{func(c ledger.Claim) ledger.Record { return ledger.Park(c, "mismatch", true) }, ledger.Parked, ""},
		{func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, false, 0) }, ledger.Scheduled, ""}, // due, but the sweep's
		{func(c ledger.Claim) ledger.Record { return ledger.Hold(c, "over_limit", false, time.Hour) }, ledger.Held, "over_limit"},
	} {
		w := newWish()
		r := c.record(mustClaim(t, db.Ledger, w))
		mustRecord(t, db.Ledger, r)
		a := claimOne(t, db.Ledger, w)
		if a.Answer != c.want || a.State != r.Next || a.HeldReason != c.reason {
			t.Errorf("after %s: answer %s, state %s, reason %q; want %s, %s, %q", r.Next, a.Answer, a.State, a.HeldReason, c.want, r.Next, c.reason)
		}
	}
	db.wantCount(6, "attempts", `SELECT count(*) FROM attempts`)
}

func TestClaim_LapsedLeaseBelongsToTheSweep(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustClaim(t, db.Ledger, w)
	db.dueNow()
	wantAnswer(t, db.Ledger, w, ledger.Busy)
	db.wantCount(1, "fence", `SELECT fence FROM operations`)
}

func TestClaim_UnknownFingerprintVersionIsLeftToANewerWorker(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.Fingerprint.Version = 2
	mustClaim(t, db.Ledger, w)
	w.Fingerprint.Version = 1
	wantAnswer(t, db.Ledger, w, ledger.OtherVersion)
}

func TestClaim_SameKeyTwiceInOneBatchIsMerged(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	first, other := newWish(), newWish()
	answers := db.Claim(context.Background(), []ledger.Wish{first, other, first, otherAmount(other), first})
	var got []ledger.Answer
	for _, a := range answers {
		got = append(got, a.Answer)
	}
	want := []ledger.Answer{ledger.Claimed, ledger.Claimed, ledger.Busy, ledger.Conflict, ledger.Busy}
	if !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	noErrors(t, answers)
	db.wantCount(2, "operations", `SELECT count(*) FROM operations`)
}

func TestClaim_BadRowsFailAlone(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	wishes := newWishes(256)
	wishes[0].Amount.Minor = -4900
	wishes[100].DebtorAccount = "cust\x00"
	wishes[101].Key = uuid.Nil
	wishes[128].Amount.Currency = "gbp"
	wishes[200].Source = "\xff\xfe" // not UTF-8
	wishes[255].Amount.Minor = 0
	bad := []int{0, 100, 101, 128, 200, 255}
	answers := db.Claim(context.Background(), wishes)
	for i, a := range answers {
		switch isBad := slices.Contains(bad, i); {
		case isBad && a.Err == nil:
			t.Errorf("row %d: answer %s, want an error", i, a.Answer)
		case !isBad && (a.Answer != ledger.Claimed || a.Claim.Key != wishes[i].Key):
			t.Errorf("row %d: answer %s, err %v; want claimed", i, a.Answer, a.Err)
		}
	}
	db.wantCount(250, "operations", `SELECT count(*) FROM operations WHERE state = 'claimed'`)
	db.wantCount(250, "attempts", `SELECT count(*) FROM attempts`)
}

func TestClaim_MoreThanOneStatementKeepsTheOrder(t *testing.T) {
	db := newDatabase(t, ledger.Options{MaxBatch: 7})
	wishes := newWishes(50)
	slices.Reverse(wishes)
	for i, a := range db.Claim(context.Background(), wishes) {
		if a.Err != nil || a.Answer != ledger.Claimed || a.Claim.Key != wishes[i].Key {
			t.Fatalf("answer %d: %+v", i, a)
		}
	}
}

func TestClaim_NotBeforeAndNotAfter(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	early, expired, inTime := newWish(), newWish(), newWish()
	early.NotBefore = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	expired.NotAfter = time.Now().Add(-time.Hour)
	inTime.NotBefore, inTime.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	answers := db.Claim(context.Background(), []ledger.Wish{early, expired, inTime})
	noErrors(t, answers)
	for i, want := range []ledger.Answer{ledger.Scheduled, ledger.Scheduled, ledger.Claimed} {
		if answers[i].Answer != want {
			t.Errorf("answer %d: %s, want %s", i, answers[i].Answer, want)
		}
	}
	db.wantCount(1, "attempts", `SELECT count(*) FROM attempts`)
	if e := explain(t, db.Ledger, early); e.State != ledger.StateOpen || e.InDoubt || !e.FirstSentAt.IsZero() || !e.DueAt.Equal(early.NotBefore) {
		t.Errorf("too early: state %s, in doubt %t, first sent %v, due %v; want open and due at %v", e.State, e.InDoubt, e.FirstSentAt, e.DueAt, early.NotBefore)
	}
	wantAnswer(t, db.Ledger, early, ledger.Scheduled) // and again
	w := sweepOne(t, db.Ledger)                       // the expired one is due at once, for the sweep to cancel
	if w.Claim.Key != expired.Key || w.InDoubt || len(w.Attempts) != 0 || w.Pinned != "" {
		t.Errorf("the sweep got %+v, want the expired one, never attempted", w)
	}
}

func TestClaim_AnOpenOperationThatWasNeverAttemptedMayBeClaimedByItsDelivery(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	db.wantCount(0, "fence", `SELECT fence FROM operations`)
	w.NotBefore = time.Time{} // its time has come, before the sweep's
	c := mustClaim(t, db.Ledger, w)
	e := explain(t, db.Ledger, w)
	if c.Fence != 1 || len(e.Attempts) != 1 || !e.InDoubt || e.PartnerKey != w.Intention.PartnerKey {
		t.Errorf("fence %d, %d attempts, in doubt %t, partner key %q", c.Fence, len(e.Attempts), e.InDoubt, e.PartnerKey)
	}
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
}

func TestClaim_PausedScopesHoldAndResumeBringsBack(t *testing.T) {
	for _, c := range []struct {
		scope ledger.Scope
		name  string
	}{{ledger.ScopeAll, ""}, {ledger.ScopePartner, "northbank"}, {ledger.ScopeRoute, "gbp-fps"}, {ledger.ScopeSource, "wallet"}} {
		t.Run(string(c.scope), func(t *testing.T) {
			db := newDatabase(t, ledger.Options{})
			ctx := context.Background()
			attempted := newWish()
			mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, attempted), true, 0, verdict("unknown")))
			if err := db.Pause(ctx, c.scope, c.name, "bank holiday", "ann"); err != nil {
				t.Fatal(err)
			}
			w, beside := newWish(), newWish()
			a := claimOne(t, db.Ledger, w)
			if a.Answer != ledger.Held || a.HeldReason != "paused" || a.State != ledger.StateOpen {
				t.Errorf("answer %s, reason %q, state %s; want held, paused, open", a.Answer, a.HeldReason, a.State)
			}
			wantAnswer(t, db.Ledger, w, ledger.Held)
			wantAnswer(t, db.Ledger, otherAmount(w), ledger.Conflict)
			beside.Source, beside.Route, beside.Intention.Partner = "payroll", "eur-sct", "southbank"
			wantBeside := ledger.Claimed
			if c.scope == ledger.ScopeAll {
				wantBeside = ledger.Held
			}
			wantAnswer(t, db.Ledger, beside, wantBeside)
			db.exec(`UPDATE due SET due_at = now() - interval '1 ms' WHERE partner = 'northbank'`)
			inDoubt := sweepOne(t, db.Ledger) // may be asked after; what is not in doubt is put off
			if inDoubt.Claim.Key != attempted.Key || !inDoubt.Paused || !inDoubt.InDoubt {
				t.Errorf("swept in the pause: %+v", inDoubt)
			}
			mustRecord(t, db.Ledger, ledger.Schedule(inDoubt.Claim, true, time.Minute, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "in_flight"}))
			db.wantCount(2, "put off", `SELECT count(*) FROM due WHERE partner = 'northbank' AND due_at > now() + interval '10 s'`)
			if e := explain(t, db.Ledger, w); e.HeldReason != "paused" || len(e.Paused) != 1 || e.Paused[0].Reason != "bank holiday" || e.Paused[0].By != "ann" {
				t.Errorf("held %q, pauses %+v", e.HeldReason, e.Paused)
			}
			if err := db.person().Resume(ctx, c.scope, c.name, "over", "bob"); err != nil {
				t.Fatal(err)
			}
			db.wantCount(1, "brought back", `SELECT count(*) FROM due JOIN operations o ON o.id = operation_id
				WHERE o.key = $1 AND due_at BETWEEN now() - interval '1 min' AND now() + interval '30 s'`, w.Key)
			db.exec(`UPDATE due SET due_at = now() - interval '1 ms' WHERE partner = 'northbank'`)
			for _, work := range sweep(t, db.Ledger) {
				if fresh := work.Claim.Key == w.Key; work.InDoubt == fresh || (work.Pinned == "") != fresh || work.Paused {
					t.Errorf("swept %+v", work)
				}
			}
			wantState(t, db.Ledger, w, ledger.StateClaimed)
			wantState(t, db.Ledger, attempted, ledger.StateClaimed)
			db.wantCount(2, "pause log", `SELECT count(*) FROM pause_log WHERE (act, by, reason) IN (('pause', 'ann', 'bank holiday'), ('resume', 'bob', 'over'))`)
		})
	}
}

// TestResume_IsPaced: what was held comes back one after the other over half a minute, not all at once.
func TestResume_IsPaced(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	if err := db.Pause(ctx, ledger.ScopePartner, "northbank", "why", "ann"); err != nil {
		t.Fatal(err)
	}
	noErrors(t, db.Claim(ctx, newWishes(120)))
	if err := db.person().Resume(ctx, ledger.ScopePartner, "northbank", "over", "ann"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, of string
		least    int64
	}{{"in the first ten seconds", "0 s", 15}, {"in the next ten", "10 s", 15}, {"in the last ten", "20 s", 15}} { // 40 each, by chance
		var n int64
		err := db.conn.QueryRow(ctx, `SELECT count(*) FROM due d, (SELECT min(due_at) AS at FROM due) f WHERE d.due_at - f.at >= $1::interval
			AND d.due_at - f.at < $1::interval + interval '10 s'`, c.of).Scan(&n)
		if err != nil || n < c.least {
			t.Errorf("%d come back %s, want at least %d; %v", n, c.what, c.least, err)
		}
	}
}

func TestPause_KeepsTheFirstReasonAndResumeNeedsAPause(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	for _, reason := range []string{"first", "second", "second"} {
		if err := db.Pause(ctx, ledger.ScopeRoute, "gbp-fps", reason, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	pauses, err := db.Pauses(ctx)
	if err != nil || len(pauses) != 1 || pauses[0].Reason != "first" || pauses[0].Scope != ledger.ScopeRoute || pauses[0].Name != "gbp-fps" || pauses[0].At.IsZero() {
		t.Errorf("pauses %+v, err %v", pauses, err)
	}
	if err := db.person().Resume(ctx, ledger.ScopeRoute, "eur-sct", "why", "ann"); err == nil || !strings.Contains(err.Error(), "not paused") {
		t.Errorf("resume of what is not paused: %v", err)
	}
	db.wantCount(2, "pause log: each reason once", `SELECT count(*) FROM pause_log`)
	if err := db.Pause(ctx, ledger.ScopeAll, "named", "why", "ann"); err == nil {
		t.Error("a pause of all took a name")
	}
}

func TestD8_DuplicatesNeverShowAsAnAbortedTransaction(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	for _, wishes := range [][]ledger.Wish{{w}, {w, newWish()}, {newWish(), w, newWish()}, {w, w}} {
		noErrors(t, db.Claim(context.Background(), wishes))
	}
	db.wantCount(4, "operations", `SELECT count(*) FROM operations`)
}

func TestD10_NoRowNeverBecomesAZeroValue(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	claimed := newWishes(20)
	for i, a := range db.Claim(context.Background(), claimed) {
		if a.Answer != ledger.Claimed {
			t.Fatalf("answer %d: %+v", i, a)
		}
	}
	fresh := newWishes(20)
	var mixed []ledger.Wish
	for i := range fresh {
		mixed = append(mixed, fresh[i], claimed[i])
	}
	for i, a := range db.Claim(context.Background(), mixed) {
		switch {
		case a.Err != nil || a.Now.IsZero() || a.State == "":
			t.Errorf("answer %d: %+v", i, a)
		case i%2 == 0 && (a.Answer != ledger.Claimed || a.Claim.Key != mixed[i].Key || a.Claim.Fence != 1 || a.Claim.OperationID == 0):
			t.Errorf("answer %d: %+v, want a full claim", i, a)
		case i%2 == 1 && (a.Answer != ledger.Busy || a.Claim != ledger.Claim{}):
			t.Errorf("answer %d: %+v, want busy and no claim", i, a)
		}
	}
}

// TestD11_SameKeysInOppositeOrder: whole batches meet head on, as claims, renewals and records. No deadlock reaches the caller, and none happens
// that would have to be retried.
func TestD11_SameKeysInOppositeOrder(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	one, two := db.another(ledger.Options{MaxBatch: 1000}), db.another(ledger.Options{MaxBatch: 1000})
	ctx := context.Background()
	for round := range 20 {
		up := newWishes(1000)
		down := slices.Clone(up)
		slices.Reverse(down)
		first, second := inParallel(func() []ledger.ClaimAnswer { return one.Claim(ctx, up) }, func() []ledger.ClaimAnswer { return two.Claim(ctx, down) })
		noErrors(t, first)
		noErrors(t, second)
		claims := make([]ledger.Claim, 1000)
		for i := range first {
			a, b := first[i], second[999-i]
			if (a.Answer == ledger.Claimed) == (b.Answer == ledger.Claimed) {
				t.Fatalf("key %d: answers %s and %s, want exactly one claimed", i, a.Answer, b.Answer)
			}
			if claims[i] = a.Claim; b.Answer == ledger.Claimed {
				claims[i] = b.Claim
			}
		}
		if round%5 == 0 { // who comes second is fenced, which costs a transaction each
			recordBothWays(t, one, two, claims)
		}
	}
	one.Close() // a connection that ends hands in its counts
	two.Close()
	stack.Eventually(t, "counts of 40 batches", func() bool {
		return value[int64](db, `SELECT tup_inserted FROM pg_stat_database WHERE datname = current_database()`) > 60000
	})
	db.wantCount(0, "deadlocks", `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}

func recordBothWays(t *testing.T, one, two *ledger.Ledger, claims []ledger.Claim) {
	t.Helper()
	ctx := context.Background()
	var up, down []ledger.Record
	for _, c := range claims {
		up = append(up, ledger.Schedule(c, true, time.Hour))
	}
	down = slices.Clone(up)
	slices.Reverse(down)
	reversed := slices.Clone(claims)
	slices.Reverse(reversed)
	renew := func(l *ledger.Ledger, claims []ledger.Claim) func() []bool {
		return func() []bool {
			still, err := l.Renew(ctx, claims)
			if err != nil {
				t.Error(err)
			}
			return still
		}
	}
	a, b := inParallel(renew(one, claims), renew(two, reversed))
	if slices.Contains(a, false) || slices.Contains(b, false) {
		t.Error("a lease was not renewed")
	}
	first, second := inParallel(func() []ledger.RecordResult { return one.Record(ctx, up) }, func() []ledger.RecordResult { return two.Record(ctx, down) })
	for i, r := range slices.Concat(first, second) {
		if r.Err != nil || r.Answer != ledger.Recorded {
			t.Fatalf("record %d: %+v", i, r)
		}
	}
}

func inParallel[T any](a, b func() T) (first, second T) {
	var both sync.WaitGroup
	both.Go(func() { first = a() })
	both.Go(func() { second = b() })
	both.Wait()
	return first, second
}

// TestResume_DoesNotWaitForWhatIsAtWork: it would lock many rows in an order of its own, and could deadlock with a batch of records.
func TestResume_DoesNotWaitForWhatIsAtWork(t *testing.T) {
	db := newDatabase(t, ledger.Options{StatementTimeout: 4 * time.Second})
	ctx := context.Background()
	if err := db.Pause(ctx, ledger.ScopeAll, "", "why", "ann"); err != nil {
		t.Fatal(err)
	}
	wishes := newWishes(3)
	noErrors(t, db.Claim(ctx, wishes))
	tx, err := db.conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `SELECT FROM due WHERE operation_id = (SELECT min(operation_id) FROM due) FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if err := db.person().Resume(ctx, ledger.ScopeAll, "", "over", "ann"); err != nil {
		t.Errorf("resume beside a locked row: %v", err)
	}
	db.wantCount(2, "brought back", `SELECT count(*) FROM due WHERE due_at < now() + interval '1 min'`)
}
