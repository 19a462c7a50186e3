package banksim

import (
	"net/http"
	"time"
)

type dropPoint uint8

const (
	dropNever dropPoint = iota
	dropAfterHeaders
	dropAfterBody
)

// refuse is a refusal that a fault asks for.
type refuse struct {
	status           int
	code, retryAfter string
	stored           bool
}

// spoil sends a reply in another way than it is.
type spoil func(b *Bank, w http.ResponseWriter, r *http.Request, rp *reply, p *plan)

// plan is everything that is out of the ordinary about one request. Faults compose: each sets its fields.
type plan struct {
	names       uint64 // bits of the catalogue
	key         string
	creates     bool // a create, not a read
	answered    int  // status sent; 0 = none
	executed    bool // money moved before the answer
	idempotency *Idempotency
	retryAfter  string

	// On the way in.
	drop        dropPoint
	dropReset   bool // end with a reset, not a close
	skip        bool // the bank never processes it
	arriveAfter time.Duration
	twice, last bool // delivered twice; the client gets the last answer

	// In the bank.
	early           *refuse // before the key is looked at
	decline         *refuse // instead of executing a fresh request
	after           *refuse // instead of the answer, after executing
	ignoreKey       bool
	leakLock        bool
	loseRecord      bool
	answerFirst     bool
	commitDelay     time.Duration
	visibleAfter    time.Duration
	createdRejected bool
	status, code    string
	later           []change // At is relative to the creation
	notFound, flaps bool

	// On the way out.
	view        view
	answerDelay time.Duration
	spoil       spoil
	page        measure // what a spoil needs to know
}

// plan decides which faults a request meets: those set by hand, else those of the random hostility.
func (b *Bank) plan(r *http.Request, on target, key string, nth uint32) *plan {
	s := b.settings.Load()
	p := &plan{key: key, creates: on == onCreate, idempotency: &s.idempotency, retryAfter: "1"}
	if set := b.rules.set.Load(); set != nil {
		set.each(on, key, func(rule *rule) {
			if rule.meets(b.options.Seed, key, nth, r) {
				b.apply(p, rule.index, b.catalogue.specs[rule.index].measure(rule.fault))
			}
		})
	}
	if p.names == 0 && s.profile.share > 0 {
		s.profile.draw(b.options.Seed, on, key, nth, func(index int, m measure) { b.apply(p, index, m) })
	}
	return p
}

func (b *Bank) apply(p *plan, index int, m measure) {
	p.names |= 1 << index
	b.catalogue.specs[index].apply(p, m)
}

// tune changes the idempotency of this request alone.
func (p *plan) tune(edit func(*Idempotency)) {
	own := *p.idempotency
	edit(&own)
	p.idempotency = &own
}

// exchange runs one request through its plan: in, process, out.
func (b *Bank) exchange(w http.ResponseWriter, r *http.Request, p *plan, process func(*plan) *reply) {
	if p.drop != dropNever {
		if p.arriveAfter > 0 {
			late := *p // the plan itself is reported with this request; what arrives late is not its doing
			due := b.clock.now().Add(p.arriveAfter)
			b.inBackground(func() {
				if b.clock.waitUntil(due, b.closed) {
					process(&late)
				}
			})
		}
		cutOff(w, p.dropReset)
		return
	}
	rp := &reply{status: http.StatusOK, body: []byte(`{}`)}
	if !p.skip {
		rp = process(p)
		if p.twice {
			if second := process(p); p.last {
				rp = second
			}
		}
	}
	if !b.clock.wait(p.answerDelay, b.closed) {
		cutOff(w, true)
		return
	}
	if p.spoil != nil {
		p.spoil(b, w, r, rp, p)
		return
	}
	p.answered = rp.status
	b.answer(w, rp)
}
