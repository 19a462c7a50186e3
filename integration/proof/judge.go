package proof

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Published is one operation key and every message that carried it.
type Published struct {
	Key         uuid.UUID
	Reference   string   // unique per key: how the bank's book is matched without asking the ledger
	Expired     bool     // not_after was past already
	Good        []uint64 // stream sequences of the job and its copies
	Conflicting []uint64 // of jobs with the same key and another amount
}

// Publication is everything that was published.
type Publication struct {
	Keys      []Published
	Malformed []uint64 // stream sequences of messages that are no job

	// Moved: the ledger lost its last records in a failover meanwhile. Of two amounts for one key, another one may have come first afterwards.
	Moved bool
}

// Operation is a row of the ledger, as the proof reads it.
type Operation struct {
	State       string
	AmountMinor int64
	Currency    string
	TransferID  string
	Entries     int // lines in the journal
	Evidence    int // observations
}

// Execution is money that left, as a bank's own book has it.
type Execution struct {
	Reference   string
	TransferID  string
	AmountMinor int64
	Currency    string
}

// Evidence is what everybody says, each asked on its own.
type Evidence struct {
	Operations map[uuid.UUID]Operation
	Events     map[uuid.UUID][]string // types of the events published about a key
	Dead       map[uint64]int         // dead letters by the stream sequence of their message
	Executions []Execution
	Unbalanced int      // events of the journal that do not sum to zero
	BankSays   []string // what a bank itself calls a violation: a request without a committed attempt
}

// Judgement is what the evidence comes to.
type Judgement struct {
	Keys, Authorized, Rejected, Cancelled, Parked, Dead, Twice, Lost int

	Unfinished []uuid.UUID
	Violations []string
}

func (j *Judgement) violate(format string, args ...any) {
	j.Violations = append(j.Violations, fmt.Sprintf(format, args...))
}

// Held says whether everything that was promised was kept.
func (j *Judgement) Held() bool {
	return j.Twice == 0 && j.Lost == 0 && len(j.Unfinished) == 0 && len(j.Violations) == 0
}

// String is the last line of a run.
func (j *Judgement) String() string {
	word := "proved"
	if !j.Held() {
		word = "not proved"
	}
	return fmt.Sprintf("%s: keys=%d authorized=%d rejected=%d cancelled=%d parked=%d dead=%d twice=%d lost=%d",
		word, j.Keys, j.Authorized, j.Rejected, j.Cancelled, j.Parked, j.Dead, j.Twice, j.Lost)
}

// Judge holds what was published against the evidence: every key in exactly one place, at most one execution, exactly one
// where the ledger says authorized, none where it says rejected or cancelled, and every message accounted for. It shares no
// code with what writes the ledger.
func Judge(all Publication, ev Evidence) *Judgement {
	j := &Judgement{Keys: len(all.Keys)}
	executed := map[string][]Execution{}
	for _, e := range ev.Executions {
		executed[e.Reference] = append(executed[e.Reference], e)
	}
	mayBeDead := map[uint64]bool{}
	for _, p := range all.Keys {
		j.judgeKey(p, ev, executed[p.Reference])
		j.judgeMessages(p, ev, mayBeDead, all.Moved)
		delete(executed, p.Reference)
	}
	for _, sequence := range all.Malformed {
		mayBeDead[sequence] = true
		if ev.Dead[sequence] == 0 {
			j.Lost++
			j.violate("message %d is no job, and there is no dead letter of it", sequence)
		}
	}
	for _, sequence := range sortedKeys(ev.Dead) {
		j.Dead += ev.Dead[sequence]
		if !mayBeDead[sequence] {
			j.violate("message %d is a good job, and became a dead letter", sequence)
		}
		if ev.Dead[sequence] > 1 {
			j.violate("message %d became %d dead letters", sequence, ev.Dead[sequence])
		}
	}
	for _, reference := range sortedKeys(executed) {
		j.violate("the bank paid %d transfers that nobody asked for (reference %s)", len(executed[reference]), reference)
	}
	if ev.Unbalanced > 0 {
		j.violate("%d events of the journal do not sum to zero", ev.Unbalanced)
	}
	j.Violations = append(j.Violations, ev.BankSays...)
	return j
}

// judgeKey judges one key's place and what the bank paid for it.
func (j *Judgement) judgeKey(p Published, ev Evidence, paid []Execution) {
	if len(paid) > 1 {
		j.Twice++
		j.violate("key %s was paid %d times", p.Key, len(paid))
	}
	op, ok := ev.Operations[p.Key]
	if !ok {
		j.Lost++
		j.violate("key %s is nowhere: no operation, although its job is a good one", p.Key)
		return
	}
	switch op.State {
	case "authorized":
		j.Authorized++
		j.judgePaid(p, op, paid)
	case "rejected", "cancelled":
		if op.State == "rejected" {
			j.Rejected++
		} else {
			j.Cancelled++
		}
		if len(paid) > 0 {
			j.violate("key %s is %s, and the bank paid it", p.Key, op.State)
		}
		if op.Entries != 0 {
			j.violate("key %s is %s, and the journal has %d entries of it", p.Key, op.State, op.Entries)
		}
	case "parked":
		j.Parked++
		if op.Evidence == 0 {
			j.violate("key %s is parked without any evidence", p.Key)
		}
	default:
		j.Unfinished = append(j.Unfinished, p.Key)
		return
	}
	if !slices.Contains(ev.Events[p.Key], op.State) {
		j.violate("key %s is %s, and no event says so", p.Key, op.State)
	}
	if p.Expired && len(paid) > 0 {
		j.violate("key %s was paid after its not_after", p.Key)
	}
}

func (j *Judgement) judgePaid(p Published, op Operation, paid []Execution) {
	if len(paid) == 0 {
		j.violate("key %s is authorized, and the bank never paid it", p.Key)
	}
	for _, e := range paid {
		if e.TransferID != op.TransferID || e.AmountMinor != op.AmountMinor || e.Currency != op.Currency {
			j.violate("key %s: ledger and bank do not tell the same transfer: %s %d %s, %s %d %s", p.Key,
				op.TransferID, op.AmountMinor, op.Currency, e.TransferID, e.AmountMinor, e.Currency)
		}
	}
	if op.Entries != 2 {
		j.violate("key %s is authorized, and the journal has %d entries of it, not 2", p.Key, op.Entries)
	}
}

// judgeMessages accounts for every message of a key. The first to arrive makes the operation; of the good and the
// conflicting ones, all of one kind are owned by it and all of the other kind are dead letters.
func (j *Judgement) judgeMessages(p Published, ev Evidence, mayBeDead map[uint64]bool, moved bool) {
	if len(p.Conflicting) == 0 {
		return
	}
	goodDead, conflictingDead := deadAmong(p.Good, ev.Dead), deadAmong(p.Conflicting, ev.Dead)
	for _, sequence := range slices.Concat(p.Good, p.Conflicting) {
		mayBeDead[sequence] = true
	}
	switch {
	case goodDead == 0 && conflictingDead == len(p.Conflicting):
	case goodDead == len(p.Good) && conflictingDead == 0: // the other amount came first, and is the operation
	case goodDead+conflictingDead == 0:
		j.Lost++
		j.violate("key %s came with two amounts, and neither is a dead letter", p.Key)
	case moved:
	default:
		j.violate("key %s came with two amounts: %d of %d and %d of %d messages are dead letters", p.Key,
			goodDead, len(p.Good), conflictingDead, len(p.Conflicting))
	}
}

func deadAmong(sequences []uint64, dead map[uint64]int) int {
	n := 0
	for _, sequence := range sequences {
		if dead[sequence] > 0 {
			n++
		}
	}
	return n
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
