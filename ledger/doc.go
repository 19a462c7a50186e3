// Package ledger is the memory of paidonce: operations, claims, fences, attempts, observations, entries and the outbox, in Postgres.
//
// # What may be relied on
//
// A claim is granted to one caller at a time, under the unique index on the operation key. Every write after a claim presents the
// operation, its claim token and its fence; a stale holder's write changes no state and its evidence is kept. What is recorded is
// recorded with its journal entries and its event in one transaction. Each row of a batch is judged on its own: a row that the database
// refuses never holds or fails its neighbours. A lost reply is resolved by running the same statement again with the same token.
//
// # What may not be relied on
//
// A fence protects this database, not the partner: whether something may be sent again is decided by worker from the facts kept here.
// The promise is as durable as Postgres is: run it with synchronous replication, or accept that a failover can lose the last claims
// (the timeline guard then stops all claims until `paidonce recover` has run).
// Replies belong to what was asked, because TCP promises so. Where a middlebox repeats bytes inside a connection without TLS they do not. Every trip
// by which something is claimed, recorded, paused or resumed, or is found to be at home, checks its own number first. Not so the lists that people read, and
// the check of the schema; and a transaction of several trips checks at its beginning only. Nor is Postgres kept from running the repeat: a second ClaimDue
// takes further operations that nobody is handed, and they wait for their lease to lapse and count a claim without an observation; a second
// LookAtParked puts look-ups off by a day that nobody has made. Connect with TLS, or directly.
//
// # Invariants
//
//	I1  At most one Authorized outcome per key.                             UNIQUE operations_key, trigger operations_i4
//	I2  No send without a committed attempt.                                Claim and CommitAttempts; CHECK operations_authorized
//	I3  No send for an operation in doubt except as the fold allows.        worker; in_doubt is set with the attempt, cleared by Record
//	I4  An outcome never changes; states move by one table.                 TransitionAllowed, trigger operations_i4
//	I5  Every later write presents operation, claim token and fence.        Record, CommitAttempts, Renew; Append is the exemption
//	I6  Entries of one event sum to zero, once per (operation, event, account). trigger entries_i6, primary key
//	I7  One partner key for every attempt (until an epoch).                 CommitAttempts compares; trigger operations_i4 pins the partner
//	I8  The bytes sent again are the bytes sent first.                      attempts.body_sha256, compared by CommitAttempts
//	I9  Time alone never proves that money did not move.                    nothing here ends an operation by time
//	I10 Keys outlive everything that could deliver them again.              trigger operations_kept, grants
//	I11 What is published comes from the outbox row written with the fact.  Record
//	I12 An accepted job is finished, parked, dead-lettered, or owned.       due has exactly one row per unfinished operation
//
// # Choices
//
// No session state: no advisory locks, no SET outside of a transaction, and prepared statements only on a connection that was found to be
// direct, so a transaction-mode pooler may stand between. Claim and Record travel as one pipelined implicit transaction, so a frozen client holds no locks. A claim token is
// minted per batch; with the key it names one claim, since a key stands in a batch once.
package ledger
