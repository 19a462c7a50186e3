// Package suite plays the worker's scenarios (worker/workertest) against the real things: the ledger in Postgres, and the reference adapter
// over HTTP against the simulated bank. Virtual time and fakes say that the money logic is right; this says that the fakes are.
//
// Every request of every scenario is held against invariant I2 from a second connection: when a partner key arrives at the bank, the claim and
// the attempt must be committed. Every world ends by asking ledger and bank about every key.
//
// Real time costs a lease per kill, so that by default the kills happen at a choice of steps. All of them, in a few minutes:
//
//	go test ./integration/suite                      # under a minute on 2 cores
//	go test ./integration/suite -every-step -timeout 20m
package suite
