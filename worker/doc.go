// Package worker drives withdrawals: it takes deliveries and due operations, calls the partner at most as often as the
// protocol allows, and records what came of it.
//
// process.go is the life of a withdrawal from top to bottom, in the order of PROTOCOL section 3. fold.go decides what may
// be done with an operation in doubt (section 5) and nothing else decides it: Fold puts attempts and observations
// together, Next says what follows. Both are pure.
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
