package banksim

import (
	"net/http"
	"strings"
	"time"
)

// request is one create as the bank core sees it.
type request struct {
	route      string
	key        string
	credential uint64
	body       []byte
	hash       [16]byte
	fields     fields
}

// create is the life of one POST:
//
//  1. count it for its key and decide which faults it meets;
//  2. read it, unless a fault ends the connection first;
//  3. tell BeforeExecute that a partner key has arrived;
//  4. refuse what is refused before execution (401, 400, and faults such as 429);
//  5. judge the key and take its lock (begin);
//  6. work: latency, late commit;
//  7. commit: a refusal stored under the key, or a transfer (commit);
//  8. answer, through whatever the fault does to answers (exchange).
func (b *Bank) create(w http.ResponseWriter, r *http.Request, route string) {
	key := ""
	if header := r.Header["Idempotency-Key"]; len(header) == 1 && len(header[0]) <= maxKey {
		key = header[0]
		w.Header()["Idempotency-Key"] = header // every answer of ours names its request
	}
	number := b.oracle.arrive(b.store, key, kindCreate, b.clock.now())
	p := b.plan(r, onCreate, key, number.nth)
	defer func() { b.oracle.settle(b, key, number, p) }()
	if p.drop == dropAfterHeaders {
		cutOff(w, true)
		return
	}
	body, whole := readBody(r)
	if b.options.BeforeExecute != nil && key != "" {
		if err := b.options.BeforeExecute(key); err != nil {
			b.oracle.violate(b, key, err)
		}
	}
	q := &request{route: route, key: key, body: body}
	credential, known := b.authenticate(r)
	q.credential = credential
	b.exchange(w, r, p, func(p *plan) *reply { return b.receive(q, p, known, whole) })
}

// receive is steps 4 to 7 for one delivery of a request.
func (b *Bank) receive(q *request, p *plan, authenticated, whole bool) *reply {
	if refused := b.check(q, authenticated, whole); refused != nil {
		return refused
	}
	if p.early != nil {
		if !p.early.stored {
			return b.refusal(p.early.status, p.early.code, p.retryAfter)
		}
		p.decline = p.early
	}
	begun := b.begin(q, p)
	for begun.wait != nil {
		select {
		case <-begun.wait:
			begun = b.begin(q, p)
		case <-b.closed:
			return b.refusal(http.StatusServiceUnavailable, "unavailable", p.retryAfter)
		}
	}
	if !begun.fresh {
		return begun.answer
	}
	due := b.clock.now()
	if delay := b.settings.Load().latency + p.commitDelay; delay > 0 {
		due = due.Add(delay)
	}
	if p.answerFirst {
		later := *p // the plan itself is reported with this request
		b.inBackground(func() { b.work(q, &later, begun.record, due) })
		return b.refusal(http.StatusConflict, "request_in_progress", p.retryAfter)
	}
	return b.work(q, p, begun.record, due)
}

// check refuses what is no valid request of an accepted credential.
func (b *Bank) check(q *request, authenticated, whole bool) *reply {
	switch {
	case !authenticated:
		return b.refusal(http.StatusUnauthorized, "unauthorized", "")
	case !whole:
		return b.refusal(http.StatusRequestEntityTooLarge, "too_large", "")
	case q.key == "":
		return b.refusal(http.StatusBadRequest, "idempotency_key_missing", "")
	}
	scanner := b.scanners.Get().(*scanner)
	found, problem := scanner.scan(q.body)
	b.scanners.Put(scanner)
	if problem != "" {
		refused := b.refusal(http.StatusBadRequest, "invalid_request", "")
		refused.message = problem
		return refused
	}
	q.fields, q.hash = found, bodyHash(q.body)
	return nil
}

// work is what the bank does between taking the key's lock and opening it.
func (b *Bank) work(q *request, p *plan, r *record, due time.Time) *reply {
	if !b.clock.waitUntil(due, b.closed) {
		refused := b.refusal(http.StatusServiceUnavailable, "unavailable", "")
		b.finish(q, p, r, nil, refused)
		return refused
	}
	if refused := b.decline(q, p); refused != nil {
		if refused.stored {
			b.journal.refuse(q, p, r, refused)
		}
		b.finish(q, p, r, nil, refused)
		return refused
	}
	made := b.commit(q, p, r)
	p.executed = p.executed || made.moved
	if p.after != nil {
		failed := b.refusal(p.after.status, p.after.code, "")
		failed.stored = p.after.stored
		b.finish(q, p, r, made, failed)
		return failed
	}
	b.finish(q, p, r, made, nil)
	return &reply{status: http.StatusCreated, transfer: made, body: made.render(b.buffer(), b.clock.now(), p.view)}
}

// decline refuses a fresh request instead of executing it.
func (b *Bank) decline(q *request, p *plan) *reply {
	if p.decline != nil {
		refused := b.refusal(p.decline.status, p.decline.code, p.decline.retryAfter)
		refused.stored = p.decline.stored
		return refused
	}
	if window := b.settings.Load().guardWindow; window > 0 && b.twin(q, window) {
		return b.refusal(http.StatusConflict, "possible_duplicate", "")
	}
	return nil
}

// twin tells whether an equal amount went to an equal beneficiary within the window, and remembers this one if not.
func (b *Bank) twin(q *request, window time.Duration) bool {
	content := strings.Join([]string{string(q.fields.amount.in(q.body)), string(q.fields.currency.in(q.body)),
		string(q.fields.beneficiary.in(q.body))}, "\n")
	hash, now := bodyHash([]byte(content)), b.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, seen := b.guard[hash]; seen && now.Sub(last) < window {
		return true
	}
	b.guard[hash] = now
	return false
}

// commit makes the transfer: from here on money has moved, unless it was created rejected.
func (b *Bank) commit(q *request, p *plan, r *record) *transfer {
	t := &transfer{
		key: q.key, scope: q.credential, body: q.body, fields: q.fields,
		moved: !p.createdRejected, status: p.status, code: p.code,
	}
	if t.status == "" {
		t.status = "accepted"
	}
	b.store.add(t, b.clock.now)
	if p.visibleAfter > 0 {
		t.visibleAt = t.at + int64(p.visibleAfter)
	}
	for _, next := range p.later {
		t.later = append(t.later, change{At: t.at + next.At, Status: next.Status, Code: next.Code})
	}
	b.journal.commit(q, p, r, t)
	b.store.with(q.key, func(a *account) {
		a.transfers = append(a.transfers, t)
		if t.moved {
			b.oracle.execution(a)
		}
	})
	if b.options.OnTransfer != nil {
		b.options.OnTransfer(t.export(b.clock.now()))
	}
	return t
}
