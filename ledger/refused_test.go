package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
)

func refusedWish(w ledger.Wish) ledger.Wish {
	w.Refused = true
	return w
}

// randomKey is a wish whose key says nothing of when it was made.
func randomKey() ledger.Wish {
	w := newWish()
	w.Key = uuid.New()
	return w
}

// TestRefused_IsToldWhatIsOnRecord: every state is told as to any other wish, an open operation is not claimed, and nothing is made.
func TestRefused_IsToldWhatIsOnRecord(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	finished, claimed, open, fresh := newWish(), newWish(), newWish(), newWish()
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, finished), "tr_1", verdict("authorized")))
	mustClaim(t, db.Ledger, claimed)
	wantAccepted(t, db.Ledger, orderOf(open), ledger.Accepted)
	wishes := []ledger.Wish{refusedWish(fresh), refusedWish(finished), newWish(), refusedWish(claimed), refusedWish(open), refusedWish(otherAmount(finished))}
	want := []ledger.Answer{ledger.NotOnRecord, ledger.Finished, ledger.Claimed, ledger.Busy, ledger.Scheduled, ledger.Conflict}
	for _, l := range []*ledger.Ledger{db.Ledger, db.another(ledger.Options{MaxBatch: 1})} {
		answers := l.Claim(context.Background(), wishes)
		noErrors(t, answers)
		for i, a := range answers {
			if a.Answer != want[i] || a.InDoubt {
				t.Errorf("wish %d: answer %s, in doubt %v; want %s", i, a.Answer, a.InDoubt, want[i])
			}
		}
		want[2] = ledger.Busy // it was claimed the first time
	}
	db.wantCount(4, "operations", `SELECT count(*) FROM operations`)
	db.wantCount(4, "payloads", `SELECT count(*) FROM payloads`)
	if e := explain(t, db.Ledger, open); e.State != ledger.StateOpen || e.Fence != 0 {
		t.Errorf("an open operation is %s under fence %d after it was refused", e.State, e.Fence)
	}
}

// TestRefused_TheSameKeyTwiceInOneBatch: whoever may be claimed is, before or after the refused one.
func TestRefused_TheSameKeyTwiceInOneBatch(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w, v := newWish(), newWish()
	answers := db.Claim(context.Background(), []ledger.Wish{refusedWish(w), refusedWish(w), w, v, refusedWish(v)})
	noErrors(t, answers)
	want := []ledger.Answer{ledger.NotOnRecord, ledger.NotOnRecord, ledger.Claimed, ledger.Claimed, ledger.Busy}
	for i, a := range answers {
		if a.Answer != want[i] {
			t.Errorf("wish %d: answer %s, want %s", i, a.Answer, want[i])
		}
	}
	o, r := orderOf(newWish()), orderOf(newWish())
	refused, again := o, r
	refused.Refused, r.Refused, again.Refused = true, true, true
	accepted := db.Accept(context.Background(), []ledger.Order{refused, o, r, again})
	for i, want := range []ledger.AcceptAnswer{ledger.AcceptedBefore, ledger.Accepted, ledger.AcceptRefused, ledger.AcceptRefused} {
		if accepted[i].Answer != want || accepted[i].Err != nil {
			t.Errorf("order %d: answer %d, err %v; want %d", i, accepted[i].Answer, accepted[i].Err, want)
		}
	}
}

// TestRefused_OlderThanARecoveryIsPutInDoubt: it may have been sent under a lost claim. By when it was published, by what its key says, or by
// evidence that came without it.
func TestRefused_OlderThanARecoveryIsPutInDoubt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	published, made, stray, fresh := randomKey(), newWish(), randomKey(), randomKey()
	db.exec(`UPDATE ledger_identity SET doubt_before = now()`)
	for _, w := range []*ledger.Wish{&made, &stray, &fresh} {
		w.PublishedAt = time.Now().Add(time.Hour)
	}
	db.Append(context.Background(), []ledger.Late{{Key: stray.Key, Facts: []ledger.Fact{verdict("unknown")}}})
	for range 2 {
		wantAnswer(t, db.Ledger, refusedWish(published), ledger.Scheduled)
		wantAnswer(t, db.Ledger, refusedWish(made), ledger.Scheduled)
		wantAnswer(t, db.Ledger, refusedWish(stray), ledger.Scheduled)
		wantAnswer(t, db.Ledger, refusedWish(fresh), ledger.NotOnRecord)
	}
	work := sweep(t, db.Ledger)
	if len(work) != 3 {
		t.Fatalf("%d operations due, want 3", len(work))
	}
	for _, k := range work {
		if !k.InDoubt || k.FirstSentAt.IsZero() || len(k.Attempts) != 0 || string(k.Payload) != `{"v":1}` {
			t.Errorf("swept %+v, want it in doubt without an attempt", k)
		}
	}
}

// TestRefused_WithoutAPartnerLearnsOfTheDoubt: nobody can be asked, so nothing is made of it.
func TestRefused_WithoutAPartnerLearnsOfTheDoubt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	w := refusedWish(newWish())
	w.Intention = ledger.Intention{}
	if a := claimOne(t, db.Ledger, w); a.Answer != ledger.NotOnRecord || a.InDoubt {
		t.Errorf("answer %s, in doubt %v", a.Answer, a.InDoubt)
	}
	db.exec(`UPDATE ledger_identity SET doubt_before = now() + interval '1 min'`)
	if a := claimOne(t, db.Ledger, w); a.Answer != ledger.NotOnRecord || !a.InDoubt {
		t.Errorf("after a recovery: answer %s, in doubt %v; want a doubt", a.Answer, a.InDoubt)
	}
	db.wantCount(0, "operations", `SELECT count(*) FROM operations`)
}

// TestRefused_OrderWithARandomKeyIsNotInDoubt: an order that was never published is judged by its key, as one that is allowed.
func TestRefused_OrderWithARandomKeyIsNotInDoubt(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.exec(`UPDATE ledger_identity SET doubt_before = now() + interval '1 min'`)
	random, made := orderOf(randomKey()), orderOf(newWish())
	random.Refused, made.Refused = true, true
	wantAccepted(t, db.Ledger, random, ledger.AcceptRefused)
	if s := wantAccepted(t, db.Ledger, made, ledger.AcceptedBefore); !s.InDoubt {
		t.Errorf("standing %+v, want it in doubt", s)
	}
}

// TestRefused_NothingIsJudgedElsewhere: on a server that the ledger does not know, "not on record" would be a guess.
func TestRefused_NothingIsJudgedElsewhere(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.exec(`UPDATE ledger_identity SET timeline = timeline + 1`)
	if a := db.Claim(context.Background(), []ledger.Wish{refusedWish(newWish())})[0]; a.Err == nil || a.Answer != ledger.NoAnswer {
		t.Errorf("answer %s, err %v; want an error", a.Answer, a.Err)
	}
	o := newOrder()
	o.Refused = true
	if a := db.Accept(context.Background(), []ledger.Order{o})[0]; a.Err == nil || a.Answer != ledger.NotAccepted {
		t.Errorf("order: answer %d, err %v; want an error", a.Answer, a.Err)
	}
}
