// Package gateway is the HTTP door of paidonce, for upstream systems that do not speak NATS.
//
// # What may be relied on
//
//  1. An answer 202 (or 201, 200) to POST /v1/withdrawals is given only when operation, payload, event and the job to publish are committed.
//  2. The unique index on the key arbitrates between all gateways and all deliveries: equal requests at once, at one gateway or many, are one
//     operation and get equal answers. The fingerprint is judged before anything else; a conflicting request is told nothing of the first.
//  3. The source comes from the token, never from the body. A source sees and cancels its own operations only.
//  4. Failures of infrastructure are never stored as answers: the same request may be repeated. Rejections are outcomes, and are stored.
//  5. The broker may be away: what was accepted is published later, and the sweep works it after a grace (gateway.intake_grace) in any case.
//
// # What may not be relied on
//
//   - That an answer reaches the caller. Without one, repeat the request with the same key.
//   - That a wait ends with an outcome, or that a request that waits is told before the outcome is committed.
//   - A request without a key (sources with keys: warn) is protected against nothing: each repetition is another withdrawal.
//
// # How a wait learns of the outcome
//
// Not by LISTEN: it needs a session, which a transaction-mode pooler does not give, and every NOTIFY takes one lock that serialises the commits
// of all workers. A worker in the same process says it ([Gateway.Tell]); workers in others send the keys of what they have recorded by the broker,
// after the commit ([Gateway.Hear]). Such a hint is kept nowhere and may be lost, as while the broker is away; so the rows of all who wait are read
// once a second as well, in one statement. What was told is a hint in every case, the row is the truth: an answer is given only from a row that was
// read. paidonce_gateway_waits_total counts which way each answer came.
package gateway
