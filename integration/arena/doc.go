// Package arena holds what crashes, outages and the soak have in common: the production worker as a child process that can be killed, frozen
// and told to stop, its configuration with short times that keep every timing rule, and simulated banks that check each request's attempt.
//
// What may be relied on:
//
//   - The child runs what `paidonce worker` runs. Programs that start one call RunChild first of all.
//   - A child ends with its parent. What it has said on its standard output before a SIGKILL is heard.
//   - A bank calls it a violation when a request arrives whose attempt is not committed in the ledger, as seen from another connection.
package arena
