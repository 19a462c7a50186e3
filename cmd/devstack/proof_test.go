package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func onePaid() (publication, evidence, uuid.UUID) {
	key := uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11")
	return publication{keys: []published{{key: key, reference: "W1", good: []uint64{1, 2}, conflicting: []uint64{3}}}, malformed: []uint64{4}},
		evidence{
			operations: map[uuid.UUID]operation{key: {state: "authorized", amountMinor: 4900, currency: "GBP", transferID: "tr_1", entries: 2}},
			events:     map[uuid.UUID][]string{key: {"accepted", "authorized"}},
			dead:       map[uint64]int{3: 1, 4: 1},
			executions: []execution{{reference: "W1", transferID: "tr_1", amountMinor: 4900, currency: "GBP"}},
		}, key
}

func TestJudge_HeldLine(t *testing.T) {
	all, ev, _ := onePaid()
	const want = "proved: keys=1 authorized=1 rejected=0 cancelled=0 parked=0 dead=2 twice=0 lost=0"
	if j := judge(all, ev); j.String() != want || !j.held() {
		t.Errorf("%s, violations %v", j, j.violations)
	}
}

func TestJudge_SeesEachBreach(t *testing.T) {
	set := func(change func(*operation)) func(*publication, *evidence, uuid.UUID) {
		return func(_ *publication, ev *evidence, key uuid.UUID) {
			op := ev.operations[key]
			change(&op)
			ev.operations[key] = op
			ev.events[key] = append(ev.events[key], op.state)
		}
	}
	for name, test := range map[string]struct {
		breach      func(*publication, *evidence, uuid.UUID)
		twice, lost int
		says        string
	}{
		"paid twice": {breach: func(_ *publication, ev *evidence, _ uuid.UUID) {
			ev.executions = append(ev.executions, ev.executions[0])
		}, twice: 1, says: "was paid 2 times"},
		"no operation": {breach: func(_ *publication, ev *evidence, key uuid.UUID) {
			delete(ev.operations, key)
			ev.executions = nil
		}, lost: 1, says: "is nowhere"},
		"authorized, never paid": {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { ev.executions = nil }, says: "never paid"},
		"rejected, but paid":     {breach: set(func(op *operation) { op.state, op.entries = "rejected", 0 }), says: "rejected, and the bank paid"},
		"cancelled, but paid":    {breach: set(func(op *operation) { op.state, op.entries = "cancelled", 0 }), says: "cancelled, and the bank paid"},
		"rejected with entries":  {breach: set(func(op *operation) { op.state = "rejected" }), says: "rejected, and the journal has 2"},
		"entries missing":        {breach: set(func(op *operation) { op.entries = 0 }), says: "0 entries"},
		"other amount":           {breach: set(func(op *operation) { op.amountMinor = 4901 }), says: "same transfer"},
		"other transfer":         {breach: set(func(op *operation) { op.transferID = "tr_2" }), says: "same transfer"},
		"other currency":         {breach: set(func(op *operation) { op.currency = "EUR" }), says: "same transfer"},
		"unfinished":             {breach: set(func(op *operation) { op.state = "open" })},
		"no event":               {breach: func(_ *publication, ev *evidence, key uuid.UUID) { delete(ev.events, key) }, says: "no event"},
		"expired, but paid":      {breach: func(all *publication, _ *evidence, _ uuid.UUID) { all.keys[0].expired = true }, says: "after its not_after"},
		"conflict swallowed":     {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { delete(ev.dead, 3) }, lost: 1, says: "neither"},
		"half of the good dead":  {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { ev.dead[1] = 1 }, says: "1 of 2 and 1 of 1"},
		"malformed swallowed":    {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { delete(ev.dead, 4) }, lost: 1, says: "no dead letter"},
		"dead letter twice":      {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { ev.dead[4] = 2 }, says: "2 dead letters"},
		"good job dead": {breach: func(all *publication, ev *evidence, _ uuid.UUID) {
			all.keys[0].conflicting = nil
		}, says: "is a good job"},
		"paid without a job": {breach: func(_ *publication, ev *evidence, _ uuid.UUID) {
			ev.executions = append(ev.executions, execution{reference: "X"})
		}, says: "nobody asked for"},
		"unbalanced":      {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { ev.unbalanced = 1 }, says: "sum to zero"},
		"the bank's word": {breach: func(_ *publication, ev *evidence, _ uuid.UUID) { ev.bankSays = []string{"no attempt"} }, says: "no attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			all, ev, key := onePaid()
			test.breach(&all, &ev, key)
			j := judge(all, ev)
			if j.held() || !strings.HasPrefix(j.String(), "not proved: ") {
				t.Errorf("held: %s", j)
			}
			if j.twice != test.twice || j.lost != test.lost || !strings.Contains(strings.Join(j.violations, "\n"), test.says) {
				t.Errorf("%s, violations %q", j, j.violations)
			}
		})
	}
}

func TestJudge_TheOtherAmountCameFirst(t *testing.T) {
	all, ev, _ := onePaid()
	ev.dead = map[uint64]int{1: 1, 2: 1, 4: 1}
	if j := judge(all, ev); !j.held() {
		t.Errorf("%s, violations %v", j, j.violations)
	}
}
