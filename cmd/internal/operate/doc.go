// Package operate is the one door through which people change anything: command line, console and tests go through the same checks.
//
// # What may be relied on
//
// A change is an Act. Do asks in this order: is it a person's own token, does that person have the role, is there a reason, may the act be
// done at all (Checker), does it need a second person. Then a line of the audit log is committed, and only then the act runs; its result is a
// second line. So nothing is done that the log does not know; a line without a result was begun and not ended.
//
// What a second person agrees to is bound to the SHA-256 of what it will do, is decided once, expires, and is used up once. The author never
// approves it. What was begun under an approval and not ended, because the program died or was told to stop, is gone on with under the same
// one. The database refuses the same things by itself: no approval by the author, no execution without an approval, no line in the name of
// somebody whose token was not presented, nothing is changed or erased afterwards, and the desk's role changes an operation only through
// functions that ask for the line, the token and, where money may have moved, exactly what was approved.
//
// # What may not be relied on
//
// Everybody who holds the desk's database login can read what it may read: masking is a matter of the commands. The owner of the database can
// take the guards away. A reason and an evidence are the words of people: nothing keeps them from writing a name there.
//
// # What an Act must keep
//
// Run is called again after a crash, and by two people at once: the second time it must find what is done and have no second effect. Its
// Content is complete and the same each time. Target and Content hold no names, no account numbers: what holds them is named by its SHA-256,
// or sealed so that only who has the source of them can read it. What a second person must see and the content cannot show, a Judge compares.
package operate
