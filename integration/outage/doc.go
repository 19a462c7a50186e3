// Package outage takes away, one after the other, everything that the worker stands on: Postgres, NATS, the network to each of them and to
// the bank, the worker itself, and the server that the ledger lives on. Each test loads a real worker, makes the outage, ends it, lets
// everything come to rest, and has integration/proof judge it: paid once, nothing lost.
//
// Outages last for seconds here, and times in the configuration are short in proportion; with -full, that of case E6 lasts for its 60 s. The
// pooler between worker and Postgres has a program of its own (integration/outage/pooler), since pgbouncer is not installed everywhere.
package outage
