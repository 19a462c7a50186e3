// Package bankclient makes one exchange with a partner and says what it proved.
//
// # The promise
//
// Send makes exactly one exchange: the request leaves at most once, and what it came to is one Verdict. Nothing here retries,
// sleeps or remembers; the worker decides what follows, under a committed attempt (I2, I3 of package ledger).
//
// What may be relied on:
//
//  1. Unknown is the zero value. A condition that the table in judge.go does not list, a code or a state that the profile does
//     not list, and an answer that cannot be read to its end are Unknown.
//  2. NotExecuted is said only of a call that cannot have moved money and never will: no connection was got, no header was
//     written (and none will be: see exchange.seal), TLS refused us, or the partner said so in words that its profile lists.
//  3. Authorized is said only of an answer that shows our amount, currency, beneficiary, reference and end-to-end id, in a listed
//     state, with the partner's id. One member that disagrees is a Mismatch; one that is absent is Unknown.
//  4. Rejected is said only of a listed code under a status that may reject, or of our own transfer in a listed failed state.
//     409 never rejects.
//  5. The partner key is a pure function of key, partner id, step and epoch (I7), and a renderer gives the same bytes for ever
//     (I8). Send sends nothing that fails Check: another partner, credential, endpoint or body.
//  6. "Not found" is an answer, never a proof of absence. A look-up adopts only a transfer that names exactly our end-to-end id;
//     two of them are a Mismatch with both ids.
//  7. Results, evidence and errors hold no secret, name, account number or free text of the partner. Transfer, Prepared and Seen
//     print masked under every verb.
//
// What may not be relied on:
//
//   - The promise is as strong as the profile is true. A partner that ignores keys against its word is found by reconciling
//     with its statement, not here.
//   - An error answer names no request, unless the partner echoes the partner key in a header. No partner is taken to do so before its setting
//     says it (Config.EchoesKey; `partners.<name>.echoes_key`). Then an error without it proves nothing on a connection that was used before; what
//     it says is kept as evidence. If a partner that does not echo crosses two error answers on the wire, each is taken for the other's.
//   - A middlebox that repeats bytes inside a plain TCP connection makes the partner answer twice. No answer that comes late is taken for
//     the next call's: a connection is not used again after an answer that names no request, nor, where errors name none, after any. TLS is
//     kept open after a success, since it takes no byte twice. Nor is it after an answer without a body, since net/http gives the connection
//     away before anybody has seen that answer. Each look-up has a connection of its own, since "not found" names no request. What would be
//     left is a proxy inside of the TLS that lets two answers to one request through to us, the second an error, from a partner that does
//     not echo. (Over HTTP/2 an answer belongs to its stream.)
//   - net/http may repeat a look-up (a GET) by itself on a connection that died. That moves no money.
//   - net/http logs the bytes of an unsolicited answer through package log. A program must point that somewhere safe.
//
// # What makes the exchange
//
// The reader and the writer of HTTP/1.1 are net/http's. A create goes over a connection of ours (line.go), in the goroutine of its caller: nothing
// there could send twice, and a connection on which anything has come while no call was under way is not written to. Look-ups, creates over
// HTTP/2 and creates where a proxy may be between go over an http.Transport, which wakes two goroutines more for each call.
//
// # How net/http is kept from sending twice
//
// With an idempotency key in a header, net/http repeats a POST when a kept-alive connection dies after the request was written,
// unless the request's GetBody is nil; it is. Calls use the partner's http.Transport without http.Client, so nothing follows
// a redirect. HTTP/1.1 is forced unless the profile allows HTTP/2. One deadline, the context's, bounds the call.
//
// # Adding a partner
//
// An adapter (package reference is the model) renders and reads one dialect and declares a Profile. It never judges: the table
// of conditions stands in judge.go alone, and Profile.Validate refuses a profile that would loosen a row of it.
package bankclient
