// Package file reads the files of a batch payout run: CSV, NDJSON, and pain.001 of ISO 20022 in the versions 001.03 and 001.09.
//
// What may be relied on:
//
//  1. A file is read once, from front to back, in memory that does not grow with it: a line (or an element) has a limit, and what the check must
//     remember of every row, two hashes, is sorted on disk beyond a bound.
//  2. A row is what worker/job.Decode would accept, or it is a Fault. Nothing is repaired, rounded, guessed or dropped: a cell that a spreadsheet
//     has damaged is refused with the name of the damage.
//  3. A bad row does not end the reading. What does end it (a header that is not the declared one, XML that is not well-formed) is a Fault
//     with End set.
//  4. Check and Reader are the same code: what Check accepts, Next gives, row for row.
//  5. A Fault names line, column, code, and says what to do. It never holds the value of a name, an account or a reference.
//  6. Digest is of the bytes. ContentDigest is of the payments: the same for another order, other line ends, another file name, another format;
//     see content.go for how, and why nobody can make two lists with one digest.
//
// The columns of a CSV file, in this order, are the words of the contract: row_ref, route, debtor_account, amount, currency, name, iban, bic,
// sort_code, account_number, routing_number, pix_key, reference, not_before, not_after. A template declares which of them a file has. row_ref is
// the author's own name of the row, which no other row may have, and comes back in the report; reference is what the beneficiary reads.
//
// A line of NDJSON is the document of the contract without v and key, perhaps with route and row_ref.
//
// What is read of pain.001, and what is refused because it cannot be honoured, stands in pain.go. Its EndToEndId comes back as row_ref, but rows may have
// the same: whoever has the file cannot change it, and rows that pay the same are found by what they pay.
package file
