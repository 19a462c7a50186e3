// Command soak attacks paidonce for as long as it is told, the way reality does: two workers, Postgres, NATS and three hostile banks on one
// machine, a mixed load from several sources, and random faults of these kinds on top of each other:
//
//   - workers killed (SIGKILL), frozen past their lease (SIGSTOP), told to stop (SIGTERM) and started again; one of them now and then with a clock
//     that is wrong by hours (the whole process, standard library and all) and jumps;
//   - Postgres: backends terminated, immediate shutdown and restart, read-only for a while, a full disk under one table after the other, and every
//     few minutes a failover to a standby that lacks the last claims, attempts and outcomes, recovered as the runbook says;
//   - NATS: SIGKILL and restart on the same store, and each of the streams full;
//   - the network between the workers and each of the five: cut, delayed, halved, swallowed, deaf, refused, and (but for the two odd banks, to
//     which it would be false to their profiles) repeated.
//
// Two more are in integration/outage alone. A wiped store of NATS takes events and dead letters with it, which the judge of a run asks for, and jobs
// that only their sources can publish again. A cluster that loses its leader needs three servers, which would take the machine from everything else.
//
// One bank is the reference bank. The other two are odd but true to their profiles. One keeps its keys for 40 seconds, executes both of two
// requests with the same key at the same time, and answers a finished duplicate by 409 with a link. To the other one keys mean nothing at all:
// it executes whatever reaches it, and can be asked reliably what that was.
//
//	go run ./integration/soak --minutes 30 --seed 7
//
// Then everything is left to come to rest, and integration/proof judges it. The last line says what came of it; exit code 0 only if
// nothing was paid twice, nothing was lost and nothing is left unproved. The same seed gives the same schedule of faults (--schedule prints
// it), the same mix of jobs and, per partner key, the same hostility of the banks; what meets what in time is the machine's.
package main
