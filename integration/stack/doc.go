// Package stack starts the real services that paidonce stands on, privately: Postgres as an own child process in an own
// directory, JetStream inside this process or as a child, and (package bank below) the simulated bank. Tests and devstack use it;
// nothing in production does.
//
// What may be relied on:
//
//   - Everything listens on loopback only, on a port of its own; several processes may do this at the same time.
//   - A child ends with its parent (on Linux also when the parent is killed). What a killed parent left in the temporary
//     directory is removed by the next one.
//   - Postgres runs as an unprivileged user also when this process is root.
//   - A missing service is an error that says how to install it, never a skip.
//
// Tests of a package that needs a database say so once:
//
//	func TestMain(m *testing.M) { stack.Main(m) }
//
// and then take a fresh, migrated database each with Database or Databases. Broker and bank.Calm start the rest for one test and stop it with it;
// Eventually waits for what happens elsewhere; Log is what a process may write while a test reads. Program is the main function of what measures.
//
// What may not be relied on: durability. Unless asked for, Postgres runs with fsync off, so it survives Kill (a crash of the
// server) but not a crash of the machine.
package stack
