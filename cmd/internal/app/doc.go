// Package app joins the parts into a running worker: partners and gates from the settings, ledger, broker, consumers,
// relay, janitor, health and metrics.
//
// What may be relied on:
//
//   - RunWorker returns when everything it started has ended. The first part that ends stops all others.
//   - When its context ends it drains: nothing new is pulled, calls in flight end and are recorded, within the shutdown
//     grace. What is left after that is in doubt, which is safe.
//   - A worker that is not ready pulls nothing. It keeps running, so that it recovers by itself.
//   - Health answers never wait for a dependency: readiness is judged in the background, and the answer is the last judgement.
package app
