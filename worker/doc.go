// Package worker drives withdrawals: it takes deliveries and due operations, calls the partner at most as often as the
// protocol allows, and records what came of it.
//
// process.go is the life of a withdrawal from top to bottom. fold.go decides what may be done with an operation in doubt and nothing else decides
// it: Fold puts attempts and observations together, Next says what follows. Both are pure.
//
// # In doubt
//
// An operation is in doubt when an attempt may have moved money: its observation is Unknown, InFlight or KeyReused, or there is none. A later "not
// executed" says nothing of an earlier attempt. The doubt is cleared only by
//
//	(a) Authorized, from whichever attempt, look-up or webhook. With a Mismatch beside it the operation is parked.
//	(b) a Rejected that the partner stores under the partner key;
//	(c) a look-up that found the transfer;
//	(d) enough spaced "not found" after the latest possible arrival and the partner's visibility bound, from a partner declared strongly consistent.
//	    It allows sending again only where keys are honoured and their window is open; elsewhere it parks.
//
// In doubt, the partner is asked first. It is sent to again, with the same partner key, only after "not found" (or where there is no look-up), and only if
// it honours keys and serialises concurrent duplicates, less than half of its key window is over since the first send, credential, endpoint and
// body are those of the first send, and its minimum delay has passed. Otherwise look-ups follow a schedule, and then a person.
//
// # Timing
//
// A lease outlasts partner timeout and record margin; the ack wait is shorter than the lease, and a heartbeat than half of the ack wait; the shutdown
// grace is longer than partner timeout and record margin. Timings.Check tells all violations at once.
//
// # Promises
//
// What may be relied on:
//
//   - Nothing is sent without a committed attempt (I2), and for an operation in doubt only what Next allows (I3).
//   - Sent again are the bytes sent first, under the same partner key (I7, I8).
//   - Every delivery is settled exactly once, and with Done only after the ledger owns its operation.
//   - No call starts when less than the partner's timeout and the record margin is left of the lease, counted from before
//     the claim statement on a clock that runs through suspend.
//   - After a stop nothing is started; what was claimed and not sent is handed back; calls in flight end and are recorded.
//     After Cut, or when the grace is over, what was in flight is in doubt and the next worker asks the partner.
//   - Time alone never decides that money did not move (I9).
//
// What may not: that a partner was not called by a worker frozen between its last look at the clock and the first byte.
// The partner key and the look-up protect from that, as far as the partner's profile is true.
package worker
