// Package crash kills the worker at every step of the life of a withdrawal, before and after, and looks at what becomes of it.
//
// The fail points are wrappers in the test program: around the worker's ledger, bank, deliveries and outbox, and a proxy between it and the
// broker that recognises acknowledgements, dead letters and events on the wire. The production program holds none of them. The child that
// runs the joined worker says which point it has reached and kills itself by SIGKILL; "sent:arrived" is the bank's, which kills it when the
// request has arrived and before anything is done with it.
//
// A cell of the matrix is a point, a behaviour of the bank, and who takes over: the same worker started again, or a second one that
// was running beside it, with another renderer for new operations, in the place of another version (or, with -previous, another version indeed). Each cell has keys of its own. Cells of
// different lanes run at the same time; a lane has its own route, partner, bank and database, so that nobody but its own workers helps.
//
// Every cell must reach its point, and end in the outcome that the bank's behaviour leads to. The bank executes at most once, exactly once
// where the ledger says authorized, and at the end each lane is judged by integration/proof.
//
//	go test ./integration/crash                # a slice
//	go test ./integration/crash -all           # every cell
//	go test ./integration/crash -cell 'record:before/calm/restart'
//	go test ./integration/crash -all -previous v1.2.0   # beside the worker of that version, built from the history of this clone
//	go test ./integration/crash -all -previous auto     # beside the newest one that differs from this one
package crash
