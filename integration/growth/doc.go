// Growth measures what an operation costs on a ledger that has grown, beside an empty one, under ordered (v7) and random (v4) keys.
//
//	go run ./integration/growth --rows 1000000,10000000 --keys v7,v4
//
// For each kind of key it starts a private Postgres, fills a ledger by plain SQL up to each size, and measures there:
//
//   - the hot path: claim and record in full batches through package ledger, and a relay that empties the outbox, at a fixed rate for a fixed
//     time from just after a checkpoint: WAL, full-page images (and of which relations), processor time of Postgres and of the client,
//     share of heap-only updates, time of a batch. The same is measured on an empty ledger of the same server right before and after, and the ratios
//     are to the mean of the two;
//   - what people and the sweep ask: the sweep's query with and without something due, the gauges, `ops list` in several shapes;
//   - a purge of payloads: rows, WAL and processor time per row, and the time of a batch of the hot path with a purge beside it;
//   - `paidonce prove`, by the binary, against a partner's statement that is made from the ledger: so it must hold;
//   - the size of every table and index.
//
// What may be relied on: WAL and processor time per operation. The rate is fixed so that both sides do as many operations after their
// checkpoint: full-page images per operation depend on that number. What may not: times on the clock from a machine that is not idle.
//
// How it is filled: finished operations with all their rows (payload, attempt, observation, entries), one in 4,000 due, one in 5,000 parked,
// spread over 300 days. Every CHECK and unique index judges the rows; the triggers of the journal do not run while filling (prove judges
// the balance after). The server is not durable while it is filled, and durable while it is measured. Keys are inserted one by one into their
// index, in the order of arrival, so that the index has the shape that it would have in life.
package main
