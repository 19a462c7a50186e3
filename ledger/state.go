package ledger

// TransitionAllowed is the state table of I4. Its twin in SQL is operation_transition_allowed; a test compares them over all pairs.
// Open to authorized is late evidence, which is exempt from the fence (I5).
func TransitionAllowed(before, after State) bool {
	if before == after {
		return true
	}
	switch before {
	case StateOpen:
		return after == StateClaimed || after == StateCancelled || after == StateParked || after == StateAuthorized
	case StateClaimed:
		return true
	case StateParked:
		return after == StateAuthorized || after == StateRejected || after == StateOpen
	case StateAuthorized, StateRejected, StateCancelled:
		return false
	}
	return false
}

// Finished reports whether s is an outcome.
func (s State) Finished() bool {
	return s == StateAuthorized || s == StateRejected || s == StateCancelled
}

// String names the answer as logs and metrics do.
func (a Answer) String() string {
	switch a {
	case Claimed:
		return "claimed"
	case Finished:
		return "finished"
	case Parked:
		return "parked"
	case Busy:
		return "busy"
	case Scheduled:
		return "scheduled"
	case Held:
		return "held"
	case Conflict:
		return "conflict"
	case OtherVersion:
		return "other_version"
	case NotOnRecord:
		return "not_on_record"
	case NoAnswer:
	}
	return "none"
}

// String names the answer as logs and metrics do.
func (a RecordAnswer) String() string {
	switch a {
	case Recorded:
		return "recorded"
	case Fenced:
		return "fenced"
	case LateAuthorized:
		return "late_authorized"
	case LateContradicted:
		return "late_contradicted"
	case Stray:
		return "stray"
	case NotRecorded:
	}
	return "none"
}
