// Package banksim is a simulated bank that speaks the reference API of paidonce and, unless told to be calm, does to
// its clients what real banks and networks do. It is a test instrument: it moves no money, it lies on purpose, and it
// must never run where real money or real customers are.
//
// # What may be relied on
//
//  1. The oracle is append-only: every request and every execution (a transfer by which money moved) is kept under the
//     partner key that it carried, and nothing removes it. With a state file it survives a SIGKILL of the simulator.
//  2. The same seed gives the same faults: what the n-th create (or look-up) of a partner key meets depends on seed, key
//     and n alone, not on other keys, concurrency or time. GET /schedule shows it in advance.
//  3. The random hostility is true to the profile of the reference API: a key is honoured for 24 hours per credential,
//     concurrent duplicates are serialised, what was executed is found by key within 5 s, and a request arrives within
//     60 s. So under it no key is ever executed twice. Faults that break this promise must be set by hand.
//  4. Amounts, beneficiaries and references are echoed byte for byte, unless a fault says otherwise.
//  5. All times are the bank's own clock, which tests move forward: windows end, states change, waits are over.
//
// # What may not be relied on
//
// Webhooks are not sent yet; Options.OnTransfer is their seam. A dropped SYN cannot be simulated by a program: black_hole
// accepts and then stays silent. Locks of running requests do not survive a restart of the simulator. The list of requests
// without a partner key ends at a thousand; they are counted after that.
//
// # The reference API
//
//	POST /v1/transfers                         create (POST /v1/payouts is a second route with its own key space)
//	GET  /v1/transfers?idempotency_key=K       look-up by partner key
//	GET  /v1/transfers/{id}
//	GET  /v1/transfers?created_from=&created_to=&cursor=&limit=   the statement
//
// Every answer of the bank's own to a create has its Idempotency-Key as it came; a proxy's page has none.
//
// # The control API
//
// On its own address, JSON in and out. What is not posted keeps its value.
//
//	curl :9098/faults                                                 # every fault by name, with a sentence
//	curl -d '{"name":"reset_after_commit","next":3}' :9098/faults     # the next three creates
//	curl -d '{"name":"late_commit","key":"0193...","delay_ms":30000}' :9098/faults
//	curl -d '{"name":"html_page","on":"look_up","probability":0.5,"status":504}' :9098/faults
//	curl -d '{"name":"refuse","delay_ms":2000}' :9098/faults          # closes the socket for two seconds
//	curl :9098/faults/active ; curl -X DELETE :9098/faults/3 ; curl -X DELETE :9098/faults
//	curl -d '{"hostility":0.5,"time_scale":0.1,"max_delay_ms":1000}' :9098/profile
//	curl ':9098/schedule?key=0193...&n=5'                             # what the seed holds for a key
//	curl -d '{"replay":"conflict_body","in_flight":"both_execute"}' :9098/idempotency
//	curl -d '{"window_ms":1800000,"per_credential":false,"store_errors":true}' :9098/idempotency
//	curl -d '{"ignored":true}' :9098/idempotency
//	curl -X DELETE :9098/keys/0193...                                 # lose a key record, open a leaked lock
//	curl -d '{"latency_ms":50,"content_guard_ms":900000,"tokens":{"secret":"2026-11"}}' :9098/settings
//	curl -d '{"advance_ms":86400000}' :9098/clock
//	curl -d '{"status":"returned"}' :9098/transfers/tr_...
//	curl ':9098/oracle?key=0193...' ; curl ':9098/oracle?end_to_end_id=ABC...'
//	curl :9098/oracle                                                 # all histories, one JSON object a line
//	curl :9098/oracle/summary ; curl :9098/oracle/violations
//	curl :9098/statement                                              # all transfers, one JSON object a line
//
// Faults set by hand come before the random hostility and may be combined: a request meets all that match it.
// Idempotency.StoreErrors makes error_before_commit and error_after_commit a stored answer.
package banksim
