// Package batch pays a file once: a run turns its rows into operations, each with a key that is made once and kept.
//
// # The life of a run
//
//  1. The whole file is checked. While that is not over, its good rows are packed into parts with their keys, which belong to nobody yet.
//  2. The run goes on record under its run key, with the file's digest, its totals, and the digest of what it pays. From here its keys never change.
//  3. The run is released, by one person or by two: Release is an act of the desk, whose content names digests and totals.
//  4. Part by part the rows become operations. The part leaves in the transaction in which they come, so a run that died goes on at the next row.
//  5. The jobs are published by the process that recorded them. What it leaves behind a gateway takes over, and after that the sweep.
//  6. What became of a row is read from its operation, always.
//
// # What may be relied on
//
// R1 A row becomes at most one operation, whoever dies wherever and however often the run is submitted: its key is on record before anything is
// enqueued, and I1 of the ledger does the rest.
//
// R2 Nothing is enqueued before the release, and what is enqueued is what was checked: parts are not changed once their run is on record.
//
// R3 The same run key with the same content goes on; with other content it is refused. The same content under another run key is refused, unless
// a second person agrees to pay it again. Order, line ends, name and format of the file are not content. So is a file of which some rows are in another
// run of its source, submitted shortly before: by the author's own name of the row, amount, account and reference. Rows without a name are not compared.
//
// R4 Two equal rows are two payments. They are pointed out, and need a word from the submitter; none is ever dropped.
//
// R5 A cancelled run enqueues nothing any more, and ends what is neither under way nor in doubt. All else is marked: nothing more is sent for it. What
// was sent is asked after and goes on to its outcome; what comes to be neither under way nor in doubt ends; and what the partner does not find
// is parked, since nobody's wish proves that nothing was paid.
//
// R6 A paused run enqueues nothing, and sends nothing that is neither under way nor in doubt: what of it is enqueued is held until the run is
// resumed, whatever else is resumed or looked up meanwhile. Then it comes back at the rate of its partner, and not before the time at which it
// was to be tried again. Past its not_after it expires, paused or not. What comes in doubt is held no longer, so that the partner is asked.
//
// R7 After a recovery of the ledger, rows of runs that were there before are asked after at the partner before they are sent, and a run of that time
// keeps its content and its parts when it is cancelled: what was enqueued of it may have been lost here, and paid.
//
// # What may not be relied on
//
// A failover that loses commits may lose a run as a whole, with its keys, while the broker still delivers its jobs. The same file submitted again is a
// new run with new keys, and nothing here can tell. So for the time that the broker delivers again, every new run needs a second person, who makes sure
// that the file was not submitted before.
//
// What was under way when its run was paused goes on to its outcome, with all its tries. A file of a run that nobody released is kept,
// packed, until the run is cancelled.
package batch
