package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

// orderOf is the order that a gateway would make of the same job as the wish.
func orderOf(w ledger.Wish) ledger.Order {
	return ledger.Order{
		Key: w.Key, Fingerprint: w.Fingerprint, Source: w.Source, Route: w.Route, Partner: w.Intention.Partner, DebtorAccount: w.DebtorAccount,
		Amount: w.Amount, NotBefore: w.NotBefore, NotAfter: w.NotAfter, Payload: w.Payload, TraceParent: w.TraceParent, Grace: time.Minute,
	}
}

func newOrder() ledger.Order { return orderOf(newWish()) }

func acceptOne(t testing.TB, l *ledger.Ledger, o ledger.Order) ledger.Acceptance {
	t.Helper()
	a := l.Accept(context.Background(), []ledger.Order{o})[0]
	if a.Err != nil {
		t.Fatalf("accept: %v", a.Err)
	}
	return a
}

func wantAccepted(t testing.TB, l *ledger.Ledger, o ledger.Order, want ledger.AcceptAnswer) ledger.Standing {
	t.Helper()
	a := acceptOne(t, l, o)
	if a.Answer != want {
		t.Errorf("accept: answer %d, want %d", a.Answer, want)
	}
	return a.Standing
}

func TestAccept_WritesOperationPayloadEventAndJobTogether(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	o := newOrder()
	o.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s := wantAccepted(t, db.Ledger, o, ledger.Accepted)
	if s.Key != o.Key || s.State != ledger.StateOpen || s.Source != "wallet" || s.Route != "gbp-fps" || s.Amount.String() != "49.00 GBP" ||
		time.Since(s.CreatedAt).Abs() > time.Hour {
		t.Errorf("standing %+v", s)
	}
	again := wantAccepted(t, db.Ledger, o, ledger.AcceptedBefore)
	if !again.CreatedAt.Equal(s.CreatedAt) || again.State != s.State || again.Key != s.Key {
		t.Errorf("standing %+v, then %+v", s, again)
	}
	db.wantCount(1, "operations", `SELECT count(*) FROM operations WHERE key = $1 AND state = 'open' AND fence = 0 AND NOT in_doubt`, o.Key)
	db.wantCount(1, "payloads", `SELECT count(*) FROM payloads WHERE body = $1 AND traceparent = $2`, o.Payload, o.TraceParent)
	db.wantCount(1, "events", `SELECT count(*) FROM outbox WHERE type = 'accepted'`)
	db.wantCount(1, "jobs to publish", `SELECT count(*) FROM unpublished_jobs`)
	db.wantCount(1, "due after the grace", `SELECT count(*) FROM due WHERE partner = 'northbank' AND due_at BETWEEN now() + interval '50 s' AND now() + interval '60 s'`)
	if work := sweep(t, db.Ledger); len(work) != 0 {
		t.Errorf("the sweep took it within the grace")
	}
}

// TestAccept_ItsMessageClaimsAtOnce: whatever the sweep's grace says.
func TestAccept_ItsMessageClaimsAtOnce(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
	c := mustClaim(t, db.Ledger, w)
	if s := wantAccepted(t, db.Ledger, orderOf(w), ledger.AcceptedBefore); s.State != ledger.StateClaimed {
		t.Errorf("state %s, want claimed", s.State)
	}
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
	s := wantAccepted(t, db.Ledger, orderOf(w), ledger.AcceptedBefore)
	if s.State != ledger.StateAuthorized || s.TransferID != "tr_1" || s.Settlement != "pending" || s.OutcomeAt.IsZero() || s.Partner != "northbank" {
		t.Errorf("standing %+v", s)
	}
	db.wantCount(1, "payloads", `SELECT count(*) FROM payloads`)
	events, err := db.Unpublished(context.Background(), 10)
	if err != nil || len(events) != 1 || events[0].Type != "accepted" || events[0].ID != w.Key.String()+".accepted" {
		t.Fatalf("events %+v, err %v; want the oldest of the key", events, err)
	}
	if err := db.MarkPublished(context.Background(), []int64{events[0].Ref}); err != nil {
		t.Fatal(err)
	}
	if events, _ = db.Unpublished(context.Background(), 10); len(events) != 1 || events[0].Type != "authorized" {
		t.Errorf("events %+v, want authorized", events)
	}
}

func TestAccept_TheSweepTakesOverAfterTheGrace(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	o := newOrder()
	o.Grace = 0
	wantAccepted(t, db.Ledger, o, ledger.Accepted)
	if work := sweepOne(t, db.Ledger); work.Claim.Key != o.Key || string(work.Payload) != string(o.Payload) || work.InDoubt || len(work.Attempts) != 0 {
		t.Errorf("work %+v", work)
	}
}

func TestAccept_NotBeforeAndNotAfterMoveTheGrace(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	later, over := newOrder(), newOrder()
	later.NotBefore, over.NotAfter = time.Now().Add(2*time.Hour), time.Now().Add(-time.Hour)
	wantAccepted(t, db.Ledger, later, ledger.Accepted)
	wantAccepted(t, db.Ledger, over, ledger.Accepted)
	db.wantCount(1, "due when it may be sent", `SELECT count(*) FROM due WHERE due_at > now() + interval '1 h'`)
	db.wantCount(1, "due at once, to be ended", `SELECT count(*) FROM due WHERE due_at <= now()`)
}

// TestA1_TwoHundredEqualOrdersAtTwoLedgersAreOneOperation, in batches as two gateways would make them, with twins inside of each.
func TestA1_TwoHundredEqualOrdersAtTwoLedgersAreOneOperation(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	doors := []*ledger.Ledger{db.Ledger, db.another(ledger.Options{})}
	for round := range 10 {
		o := newOrder()
		batches := make([][]ledger.Acceptance, 20)
		var racers sync.WaitGroup
		for i := range batches {
			racers.Go(func() { batches[i] = doors[i%2].Accept(context.Background(), slices.Repeat([]ledger.Order{o}, 10)) })
		}
		racers.Wait()
		var created time.Time
		accepted := 0
		for _, a := range slices.Concat(batches...) {
			switch {
			case a.Err != nil:
				t.Fatal(a.Err)
			case a.Answer == ledger.Accepted:
				accepted++
			case a.Answer != ledger.AcceptedBefore:
				t.Fatalf("answer %d", a.Answer)
			}
			if created.IsZero() {
				created = a.Standing.CreatedAt
			}
			if !a.Standing.CreatedAt.Equal(created) || a.Standing.Key != o.Key {
				t.Errorf("answers differ: %+v", a.Standing)
			}
		}
		if accepted != 1 {
			t.Errorf("%d orders were told they are the first, want 1", accepted)
		}
		db.wantCount(int64(round+1), "operations", `SELECT count(*) FROM operations`)
		db.wantCount(int64(round+1), "jobs", `SELECT count(*) FROM unpublished_jobs`)
	}
}

func TestB13_AnotherAmountUnderAKnownKeyIsAConflictWithNothingTold(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	other := orderOf(otherAmount(w))
	wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
	check := func(when string) {
		t.Helper()
		if s := wantAccepted(t, db.Ledger, other, ledger.AcceptConflict); s != (ledger.Standing{}) {
			t.Errorf("%s: told %+v", when, s)
		}
	}
	check("open")
	c := mustClaim(t, db.Ledger, w)
	check("in flight")
	mustRecord(t, db.Ledger, ledger.Reject(c, "account_closed", verdict("rejected")))
	check("finished")
	both := db.Accept(context.Background(), []ledger.Order{orderOf(w), other})
	if both[0].Answer != ledger.AcceptedBefore || both[1].Answer != ledger.AcceptConflict {
		t.Errorf("in one batch: %d and %d", both[0].Answer, both[1].Answer)
	}
	for range 8 { // whatever order the database inserts them in
		w = newWish()
		both = db.Accept(context.Background(), []ledger.Order{orderOf(w), orderOf(otherAmount(w))})
		if both[0].Answer != ledger.Accepted || both[1].Answer != ledger.AcceptConflict {
			t.Errorf("new, in one batch: %d and %d", both[0].Answer, both[1].Answer)
		}
		db.wantCount(1, "the first of them", `SELECT count(*) FROM operations WHERE key = $1 AND amount_minor = 4900`, w.Key)
	}
	newer := orderOf(w)
	newer.Fingerprint.Version = 9
	wantAccepted(t, db.Ledger, newer, ledger.AcceptOtherVersion)
}

func TestB16_AnotherSourceUnderTheSameKeyIsAConflict(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	o := newOrder()
	wantAccepted(t, db.Ledger, o, ledger.Accepted)
	o.Source, o.Fingerprint.Sum = "casino", sha256.Sum256([]byte("casino"))
	if s := wantAccepted(t, db.Ledger, o, ledger.AcceptConflict); s != (ledger.Standing{}) {
		t.Errorf("told %+v", s)
	}
	if _, _, err := db.CancelIfOpen(context.Background(), o.Key, "casino", "cancelled_by_source"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("cancel by another source: %v", err)
	}
	db.wantCount(1, "open operations", `SELECT count(*) FROM operations WHERE state = 'open'`)
}

func TestAccept_BadRowsFailAlone(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	orders := make([]ledger.Order, 9)
	for i := range orders {
		orders[i] = newOrder()
	}
	orders[4].Amount.Minor = 0
	orders[7].DebtorAccount = "a\x00b"
	for i, a := range db.Accept(context.Background(), orders) {
		if bad := i == 4 || i == 7; bad != (a.Err != nil) || bad == (a.Answer == ledger.Accepted) {
			t.Errorf("order %d: answer %d, err %v", i, a.Answer, a.Err)
		}
	}
	db.wantCount(7, "operations", `SELECT count(*) FROM operations`)
}

func TestD11_SameOrdersInOppositeOrder(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	other := db.another(ledger.Options{})
	for range 5 {
		orders := make([]ledger.Order, 1000)
		for i := range orders {
			orders[i] = newOrder()
		}
		reversed := slices.Clone(orders)
		slices.Reverse(reversed)
		one, two := inParallel(func() []ledger.Acceptance { return db.Accept(context.Background(), orders) },
			func() []ledger.Acceptance { return other.Accept(context.Background(), reversed) })
		accepted := 0
		for _, a := range slices.Concat(one, two) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			if a.Answer == ledger.Accepted {
				accepted++
			}
		}
		if accepted != 1000 {
			t.Errorf("%d accepted, want 1000", accepted)
		}
	}
}

func TestD1_TheReplyToAnAcceptIsLost(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	p, url := throughProxy(t, db.urls.Worker)
	l := db.as(url, ledger.Options{MaxConns: 1, Unprepared: true}) // so that the proxy reads the statement in every request
	wantAccepted(t, l, newOrder(), ledger.Accepted)
	o := newOrder()
	lost := p.lose("INSERT INTO unpublished_jobs", nil)
	wantAccepted(t, l, o, ledger.AcceptedBefore) // read back: it is on record, which is all that matters
	wantLost(t, lost)
	db.wantCount(1, "operations", `SELECT count(*) FROM operations WHERE key = $1`, o.Key)
	db.wantCount(2, "jobs", `SELECT count(*) FROM unpublished_jobs`)
}

// TestTimelineGuard_NothingIsCancelledElsewhere: under a claim that is missing there, it may have been paid. After a recovery it is in doubt.
func TestTimelineGuard_NothingIsCancelledElsewhere(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
	db.move(`timeline = timeline + 1`)
	if cancelled, _, err := db.CancelIfOpen(context.Background(), w.Key, w.Source, "cancelled_by_source"); cancelled || !errors.Is(err, ledger.ErrMoved) {
		t.Errorf("by its source: cancelled %t, err %v; want ErrMoved", cancelled, err)
	}
	if cancelled, err := db.person().CancelUnder(context.Background(), ledger.Line{}, w.Key, "operator"); cancelled || !errors.Is(err, ledger.ErrMoved) {
		t.Errorf("by a person: cancelled %t, err %v; want ErrMoved", cancelled, err)
	}
	wantState(t, db.Ledger, w, ledger.StateOpen)
	db.wantCount(0, "events of an end", `SELECT count(*) FROM outbox WHERE type = 'cancelled'`)
}

func TestTimelineGuard_NothingIsAcceptedElsewhere(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.move(`timeline = timeline + 1`)
	if a := db.Accept(context.Background(), []ledger.Order{newOrder()})[0]; !errors.Is(a.Err, ledger.ErrMoved) || a.Answer != ledger.NotAccepted {
		t.Errorf("answer %d, err %v; want ErrMoved", a.Answer, a.Err)
	}
	db.wantCount(0, "operations", `SELECT count(*) FROM operations`)
}

// TestRecover_AnOrderFromBeforeIsAskedAfterFirst: its row, and the call made under it, may have been lost with the old server.
func TestRecover_AnOrderFromBeforeIsAskedAfterFirst(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	before := newWish()
	random := newWish()
	random.Key = uuid.MustParse("9b2f1d1e-0c55-4a52-8f0e-5a5f3a0c7e01")
	db.exec(`UPDATE ledger_identity SET doubt_before = now() + interval '1 s'`)
	after := newWish()
	later, err := uuid.Parse("7f000000-0000-7000-8000-000000000001") // made in the year 6391
	if err != nil {
		t.Fatal(err)
	}
	after.Key = later
	for _, one := range []struct {
		w     ledger.Wish
		doubt bool
	}{{before, true}, {random, false}, {after, false}} {
		o := orderOf(one.w)
		o.Grace = 0
		if s := wantAccepted(t, db.Ledger, o, ledger.Accepted); s.InDoubt != one.doubt {
			t.Errorf("%s: in doubt %v, want %v", o.Key, s.InDoubt, one.doubt)
		}
	}
	wantAnswer(t, db.Ledger, before, ledger.Scheduled) // its delivery starts nothing
	for _, work := range sweep(t, db.Ledger) {
		if work.Claim.Key == before.Key && (!work.InDoubt || time.Since(work.FirstSentAt).Abs() > time.Hour || len(work.Attempts) != 0) {
			t.Errorf("work %+v", work)
		}
	}
}

func TestCheckIntake_AnOlderSchemaTakesNoOrders(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	if err := db.CheckIntake(context.Background()); err != nil {
		t.Fatal(err)
	}
	db.exec(`DROP TABLE unpublished_jobs`)
	if err := db.CheckIntake(context.Background()); !errors.Is(err, ledger.ErrNoIntake) || !errors.Is(err, ledger.ErrSchema) {
		t.Errorf("check: %v", err)
	}
	if err := db.Check(context.Background()); err != nil {
		t.Errorf("a worker works on the schema before: %v", err)
	}
}

func refsOf(jobs []ledger.UnpublishedJob) []int64 {
	refs := make([]int64, len(jobs))
	for i, j := range jobs {
		refs[i] = j.Ref
	}
	return refs
}

func mustUnpublished(t *testing.T, l *ledger.Ledger, limit int, patience time.Duration) []ledger.UnpublishedJob {
	t.Helper()
	jobs, err := l.UnpublishedJobs(context.Background(), limit, patience)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestUnpublishedJobs_OwnFirstOthersAfterPatience(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	other := db.another(ledger.Options{})
	o := newOrder()
	o.TraceParent = "00-x"
	wantAccepted(t, db.Ledger, o, ledger.Accepted)
	wantAccepted(t, db.Ledger, newOrder(), ledger.Accepted)
	if jobs := mustUnpublished(t, other, 10, time.Minute); len(jobs) != 0 {
		t.Errorf("another process was given %d jobs within patience", len(jobs))
	}
	if jobs := mustUnpublished(t, db.Ledger, 10, 0); len(jobs) != 2 {
		t.Errorf("%d of the own jobs, want each once", len(jobs))
	}
	jobs := mustUnpublished(t, db.Ledger, 1, time.Minute)
	if len(jobs) != 1 || jobs[0].Key != o.Key || jobs[0].Source != "wallet" || jobs[0].Route != "gbp-fps" || jobs[0].TraceParent != "00-x" ||
		string(jobs[0].Payload) != string(o.Payload) {
		t.Errorf("jobs %+v, want the oldest", jobs)
	}
	if n, _, err := db.CountUnpublishedJobs(context.Background()); err != nil || n != 2 {
		t.Errorf("%d wait, err %v; want 2", n, err)
	}
	taken := mustUnpublished(t, other, 10, 0)
	if len(taken) != 2 {
		t.Fatalf("%d jobs were taken over, want 2", len(taken))
	}
	if jobs := mustUnpublished(t, db.Ledger, 10, time.Minute); len(jobs) != 0 {
		t.Errorf("%d jobs have two holders", len(jobs))
	}
	if err := other.JobsPublished(context.Background(), refsOf(taken)); err != nil {
		t.Fatal(err)
	}
	db.wantCount(0, "jobs", `SELECT count(*) FROM unpublished_jobs`)
	db.wantCount(2, "operations", `SELECT count(*) FROM operations`)
}

func TestCancelIfOpen_OnlyWhileOpenAndNotInDoubt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	cancel := func(w ledger.Wish) (bool, ledger.Standing) {
		t.Helper()
		done, s, err := db.CancelIfOpen(context.Background(), w.Key, w.Source, "cancelled_by_source")
		if err != nil {
			t.Fatal(err)
		}
		return done, s
	}
	open, claimed, doubtful := newWish(), newWish(), newWish()
	for _, w := range []ledger.Wish{open, claimed, doubtful} {
		wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
	}
	c := mustClaim(t, db.Ledger, claimed)
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, doubtful), true, time.Hour, verdict("unknown")))
	if done, s := cancel(open); !done || s.State != ledger.StateCancelled || s.Code != "cancelled_by_source" || s.OutcomeAt.IsZero() {
		t.Errorf("open: %v, %+v", done, s)
	}
	if done, s := cancel(open); done || s.State != ledger.StateCancelled {
		t.Errorf("again: %v, %+v", done, s)
	}
	if done, s := cancel(claimed); done || s.State != ledger.StateClaimed {
		t.Errorf("claimed: %v, %+v", done, s)
	}
	if done, s := cancel(doubtful); done || s.State != ledger.StateOpen || !s.InDoubt {
		t.Errorf("in doubt: %v, %+v", done, s)
	}
	swept := newWish()
	first := orderOf(swept)
	first.Grace = 0
	wantAccepted(t, db.Ledger, first, ledger.Accepted)
	work := sweepOne(t, db.Ledger) // claimed, and nothing was attempted yet: not in doubt
	if done, s := cancel(swept); done || s.State != ledger.StateClaimed || s.InDoubt {
		t.Errorf("claimed by the sweep: %v, %+v", done, s)
	}
	mustRecord(t, db.Ledger, ledger.Cancel(work.Claim, "expired"))
	mustRecord(t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
	if done, s := cancel(claimed); done || s.State != ledger.StateAuthorized {
		t.Errorf("authorized: %v, %+v", done, s)
	}
	wantAnswer(t, db.Ledger, open, ledger.Finished) // its message comes later: no call
	db.wantCount(1, "events", `SELECT count(*) FROM outbox WHERE type = 'cancelled' AND code = 'cancelled_by_source'`)
	db.wantCount(1, "due rows", `SELECT count(*) FROM due`)
	db.wantCount(1, "notes", `SELECT count(*) FROM observations WHERE kind = 'note' AND code = 'cancelled_by_source'`)
	if _, _, err := db.CancelIfOpen(context.Background(), uuid.New(), "wallet", "x"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("unknown key: %v", err)
	}
}

// TestCancelIfOpen_ARaceWithAClaimHasOneWinner: decided by the row, a hundred times.
func TestCancelIfOpen_ARaceWithAClaimHasOneWinner(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	other := db.another(ledger.Options{})
	wins := 0
	for range 100 {
		w := newWish()
		wantAccepted(t, db.Ledger, orderOf(w), ledger.Accepted)
		cancelled, claim := inParallel(func() bool {
			done, _, err := db.CancelIfOpen(context.Background(), w.Key, w.Source, "cancelled_by_source")
			if err != nil {
				t.Error(err)
			}
			return done
		}, func() bool {
			a := other.Claim(context.Background(), []ledger.Wish{w})[0]
			if a.Err != nil {
				t.Error(a.Err)
			}
			return a.Answer == ledger.Claimed
		})
		if cancelled == claim {
			t.Fatalf("cancelled %v and claimed %v", cancelled, claim)
		}
		if cancelled {
			wins++
		}
	}
	db.wantCount(int64(wins), "cancelled", `SELECT count(*) FROM operations WHERE state = 'cancelled' AND fence = 0`)
	db.wantCount(int64(100-wins), "claimed", `SELECT count(*) FROM operations WHERE state = 'claimed' AND fence = 1`)
}
