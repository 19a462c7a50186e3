package banksim

import (
	"strconv"
	"time"
)

const (
	faultRefuse         = "refuse"
	faultBlackHole      = "black_hole"
	faultSlowAccept     = "slow_accept"
	faultResetOnAccept  = "reset_on_accept"
	faultTLSRefusesPeer = "tls_client_refused"
	faultReject         = "reject"
	faultLookUpLag      = "lookup_lag"
)

// listedRejections are the refusals that the reference API stores under the key.
func listedRejections() []string {
	return []string{"account_closed", "invalid_beneficiary", "amount_not_allowed", "compliance_rejected"}
}

func onWire(*plan, measure) {} // faults of the connection act in the listener

func connectionFaults() []spec {
	return []spec{
		{name: faultRefuse, on: onConnection, apply: onWire,
			sentence: "The listening socket is closed, so dials are refused, until the fault is cleared or delay_ms has passed; idle connections end."},
		{name: faultBlackHole, on: onConnection, apply: onWire,
			sentence: "The connection is accepted and then nothing is read or written until the client leaves."},
		{name: faultSlowAccept, on: onConnection, delay: time.Second, apply: onWire,
			sentence: "The connection is accepted, and its first byte read only after delay_ms."},
		{name: faultResetOnAccept, on: onConnection, apply: onWire,
			sentence: "The connection is reset as soon as it is accepted."},
		{name: faultTLSRefusesPeer, on: onConnection, value: "1.3", apply: onWire,
			sentence: "With TLS: the client's certificate, or its absence, is refused under TLS version value (1.2 or 1.3)."},
	}
}

func transportFaults() []spec {
	return []spec{
		{name: "reset_after_headers", on: onCreate, weight: 3, sentence: "The connection is reset once the headers are read; nothing is executed.",
			apply: func(p *plan, _ measure) { p.drop, p.dropReset = dropAfterHeaders, true }},
		{name: "reset_after_body", on: onAny, weight: 4, readWeight: 4, sentence: "The connection is reset once the request is read; nothing is executed.",
			apply: func(p *plan, _ measure) { p.drop, p.dropReset = dropAfterBody, true }},
		{name: "close_after_body", on: onAny, weight: 4, readWeight: 3, sentence: "The connection is closed without an answer once the request is read; nothing is executed.",
			apply: func(p *plan, _ measure) { p.drop = dropAfterBody }},
		{name: "reset_after_commit", on: onAny, weight: 10, sentence: "The request is processed, then the connection is reset without an answer.",
			apply: func(p *plan, _ measure) { p.spoil = spoilReset }},
		{name: "close_after_commit", on: onAny, weight: 6, sentence: "The request is processed, then the connection is closed without an answer.",
			apply: func(p *plan, _ measure) { p.spoil = spoilClose }},
		{name: "kill_reused_connection", on: onAny, weight: 4, reusedOnly: true,
			sentence: "Only on a connection that has served before: the request is processed, then the connection is closed without an answer.",
			apply:    func(p *plan, _ measure) { p.spoil = spoilClose }},
		{name: "late_answer", on: onAny, delay: 30 * time.Second, weight: 5, readWeight: 5, sentence: "The request is processed at once, the answer sent delay_ms later.",
			apply: func(p *plan, m measure) { p.answerDelay = m.delay }},
		{name: "hang", on: onAny, delay: time.Hour, weight: 4, sentence: "The request is processed and never answered; the connection is reset after delay_ms at the latest.",
			apply: func(p *plan, m measure) { p.spoil, p.page = spoilHang, m }},
		{name: "late_commit", on: onCreate, delay: 30 * time.Second, weight: 6,
			sentence: "The request holds its key's lock and is executed and answered delay_ms later, whether or not the client still waits.",
			apply:    func(p *plan, m measure) { p.commitDelay = m.delay }},
		{name: "late_arrival", on: onCreate, delay: 30 * time.Second, weight: 7,
			sentence: "The connection is reset once the request is read, and the request reaches the bank delay_ms later.",
			apply:    func(p *plan, m measure) { p.drop, p.dropReset, p.arriveAfter = dropAfterBody, true, m.delay }},
		{name: "delivered_twice", on: onCreate, weight: 4, sentence: "The request reaches the bank twice; the client gets the first answer.",
			apply: func(p *plan, _ measure) { p.twice = true }},
		{name: "delivered_twice_last", on: onCreate, weight: 3, sentence: "The request reaches the bank twice; the client gets the second answer.",
			apply: func(p *plan, _ measure) { p.twice, p.last = true, true }},
	}
}

// spoilt makes the entry of a fault that only changes how the answer goes out.
func spoilt(name, sentence string, s spoil) spec {
	return spec{name: name, on: onAny, sentence: sentence, executes: true, apply: func(p *plan, m measure) {
		p.skip, p.spoil, p.page = !m.executes, s, m
	}}
}

func (s spec) weigh(create, read float64) spec {
	s.weight, s.readWeight = create, read
	return s
}

func (s spec) with(status int, value string) spec {
	s.status, s.value = status, value
	return s
}

func (s spec) unexecuted() spec {
	s.executes = false
	return s
}

func (s spec) lasting(d time.Duration) spec {
	s.delay = d
	return s
}

func answerFaults() []spec {
	return []spec{
		spoilt("cut_headers", "The answer ends in the middle of its headers.", spoilCutHeaders).weigh(4, 2),
		spoilt("cut_body_length", "The body ends before its Content-Length.", spoilCutLength).weigh(4, 3),
		spoilt("cut_body_chunked", "The chunked body ends without its last chunk.", spoilCutChunked).weigh(3, 2),
		spoilt("cut_body_close", "A body without a length ends early with the connection.", spoilCutClose).weigh(3, 2),
		spoilt("processing_only", "Only a 102 is sent; the connection is reset after delay_ms or when the client leaves.", spoilProcessing).weigh(2, 0).lasting(time.Hour),
		spoilt("redirect", "A redirect with status, to value (a URL; default the same path).", spoilRedirect).weigh(2, 0).with(307, "").unexecuted(),
		spoilt("html_page", "A gateway's HTML page with status; executes says whether the bank got the request.", spoilHTML).weigh(5, 3).with(502, "").unexecuted(),
		spoilt("html_page_after_commit", "The request is processed, then a gateway answers an HTML page with status.", spoilHTML).weigh(4, 0).with(504, ""),
		spoilt("wrong_content_type", "The right body as content type value.", spoilContentType).weigh(2, 1).with(0, "text/plain; charset=utf-8"),
		spoilt("two_documents", "The body holds its JSON document twice.", spoilTwice).weigh(2, 1),
		spoilt("truncated_json", "A complete HTTP answer whose JSON is cut in the middle.", spoilTruncated).weigh(2, 1),
		spoilt("huge_body", "The body is padded with a member of value bytes (default 4 MiB).", spoilHuge).weigh(1, 0.5).with(0, strconv.Itoa(4<<20)),
		spoilt("empty_body", "The status of the answer (or status), without any body.", spoilEmpty).weigh(2, 1),
		spoilt("empty_created", "201 without a body, with the Location of the transfer.", spoilEmptyCreated).weigh(3, 0),
		spoilt("crossed_answer", "The answer belongs to another request: the newest transfer of another key, or one that does not exist.", spoilCrossed),
		spoilt("status", "The status given, with value as the code of an error in the bank's schema, or without a body when there is no value; not executed unless executes says so.", spoilStatus).with(500, "").unexecuted(),
	}
}

func businessFaults() []spec {
	return []spec{
		{name: "error_before_commit", on: onAny, status: 500, value: "internal_error", weight: 5, readWeight: 3, sentence: "An error with status and code value before anything is executed.",
			apply: func(p *plan, m measure) {
				p.early = &refuse{status: m.status, code: m.value, stored: p.creates && p.idempotency.StoreErrors}
				p.retryAfter = ""
			}},
		{name: "error_after_commit", on: onCreate, status: 500, value: "internal_error", weight: 6, sentence: "The request is executed, then answered with an error with status and code value.",
			apply: func(p *plan, m measure) {
				p.after = &refuse{status: m.status, code: m.value, stored: p.idempotency.StoreErrors}
			}},
		{name: faultReject, on: onCreate, status: 422, value: "account_closed", weight: 10, sentence: "A fresh request is refused with status and code value, stored under the key.",
			apply: func(p *plan, m measure) {
				p.decline = &refuse{status: m.status, code: m.value, stored: p.idempotency.StoreRejections}
			}},
		{name: "insufficient_funds", on: onCreate, status: 422, value: "insufficient_funds", weight: 0.3, sentence: "A fresh request is refused for lack of the sender's float; not stored.",
			apply: func(p *plan, m measure) { p.decline = &refuse{status: m.status, code: m.value} }},
		{name: "rate_limited", on: onAny, status: 429, value: "rate_limited", weight: 8, readWeight: 5, sentence: "429 with Retry-After before anything is executed.", apply: early},
		{name: "unavailable", on: onAny, status: 503, value: "unavailable", weight: 8, readWeight: 5, sentence: "503 with Retry-After before anything is executed.", apply: early},
		{name: "unauthorized", on: onAny, status: 401, value: "unauthorized", sentence: "401 before anything is executed.", apply: early},
		{name: "in_progress", on: onCreate, delay: 2 * time.Second, weight: 5, sentence: "The bank answers 409 request_in_progress at once and executes delay_ms later.",
			apply: func(p *plan, m measure) { p.answerFirst, p.commitDelay, p.retryAfter = true, m.delay, m.retryAfter }},
		{name: "rejected_created", on: onCreate, value: "rejected", weight: 4, sentence: "201 with a transfer in the failed state value; no money moves.",
			apply: func(p *plan, m measure) { p.createdRejected, p.status, p.code = true, m.value, "account_closed" }},
		{name: "unknown_state", on: onCreate, delay: 2 * time.Second, value: "under_review", weight: 4, sentence: "201 with the unlisted state value, which turns into accepted after delay_ms.",
			apply: func(p *plan, m measure) {
				p.status, p.later = m.value, []change{{At: int64(m.delay), Status: "accepted"}}
			}},
		{name: "pending", on: onCreate, delay: 5 * time.Second, weight: 8, sentence: "201 pending, settled after delay_ms.",
			apply: func(p *plan, m measure) {
				p.status, p.later = "pending", []change{{At: int64(m.delay), Status: "settled"}}
			}},
		{name: "needs_approval", on: onCreate, value: "requires_approval", sentence: "201 in the state value, in which it stays until POST /transfers/{id} changes it.",
			apply: func(p *plan, m measure) { p.status = m.value }},
		{name: "fails_later", on: onCreate, delay: 5 * time.Second, value: "failed", sentence: "Accepted, and in the state value after delay_ms.",
			apply: func(p *plan, m measure) { p.later = []change{{At: int64(m.delay), Status: m.value}} }},
		{name: "returned_later", on: onCreate, delay: 72 * time.Hour, value: "returned", sentence: "Accepted, settled after a third of delay_ms, and in the state value after delay_ms.",
			apply: func(p *plan, m measure) {
				p.later = []change{{At: int64(m.delay / 3), Status: "settled"}, {At: int64(m.delay), Status: m.value}}
			}},
		{name: "content_guard", on: onCreate, status: 409, value: "possible_duplicate", sentence: "Refused with status and code value, as a guard against equal content does; not stored. (POST /settings content_guard_ms sets a real guard.)",
			apply: func(p *plan, m measure) { p.decline = &refuse{status: m.status, code: m.value} }},
		{name: "amount_as", on: onAny, value: "float", sentence: "The amount is echoed as value: float (49.00) or minor (4900).",
			apply: func(p *plan, m measure) { p.view.amountAs = m.value }},
		{name: "truncated_reference", on: onAny, value: "18", sentence: "The reference is echoed cut to value characters.",
			apply: func(p *plan, m measure) { p.view.referenceMax, _ = strconv.Atoi(m.value) }},
		{name: "echo_differs", on: onAny, value: "amount", sentence: "The member value (amount, currency, beneficiary, reference, end_to_end_id) is echoed with another content.",
			apply: func(p *plan, m measure) { p.view.echo = m.value }},
	}
}

func early(p *plan, m measure) {
	p.early = &refuse{status: m.status, code: m.value}
	p.retryAfter = m.retryAfter
}

func keyFaults() []spec {
	return []spec{
		{name: "ignore_key", on: onCreate, sentence: "This request executes whatever the bank knows of its key.",
			apply: func(p *plan, _ measure) { p.ignoreKey = true }},
		{name: "lose_key_record", on: onCreate, sentence: "The request executes, and the bank forgets its key afterwards.",
			apply: func(p *plan, _ measure) { p.loseRecord = true }},
		{name: "leak_lock", on: onCreate, sentence: "The request executes, but its key stays locked: duplicates are told that it is in progress until the window ends.",
			apply: func(p *plan, _ measure) { p.leakLock = true }},
		{name: "store_error", on: onCreate, status: 500, value: "internal_error", sentence: "A fresh request is not executed but answered with status and code value, and so is every duplicate.",
			apply: func(p *plan, m measure) { p.decline = &refuse{status: m.status, code: m.value, stored: true} }},
		{name: "replay_shape", on: onCreate, value: replayCached, sentence: "A duplicate of a finished request is answered in the shape value, one of replay in GET /idempotency.",
			apply: func(p *plan, m measure) { p.tune(func(i *Idempotency) { i.Replay = m.value }) }},
		{name: "in_flight_shape", on: onCreate, value: inFlightBothExecute, sentence: "A duplicate of a running request is treated as value, one of in_flight in GET /idempotency.",
			apply: func(p *plan, m measure) { p.tune(func(i *Idempotency) { i.InFlight = m.value }) }},
		{name: "other_body_shape", on: onCreate, value: otherBodyExecute, sentence: "The same key with another body is treated as value, one of other_body in GET /idempotency.",
			apply: func(p *plan, m measure) { p.tune(func(i *Idempotency) { i.OtherBody = m.value }) }},
	}
}

func lookUpFaults() []spec {
	return []spec{
		{name: faultLookUpLag, on: onCreate, delay: 2 * time.Second, weight: 4, sentence: "What this create makes is hidden from look-ups and the statement for delay_ms.",
			apply: func(p *plan, m measure) { p.visibleAfter = m.delay }},
		{name: "lookup_flaps", on: onLookUp, sentence: "Every other look-up of a key finds nothing, the first included.",
			apply: func(p *plan, _ measure) { p.flaps = true }},
		{name: "lookup_not_found", on: onLookUp | onGet, sentence: "Look-ups find nothing.",
			apply: func(p *plan, _ measure) { p.notFound = true }},
		{name: "lookup_other_amount", on: onLookUp | onGet, sentence: "Look-ups find the transfer with another amount.",
			apply: func(p *plan, _ measure) { p.view.otherAmount = true }},
	}
}
