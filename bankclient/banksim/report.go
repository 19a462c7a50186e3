package banksim

import (
	"time"
)

// Transfer is a transfer as the oracle and the statement export it.
type Transfer struct {
	ID        string    `json:"id"`
	Key       string    `json:"key"`
	EndToEnd  string    `json:"end_to_end_id"`
	Amount    string    `json:"amount"`
	Currency  string    `json:"currency"`
	Status    string    `json:"status"`
	Code      string    `json:"reject_code,omitzero"`
	Executed  bool      `json:"executed"`
	CreatedAt time.Time `json:"created_at"`
}

// Request is one request as the oracle exports it.
type Request struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Status int       `json:"status"` // 0: no answer was sent
	Faults []string  `json:"faults"`
	// Executed: this request moved money before it was answered.
	Executed bool `json:"executed"`
}

// History is everything the oracle knows of one partner key.
type History struct {
	Key        string     `json:"key"`
	Executions int        `json:"executions"`
	Requests   []Request  `json:"requests"`
	Transfers  []Transfer `json:"transfers"`
}

func unquoted(raw []byte) string {
	if len(raw) < 2 {
		return ""
	}
	return string(raw[1 : len(raw)-1])
}

func (t *transfer) export(now time.Time) Transfer {
	status, code := t.stateAt(now)
	return Transfer{
		ID: t.id(), Key: t.key, EndToEnd: unquoted(t.endToEnd.in(t.body)),
		Amount: unquoted(t.amount.in(t.body)), Currency: unquoted(t.currency.in(t.body)),
		Status: status, Code: code, Executed: t.moved, CreatedAt: time.Unix(0, t.at).UTC(),
	}
}

// export copies an account; the caller holds its lock.
func (a *account) export(c *catalogue, now time.Time) History {
	h := History{Key: a.key, Requests: make([]Request, 0, len(a.requests)), Transfers: []Transfer{}}
	for _, e := range a.requests {
		h.Requests = append(h.Requests, Request{
			At: time.Unix(0, e.at).UTC(), Kind: e.kind.String(), Status: int(e.status),
			Faults: c.names(e.faults), Executed: e.executed,
		})
	}
	for _, t := range a.transfers {
		h.Transfers = append(h.Transfers, t.export(now))
		if t.moved {
			h.Executions++
		}
	}
	return h
}

// History tells what happened under a partner key or an end-to-end id; false when nothing did.
func (b *Bank) History(keyOrEndToEnd string) (History, bool) {
	now := b.clock.now()
	var h History
	if b.store.look(keyOrEndToEnd, func(a *account) { h = a.export(b.catalogue, now) }) {
		return h, true
	}
	for _, t := range b.store.page(0) {
		if t != nil && unquoted(t.endToEnd.in(t.body)) == keyOrEndToEnd {
			return h, b.store.look(t.key, func(a *account) { h = a.export(b.catalogue, now) })
		}
	}
	return h, false
}

// Histories calls visit for every partner key, in no order, until it returns false.
func (b *Bank) Histories(visit func(History) bool) {
	now := b.clock.now()
	for i := range b.store.shards {
		sh := &b.store.shards[i]
		sh.mu.Lock()
		keys := make([]string, 0, len(sh.accounts))
		for key := range sh.accounts {
			keys = append(keys, key)
		}
		sh.mu.Unlock()
		for _, key := range keys {
			var h History
			if b.store.look(key, func(a *account) { h = a.export(b.catalogue, now) }) && !visit(h) {
				return
			}
		}
	}
}

// Statement calls visit for every transfer in the order of creation until it returns false.
func (b *Bank) Statement(visit func(Transfer) bool) {
	now := b.clock.now()
	for _, t := range b.store.page(0) {
		if t != nil && !visit(t.export(now)) {
			return
		}
	}
}

// Summary counts requests and executions.
func (b *Bank) Summary() Summary {
	o := &b.oracle
	s := Summary{
		Requests: o.requests.Load(), Creates: o.creates.Load(), LookUps: o.lookUps.Load(), Executions: o.executions.Load(),
		KeysExecuted: o.executedKeys.Load(), KeysTwice: o.twiceKeys.Load(),
		Violations: o.violationCount.Load(), Pending: b.owed.number(),
	}
	for i := range b.store.shards {
		sh := &b.store.shards[i]
		sh.mu.Lock()
		for key, a := range sh.accounts {
			if key != "" && a.creates > 0 {
				s.Keys++
			}
		}
		sh.mu.Unlock()
	}
	return s
}

// Violations lists what BeforeExecute found wrong, at most the first thousand.
func (b *Bank) Violations() []Violation {
	b.oracle.mu.Lock()
	defer b.oracle.mu.Unlock()
	return append([]Violation{}, b.oracle.violations...)
}
