// Package prove checks from outside that nothing was authorized twice and nothing is lost: it reads the ledger, the streams and the
// partners' statements, each on its own, and holds them against each other, key by key.
//
// It shares no code with what writes the ledger: its SQL, its reading of amounts and of messages are its own, and of this module it imports
// bankclient alone, to list a statement. It writes nothing anywhere but in a directory of its own. It needs no right to write on the
// ledger (deploy/postgres' reader is enough), and makes no consumer in the broker.
//
// # What holds when it says so
//
//	P1  Every key is in exactly one place (I12): finished, parked, dead-lettered, or still owned by the queue or, with exactly one due row,
//	    by the sweep. An operation that was recorded before its job was published (by a gateway) is the sweep's like any other: its job may
//	    never have been in the stream. A message that differs from the operation of its key is a dead letter, or still in the queue.
//	P2  No key has two transfers at its partner (I1). Transfers are matched by the end-to-end ids of the attempts, then by transfer id.
//	P3  Authorized operations have exactly one transfer, the recorded one; rejected and cancelled ones have none.
//	P4  A transfer has the amount and currency of its operation.
//	P5  No transfer belongs to nobody, nothing hangs on an operation that is gone, and no two operations share a transfer.
//	P6  Entries are there for exactly the events that the settlement says, of the operation's amount, and sum to zero (I6).
//	P7  Every outcome is published, or still in the outbox (I11). So are parked operations and contradicted outcomes.
//	P8  No outcome is contradicted, and no evidence is left over that belongs to no operation.
//
// # The cut: why it may run while workers do
//
// The cut is the moment of the ledger's snapshot, by the database's clock. What is not decided at the cut is counted as open, and is no
// fault. No fault is derived from comparing the clocks of two machines (only Options.Since and the bound of a slow partner compare them, with
// an hour to spare); the order of reading makes it safe:
//
//  1. How far each route's consumer has acknowledged, and the end of the jobs. What was acknowledged by then was recorded before the
//     snapshot or is a dead letter; a job beyond is owned by the queue.
//  2. The ledger, in one read-only snapshot.
//  3. Jobs, dead letters, events. An outbox row that is gone from the snapshot was published before, so its event is in the stream.
//  4. The statements, later than each partner's visibility bound after the cut: what was authorized by the cut is in them. For a partner
//     whose bound is longer than Options.Patience, what was authorized less than the bound ago and is not in the statement counts as open.
//  5. Attempts once more, if a transfer belongs to nobody: an attempt is committed before its request leaves (I2), so a transfer of a
//     younger operation finds it now; such transfers are left for the next run.
//
// So the ledger must be read from the primary, not from a standby that may be behind.
//
// # Memory
//
// Everything read becomes small records in files under Options.Dir, in parts by a hash of what is compared (about half a kilobyte of disk
// per operation). Each part holds some ten thousand keys and is judged alone, so memory does not grow with the ledger. The parts hold keys, amounts,
// transfer ids; never accounts, names or references. They are removed at the end.
//
// # What it cannot see
//
// A job that was removed from the stream before anybody read it, and that the consumer has passed since, leaves no trace. Jobs and events
// that were purged at the start of their streams are not judged. A job between the acknowledged part and the end counts as owned by the
// queue, until the acknowledged part has reached it. A transfer that the partner leaves out of its statement does not exist
// here: the proof is as good as the statement. A partner whose statement cannot be read leaves its authorized operations unproved, and then nothing is
// proved.
package prove
