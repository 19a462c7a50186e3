// Package queue is everything paidonce says to NATS JetStream: the topology, the publisher of jobs, the consumer of
// jobs, dead letters, the event relay and the janitor.
//
// JetStream is intake and nothing else. It cannot guard money: after a crash of a server acknowledged messages come back, and an
// acknowledgement by a stale holder succeeds. So nothing in this package decides anything about an operation; it keeps jobs from
// being lost and redeliveries from being many. The guard is the claim in the ledger and the partner key.
//
// # What may be relied on
//
//  1. A job whose publish was confirmed reaches a handler at least once, as long as the stream keeps it.
//  2. A delivery holds one slot of its intake from before the broker hands it out until its handler returns, and is kept alive
//     by heartbeats from receipt until it is settled. Nothing waits in a client buffer.
//  3. A delivery is settled exactly once: Done, Retry or Dead. A handler that returns without settling gets a Retry.
//  4. A dead letter is confirmed by the broker before its job is terminated. A crash between the two gives one dead letter.
//  5. A job on a subject that no route's consumer covers becomes a dead letter with reason unknown_route; see [Strays].
//  6. Events of one key are published in the order of the outbox, each at least once, with the event id as message id.
//  7. The janitor removes only what a route's own consumer has acknowledged and what is older than the redo window.
//
// # What may not be relied on
//
//   - That a job arrives once, or in order, or with a delivery count that means anything but "at least this often".
//   - That an acknowledgement is final.
//   - That the message id window of the broker removes duplicates: it saves work, the ledger's key removes duplicates.
//
// # The way of a job
//
//  1. [Publisher] encodes it, gives it a message id of source, key and payload, and waits for the broker's confirmation. Without one
//     it publishes the same bytes under the same id again.
//  2. [Consumer] asks its intake for free slots, then the broker for that many jobs, for one route.
//  3. Each [Delivery] runs in its own goroutine, which owns one slot.
//  4. The handler settles it: [Delivery.Done] when the ledger owns the operation (or what is left of the job), [Delivery.Retry] when
//     the ledger could not be reached, [Delivery.Dead] when the job can never become an operation.
//  5. [Janitor] removes it when it is acknowledged and older than the redo window.
//
// # What is not as one might expect
//
// The consumer sends its own pull requests instead of using nats.go's Consume, each for as many jobs as slots are free: Consume keeps messages in a
// buffer of the client, where their acknowledgement wait runs while nobody works on them, and it cannot stop asking while a partner's breaker is
// open. And jobs that no route's consumer covers are found by a pass over the subjects of the stream ([Strays]), not by one more consumer: a
// consumer whose filters change skips what came before.
//
// # The topology
//
// [NewTopology] describes three streams and one durable consumer per route. [Provision] makes it so, under the role of the provisioner;
// workers only bind, because an update with other settings would silently reset a consumer. [Compare] names the
// differences between what is wanted and what is found.
package queue
