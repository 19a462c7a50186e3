// Command soak attacks paidonce for as long as it is told, the way reality does: two workers, Postgres, NATS and two hostile banks on one
// machine, a mixed load from several sources, and random faults of all kinds on top of each other:
//
//   - workers killed (SIGKILL), frozen past their lease (SIGSTOP), told to stop (SIGTERM) and started again;
//   - Postgres: backends terminated, immediate shutdown and restart, read-only for a while;
//   - NATS: SIGKILL and restart on the same store;
//   - the network between the workers and each of the four: cut, delayed, halved, swallowed, deaf, refused, and (but for Postgres, whose
//     protocol trusts TCP) repeated.
//
// One bank is the reference bank. The other one is odd but true to its profile: its keys last for 40 seconds, of two requests with the same
// key at the same time it executes both, and a finished duplicate is answered by 409 with a link.
//
//	go run ./integration/soak --minutes 30 --seed 7
//
// Then everything is left to come to rest, and integration/proof judges it. The last line says what came of it; exit code 0 only if
// nothing was paid twice, nothing was lost and nothing is left unproved. The same seed gives the same schedule of faults (--schedule prints
// it), the same mix of jobs and, per partner key, the same hostility of the banks; what meets what in time is the machine's.
package main
