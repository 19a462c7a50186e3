package bankclient

import (
	"fmt"
	"time"
)

// Verdict is what one call proved.
type Verdict uint8

// The verdicts. Unknown is the zero value: whatever nobody listed is in doubt.
const (
	Unknown     Verdict = iota // may have moved money
	Authorized                 // the partner has taken the transfer we asked for
	Rejected                   // the partner refused the transfer for good
	NotExecuted                // this call moved no money and never will
	InFlight                   // the partner is working on this partner key
	KeyReused                  // the partner knows this partner key with other content
	Mismatch                   // the partner speaks of something that we did not ask for
)

// String gives the verdict's name in metrics, observations and logs.
func (v Verdict) String() string {
	switch v {
	case Authorized:
		return "authorized"
	case Rejected:
		return "rejected"
	case NotExecuted:
		return "not_executed"
	case InFlight:
		return "in_flight"
	case KeyReused:
		return "key_reused"
	case Mismatch:
		return "mismatch"
	default:
		return "unknown"
	}
}

// ParseVerdict is the inverse of String. A name that this version does not know is an error, never a guess.
func ParseVerdict(name string) (Verdict, error) {
	for v := Unknown; v <= Mismatch; v++ {
		if v.String() == name {
			return v, nil
		}
	}
	return Unknown, fmt.Errorf("parse verdict: no verdict has this name")
}

// Scope says whom a verdict concerns.
type Scope uint8

// The scopes. ScopePartner counts against the partner's breaker and so closes its intake.
const (
	ScopeOperation Scope = iota
	ScopePartner
)

// String gives the scope's name.
func (s Scope) String() string {
	if s == ScopePartner {
		return "partner"
	}
	return "operation"
}

// Cause says whose a refusal is to cure.
type Cause uint8

// The causes. A cause of ours leaves the operation open while the partner pauses.
const (
	CauseNone Cause = iota
	CauseOurFunds
	CauseOurLimits
)

// String gives the cause's name.
func (c Cause) String() string {
	switch c {
	case CauseOurFunds:
		return "our_funds"
	case CauseOurLimits:
		return "our_limits"
	default:
		return "none"
	}
}

// Phase says how far one call came.
type Phase uint8

// The phases, in the order in which a call passes them.
const (
	PhaseNone         Phase = iota // no connection was got
	PhaseConnected                 // a connection was got, the headers were not written
	PhaseWroteHeaders              // from here on the partner may have read something
	PhaseWroteRequest
	PhaseFirstByte
	PhaseComplete // status line, headers and the whole body arrived
)

// String gives the phase's name.
func (p Phase) String() string {
	switch p {
	case PhaseConnected:
		return "connected"
	case PhaseWroteHeaders:
		return "wrote_headers"
	case PhaseWroteRequest:
		return "wrote_request"
	case PhaseFirstByte:
		return "first_byte"
	case PhaseComplete:
		return "complete"
	default:
		return "none"
	}
}

// Result is what one call came to.
type Result struct {
	Verdict       Verdict
	Scope         Scope
	Cause         Cause
	Authoritative bool   // a Rejected that the partner stores under the key
	TransferID    string // the partner's id of the transfer, when it named one
	Code          string // the partner's code, when it gave one
	Settled       bool   // the partner says that it is already settled
	RetryAfter    time.Duration
	Evidence      Evidence
}

// Answer is what a look-up was answered.
type Answer uint8

// The answers. NoAnswer is the zero value. NotFound by itself never proves absence.
const (
	NoAnswer Answer = iota
	NotFound
	Found
)

// String gives the answer's name.
func (a Answer) String() string {
	switch a {
	case NotFound:
		return "not_found"
	case Found:
		return "found"
	default:
		return "no_answer"
	}
}

// Finding is what one look-up came to. With Found, Result.Verdict is Authorized, Rejected, InFlight, Mismatch, or Unknown
// for a state that nobody listed. Otherwise it is Unknown, and Result says why and when to ask again.
type Finding struct {
	Answer Answer
	Result Result
}
