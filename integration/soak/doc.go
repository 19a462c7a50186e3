// Command soak attacks paidonce for as long as it is told, the way reality does: two workers, Postgres, NATS and three hostile banks on one
// machine, a mixed load from several sources, and random faults of these kinds on top of each other:
//
//   - workers killed (SIGKILL), frozen past their lease (SIGSTOP), told to stop (SIGTERM) and started again;
//   - Postgres: backends terminated, immediate shutdown and restart, read-only for a while;
//   - NATS: SIGKILL and restart on the same store;
//   - the network between the workers and each of the five: cut, delayed, halved, swallowed, deaf, refused, and (but for the two odd banks, to
//     which it would be false to their profiles) repeated.
//
// Full disks and streams, failover to a standby, a wiped store, a lost leader and wrong clocks are not among them: integration/outage has
// those, each alone.
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
