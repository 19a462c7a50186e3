package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// published is one operation key and every message that carried it.
type published struct {
	key         uuid.UUID
	reference   string   // unique per key: how the bank's book is matched without asking the ledger
	expired     bool     // not_after was past already
	good        []uint64 // stream sequences of the job and its copies
	conflicting []uint64 // of jobs with the same key and another amount
}

// publication is everything that was published.
type publication struct {
	keys      []published
	malformed []uint64 // stream sequences of messages that are no job
}

// operation is a row of the ledger, as proof reads it.
type operation struct {
	state       string
	amountMinor int64
	currency    string
	transferID  string
	entries     int // lines in the journal
}

// execution is money that left, as the bank's own book has it.
type execution struct {
	reference   string
	transferID  string
	amountMinor int64
	currency    string
}

// evidence is what everybody says, each asked on its own.
type evidence struct {
	operations map[uuid.UUID]operation
	events     map[uuid.UUID][]string // types of the events published about a key
	dead       map[uint64]int         // dead letters by the stream sequence of their message
	executions []execution
	unbalanced int      // events of the journal that do not sum to zero
	bankSays   []string // what the bank itself calls a violation: a request without a committed attempt
}

// judgement is what the evidence comes to.
type judgement struct {
	keys, authorized, rejected, cancelled, parked, dead, twice, lost int

	unfinished []uuid.UUID
	violations []string
}

func (j *judgement) violate(format string, args ...any) {
	j.violations = append(j.violations, fmt.Sprintf(format, args...))
}

// held says whether everything that was promised was kept.
func (j *judgement) held() bool {
	return j.twice == 0 && j.lost == 0 && len(j.unfinished) == 0 && len(j.violations) == 0
}

// String is the last line of a run.
func (j *judgement) String() string {
	word := "proved"
	if !j.held() {
		word = "not proved"
	}
	return fmt.Sprintf("%s: keys=%d authorized=%d rejected=%d cancelled=%d parked=%d dead=%d twice=%d lost=%d",
		word, j.keys, j.authorized, j.rejected, j.cancelled, j.parked, j.dead, j.twice, j.lost)
}

// judge holds what was published against the evidence: every key in exactly one place, at most one execution, exactly one
// where the ledger says authorized, none where it says rejected or cancelled, and every message accounted for. It shares no
// code with what writes the ledger.
func judge(all publication, ev evidence) *judgement {
	j := &judgement{keys: len(all.keys)}
	executed := map[string][]execution{}
	for _, e := range ev.executions {
		executed[e.reference] = append(executed[e.reference], e)
	}
	mayBeDead := map[uint64]bool{}
	for _, p := range all.keys {
		j.judgeKey(p, ev, executed[p.reference])
		j.judgeMessages(p, ev, mayBeDead)
		delete(executed, p.reference)
	}
	for _, sequence := range all.malformed {
		mayBeDead[sequence] = true
		if ev.dead[sequence] == 0 {
			j.lost++
			j.violate("message %d is no job, and there is no dead letter of it", sequence)
		}
	}
	for _, sequence := range sortedKeys(ev.dead) {
		j.dead += ev.dead[sequence]
		if !mayBeDead[sequence] {
			j.violate("message %d is a good job, and became a dead letter", sequence)
		}
		if ev.dead[sequence] > 1 {
			j.violate("message %d became %d dead letters", sequence, ev.dead[sequence])
		}
	}
	for _, reference := range sortedKeys(executed) {
		j.violate("the bank paid %d transfers that nobody asked for (reference %s)", len(executed[reference]), reference)
	}
	if ev.unbalanced > 0 {
		j.violate("%d events of the journal do not sum to zero", ev.unbalanced)
	}
	j.violations = append(j.violations, ev.bankSays...)
	return j
}

// judgeKey judges one key's place and what the bank paid for it.
func (j *judgement) judgeKey(p published, ev evidence, paid []execution) {
	if len(paid) > 1 {
		j.twice++
		j.violate("key %s was paid %d times", p.key, len(paid))
	}
	op, ok := ev.operations[p.key]
	if !ok {
		j.lost++
		j.violate("key %s is nowhere: no operation, although its job is a good one", p.key)
		return
	}
	switch op.state {
	case "authorized":
		j.authorized++
		j.judgePaid(p, op, paid)
	case "rejected", "cancelled":
		if op.state == "rejected" {
			j.rejected++
		} else {
			j.cancelled++
		}
		if len(paid) > 0 {
			j.violate("key %s is %s, and the bank paid it", p.key, op.state)
		}
		if op.entries != 0 {
			j.violate("key %s is %s, and the journal has %d entries of it", p.key, op.state, op.entries)
		}
	case "parked":
		j.parked++
	default:
		j.unfinished = append(j.unfinished, p.key)
		return
	}
	if !slices.Contains(ev.events[p.key], op.state) {
		j.violate("key %s is %s, and no event says so", p.key, op.state)
	}
	if p.expired && len(paid) > 0 {
		j.violate("key %s was paid after its not_after", p.key)
	}
}

func (j *judgement) judgePaid(p published, op operation, paid []execution) {
	if len(paid) == 0 {
		j.violate("key %s is authorized, and the bank never paid it", p.key)
	}
	for _, e := range paid {
		if e.transferID != op.transferID || e.amountMinor != op.amountMinor || e.currency != op.currency {
			j.violate("key %s: ledger and bank do not tell the same transfer: %s %d %s, %s %d %s", p.key,
				op.transferID, op.amountMinor, op.currency, e.transferID, e.amountMinor, e.currency)
		}
	}
	if op.entries != 2 {
		j.violate("key %s is authorized, and the journal has %d entries of it, not 2", p.key, op.entries)
	}
}

// judgeMessages accounts for every message of a key. The first to arrive makes the operation; of the good and the
// conflicting ones, all of one kind are owned by it and all of the other kind are dead letters.
func (j *judgement) judgeMessages(p published, ev evidence, mayBeDead map[uint64]bool) {
	if len(p.conflicting) == 0 {
		return
	}
	goodDead, conflictingDead := deadAmong(p.good, ev.dead), deadAmong(p.conflicting, ev.dead)
	for _, sequence := range slices.Concat(p.good, p.conflicting) {
		mayBeDead[sequence] = true
	}
	switch {
	case goodDead == 0 && conflictingDead == len(p.conflicting):
	case goodDead == len(p.good) && conflictingDead == 0: // the other amount came first, and is the operation
	case goodDead+conflictingDead == 0:
		j.lost++
		j.violate("key %s came with two amounts, and neither is a dead letter", p.key)
	default:
		j.violate("key %s came with two amounts: %d of %d and %d of %d messages are dead letters", p.key,
			goodDead, len(p.good), conflictingDead, len(p.conflicting))
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
