package proof

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func onePaid() (Publication, Evidence, uuid.UUID) {
	key := uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11")
	return Publication{Keys: []Published{{Key: key, Reference: "W1", Good: []uint64{1, 2}, Conflicting: []uint64{3}}}, Malformed: []uint64{4}},
		Evidence{
			Operations: map[uuid.UUID]Operation{key: {State: "authorized", AmountMinor: 4900, Currency: "GBP", TransferID: "tr_1", Entries: 2}},
			Events:     map[uuid.UUID][]string{key: {"accepted", "authorized"}},
			Dead:       map[uint64]int{3: 1, 4: 1},
			Executions: []Execution{{Reference: "W1", TransferID: "tr_1", AmountMinor: 4900, Currency: "GBP"}},
		}, key
}

func TestJudge_HeldLine(t *testing.T) {
	all, ev, _ := onePaid()
	const want = "proved: keys=1 authorized=1 rejected=0 cancelled=0 parked=0 dead=2 twice=0 lost=0"
	if j := Judge(all, ev); j.String() != want || !j.Held() {
		t.Errorf("%s, violations %v", j, j.Violations)
	}
}

func TestJudge_SeesEachBreach(t *testing.T) {
	set := func(change func(*Operation)) func(*Publication, *Evidence, uuid.UUID) {
		return func(_ *Publication, ev *Evidence, key uuid.UUID) {
			op := ev.Operations[key]
			change(&op)
			ev.Operations[key] = op
			ev.Events[key] = append(ev.Events[key], op.State)
		}
	}
	for name, test := range map[string]struct {
		breach      func(*Publication, *Evidence, uuid.UUID)
		twice, lost int
		says        string
	}{
		"paid twice": {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) {
			ev.Executions = append(ev.Executions, ev.Executions[0])
		}, twice: 1, says: "was paid 2 times"},
		"no operation": {breach: func(_ *Publication, ev *Evidence, key uuid.UUID) {
			delete(ev.Operations, key)
			ev.Executions = nil
		}, lost: 1, says: "is nowhere"},
		"authorized, never paid":  {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { ev.Executions = nil }, says: "never paid"},
		"rejected, but paid":      {breach: set(func(op *Operation) { op.State, op.Entries = "rejected", 0 }), says: "rejected, and the bank paid"},
		"cancelled, but paid":     {breach: set(func(op *Operation) { op.State, op.Entries = "cancelled", 0 }), says: "cancelled, and the bank paid"},
		"rejected with entries":   {breach: set(func(op *Operation) { op.State = "rejected" }), says: "rejected, and the journal has 2"},
		"entries missing":         {breach: set(func(op *Operation) { op.Entries = 0 }), says: "0 entries"},
		"other amount":            {breach: set(func(op *Operation) { op.AmountMinor = 4901 }), says: "same transfer"},
		"other transfer":          {breach: set(func(op *Operation) { op.TransferID = "tr_2" }), says: "same transfer"},
		"other currency":          {breach: set(func(op *Operation) { op.Currency = "EUR" }), says: "same transfer"},
		"unfinished":              {breach: set(func(op *Operation) { op.State = "open" })},
		"parked without evidence": {breach: set(func(op *Operation) { op.State = "parked" }), says: "without any evidence"},
		"no event":                {breach: func(_ *Publication, ev *Evidence, key uuid.UUID) { delete(ev.Events, key) }, says: "no event"},
		"expired, but paid":       {breach: func(all *Publication, _ *Evidence, _ uuid.UUID) { all.Keys[0].Expired = true }, says: "after its not_after"},
		"conflict swallowed":      {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { delete(ev.Dead, 3) }, lost: 1, says: "neither"},
		"half of the good dead":   {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { ev.Dead[1] = 1 }, says: "1 of 2 and 1 of 1"},
		"malformed swallowed":     {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { delete(ev.Dead, 4) }, lost: 1, says: "no dead letter"},
		"dead letter twice":       {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { ev.Dead[4] = 2 }, says: "2 dead letters"},
		"good job dead": {breach: func(all *Publication, ev *Evidence, _ uuid.UUID) {
			all.Keys[0].Conflicting = nil
		}, says: "is a good job"},
		"paid without a job": {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) {
			ev.Executions = append(ev.Executions, Execution{Reference: "X"})
		}, says: "nobody asked for"},
		"unbalanced":      {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { ev.Unbalanced = 1 }, says: "sum to zero"},
		"the bank's word": {breach: func(_ *Publication, ev *Evidence, _ uuid.UUID) { ev.BankSays = []string{"no attempt"} }, says: "no attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			all, ev, key := onePaid()
			test.breach(&all, &ev, key)
			j := Judge(all, ev)
			if j.Held() || !strings.HasPrefix(j.String(), "not proved: ") {
				t.Errorf("held: %s", j)
			}
			if j.Twice != test.twice || j.Lost != test.lost || !strings.Contains(strings.Join(j.Violations, "\n"), test.says) {
				t.Errorf("%s, violations %q", j, j.Violations)
			}
		})
	}
}

func TestJudge_TheOtherAmountCameFirst(t *testing.T) {
	all, ev, _ := onePaid()
	ev.Dead = map[uint64]int{1: 1, 2: 1, 4: 1}
	if j := Judge(all, ev); !j.Held() {
		t.Errorf("%s, violations %v", j, j.Violations)
	}
}

// TestJudge_TheLedgerMoved: of two amounts for a key either may have come first, once before and once after the ledger forgot it.
func TestJudge_TheLedgerMoved(t *testing.T) {
	all, ev, _ := onePaid()
	ev.Dead = map[uint64]int{1: 1, 3: 1, 4: 1}
	if Judge(all, ev).Held() {
		t.Error("held, although nothing was forgotten")
	}
	all.Moved = true
	if j := Judge(all, ev); !j.Held() {
		t.Errorf("%s, violations %v", j, j.Violations)
	}
	if ev.Dead = map[uint64]int{4: 1}; Judge(all, ev).Held() {
		t.Error("held, although neither amount is a dead letter")
	}
}
