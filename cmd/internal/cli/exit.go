package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// Code is a process exit code.
type Code int

// The exit codes of every command.
const (
	OK          Code = 0
	Failure     Code = 1
	Usage       Code = 2 // usage or configuration
	NotFound    Code = 3
	NotAllowed  Code = 4
	Conflict    Code = 5
	Partial     Code = 6
	Waiting     Code = 7 // for approval
	Ambiguous   Code = 8 // needs a person
	TryAgain    Code = 75
	Interrupted Code = 130
)

// Codes lists every exit code with its meaning, in order.
func Codes() []struct {
	Code    Code
	Meaning string
} {
	return []struct {
		Code    Code
		Meaning string
	}{
		{OK, "ok"},
		{Failure, "failure"},
		{Usage, "usage or configuration"},
		{NotFound, "not found"},
		{NotAllowed, "not allowed"},
		{Conflict, "conflict"},
		{Partial, "partial: some of it was done"},
		{Waiting, "waiting for approval"},
		{Ambiguous, "ambiguous: needs a person"},
		{TryAgain, "try again later"},
		{Interrupted, "interrupted"},
	}
}

// ExitError is an error that knows its exit code.
type ExitError struct {
	Code Code
	Err  error
}

// Error gives the text of the cause.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Exit gives err the exit code. A nil err stays nil.
func Exit(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: code, Err: err}
}

// CodeOf gives the exit code for err. An explicit code wins; what is left is judged by its consequence.
func CodeOf(err error) Code {
	var explicit *ExitError
	var problems config.Problems
	var unfit *queue.UnfitError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &explicit):
		return explicit.Code
	case errors.As(err, &problems), errors.As(err, &unfit), errors.Is(err, ledger.ErrSchema), errors.Is(err, queue.ErrNotProvisioned):
		return Usage
	case errors.Is(err, ledger.ErrNotFound), errors.Is(err, ledger.ErrNotPaused), errors.Is(err, queue.ErrNoDeadLetter):
		return NotFound
	case errors.Is(err, ledger.ErrMoved):
		return Ambiguous
	case decided(err) != OK:
		return decided(err)
	case errors.Is(err, context.Canceled):
		return Interrupted
	case away(err):
		return TryAgain
	}
	return Failure
}

// decided gives the exit code of what the desk said, or OK.
func decided(err error) Code {
	for _, one := range []struct {
		err  error
		code Code
	}{
		{operate.ErrWaiting, Waiting}, {operate.ErrNoReason, Usage},
		{operate.ErrNotPermitted, NotAllowed}, {operate.ErrOwnProposal, NotAllowed}, {operate.ErrUnknownOperator, NotAllowed}, {operate.ErrNoOperators, NotAllowed},
		{operate.ErrNoProposal, NotFound}, {operate.ErrNoOperator, NotFound},
		{operate.ErrExpired, Conflict}, {operate.ErrChanged, Conflict}, {operate.ErrDecided, Conflict}, {operate.ErrKnownOperator, Conflict},
		{operate.ErrDisabled, Conflict}, {operate.ErrRefused, Conflict},
	} {
		if errors.Is(err, one.err) {
			return one.code
		}
	}
	return OK
}

// away reports that a service could not be reached, or not in time: the same command may succeed later.
func away(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	var network net.Error
	var file *fs.PathError
	if errors.As(err, &file) {
		return false // the error number inside would pass for one of the network
	}
	if errors.As(err, &pg) {
		switch pg.Code[:min(2, len(pg.Code))] {
		case "08", "53", "57", "40", "55": // connection, resources, shutdown or cancelled, rolled back, locked
			return true
		}
		return false
	}
	for _, transient := range []error{
		nats.ErrNoServers, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected,
		context.DeadlineExceeded,
	} {
		if errors.Is(err, transient) {
			return true
		}
	}
	return errors.As(err, &connect) || errors.As(err, &network)
}
