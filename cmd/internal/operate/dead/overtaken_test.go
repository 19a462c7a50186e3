package dead_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/queue"
)

// A proposal about letters of which something else became meanwhile is agreed to by nobody, and says what became of them. The database alone tells.
func TestOvertaken_SaysWhatBecameOfTheLetters(t *testing.T) {
	w := newWorld(t, dead.Options{})
	overtaken := dead.New(nil, nil, w.pool, dead.Options{}).Overtaken
	opt := limits()
	opt.Limits.Counts = map[string]int{}
	opt.Limits.Amounts = map[string]int64{}
	opt.Judges = map[string]operate.Judge{dead.ActCorrect: {Overtaken: overtaken}, dead.ActReplay: {Overtaken: overtaken}, dead.ActDiscard: {Overtaken: overtaken}}
	strict := operate.New(w.ledger, w.pool, opt) // everything waits for a second person here, and nothing at w.service
	asked := func(act operate.Act) operate.Proposal {
		t.Helper()
		done, err := strict.Do(t.Context(), operate.Request{By: w.oscar, Reason: "ticket 6", Act: act})
		if !errors.Is(err, operate.ErrWaiting) {
			t.Fatalf("%s: %v", act.Name(), err)
		}
		return *done.Proposal
	}
	replay := func(p *dead.Plan) operate.Act {
		t.Helper()
		act, err := w.desk.Replay(t.Context(), p, 0)
		w.must(err)
		return act
	}
	discardOf := func(p *dead.Plan) operate.Act {
		t.Helper()
		act, err := w.desk.DiscardPlan(t.Context(), p, "x")
		w.must(err)
		return act
	}
	keys, letters := fresh(8)
	letters[7].payload = payload(keys[6], "49.00", "47.0") // the same withdrawal as the seventh, malformed
	letters[6].payload = payload(keys[6], "49.00", "48.0")
	w.bury(letters...)
	span := func(from, to uint64) *dead.Plan { return w.freeze(dead.Filter{From: from, To: to}) }
	done, other, all := span(3, 3), span(3, 4), span(5, 5)
	proposals := map[string]operate.Proposal{
		"dead letter 1: was discarded":                                 asked(w.correct(1, set("amount", "48.00"))),
		"dead letter 2 was corrected: there is nothing left to decide": asked(w.discard(2)),
		"all that plan " + done.ID.String() + " replays was replayed":  asked(replay(done)),
		"dead letter 3 was replayable when plan " + other.ID.String():  asked(replay(other)),
		"something was decided about every letter of plan":             asked(discardOf(all)),
		"dead letter 1: discarded already, by olga":                    asked(w.discard(1)),
		"dead letter 8: corrected already by letter 7 under key":       asked(w.correct(8, set("amount", "47.00"))),
		"dead letter 6: its operation has an outcome":                  asked(w.correct(6, set("amount", "46.00"))),
	}
	stands := asked(w.correct(7, set("amount", "50.00")))
	for says, p := range proposals {
		if now, err := strict.Proposal(t.Context(), p.ID); err != nil || now.State != operate.ProposalOpen {
			t.Errorf("at first %q: %s %q, %v", says, now.State, now.Overtaken, err)
		}
	}

	_, err := w.do(w.olga, w.discard(1, 4))
	w.must(err)
	_, err = w.agreed(w.correct(2, set("amount", "48.00")))
	w.must(err)
	_, _, err = w.replay(done)
	w.must(err)
	_, err = w.do(w.olga, discardOf(all))
	w.must(err)
	b := w.work(nil)
	_, err = w.publish.Publish(t.Context(), queue.Message{Source: source, Route: route, Key: keys[5], Payload: payload(keys[5])})
	w.must(err)
	eventually(t, "paid under the key of the sixth", func() bool { return b.sends(keys[5]) == 1 })
	_, err = w.agreed(w.correct(7, set("amount", "48.00")))
	w.must(err)

	for says, p := range proposals {
		now, err := strict.Proposal(t.Context(), p.ID)
		if err != nil || now.State != operate.ProposalOvertaken || !strings.Contains(now.Overtaken, says) {
			t.Errorf("%s of %s is %s %q, %v; want %q", p.Act, p.Target, now.State, now.Overtaken, err, says)
		}
		if _, err := strict.Approve(t.Context(), w.ada, p.ID, p.Digest, "yes"); !errors.Is(err, operate.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("approve %s: %v", says, err)
		}
	}
	if now, err := strict.Proposal(t.Context(), stands.ID); err != nil || now.State != operate.ProposalOvertaken || !strings.Contains(now.Overtaken, "dead letter 7 was corrected already, as ") {
		t.Errorf("another correction of the same: %s %q, %v", now.State, now.Overtaken, err)
	}
}
