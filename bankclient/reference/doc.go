// Package reference speaks the reference bank API: the partner that banksim serves, and the model for other adapters.
//
// What may be relied on:
//
//   - Render is a pure function. Version 1 gives the same bytes for the same input for ever; a change of the body is a new
//     version, and old versions stay as long as an operation may name them. A golden file of bytes guards it.
//   - Text goes out as it came in: no HTML escaping, no truncation, no rounding. Text that is not UTF-8 is refused.
//   - An answer is read strictly: one JSON document, no duplicate names, members of the declared type. Unknown members are
//     allowed, because partners add them.
//   - The profile lists what the API promises. What it does not list proves nothing.
package reference
