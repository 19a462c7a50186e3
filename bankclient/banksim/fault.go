package banksim

import (
	"net/http"
	"sync/atomic"
	"time"
)

type target uint8

const (
	onCreate target = 1 << iota
	onLookUp
	onGet
	onStatement
)

const dropAfterHeaders = 1

type refuse struct {
	status           int
	code, retryAfter string
	stored           bool
}

// plan is everything that is out of the ordinary about one request.
type plan struct {
	names       uint64
	answered    int
	executed    bool
	idempotency *Idempotency

	drop                  int
	early, decline, after *refuse
	retryAfter            string
	ignoreKey, leakLock   bool
	loseRecord            bool
	answerFirst           bool
	notFound, flaps       bool
	commitDelay           time.Duration
	visibleAfter          time.Duration
	createdRejected       bool
	status, statusCode    string
	later                 []change
	view                  view
}

func (b *Bank) plan(on target, key string, nth uint32) *plan {
	return &plan{idempotency: &b.settings.Load().idempotency, retryAfter: "1"}
}

func (b *Bank) exchange(w http.ResponseWriter, r *http.Request, p *plan, process func() *reply) {
	rp := process()
	p.answered = rp.status
	b.answer(w, rp)
}

func faultNames(uint64) []string { return []string{} }

type rules struct{ _ atomic.Int64 }
type profile struct{}

func newProfile(Options) profile { return profile{} }
