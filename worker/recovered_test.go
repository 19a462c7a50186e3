package worker

import (
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

// recovered is the history of an operation that was put in doubt by a recovery: its first attempt is on record, a later one was lost. Fences from
// 1,000,001 on were given out since.
func recovered(fence int32, attempts []ledger.Attempt, facts ...ledger.Fact) History {
	return History{PartnerKey: "k", Fence: fence, InDoubt: true, FirstSent: t0.Add(-time.Millisecond), Attempts: attempts, Facts: facts}
}

func attemptAt(fence int32, at time.Duration) ledger.Attempt {
	return ledger.Attempt{Intention: ledger.Intention{PartnerKey: "k"}, Fence: fence, Token: token(fence), At: t0.Add(at)}
}

func factAt(kind ledger.FactKind, verdict string, fence int32, at time.Duration) ledger.Fact {
	return ledger.Fact{Kind: kind, Verdict: verdict, Fence: fence, Token: token(fence), At: t0.Add(at)}
}

// TestRecovered_AbsenceIsProvedSince: the first attempt moved nothing ten minutes ago; a resend was lost in the failover and may arrive for a while.
// Neither the old fact nor time since it says when that was sent.
func TestRecovered_AbsenceIsProvedSince(t *testing.T) {
	p := goodProfile()
	p.SerialisesDuplicates = false
	h := recovered(1_000_103, []ledger.Attempt{attemptAt(1, 0)}, factAt(ledger.FactVerdict, "not_executed", 1, time.Second),
		factAt(ledger.FactLookUp, "not_found", 1_000_101, 10*time.Minute+12*time.Second), factAt(ledger.FactLookUp, "not_found", 1_000_102, 10*time.Minute+18*time.Second))
	at := situation(&p)
	at.Now = t0.Add(10*time.Minute + 18*time.Second)
	s := Fold(h, rules(&p))
	if step := Next(s, at); s.Absent || step.Kind == Send {
		t.Errorf("absent %t, %+v: 18 s after a send that was lost", s.Absent, step)
	}
	late := h
	late.Facts = append(late.Facts, factAt(ledger.FactLookUp, "not_found", 1_000_103, 20*time.Minute), factAt(ledger.FactLookUp, "not_found", 1_000_104, 21*time.Minute))
	if s := Fold(late, rules(&p)); !s.Absent {
		t.Errorf("%+v; want it proved absent by look-ups long after", s)
	}
}

// TestRecovered_WhatWasNotFoundBeforeSaysNothing: nothing is sent before somebody has asked since.
func TestRecovered_WhatWasNotFoundBeforeSaysNothing(t *testing.T) {
	for _, serialises := range []bool{true, false} {
		p := goodProfile()
		p.SerialisesDuplicates = serialises
		h := recovered(1_000_004, []ledger.Attempt{attemptAt(1, 0)}, factAt(ledger.FactVerdict, "unknown", 1, time.Second),
			factAt(ledger.FactLookUp, "not_found", 2, 2*time.Minute), factAt(ledger.FactLookUp, "not_found", 3, 3*time.Minute))
		at := situation(&p)
		at.Now = t0.Add(3*time.Minute + 30*time.Second)
		if step := Next(Fold(h, rules(&p)), at); step.Kind != LookUp {
			t.Errorf("serialises duplicates %t: %+v, want a look-up", serialises, step)
		}
		h.Facts = append(h.Facts, factAt(ledger.FactLookUp, "in_flight", 3, 3*time.Minute))
		if s := Fold(h, rules(&p)); !s.Seen {
			t.Error("what was seen before is there still")
		}
	}
}

// TestRecovered_TheWindowDoesNotBeginAnew: what was lost may have been sent when the ledger says, whatever was sent since.
func TestRecovered_TheWindowDoesNotBeginAnew(t *testing.T) {
	for name, asks := range map[string]bool{"without look-ups": false, "with look-ups": true} {
		p := goodProfile()
		facts := []ledger.Fact{factAt(ledger.FactVerdict, "not_executed", 1, time.Second), factAt(ledger.FactVerdict, "unknown", 1_000_101, 11*time.Hour+56*time.Minute)}
		if !asks {
			p.LookUp, p.LookUpConsistent, p.VisibilityBound = bankclient.LookUpNone, false, 0
		} else {
			facts = append(facts, factAt(ledger.FactLookUp, "not_found", 1_000_102, 23*time.Hour+53*time.Minute))
		}
		at := situation(&p)
		at.Now = t0.Add(23*time.Hour + 54*time.Minute)
		s := Fold(recovered(1_000_103, []ledger.Attempt{attemptAt(1, 0), attemptAt(1_000_101, 11*time.Hour+55*time.Minute)}, facts...), rules(&p))
		if step := Next(s, at); step.Kind == Send || !s.FirstSent.Equal(t0.Add(-time.Millisecond)) {
			t.Errorf("%s: %+v, first sent %v; the window of 24 h, of which half is used, is over", name, step, s.FirstSent)
		}
	}
}
