// Package job is the wire format of a withdrawal: strict decoding, validation, the operation key and the fingerprint.
//
// What may be relied on:
//
//  1. Decode accepts exactly the payloads of the contract and gives one Fault, with one code and one place, for every other.
//     It never panics, and nothing that it returns as an error contains a value of the payload.
//  2. Two payloads have one fingerprint if and only if they ask for the same: key, source, route, accounts, amount,
//     beneficiary, reference and times. Order of members, white space, escapes, Unicode composition of free text, case of the
//     key, offset of a time and metadata do not matter. (Two different ones would need a SHA-256 collision.)
//  3. A version of the fingerprint never changes. A row's version that this program does not know is no conflict.
//  4. Encode writes what Decode reads: same fingerprint, same metadata.
//  5. Names, accounts and references are of type Sensitive, and print masked.
//
// What may not: whether route, source, currency of the route and greatest amount are allowed is configuration, and not
// known here. The published schema (Schema) refuses nothing that Decode accepts; what it cannot refuse is listed there.
//
// A payload is judged in this order, and the first fault is the answer: size, bytes (BOM, UTF-8, NUL), then members in the
// order in which they stand, trailing data, missing members, and last what needs several members (amount with its currency,
// form of the beneficiary, window of times).
package job
