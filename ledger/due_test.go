package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

func TestClaimDue_TakesOverALapsedLeaseWithAllThatIsKnown(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.Payload, w.TraceParent = []byte(`{"v":1,"x":2}`), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := mustClaim(t, db.Ledger, w)
	if work := sweep(t, db.Ledger); len(work) != 0 {
		t.Fatalf("the sweep got %+v within the lease", work)
	}
	db.dueNow()
	got := sweepOne(t, db.Ledger)
	if got.Claim.Key != w.Key || got.Claim.OperationID != c.OperationID || got.Claim.Fence != 2 || got.Claim.Token == c.Token {
		t.Errorf("claim %+v after %+v", got.Claim, c)
	}
	if got.State != ledger.StateClaimed || got.Source != "wallet" || got.Route != "gbp-fps" || string(got.Payload) != `{"v":1,"x":2}` || got.TraceParent != w.TraceParent ||
		got.Pinned != "northbank" || got.PartnerKey != w.Intention.PartnerKey || got.Epoch != 0 || !got.InDoubt || got.UnobservedClaims != 1 {
		t.Errorf("work %+v", got)
	}
	if got.FirstSentAt.IsZero() || !got.FirstSentAt.Equal(got.CreatedAt) || !got.Now.After(got.CreatedAt) {
		t.Errorf("first sent %v, created %v, now %v", got.FirstSentAt, got.CreatedAt, got.Now)
	}
	if len(got.Attempts) != 1 || got.Attempts[0].Intention != w.Intention || got.Attempts[0].Fence != 1 || got.Attempts[0].Token != c.Token || len(got.Facts) != 0 {
		t.Errorf("attempts %+v, facts %+v", got.Attempts, got.Facts)
	}
	db.wantCount(1, "attempts: the sweep has committed none", `SELECT count(*) FROM attempts`)
	if e := explain(t, db.Ledger, w); e.State != ledger.StateClaimed || e.LeaseUntil.Sub(got.Now) != time.Minute || !e.DueAt.Equal(e.LeaseUntil) {
		t.Errorf("state %s, lease until %v, due %v, claimed at %v", e.State, e.LeaseUntil, e.DueAt, got.Now)
	}
}

func TestClaimDue_FactsAndAttemptsComeOldestFirst(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), true, 0, verdict("unknown"), verdict("in_flight")))
	work := sweepOne(t, db.Ledger)
	wantAttempt(t, db.Ledger, intend(work, w.Intention), ledger.AttemptCommitted)
	mustRecord(t, db.Ledger, ledger.Schedule(work.Claim, true, 0, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found"}))
	db.Append(context.Background(), []ledger.Late{{Key: w.Key, Facts: []ledger.Fact{{Kind: ledger.FactWebhook, Verdict: "in_flight"}}}})
	work = sweepOne(t, db.Ledger)
	var verdicts []string
	for _, f := range work.Facts {
		verdicts = append(verdicts, string(f.Kind)+" "+f.Verdict)
	}
	if want := []string{"verdict unknown", "verdict in_flight", "look_up not_found", "webhook in_flight"}; !slices.Equal(verdicts, want) {
		t.Errorf("facts %v, want %v", verdicts, want)
	}
	if len(work.Attempts) != 2 || work.Attempts[0].Fence != 1 || work.Attempts[1].Fence != 2 {
		t.Errorf("attempts %+v", work.Attempts)
	}
}

func TestClaimDue_UnobservedClaimsAreCounted(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	mustClaim(t, db.Ledger, newWish())
	var last ledger.Work
	for _, want := range []int16{1, 2, 3} { // each died without a word
		db.dueNow()
		if last = sweepOne(t, db.Ledger); last.UnobservedClaims != want {
			t.Errorf("%d claims without an observation, want %d", last.UnobservedClaims, want)
		}
	}
	mustRecord(t, db.Ledger, ledger.Schedule(last.Claim, true, 0, verdict("unknown")))
	if work := sweepOne(t, db.Ledger); work.UnobservedClaims != 0 || work.State != ledger.StateOpen {
		t.Errorf("after a record: %d, state %s; want 0, open", work.UnobservedClaims, work.State)
	}
}

func TestClaimDue_LimitPartnerAndOrder(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	wishes := newWishes(6)
	wishes[0].Intention.Partner = "southbank"
	noErrors(t, db.Claim(context.Background(), wishes))
	db.exec(`UPDATE operations SET lease_until = now() - interval '1 s'`)
	for i, w := range wishes {
		db.exec(`UPDATE due SET due_at = now() - $1 * interval '1 min' FROM operations o WHERE o.id = operation_id AND o.key = $2`, 1+i, w.Key)
	}
	db.exec(`UPDATE due SET due_at = now() + interval '1 min' FROM operations o WHERE o.id = operation_id AND o.key = $1`, wishes[3].Key)
	work, err := db.ClaimDue(context.Background(), "northbank", 3)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uuid.UUID]bool{}
	for _, w := range work {
		got[w.Claim.Key] = true
	}
	if len(work) != 3 || !got[wishes[5].Key] || !got[wishes[4].Key] || !got[wishes[2].Key] {
		t.Errorf("%d operations, want the three that have waited longest at northbank", len(work))
	}
}

// TestClaimDue_RowsOfNobody: a batch full of rows without an operation, which only raw SQL writes, stops the sweep once and no more.
func TestClaimDue_RowsOfNobody(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), true, 0))
	db.exec(`INSERT INTO due (operation_id, due_at, partner) SELECT 4000000 + n, now() - interval '1 h', 'northbank' FROM generate_series(1, 20) n`)
	claimed := 0
	for range 3 {
		work, err := db.ClaimDue(context.Background(), "northbank", 10)
		if err != nil {
			t.Fatal(err)
		}
		claimed += len(work)
	}
	if claimed != 1 {
		t.Errorf("%d claimed behind 20 rows without an operation, want 1", claimed)
	}
	db.wantCount(20, "rows put away, and kept for prove", `SELECT count(*) FROM due WHERE operation_id > 4000000 AND due_at > now() + interval '1 year'`)
}

func TestClaimDue_TwoSweepsNeverGetTheSame(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	other := db.another(ledger.Options{})
	noErrors(t, db.Claim(context.Background(), newWishes(200)))
	db.dueNow()
	var mu sync.Mutex
	seen := map[uuid.UUID]int{}
	var sweeps sync.WaitGroup
	for i := range 8 {
		l := []*ledger.Ledger{db.Ledger, other}[i%2]
		sweeps.Go(func() {
			for range 10 {
				work, err := l.ClaimDue(context.Background(), "northbank", 13)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, w := range work {
					seen[w.Claim.Key]++
				}
				mu.Unlock()
			}
		})
	}
	sweeps.Wait()
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s was claimed %d times", key, n)
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d operations were claimed, want 200", len(seen))
	}
	db.wantCount(200, "fence 2", `SELECT count(*) FROM operations WHERE fence = 2`)
}

func TestClaimDue_DoesNotWaitForALockedOperation(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	noErrors(t, db.Claim(context.Background(), newWishes(2)))
	db.dueNow()
	tx, err := connect(t, db.urls.Owner).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), `SELECT FROM operations WHERE id = (SELECT min(id) FROM operations) FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	sweepOne(t, db.Ledger)
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	sweepOne(t, db.Ledger)
}

func TestLookAtParked_TakesADayPerLook(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	r := ledger.Park(mustClaim(t, db.Ledger, w), "patience_over", true, verdict("unknown"))
	r.DueIn = time.Millisecond
	mustRecord(t, db.Ledger, r)
	mustClaim(t, db.Ledger, newWish()) // never looked at
	db.dueNow()
	other, err := db.LookAtParked(context.Background(), "southbank", 10)
	if err != nil || len(other) != 0 {
		t.Errorf("%d operations of another partner, err %v", len(other), err)
	}
	work, err := db.LookAtParked(context.Background(), "northbank", 10)
	if err != nil || len(work) != 1 {
		t.Fatalf("%d operations, err %v; want the parked one", len(work), err)
	}
	got := work[0]
	if got.Claim.Key != w.Key || got.Claim.Token != uuid.Nil || got.State != ledger.StateParked || !got.InDoubt || got.PartnerKey != w.Intention.PartnerKey ||
		len(got.Attempts) != 1 || len(got.Facts) != 1 || string(got.Payload) != `{"v":1}` {
		t.Errorf("work %+v", got)
	}
	if again, err := db.LookAtParked(context.Background(), "northbank", 10); err != nil || len(again) != 0 {
		t.Errorf("%d operations the second time, err %v", len(again), err)
	}
	if e := explain(t, db.Ledger, w); e.DueAt.Sub(got.Now) != 24*time.Hour || e.Fence != 1 || e.State != ledger.StateParked {
		t.Errorf("due in %v, fence %d, state %s", e.DueAt.Sub(got.Now), e.Fence, e.State)
	}
	if r := recordOne(t, db.Ledger, ledger.Reject(got.Claim, "x")); r.Answer == ledger.Recorded {
		t.Error("a look gave the right to record")
	}
	for _, w := range sweep(t, db.Ledger) {
		if w.Claim.Key == got.Claim.Key {
			t.Error("the sweep claimed a parked operation")
		}
	}
}

func TestRenew_OnlyWhatIsOurs(t *testing.T) {
	db := newDatabase(t, ledger.Options{Lease: time.Hour})
	wishes := newWishes(3)
	var claims []ledger.Claim
	for _, w := range wishes {
		claims = append(claims, mustClaim(t, db.Ledger, w))
	}
	mustRecord(t, db.Ledger, ledger.Authorize(claims[1], "tr_1"))
	db.dueNow() // lapsed, but nobody took them over
	still, err := db.Renew(context.Background(), []ledger.Claim{claims[2], claims[1], claims[0]})
	if err != nil || !slices.Equal(still, []bool{true, false, true}) {
		t.Errorf("renewed %v, err %v; want all but the recorded one", still, err)
	}
	e := explain(t, db.Ledger, wishes[0])
	if left := e.LeaseUntil.Sub(e.Now); left < 59*time.Minute || !e.DueAt.Equal(e.LeaseUntil) {
		t.Errorf("%v left, due %v, lease until %v", left, e.DueAt, e.LeaseUntil)
	}
	if len(sweep(t, db.Ledger)) != 0 {
		t.Error("the sweep took a renewed claim")
	}
}

// swept claims an operation that was attempted once and is due again.
func swept(t *testing.T, db *database, change func(*ledger.Record)) (ledger.Wish, ledger.Work) {
	t.Helper()
	w := newWish()
	r := ledger.Schedule(mustClaim(t, db.Ledger, w), false, 0, verdict("not_executed"))
	if change != nil {
		change(&r)
	}
	mustRecord(t, db.Ledger, r)
	return w, sweepOne(t, db.Ledger)
}

func inDoubt(r *ledger.Record) {
	r.InDoubt, r.Facts = true, []ledger.Fact{verdict("unknown")}
}

// TestI7I8_NotInDoubtTermsMayChange: after a 401 the credential is rotated, and what was not executed goes on under the new one. The partner
// key and the bytes stay.
func TestI7I8_NotInDoubtTermsMayChange(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w, work := swept(t, db, nil)
	in := w.Intention
	in.Credential, in.Endpoint = "2027-01", "POST http://127.0.0.1/v2/transfers"
	wantAttempt(t, db.Ledger, intend(work, in), ledger.AttemptCommitted)
	mustRecord(t, db.Ledger, ledger.Schedule(work.Claim, true, 0, verdict("unknown")))
	again := sweepOne(t, db.Ledger)
	wantAttempt(t, db.Ledger, intend(again, w.Intention), ledger.AttemptDiffers) // now the new credential is the one in doubt
	if e := explain(t, db.Ledger, w); e.PartnerKey != w.Intention.PartnerKey || e.Credential != "2027-01" {
		t.Errorf("partner key %s, credential %s", e.PartnerKey, e.Credential)
	}
}

// TestInvariant8_ARefusedRenderingBindsNoBytes: the local check refused the first attempt, so there were no bytes that could be sent again.
func TestInvariant8_ARefusedRenderingBindsNoBytes(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	rendered := w.Intention
	w.Intention.BodySHA256 = [32]byte{}
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, w), true, 0, verdict("unknown")))
	wantAttempt(t, db.Ledger, intend(sweepOne(t, db.Ledger), rendered), ledger.AttemptCommitted)
}

// TestRecord_DoubtWithoutAnAttempt: an operation that a failover put in doubt can be recorded although no attempt of it is on record.
func TestRecord_DoubtWithoutAnAttempt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := newWish()
	w.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, w, ledger.Scheduled)
	db.exec(`UPDATE ledger_identity SET doubt_before = now() + interval '1 h'`)
	db.dueNow()
	work := sweepOne(t, db.Ledger)
	if !work.InDoubt {
		t.Fatal("what is older than the failover is not in doubt")
	}
	mustRecord(t, db.Ledger, ledger.Park(work.Claim, "in_doubt", true))
}

func TestI7I8_AnAttemptThatDiffersIsNotCommitted(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for name, change := range map[string]func(*ledger.Intention){
		"body":        func(in *ledger.Intention) { in.BodySHA256 = sha256.Sum256([]byte("one field more")) },
		"endpoint":    func(in *ledger.Intention) { in.Endpoint = "POST http://127.0.0.1/v2/transfers" },
		"credential":  func(in *ledger.Intention) { in.Credential = "2027-01" },
		"partner key": func(in *ledger.Intention) { in.PartnerKey = uuid.NewString() },
		"partner":     func(in *ledger.Intention) { in.Partner = "southbank" },
	} {
		t.Run(name, func(t *testing.T) {
			w, work := swept(t, db, inDoubt)
			before := value[string](db, `SELECT o::text FROM operations o WHERE key = $1`, w.Key)
			in := w.Intention
			change(&in)
			wantAttempt(t, db.Ledger, intend(work, in), ledger.AttemptDiffers)
			if after := value[string](db, `SELECT o::text FROM operations o WHERE key = $1`, w.Key); after != before {
				t.Errorf("a refused attempt changed\n%s to\n%s", before, after)
			}
			db.wantCount(1, "attempts", `SELECT count(*) FROM attempts WHERE operation_id = $1`, work.Claim.OperationID)
			wantAttempt(t, db.Ledger, intend(work, w.Intention), ledger.AttemptCommitted)
			mustRecord(t, db.Ledger, ledger.Authorize(work.Claim, "tr_1"))
		})
	}
}

func TestInvariant2_CommitAttemptsPutsInDoubtAndIsSafeToRepeat(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w, work := swept(t, db, nil)
	if e := explain(t, db.Ledger, w); e.InDoubt {
		t.Fatal("in doubt before the attempt")
	}
	for range 2 {
		wantAttempt(t, db.Ledger, intend(work, w.Intention), ledger.AttemptCommitted)
	}
	e := explain(t, db.another(ledger.Options{}), w)
	if !e.InDoubt || len(e.Attempts) != 2 || e.Attempts[1].Fence != 2 || e.Attempts[1].Token != work.Claim.Token || !e.FirstSentAt.Equal(work.FirstSentAt) {
		t.Errorf("in doubt %t, attempts %+v, first sent %v (was %v)", e.InDoubt, e.Attempts, e.FirstSentAt, work.FirstSentAt)
	}
}

func TestInvariant7_ANewEpochAllowsANewPartnerKeyAtTheSamePartner(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	raise := func(r *ledger.Record) { r.RaiseEpoch = true }
	w, work := swept(t, db, raise)
	if work.Epoch != 1 || work.PartnerKey != "" || work.Pinned != "northbank" || !work.FirstSentAt.IsZero() || work.InDoubt {
		t.Errorf("work %+v, want epoch 1, no partner key, still pinned", work)
	}
	in := w.Intention
	in.PartnerKey, in.EndToEndID, in.Credential, in.BodySHA256 = uuid.NewString(), "OTHER", "2027-01", sha256.Sum256([]byte("new end to end id"))
	elsewhere := in
	elsewhere.Partner = "southbank"
	wantAttempt(t, db.Ledger, intend(work, elsewhere), ledger.AttemptDiffers)
	old := w.Intention
	old.BodySHA256 = sha256.Sum256([]byte("the old key for other bytes"))
	wantAttempt(t, db.Ledger, intend(work, old), ledger.AttemptDiffers)
	wantAttempt(t, db.Ledger, intend(work, in), ledger.AttemptCommitted)
	e := explain(t, db.Ledger, w)
	if e.PartnerKey != in.PartnerKey || e.Epoch != 1 || e.Credential != "2027-01" || e.FirstSentAt.IsZero() || len(e.Attempts) != 2 {
		t.Errorf("explained %+v", e)
	}
	wantAttempt(t, db.Ledger, intend(work, w.Intention), ledger.AttemptDiffers) // no way back
}

// TestCommitAttempts_StoppedSinceTheClaim: a run that is cancelled between the sweep's claim and its attempt. What was committed before is told again.
func TestCommitAttempts_StoppedSinceTheClaim(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	stop := func(w ledger.Work) {
		db.exec(`INSERT INTO stops (operation_id, code) VALUES ($1, 'run_cancelled')`, w.Claim.OperationID)
	}
	swept := func() (ledger.Work, ledger.Resend) {
		wish := newWish()
		mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, wish), false, 0, verdict("not_executed")))
		work := sweepOne(t, db.Ledger)
		return work, intend(work, wish.Intention)
	}
	late, afterStop := swept()
	stop(late)
	got := db.CommitAttempts(context.Background(), []ledger.Resend{afterStop})[0]
	if got.Err != nil || got.Answer != ledger.AttemptStopped || got.Stopped != "run_cancelled" {
		t.Errorf("after the stop: %+v, want stopped as run_cancelled", got)
	}
	db.wantCount(1, "attempts of it", `SELECT count(*) FROM attempts WHERE operation_id = $1`, late.Claim.OperationID)
	db.wantCount(0, "in doubt", `SELECT count(*) FROM operations WHERE id = $1 AND in_doubt`, late.Claim.OperationID)
	early, beforeStop := swept()
	wantAttempt(t, db.Ledger, beforeStop, ledger.AttemptCommitted)
	stop(early)
	wantAttempt(t, db.Ledger, beforeStop, ledger.AttemptCommitted)
}

func TestCommitAttempts_BadRowsFailAlone(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	wishes := newWishes(9)
	intentions := map[uuid.UUID]ledger.Intention{}
	for i, a := range db.Claim(context.Background(), wishes) {
		mustRecord(t, db.Ledger, ledger.Schedule(a.Claim, false, 0, verdict("not_executed")))
		intentions[wishes[i].Key] = wishes[i].Intention
	}
	work := sweep(t, db.Ledger)
	resends := make([]ledger.Resend, 0, 9)
	for i, w := range work {
		in := intentions[w.Claim.Key]
		if i == 4 {
			in.EndToEndID = "\x00"
		}
		resends = append(resends, intend(w, in))
	}
	for i, r := range db.CommitAttempts(context.Background(), resends) {
		if (r.Err != nil) != (i == 4) || (r.Answer == ledger.AttemptCommitted) != (i != 4) {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	db.wantCount(17, "attempts", `SELECT count(*) FROM attempts`)
}

// move makes the ledger remember another place than the one it is at, as after a failover.
func (db *database) move(set string) {
	db.t.Helper()
	db.exec(`UPDATE ledger_identity SET ` + set)
}

func TestTimelineGuard_NothingIsClaimedElsewhere(t *testing.T) {
	for name, set := range map[string]string{
		"another timeline": `timeline = timeline + 1`,
		"another server":   `system_identifier = '7000000000000000000'`,
		"another database": `database_oid = database_oid::int8 + 1`,
		"another table":    `operations_oid = operations_oid::int8 + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, ledger.Options{})
			due, known := newWish(), newWish()
			mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, due), true, 0))
			mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, known), "tr_1"))
			db.move(set)
			if a := db.Claim(context.Background(), []ledger.Wish{newWish()})[0]; !errors.Is(a.Err, ledger.ErrMoved) || a.Answer != ledger.NoAnswer {
				t.Errorf("claim: %+v, want ErrMoved", a)
			}
			if work, err := db.ClaimDue(context.Background(), "northbank", 10); !errors.Is(err, ledger.ErrMoved) || len(work) != 0 {
				t.Errorf("sweep: %d operations, err %v; want ErrMoved", len(work), err)
			}
			if err := db.Check(context.Background()); !errors.Is(err, ledger.ErrMoved) || !strings.Contains(err.Error(), "`paidonce recover`") {
				t.Errorf("check: %v, want ErrMoved and the command", err)
			}
			db.wantCount(2, "operations", `SELECT count(*) FROM operations`)
			db.wantCount(2, "attempts", `SELECT count(*) FROM attempts`)
		})
	}
}

// TestTimelineGuard_NotRememberedYet: between migration 15 and the end of its command nothing is lost, and nothing is to be recovered.
func TestTimelineGuard_NotRememberedYet(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for _, column := range []string{"database_oid", "operations_oid"} {
		db.move(column + ` = NULL`)
		if a := db.Claim(context.Background(), []ledger.Wish{newWish()})[0]; !errors.Is(a.Err, ledger.ErrSchema) || a.Answer != ledger.NoAnswer {
			t.Errorf("claim: %+v, want ErrSchema", a)
		}
		if err := db.Check(context.Background()); !errors.Is(err, ledger.ErrSchema) || !strings.Contains(err.Error(), "`paidonce migrate up`") {
			t.Errorf("check: %v, want ErrSchema and the command", err)
		}
	}
}

func TestTimelineGuard_AnEmptySweepAtHomeIsNoError(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	if work, err := db.ClaimDue(context.Background(), "northbank", 10); err != nil || len(work) != 0 {
		t.Errorf("%d operations, err %v", len(work), err)
	}
	if err := db.Check(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestRecover_PutsInDoubtWhatMayHaveBeenSent(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	open, never, claimed, done := newWish(), newWish(), newWish(), newWish()
	never.NotBefore = time.Now().Add(time.Hour)
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, open), false, time.Hour))
	wantAnswer(t, db.Ledger, never, ledger.Scheduled)
	c := mustClaim(t, db.Ledger, claimed)
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, done), "tr_1"))
	db.move(`timeline = timeline + 1`)
	published := time.Now()
	recovery, err := db.as(db.urls.Owner, ledger.Options{}).Recover(ctx, ledger.Loss{}, "failover of the night", "ann")
	if err != nil {
		t.Fatal(err)
	}
	if recovery.PutInDoubt != 3 || recovery.Before.Before(published.Add(-time.Minute)) || recovery.From.Timeline != recovery.From.FoundTimeline+1 {
		t.Errorf("recovery %+v", recovery)
	}
	for _, w := range []ledger.Wish{open, never, claimed} {
		if e := explain(t, db.Ledger, w); !e.InDoubt || e.FirstSentAt.IsZero() || e.Fence < 1000000 {
			t.Errorf("in doubt %t, first sent %v, fence %d", e.InDoubt, e.FirstSentAt, e.Fence)
		}
	}
	if e := explain(t, db.Ledger, done); e.InDoubt || e.State != ledger.StateAuthorized || e.Fence != 1 {
		t.Errorf("an outcome was touched: %+v", e.Summary)
	}
	if err := db.Check(ctx); err != nil {
		t.Errorf("check after recovery: %v", err)
	}
	db.wantCount(1, "recoveries", `SELECT count(*) FROM recoveries WHERE (by, reason, put_in_doubt) = ('ann', 'failover of the night', 3)`)
	if r := recordOne(t, db.Ledger, ledger.Reject(c, "x", verdict("rejected"))); r.Answer != ledger.Fenced {
		t.Errorf("a holder from before the failover: %s, want fenced", r.Answer)
	}
	never.NotBefore = time.Time{}
	wantAnswer(t, db.Ledger, never, ledger.Scheduled)         // the sweep's, which looks it up first
	db.move(`doubt_before = doubt_before - interval '2 min'`) // two minutes later
	fresh := newWishAt(time.Now())
	if got := mustClaimInDoubt(t, db, fresh, false); got.OperationID < 10000000 {
		t.Errorf("id %d may have been issued before the failover", got.OperationID)
	}
}

func newWishAt(published time.Time) ledger.Wish {
	w := newWish()
	w.PublishedAt = published
	return w
}

// mustClaimInDoubt claims a job and checks whether it counts as one that may have been sent under a lost claim.
func mustClaimInDoubt(t *testing.T, db *database, w ledger.Wish, inDoubt bool) ledger.Claim {
	t.Helper()
	a := claimOne(t, db.Ledger, w)
	if a.Answer != ledger.Claimed || a.InDoubt != inDoubt {
		t.Errorf("answer %s, in doubt %t; want claimed, %t", a.Answer, a.InDoubt, inDoubt)
	}
	e := explain(t, db.Ledger, w)
	if wantAttempts := map[bool]int{true: 0, false: 1}[inDoubt]; len(e.Attempts) != wantAttempts || !e.InDoubt || e.FirstSentAt.IsZero() {
		t.Errorf("%d attempts, in doubt %t, first sent %v; want %d, true, set", len(e.Attempts), e.InDoubt, e.FirstSentAt, wantAttempts)
	}
	return a.Claim
}

func TestRecover_JobsPublishedBeforeAreClaimedInDoubtWithoutAnAttempt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.move(`doubt_before = date_trunc('milliseconds', now())`) // a key tells its time in whole ones
	before, after := newWishAt(time.Now().Add(-time.Hour)), newWishAt(time.Now().Add(time.Hour))
	c := mustClaimInDoubt(t, db, before, true)
	mustClaimInDoubt(t, db, after, false)
	mustRecord(t, db.Ledger, ledger.Schedule(c, true, 0, ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found"}))
	work := sweepOne(t, db.Ledger)
	if !work.InDoubt || work.FirstSentAt.After(time.Now().Add(-time.Minute)) || len(work.Attempts) != 0 {
		t.Errorf("swept: in doubt %t, first sent %v, %d attempts; want in doubt since it was published", work.InDoubt, work.FirstSentAt, len(work.Attempts))
	}
}

// TestRecover_DoubtSurvivesAPause: a job from before the failover that may not start at once is recorded open. It must not be taken for fresh
// when its time comes: the claim that the failover lost may have sent it.
func TestRecover_DoubtSurvivesAPause(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	ctx := context.Background()
	db.move(`doubt_before = now()`)
	w := newWishAt(time.Now().Add(-time.Hour))
	if err := db.Pause(ctx, ledger.ScopeAll, "", "failover", "ann"); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, db.Ledger, w, ledger.Held)
	late := newWishAt(time.Now().Add(-time.Hour))
	late.NotBefore = time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, late, ledger.Held)
	if err := db.person().Resume(ctx, ledger.ScopeAll, "", "over", "ann"); err != nil {
		t.Fatal(err)
	}
	db.exec(`UPDATE operations SET held = false, code = NULL WHERE key = $1`, late.Key)
	// Its second delivery (or a second publication) may not take it for fresh either.
	late.NotBefore, late.PublishedAt = time.Time{}, time.Now().Add(time.Hour)
	wantAnswer(t, db.Ledger, late, ledger.Scheduled)
	db.dueNow()
	for _, work := range sweep(t, db.Ledger) {
		if !work.InDoubt || work.FirstSentAt.IsZero() || work.FirstSentAt.After(time.Now().Add(-time.Minute)) {
			t.Errorf("swept: in doubt %t, first sent %v; want in doubt since it was published", work.InDoubt, work.FirstSentAt)
		}
	}
	db.wantCount(0, "attempts", `SELECT count(*) FROM attempts`)
}
