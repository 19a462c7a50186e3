package operate

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors of the desk. Waiting is no failure: the proposal is on record.
var (
	ErrWaiting         = errors.New("waits for the approval of another person")
	ErrUnknownOperator = errors.New("the operator's token is not known, has ended, or its operator is disabled")
	ErrNoOperators     = errors.New("no operator is on record, and only operators change anything: make the first one under the database role that owns " +
		"the ledger, with `paidonce operators add NAME --role admin --reason ...`")
	ErrNotPermitted  = errors.New("not permitted")
	ErrOwnProposal   = errors.New("the author of a proposal does not approve it")
	ErrNoReason      = errors.New("a change needs a reason")
	ErrExpired       = errors.New("the proposal has expired")
	ErrChanged       = errors.New("the proposal is not for what is now to be done")
	ErrDecided       = errors.New("the proposal was decided before")
	ErrNoProposal    = errors.New("there is no such proposal")
	ErrKnownOperator = errors.New("there is, or was, an operator of that name")
	ErrNoOperator    = errors.New("there is no such operator")
	ErrDisabled      = errors.New("the operator is disabled, for good")
	ErrRefused       = errors.New("refused")
)

// refusal is an error that says what stands in the way. Word is its name in the audit log, without a word of any payload.
type refusal struct{ word, text string }

func (r *refusal) Error() string { return r.text }
func (r *refusal) Is(err error) bool {
	return err == ErrRefused
}

// Refuse makes an error for an act that may not be done now. Word is for the audit log: letters and _.
func Refuse(word, format string, args ...any) error {
	return &refusal{word: word, text: fmt.Sprintf(format, args...)}
}

// wordOf names an error in the audit log. Texts of errors stay out of it: nobody can say what a driver puts into them.
func wordOf(err error) string {
	var r *refusal
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &r):
		return r.word
	case errors.As(err, &pg):
		return "sql_" + pg.Code
	}
	return ""
}

// Codes that the guards of migrations/00003_operate.sql raise, and those of Postgres that mean the same.
const (
	codeUnproven   = "PO011"
	codeOwn        = "PO012"
	codeChanged    = "PO013"
	codeExpired    = "PO014"
	codeNoProposal = "PO015"
	codeNoRight    = "42501"
	codeNoTable    = "42P01"
	codeNoFunction = "42883"
	codeTwice      = "23505"
)

// denied says in our words what a guard of the database has refused.
func denied(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeUnproven:
		return fmt.Errorf("%w: %s", ErrNotPermitted, pg.Message)
	case codeOwn:
		return ErrOwnProposal
	case codeChanged:
		return ErrChanged
	case codeExpired:
		return ErrExpired
	case codeNoProposal:
		return ErrNoProposal
	case codeNoRight:
		return fmt.Errorf("%w to this database role (%s): operators' commands log in as paidonce_desk", ErrNotPermitted, pg.Message)
	case codeNoTable, codeNoFunction:
		return fmt.Errorf("the database has no desk yet: run `paidonce migrate up` (%w)", err)
	}
	return err
}

func isTwice(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeTwice
}
