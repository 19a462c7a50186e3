package banksim

import (
	"sync"
	"sync/atomic"
	"time"
)

type kind uint8

const (
	kindCreate kind = iota
	kindLookUp
	kindGet
	kindStatement
)

func (k kind) String() string {
	return [...]string{"create", "look_up", "get", "statement"}[k]
}

// entry is one request in the oracle. Entries are only ever appended; status and faults are filled in when the request ends.
type entry struct {
	at       int64
	faults   uint64 // bit i: fault i of the catalogue
	status   int16  // 0: no answer was sent (yet)
	kind     kind
	executed bool // this request's own processing moved money
}

// place finds an entry again.
type place struct {
	index int
	nth   uint32
}

// Violation is something that must not happen, seen by BeforeExecute.
type Violation struct {
	At     time.Time `json:"at"`
	Key    string    `json:"key"`
	Detail string    `json:"detail"`
}

const violationLimit = 1000

// oracle counts; the list itself hangs on the accounts of the store.
type oracle struct {
	requests, creates, lookUps atomic.Int64
	executions                 atomic.Int64
	executedKeys, twiceKeys    atomic.Int64
	violationCount             atomic.Int64

	mu         sync.Mutex
	violations []Violation
}

// Summary is the oracle in numbers.
type Summary struct {
	Requests   int64 `json:"requests"`
	Creates    int64 `json:"creates"`
	LookUps    int64 `json:"look_ups"`
	Executions int64 `json:"executions"`
	// Keys counts partner keys seen in creates.
	Keys         int64 `json:"keys"`
	KeysExecuted int64 `json:"keys_executed"`
	// KeysTwice counts partner keys under which money moved more than once.
	KeysTwice  int64 `json:"keys_executed_more_than_once"`
	Violations int64 `json:"violations"`
	// Pending counts what the bank still has to do: late arrivals and commits after the answer.
	Pending int64 `json:"pending"`
}

// arrive appends a request to the list of its key.
func (o *oracle) arrive(s *store, key string, k kind, now time.Time) place {
	var p place
	s.with(key, func(a *account) {
		if k == kindCreate {
			p.nth = a.creates
			a.creates++
		} else {
			p.nth = a.lookUps
			a.lookUps++
		}
		if key == "" && len(a.requests) >= violationLimit {
			p.index = -1 // requests without a key are counted, not listed for ever
			return
		}
		p.index = len(a.requests)
		a.requests = append(a.requests, entry{at: now.UnixNano(), kind: k})
	})
	o.requests.Add(1)
	switch k {
	case kindCreate:
		o.creates.Add(1)
	case kindLookUp:
		o.lookUps.Add(1)
	}
	return p
}

// settle fills in how the request ended.
func (o *oracle) settle(b *Bank, key string, at place, p *plan) {
	if at.index < 0 {
		return
	}
	b.store.look(key, func(a *account) {
		e := &a.requests[at.index]
		e.status, e.faults, e.executed = int16(p.answered), p.names, p.executed
		b.journal.request(key, *e)
	})
}

// execution counts money moved under a key; the caller holds the account's lock and has appended the transfer.
func (o *oracle) execution(a *account) {
	o.executions.Add(1)
	moved := 0
	for _, t := range a.transfers {
		if t.moved {
			moved++
		}
	}
	switch moved {
	case 1:
		o.executedKeys.Add(1)
	case 2:
		o.twiceKeys.Add(1)
	}
}

func (o *oracle) violate(b *Bank, key string, err error) {
	v := Violation{At: b.clock.now(), Key: key, Detail: err.Error()}
	o.violationCount.Add(1)
	o.mu.Lock()
	if len(o.violations) < violationLimit {
		o.violations = append(o.violations, v)
	}
	o.mu.Unlock()
	b.journal.violation(v)
}
