// Bench measures paidonce beside its peers and beside the limit of the machine, with the same jobs, the same rows and the same bank.
//
//	cd integration/bench && go run . --rounds 3 --jobs 60000
//
// It starts everything itself: Postgres (durable), nats-server and a calm simulated bank, each as a process of its own, and for each
// contender a worker process:
//
//   - paidonce: the real binary with a generated configuration, under its restricted database role;
//   - naive: one goroutine per message; a claim transaction, the call, an outcome transaction, statement by statement;
//   - naive-batch: the same with one SendBatch per transaction;
//   - river: River with JobCompleteTx; the rows are one statement in the transaction that completes the job;
//   - dbos: DBOS Go; the call is a step, the rows are written by RunAsTransaction.
//
// Everybody writes operation, payload, attempt, observation, two entries and an outbox row. What only paidonce does besides counts
// against it: strict decoding, fingerprints, the due table, heartbeats, and publishing the events, which must be finished before
// its clock stops.
//
// How a drain is measured: the worker works off some jobs to get warm; it is frozen (SIGSTOP) while the jobs are enqueued; the clock
// starts when it goes on and stops when the last outcome is committed. After each run the bank's own book, the ledger and the events
// must tell the same story, or the run is an error.
//
// What may be relied on: contenders alternate within a round, and each figure is the median over the rounds. CPU per operation comes
// from /proc and hardly depends on what else the machine does; operations per second do. What may not: absolute figures from a
// machine that is not idle, and figures of two different runs side by side.
//
// The limit is that of a perfect worker made of the same parts: the CPU per operation of consuming and acknowledging, of the HTTP
// exchange with the bank included, and of claim and outcome in full batches, each measured alone, of all processes that take part.
// Cores divided by that sum is what the machine could do if everything else were free.
package main
