// Package dead is what operators do with dead letters: look at them, plan, replay, discard, correct.
//
// # What may be relied on
//
//  1. Reading consumes nothing. List, Groups and Show work from the stream alone, too, while Postgres is away.
//  2. The index (table dead_letters) holds no payload, no name and no account, and can be read again from the stream at any time. What was
//     done to a letter is not in it: that is only ever added to (dead_letter_acts, corrections).
//  3. A letter gets one decision, ever: replay, discard or correct. The database says so with a unique index.
//  4. A replay publishes the bytes of the letter under its own subject, with a message id that counts the replays of its key, after its decision
//     is committed; what came of it is committed after it. A replay that is killed in between goes on where it was: what is published twice
//     has one id, and one key. It goes through the same claim as every delivery, so that it can never pay twice.
//  5. A plan is a frozen selection. It is refused when a letter is gone, or stands in another way to the ledger than the plan says.
//  6. A correction is a new operation under a new key, made once, agreed to by a second person. It closes the old key: see below.
//
// # The old key of a correction
//
// Upstream may send the job again under its old key, in good form now, while its correction is paid under the new one. So the old key, if it
// can be read, becomes an operation that is cancelled from its beginning, with code "corrected" and an event that says so. The same job is
// then found finished, and answered so; another job under that key is a conflict, and becomes a dead letter again. No replay of any letter of
// that key is published. What cannot be closed: a job without a readable key. If upstream makes a key and sends it again, nothing here
// connects the two; whoever corrects such a letter must tell the source first.
//
// A key that is an operation already is not closed. A letter that conflicts with that operation may be corrected: it asks for something else. A
// letter that does not decode may not: nobody can say that the operation is not the same withdrawal.
//
// One withdrawal is corrected once: the database keeps a key, and the bytes of a letter without one, from being corrected twice. What may have been
// sent before the last recovery of the ledger is not corrected at all: under another key nobody would ask the partner first.
//
// # The key of a discard
//
// The job of a letter stays in the stream of jobs. A route that is configured later takes it, and a recovery has it read again, when the limit that
// refused it may be another. So a discard closes the key in the same way, with code "discarded". It does not where
//
//   - another letter under the key asks for something else and is undecided, or a replay of the key is under way: it would be cancelled. Once that is
//     an operation, the discarded job conflicts with it.
//   - the job may have been sent before the last recovery: nobody may say that it was cancelled.
//   - the letter is no job. Read again it becomes a dead letter again, as long as no later version of this program can read it.
//
// # What may not be relied on
//
// A discard is a decision about the letter and its copies. Upstream may send the withdrawal again under another key, and then it is worked; so it is
// under its own key, where that is not closed.
//
// Nobody keeps what a correction says but whoever asks for it. One that was interrupted before it was published needs the same edit again.
package dead
