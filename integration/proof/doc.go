// Package proof publishes a mix of jobs that is meant to be paid twice or lost, and judges what became of it. It asks the banks' own
// books, the ledger, the dead letters and the events, each on its own, and shares no code with what writes the ledger.
//
// What may be relied on:
//
//   - Judge sees a key paid twice, a key or message that is nowhere, money without an operation, an operation that says something else
//     than the bank's book, an outcome without its event, a journal that does not balance, something parked without evidence.
//   - The witnesses only read. Their SQL is their own.
//   - The same seed mixes the same way; keys are always new.
package proof
