package banksim

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Idempotency says how the bank treats its Idempotency-Key. The reference API's way is ReferenceIdempotency.
type Idempotency struct {
	// Ignored: the key means nothing, every request executes.
	Ignored bool `json:"ignored"`
	// IgnoredRoutes names routes ("transfers", "payouts") on which the key means nothing.
	IgnoredRoutes []string `json:"ignored_routes"`
	// SharedRoutes: one key space for all routes, so a key used on one answers on the other.
	SharedRoutes bool `json:"shared_routes"`
	// PerCredential: each bearer credential has its own key space.
	PerCredential bool `json:"per_credential"`
	// KeyLimit cuts longer keys to so many bytes before comparing; 0 compares them whole.
	KeyLimit int `json:"key_limit"`
	// WindowMS is how long a key is remembered by the bank's clock; 0 never forgets.
	WindowMS int64 `json:"window_ms"`
	// Replay is the shape of the answer to a finished duplicate: current, cached, created_current, empty_location,
	// conflict_body, conflict_link, bad_request_duplicate, error_link.
	Replay string `json:"replay"`
	// InFlight is the answer to a duplicate of a running request: 409, 422, 423, 429, wait, both_execute.
	InFlight string `json:"in_flight"`
	// OtherBody is the answer to the same key with another body: 422, 409, 400, first_answer, execute.
	OtherBody string `json:"other_body"`
	// StoreRejections: a listed rejection is repeated for the key.
	StoreRejections bool `json:"store_rejections"`
	// StoreErrors: a 500 is repeated for the key, whether or not something was executed.
	StoreErrors bool `json:"store_errors"`
}

// ReferenceIdempotency is the declared behaviour of the reference API.
func ReferenceIdempotency() Idempotency {
	return Idempotency{
		IgnoredRoutes: []string{}, PerCredential: true, WindowMS: (24 * time.Hour).Milliseconds(),
		Replay: replayCurrent, InFlight: "409", OtherBody: "422", StoreRejections: true,
	}
}

const (
	replayCurrent        = "current"
	replayCached         = "cached"
	replayCreatedCurrent = "created_current"
	replayEmptyLocation  = "empty_location"
	replayConflictBody   = "conflict_body"
	replayConflictLink   = "conflict_link"
	replayBadRequest     = "bad_request_duplicate"
	replayErrorLink      = "error_link"

	inFlightWait        = "wait"
	inFlightBothExecute = "both_execute"

	otherBodyFirst   = "first_answer"
	otherBodyExecute = "execute"
)

func (i Idempotency) validate() error {
	var problems []error
	if !slices.Contains([]string{replayCurrent, replayCached, replayCreatedCurrent, replayEmptyLocation,
		replayConflictBody, replayConflictLink, replayBadRequest, replayErrorLink}, i.Replay) {
		problems = append(problems, errors.New("replay is not a known shape"))
	}
	if !slices.Contains([]string{"409", "422", "423", "429", inFlightWait, inFlightBothExecute}, i.InFlight) {
		problems = append(problems, errors.New("in_flight is not a known shape"))
	}
	if !slices.Contains([]string{"409", "422", "400", otherBodyFirst, otherBodyExecute}, i.OtherBody) {
		problems = append(problems, errors.New("other_body is not a known shape"))
	}
	if i.KeyLimit < 0 || i.WindowMS < 0 {
		problems = append(problems, errors.New("key_limit and window_ms cannot be negative"))
	}
	return errors.Join(problems...)
}

// record is what the bank remembers under one key in one scope.
type record struct {
	scope    uint64
	body     [16]byte
	at       int64
	done     chan struct{} // open while the request runs; nil once finished
	leaked   bool          // the lock of a request that is long gone
	transfer *transfer     // what it created, or nil
	first    string        // the state of the first answer, for cached replays
	status   int           // stored refusal or error; 0 when the transfer is the answer
	code     string
}

// keyPlace tells under which key and scope a request is remembered; remembered is false where keys mean nothing.
func (i *Idempotency) keyPlace(q *request) (key string, scope uint64, remembered bool) {
	if i.Ignored || q.key == "" || slices.Contains(i.IgnoredRoutes, q.route) {
		return "", 0, false
	}
	key = q.key
	if i.KeyLimit > 0 && len(key) > i.KeyLimit {
		key = strings.Clone(key[:i.KeyLimit])
	}
	scope = offset64
	if !i.SharedRoutes {
		scope = hashText(scope, q.route)
	}
	if i.PerCredential {
		scope = hashWord(scope, q.credential)
	}
	return key, scope, true
}

// beginning is how the bank decided to treat a request under its key.
type beginning struct {
	fresh  bool          // execute it
	record *record       // to be finished by the execution; nil where keys mean nothing
	answer *reply        // when not fresh: the answer
	wait   chan struct{} // when set: try again after it closes
}

// begin judges the key of a request and takes its lock if it is fresh. It holds the account's lock, so that exactly
// one of concurrent duplicates is fresh.
func (b *Bank) begin(q *request, p *plan) beginning {
	key, scope, remembered := p.idempotency.keyPlace(q)
	if !remembered || p.ignoreKey {
		return beginning{fresh: true}
	}
	var result beginning
	b.store.with(key, func(a *account) {
		now := b.clock.now()
		i := slices.IndexFunc(a.records, func(r *record) bool { return r.scope == scope })
		if i >= 0 && p.idempotency.WindowMS > 0 &&
			now.UnixNano()-a.records[i].at >= p.idempotency.WindowMS*int64(time.Millisecond) {
			a.records = slices.Delete(a.records, i, i+1)
			i = -1
		}
		if i < 0 {
			fresh := &record{scope: scope, body: q.hash, at: now.UnixNano(), done: make(chan struct{})}
			a.records = append(a.records, fresh)
			result = beginning{fresh: true, record: fresh}
			return
		}
		result = b.judge(q, p, a.records[i], now)
	})
	return result
}

// judge answers a request whose key is known.
func (b *Bank) judge(q *request, p *plan, known *record, now time.Time) beginning {
	idem := p.idempotency
	if known.body != q.hash && idem.OtherBody != otherBodyFirst {
		if idem.OtherBody == otherBodyExecute {
			return beginning{fresh: true}
		}
		reused := b.refusal(statusOf(idem.OtherBody), "idempotency_key_reused", "")
		if known.transfer != nil {
			reused.transferID = known.transfer.id()
		}
		return beginning{answer: reused}
	}
	if known.done != nil {
		switch {
		case idem.InFlight == inFlightBothExecute && !known.leaked:
			return beginning{fresh: true}
		case idem.InFlight == inFlightWait && !known.leaked:
			return beginning{wait: known.done}
		case idem.InFlight == inFlightWait || idem.InFlight == inFlightBothExecute:
			return beginning{answer: b.refusal(409, "request_in_progress", p.retryAfter)}
		}
		return beginning{answer: b.refusal(statusOf(idem.InFlight), "request_in_progress", p.retryAfter)}
	}
	if known.transfer == nil || known.status != 0 {
		answer := b.refusal(known.status, known.code, "")
		answer.replayed = true
		return beginning{answer: answer}
	}
	return beginning{answer: b.replay(p, known, now)}
}

// replay shapes the answer to a duplicate of a finished request.
func (b *Bank) replay(p *plan, known *record, now time.Time) *reply {
	id := known.transfer.id()
	link := transfersPath + "/" + id
	shape := &reply{status: 200, replayed: true}
	switch p.idempotency.Replay {
	case replayCached:
		v := p.view
		v.status = known.first
		shape.status, shape.body = 201, known.transfer.render(b.buffer(), now, v)
		return shape
	case replayCreatedCurrent:
		shape.status, shape.replayed = 201, false
	case replayEmptyLocation:
		return &reply{status: 201, location: link}
	case replayConflictBody:
		shape.status, shape.replayed = 409, false
	case replayConflictLink:
		answer := b.refusal(409, "idempotent_creation_conflict", "")
		answer.transferID, answer.location = id, link
		return answer
	case replayBadRequest:
		answer := b.refusal(400, "duplicate", "")
		answer.transferID = id
		return answer
	case replayErrorLink:
		answer := b.refusal(400, "USER_BUSINESS_ERROR", "")
		answer.location, answer.link = link, link
		return answer
	}
	shape.body = known.transfer.render(b.buffer(), now, p.view)
	return shape
}

// finish keeps what the request came to and opens its lock.
func (b *Bank) finish(q *request, p *plan, r *record, made *transfer, refused *reply) {
	if r == nil {
		return
	}
	key, _, _ := p.idempotency.keyPlace(q)
	b.store.with(key, func(a *account) {
		keep := made != nil || (refused != nil && refused.stored)
		if p.leakLock {
			r.leaked = true
			close(r.done)
			return
		}
		if made != nil {
			r.transfer = made
			r.first, _ = made.stateAt(b.clock.now())
		}
		if refused != nil && refused.stored {
			r.status, r.code = refused.status, refused.code
		}
		close(r.done)
		r.done = nil
		if !keep || p.loseRecord {
			a.records = slices.DeleteFunc(a.records, func(other *record) bool { return other == r })
		}
	})
}

func statusOf(text string) int {
	switch text {
	case "400":
		return 400
	case "409":
		return 409
	case "423":
		return 423
	case "429":
		return 429
	}
	return 422
}
