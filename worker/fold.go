package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
)

// What an observation can say: the names of bankclient's verdicts, and the answers of a look-up that found nothing.
const (
	saysUnknown     = "unknown"
	saysAuthorized  = "authorized"
	saysRejected    = "rejected"
	saysNotExecuted = "not_executed"
	saysInFlight    = "in_flight"
	saysKeyReused   = "key_reused"
	saysMismatch    = "mismatch"
	saysNotFound    = "not_found"
	saysNoAnswer    = "no_answer"
)

// Standing is what the attempts and observations of one operation prove together. It depends on the set of them, not on
// their order: late news never takes back what earlier news proved.
type Standing struct {
	Mismatch   bool
	Authorized bool
	TransferID string // with Authorized
	Rejected   bool   // under the current partner key
	Final      bool   // with Rejected: stored under the key or found by a look-up, so it speaks for every attempt
	Code       string // with Rejected

	InDoubt  bool // an attempt may have moved money and has not been cleared by (a), (b) or (c) of the package's doc
	Seen     bool // a look-up found the transfer, unfinished: it exists, nothing may be sent again
	Asked    bool // a look-up was tried after the latest attempt in doubt
	NotFound bool // and it was answered "not found"
	Absent   bool // (d): enough spaced "not found" after the latest possible arrival

	Attempts  int
	LookUps   int
	Replays   int       // latest sends in a row that ended Unknown with the same code
	FirstSent time.Time // of the earliest attempt under the current key that was not proved "not executed"; zero = none
	LastSent  time.Time // of the latest attempt; zero = never
}

// History is what Fold reads.
type History struct {
	PartnerKey string // the current one; "" stands for the latest attempt's
	Attempts   []ledger.Attempt
	Facts      []ledger.Fact
	Fence      int32     // of the claim: what was recorded before the last recovery has another
	InDoubt    bool      // as the ledger stored it: doubt that no attempt here explains (lost in a failover) is kept
	FirstSent  time.Time // as the ledger stored it; counts when no attempt here tells
}

// lostClaim reports whether the stored doubt comes from a claim that is not on record, lost in a failover: its time of sending lies before
// every attempt here. Otherwise the attempts here explain it, and what clears them clears it.
func (h *History) lostClaim(key string) bool {
	return h.InDoubt && !slices.ContainsFunc(h.Attempts, func(a ledger.Attempt) bool { return a.PartnerKey == key && !a.At.After(h.FirstSent) })
}

// sinceRecovery gives the facts that were recorded since the ledger was recovered, if it ever was: what was lost may have been sent after all others.
func (h *History) sinceRecovery() []ledger.Fact {
	base := ledger.RecoveredFence(h.Fence)
	return slices.DeleteFunc(slices.Clone(h.Facts), func(f ledger.Fact) bool { return f.Fence < base })
}

// earliest is when the first of the facts was observed; zero = there is none.
func earliest(facts []ledger.Fact) (at time.Time) {
	for i := range facts {
		if at.IsZero() || facts[i].At.Before(at) {
			at = facts[i].At
		}
	}
	return at
}

// FoldRules are the bounds Fold needs.
type FoldRules struct {
	Profile         *bankclient.Profile
	Lease           time.Duration // no send starts later than this after its attempt
	NotFoundsNeeded int
}

// Fold puts all attempts and observations of an operation together, as the package's doc says. An attempt without an
// observation counts as Unknown; what a later attempt proves "not executed" says nothing of an earlier one.
func Fold(h History, rules FoldRules) Standing {
	s := Standing{Attempts: len(h.Attempts)}
	key := h.PartnerKey
	if key == "" {
		key = keyAt(h.Attempts, maxFence, "")
	}
	for i := range h.Facts {
		s.read(&h.Facts[i], h.Attempts, key)
	}
	var doubtAt, sentBy time.Time // of the latest attempt in doubt: when committed, and when it was surely sent
	for i := range h.Attempts {
		a := &h.Attempts[i]
		s.LastSent = latest(s.LastSent, a.At)
		clear, seenAt := attemptCleared(a, h.Facts)
		if clear {
			continue
		}
		if a.PartnerKey == key && (s.FirstSent.IsZero() || a.At.Before(s.FirstSent)) {
			s.FirstSent = a.At
		}
		if keyRejected(a.PartnerKey, h.Attempts, h.Facts, key) {
			continue
		}
		s.InDoubt = true
		doubtAt = latest(doubtAt, a.At)
		if seenAt.IsZero() {
			seenAt = a.At.Add(rules.Lease)
		}
		sentBy = latest(sentBy, seenAt)
	}
	lost := h.lostClaim(key)
	facts := h.Facts // that may say something of what is in doubt
	if lost && !s.Final {
		s.InDoubt = true
		facts = h.sinceRecovery()
		sentBy = latest(sentBy, earliest(facts).Add(rules.Lease)) // that claim was older than the first observation since
	}
	if s.FirstSent.IsZero() || lost && h.FirstSent.Before(s.FirstSent) {
		s.FirstSent = h.FirstSent
	}
	if s.InDoubt {
		s.Seen = seen(h.Facts)
		s.judgeLookUps(facts, doubtAt)
		s.Absent = !sentBy.IsZero() && !s.Seen && rules.Profile.LookUpConsistent &&
			spacedNotFounds(facts, sentBy.Add(rules.Profile.LatestArrival+rules.Profile.VisibilityBound),
				rules.Profile.VisibilityBound) >= rules.NotFoundsNeeded
	}
	if s.Authorized {
		s.InDoubt = false
	}
	s.Replays = replays(h.Attempts, h.Facts)
	return s
}

// read takes what one fact says by itself.
func (s *Standing) read(f *ledger.Fact, attempts []ledger.Attempt, key string) {
	if f.Kind == ledger.FactLookUp {
		s.LookUps++
	}
	switch f.Verdict {
	case saysMismatch:
		s.Mismatch = true
	case saysAuthorized:
		s.Authorized = true
		if s.TransferID == "" || (f.TransferID != "" && f.TransferID < s.TransferID) {
			s.TransferID = f.TransferID
		}
	case saysRejected:
		if of, known := keyOf(f, attempts, key); !known || of != key {
			return // of an earlier epoch, whose cause was ours to cure, or of an attempt that is not on record
		}
		final := speaksForKey(f)
		if !s.Rejected || (final && !s.Final) || (final == s.Final && f.Code < s.Code) {
			s.Code = f.Code
		}
		s.Rejected, s.Final = true, s.Final || final
	}
}

// judgeLookUps takes what look-ups say about the attempts in doubt, the latest of which was committed at doubtAt.
func (s *Standing) judgeLookUps(facts []ledger.Fact, doubtAt time.Time) {
	for i := range facts {
		f := &facts[i]
		if f.Kind != ledger.FactLookUp && f.Kind != ledger.FactWebhook {
			continue
		}
		after := !f.At.Before(doubtAt)
		switch f.Verdict {
		case saysNotFound:
			s.Asked = s.Asked || after
			s.NotFound = s.NotFound || after
		case saysNoAnswer, saysUnknown, saysInFlight, saysKeyReused:
			s.Asked = s.Asked || after
		}
	}
}

// seen reports whether a look-up found a transfer that is not finished.
func seen(facts []ledger.Fact) bool {
	return slices.ContainsFunc(facts, func(f ledger.Fact) bool {
		return (f.Kind == ledger.FactLookUp || f.Kind == ledger.FactWebhook) && (f.Verdict == saysUnknown || f.Verdict == saysInFlight || f.Verdict == saysKeyReused)
	})
}

// attemptCleared reports whether an attempt's own observations prove that it moved nothing, and otherwise when the first
// of them was made: by then it had been sent.
func attemptCleared(a *ledger.Attempt, facts []ledger.Fact) (cleared bool, seenAt time.Time) {
	for i := range facts {
		f := &facts[i]
		if f.Token != a.Token || (f.Kind != ledger.FactVerdict && f.Kind != ledger.FactLate) {
			continue
		}
		switch f.Verdict {
		case saysNotExecuted, saysRejected:
			cleared = true
		case saysUnknown, saysInFlight, saysKeyReused, saysMismatch, saysAuthorized:
			if seenAt.IsZero() || f.At.Before(seenAt) {
				seenAt = f.At
			}
		}
	}
	return cleared && seenAt.IsZero(), seenAt
}

// keyRejected reports whether a rejection that speaks for all attempts under this partner key is on record.
func keyRejected(partnerKey string, attempts []ledger.Attempt, facts []ledger.Fact, current string) bool {
	for i := range facts {
		f := &facts[i]
		if f.Verdict != saysRejected || !speaksForKey(f) {
			continue
		}
		if of, known := keyOf(f, attempts, current); known && of == partnerKey {
			return true
		}
	}
	return false
}

// speaksForKey reports whether a rejection holds for every attempt under its partner key.
func speaksForKey(f *ledger.Fact) bool { return f.Authoritative || f.Kind == ledger.FactLookUp }

const maxFence = int32(1<<31 - 1)

// keyOf is the partner key that a fact is about. What was said of one attempt is about the key of that attempt, and of no other where a
// failover has lost it; its fence names it no more, since that may have been issued again. A look-up made outside of a claim is about the
// key in force then.
func keyOf(f *ledger.Fact, attempts []ledger.Attempt, current string) (key string, known bool) {
	for i := range attempts {
		if attempts[i].Token == f.Token {
			return attempts[i].PartnerKey, true
		}
	}
	if f.Kind == ledger.FactVerdict || f.Kind == ledger.FactLate {
		return "", false
	}
	return keyAt(attempts, f.Fence, current), true
}

// keyAt is the partner key in force under a fence: that of the latest attempt up to it.
func keyAt(attempts []ledger.Attempt, fence int32, otherwise string) string {
	best := int32(-1)
	for i := range attempts {
		if a := &attempts[i]; a.Fence <= fence && a.Fence > best {
			best, otherwise = a.Fence, a.PartnerKey
		}
	}
	return otherwise
}

// spacedNotFounds counts "not found" answers from a time on that lie at least a gap apart.
func spacedNotFounds(facts []ledger.Fact, from time.Time, gap time.Duration) int {
	var at []time.Time
	for i := range facts {
		if f := &facts[i]; f.Kind == ledger.FactLookUp && f.Verdict == saysNotFound && !f.At.Before(from) {
			at = append(at, f.At)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	n := 0
	var last time.Time
	for _, t := range at {
		if n == 0 || t.Sub(last) >= max(gap, time.Second) {
			n, last = n+1, t
		}
	}
	return n
}

// replays counts how many of the latest sends in a row ended Unknown with the same code.
func replays(attempts []ledger.Attempt, facts []ledger.Fact) int {
	n, code := 0, ""
	for fence := maxFence; ; n++ {
		var latest *ledger.Attempt
		for i := range attempts {
			if a := &attempts[i]; a.Fence < fence && (latest == nil || a.Fence > latest.Fence) {
				latest = a
			}
		}
		if latest == nil {
			return n
		}
		fence = latest.Fence
		i := slices.IndexFunc(facts, func(f ledger.Fact) bool {
			return f.Kind == ledger.FactVerdict && f.Token == latest.Token && f.Verdict == saysUnknown
		})
		if i < 0 || (n > 0 && facts[i].Code != code) {
			return n
		}
		code = facts[i].Code
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// StepKind says what to do next with an operation.
type StepKind uint8

// The steps.
const (
	Park      StepKind = iota // a person is needed; Code says why. The zero value is the safe one
	Send                      // one call, under a committed attempt
	LookUp                    // ask the partner
	WaitUntil                 // nothing before At
	Authorize                 // the outcomes
	Reject
	Cancel
)

// Step is what Next decided.
type Step struct {
	Kind       StepKind
	At         time.Time // with WaitUntil
	Code       string    // with Park, Reject and Cancel
	TransferID string    // with Authorize
}

// Situation is what Next needs besides the Standing.
type Situation struct {
	Profile    *bankclient.Profile
	Now        time.Time // database clock
	NotAfter   time.Time // zero = none
	NotBefore  time.Time // zero = none, or past already when the claim was made
	Lease      time.Duration
	Paused     bool   // it may be asked after, not sent
	Unobserved int    // consecutive claims that ended without an observation
	Unsendable bool   // the local check refused the request
	Refused    string // the policy of today refuses the job, with this code; "" = it does not
	Stopped    string // nothing more is sent, for this reason: somebody wants it stopped; "" = it may be
	SameBytes  bool   // body and partner key are those of the attempts under this key, if there are any
	SameTerms  bool   // and so are credential and endpoint

	LookUpPatience   int // look-ups where the key window does not bound them
	PoisonClaims     int
	IdenticalReplays int
}

// pausedFor is how long a paused operation that might be sent waits before it is looked at again.
const pausedFor = 30 * time.Second

// Next decides by what the package's doc allows in doubt what may be done. It is the only function that allows a send.
func Next(s Standing, at Situation) Step {
	step := nextUnpaused(s, at)
	if step.Kind == Send && !at.NotBefore.IsZero() { // whoever made it due: a resume or a person who asked
		return Step{Kind: WaitUntil, At: at.NotBefore}
	}
	if step.Kind == Send && at.Paused {
		return Step{Kind: WaitUntil, At: at.Now.Add(pausedFor)}
	}
	return step
}

func nextUnpaused(s Standing, at Situation) Step {
	expired := !at.NotAfter.IsZero() && !at.Now.Before(at.NotAfter)
	switch {
	case s.Mismatch:
		return Step{Kind: Park, Code: "mismatch"}
	case s.Authorized:
		return Step{Kind: Authorize, TransferID: s.TransferID}
	case s.Rejected && !s.InDoubt:
		return Step{Kind: Reject, Code: s.Code}
	case at.Unobserved >= at.PoisonClaims:
		return Step{Kind: Park, Code: "poison"}
	case s.InDoubt:
		return nextInDoubt(s, at, expired)
	case at.Stopped != "":
		return Step{Kind: Cancel, Code: at.Stopped}
	case expired:
		return Step{Kind: Cancel, Code: "expired"}
	case at.Unsendable:
		return Step{Kind: Park, Code: "local_check"}
	case !at.SameBytes:
		return Step{Kind: Park, Code: "request_changed"}
	case at.Refused != "": // whatever was tried before moved nothing
		return Step{Kind: Park, Code: at.Refused}
	}
	return Step{Kind: Send}
}

// nextInDoubt looks up first, sends again only where the key protects it, and otherwise looks up until patience ends.
func nextInDoubt(s Standing, at Situation, expired bool) Step {
	p := at.Profile
	// A send decided now may start until the lease is nearly over and arrive as late as the partner's bound says: within the window still.
	windowEnd := s.FirstSent.Add(min(p.KeyWindow/2, p.KeyWindow-at.Lease-p.LatestArrival))
	windowOpen := p.KeyWindow > 0 && !s.FirstSent.IsZero() && at.Now.Before(windowEnd)
	replayed := s.Replays >= at.IdenticalReplays
	known := s.Attempts > 0 || s.Absent // without an attempt on record, whose terms would be repeated is not known
	maySend := known && p.HonoursKeys && windowOpen && !at.Unsendable && at.Refused == "" && at.Stopped == "" && at.SameBytes && at.SameTerms && !expired && !s.Seen && !replayed && !s.Rejected &&
		(p.SerialisesDuplicates || s.Absent)
	asks := p.LookUp != bankclient.LookUpNone
	switch {
	case asks && !s.Asked:
		return Step{Kind: LookUp}
	case maySend && (!asks || s.NotFound):
		if may := s.LastSent.Add(p.MinResendDelay); at.Now.Before(may) {
			return Step{Kind: WaitUntil, At: may}
		}
		return Step{Kind: Send}
	case replayed:
		return Step{Kind: Park, Code: "identical_replays"}
	case s.Absent:
		return Step{Kind: Park, Code: cmp.Or(at.Stopped, at.Refused, "absent_not_resendable")}
	case !asks:
		return Step{Kind: Park, Code: "in_doubt_no_look_up"}
	case windowOpen, s.LookUps < at.LookUpPatience && (p.KeyWindow == 0 || s.FirstSent.IsZero()):
		return Step{Kind: LookUp}
	case expired:
		return Step{Kind: Park, Code: "expired_in_doubt"}
	}
	return Step{Kind: Park, Code: "in_doubt"}
}
