// Command devstack runs everything paidonce needs on one machine, with nothing installed but Go and Postgres's server: a
// private Postgres, JetStream, the hostile bank, a worker, and the HTTP gateway. Then it tries to make paidonce pay twice, or lose something:
//
//  1. It publishes a mix of fresh, repeated, conflicting and malformed jobs.
//  2. On the way it kills the worker by SIGKILL, and starts another one.
//  3. It waits until every operation is finished or parked, and every other message is a dead letter.
//  4. It asks the bank's own book, the ledger, the dead letters and the events, each on its own (integration/proof shares no code with
//     what writes the ledger), and holds them against what it published.
//
// Its last line says what came of it. With --once it then exits, with 0 only if everything held; otherwise it keeps running
// and says how to publish, look and stop.
//
// Postgres runs under the roles of deploy/postgres, worker and gateway under the restricted one; NATS under those of deploy/nats, each process
// and each publisher under its own. Only the witness of the proof may see everything. The bank refuses to believe a request
// whose attempt it cannot see committed in the ledger: such a request is a breach too.
package main
