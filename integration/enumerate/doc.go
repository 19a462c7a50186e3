// Package enumerate drives real workers through every small schedule of one withdrawal.
//
// A run is one operation, two worker processes (worker.Worker as it ships), a model of the ledger (tokens, fences, leases, due times) and
// a partner that is true to its profile. Every call that a worker makes through Ledger, Bank, Gate or Delivery stands still until the
// scheduler lets it go; who goes next and how it ends is a choice of Gen, and Gen walks all sequences of choices. Time is virtual
// (testing/synctest), so that leases, look-up schedules and key windows pass at once.
//
// What may go wrong, up to a number of faults per run (two; three where poison is the matter): a process is killed or stopped (SIGSTOP) after each
// of its steps, a statement is applied and its reply lost, a statement does not reach the ledger, the partner does any of the things that the
// verdict table knows, a look-up lags, gets no answer or finds the transfer unfinished, a request is executed after the caller gave up, a call
// outlasts a third of the lease, a lease lapses, a process that was stopped while it dialled is too late to begin, the batch run is cancelled, a standby
// without the last write is promoted. Messages are redelivered. After the end the payload is purged and the message replayed. Steps are all that a
// worker asks of its ledger: claims, claims of what is due, attempts, records, renewals, pauses, looks at parked operations and what is kept of those;
// that each of them was lost, not reached and died after is counted.
//
// What is left out because it is the same as something that is in: that a process ends later than right after its own last step; which of
// two fresh processes is the first; when exactly a late execution happens between two calls to the bank; the place of an acknowledgement
// among steps of others; a look at parked operations that finds none, and a renewal where no call outlasts a third of a lease, since neither changes
// anything; the numbers for the metrics, which no step reads; the relay, which reads events that were written with their outcome and writes nothing
// that a worker reads.
//
// Every leaf is judged by an oracle that reads the model's rows, the bank's own lists of executions and of answers and what crossed the interfaces,
// and shares no code with fold or ledger. Whether an attempt is in doubt it takes from what the bank answered, not from what a worker wrote of it.
// Deliberate breakages prove that it sees what it is there to see.
//
// What holds over the model holds over package ledger as far as a differential test reaches: random calls on the model and on Postgres, with claims and
// operations lost as in a failover. Deliberate breakages of the SQL, made on its way to the server, prove how far that is.
//
// A stopped process is let go while the partner's profile still covers its request (the key window; the latest arrival where duplicates
// are not serialised). Beyond that no promise reaches, see package worker.
//
// How to run more: PAIDONCE_ENUMERATE=faults=3,steps=4 raises the faults per run to 3 and the choices per run by 4; a failing leaf prints
// how to replay it.
package enumerate
