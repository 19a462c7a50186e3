package enumerate

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
)

// bank is a partner that is true to its profile. What it does with one request is the enumerator's choice among what such a partner may do.
type bank struct {
	profile    bankclient.Profile
	now        func() time.Time
	kept       map[string]*kept // by partner key
	executions []execution
	arrivals   []arrival
	late       []late
	lookUps    []lookedUp
	unsent     []uuid.UUID // claims under which a request was rendered, and not a byte of it left
}

// kept is what the bank keeps under a partner key.
type kept struct {
	result bankclient.Result
	at     time.Time
	booked bool
}

type execution struct {
	partnerKey, transferID string
	at                     time.Time
}

// arrival is one request as it came in.
type arrival struct {
	pr     bankclient.Prepared
	body   string
	at     time.Time
	act    act
	answer bankclient.Result // as the caller got it
	token  uuid.UUID         // of the claim under which it was sent
}

// late is a request that the bank executes after it was answered, or after the caller gave up.
type late struct {
	partnerKey string
	by         time.Time // the latest possible arrival
	raced      bool      // it is past the check for duplicates
}

type lookedUp struct {
	partnerKey string
	at         time.Time
	found      bankclient.Finding
	token      uuid.UUID // of the claim under which it was asked; nil = of none, as for a parked operation
}

// act is what the bank does with one request.
type act string

const (
	books        act = "books"          // executes, or repeats what it keeps, and says so
	rejects      act = "rejects"        // for good, kept under the key where keys are honoured
	rejectsWeak  act = "rejects_weak"   // for good, not kept
	refuses      act = "refuses"        // not executed: this call
	limits       act = "limits"         // not executed: the partner's limiter
	inFlight     act = "in_flight"      // says so and does nothing
	inFlightLate act = "in_flight_late" // says so and executes later
	keyReused    act = "key_reused"
	replyLost    act = "reply_lost"   // unknown, executed
	requestLost  act = "request_lost" // unknown, not executed
	lateAct      act = "late"         // unknown, executed after the timeout
	mismatches   act = "mismatches"   // executed, answered with something else
	ourFunds     act = "our_funds"
	ourLimits    act = "our_limits" // rejected for a cause of ours, kept under the key
)

// known is what is kept under a key and not forgotten.
func (b *bank) known(partnerKey string) *kept {
	k := b.kept[partnerKey]
	if k == nil || !b.profile.HonoursKeys || !b.now().Before(k.at.Add(b.profile.KeyWindow)) {
		return nil
	}
	return k
}

// acts are what a true partner may do with a request, the plain one first. only narrows them; nil does not.
func (b *bank) acts(pr bankclient.Prepared, only []act) []act {
	acts := []act{books, replyLost, requestLost, lateAct, refuses, rejects, rejectsWeak, limits, inFlight, inFlightLate, keyReused, mismatches, ourFunds}
	switch {
	case b.known(pr.PartnerKey) != nil:
		acts = []act{books, replyLost, limits, inFlight, keyReused, mismatches}
	case b.profile.HonoursKeys:
		acts = append(acts, ourLimits)
	}
	return slices.DeleteFunc(acts, func(a act) bool { return only != nil && !slices.Contains(only, a) })
}

// arrive is one request.
func (b *bank) arrive(pr bankclient.Prepared, a act, token uuid.UUID) bankclient.Result {
	said := b.answer(pr, a)
	b.arrivals = append(b.arrivals, arrival{pr: pr, body: string(pr.Body), at: b.now(), act: a, answer: said, token: token})
	return said
}

func (b *bank) answer(pr bankclient.Prepared, a act) bankclient.Result {
	pk := pr.PartnerKey
	switch a {
	case books:
		return b.book(pk)
	case replyLost:
		b.book(pk)
		return bankclient.Result{Code: "timeout"}
	case mismatches:
		said := b.book(pk)
		return bankclient.Result{Verdict: bankclient.Mismatch, TransferID: said.TransferID + "_other"}
	case rejects:
		said := bankclient.Result{Verdict: bankclient.Rejected, Code: "account_closed", Authoritative: b.profile.HonoursKeys}
		b.kept[pk] = &kept{result: said, at: b.now()}
		return said
	case ourLimits:
		said := bankclient.Result{Verdict: bankclient.Rejected, Code: "daily_limit", Authoritative: true, Cause: bankclient.CauseOurLimits, Scope: bankclient.ScopePartner}
		b.kept[pk] = &kept{result: said, at: b.now()}
		return said
	case rejectsWeak:
		return bankclient.Result{Verdict: bankclient.Rejected, Code: "compliance"}
	case refuses:
		return bankclient.Result{Verdict: bankclient.NotExecuted, Code: "refused"}
	case limits:
		return bankclient.Result{Verdict: bankclient.NotExecuted, Code: "rate_limited", Scope: bankclient.ScopePartner, RetryAfter: 7 * time.Second}
	case ourFunds:
		return bankclient.Result{Verdict: bankclient.NotExecuted, Code: "insufficient_funds", Scope: bankclient.ScopePartner, Cause: bankclient.CauseOurFunds}
	case inFlight:
		return bankclient.Result{Verdict: bankclient.InFlight, Code: "in_progress", RetryAfter: time.Second}
	case inFlightLate:
		b.postpone(pk)
		return bankclient.Result{Verdict: bankclient.InFlight, Code: "in_progress", RetryAfter: time.Second}
	case keyReused:
		return bankclient.Result{Verdict: bankclient.KeyReused, Code: "key_reused"}
	case requestLost:
		return bankclient.Result{Code: "timeout"}
	case lateAct:
		b.postpone(pk)
		return bankclient.Result{Code: "timeout"}
	}
	panic("the bank has no act " + string(a))
}

func (b *bank) postpone(pk string) {
	b.late = append(b.late, late{partnerKey: pk, by: b.now().Add(b.profile.LatestArrival), raced: !b.profile.SerialisesDuplicates})
}

// book executes once per key and window, where keys are honoured.
func (b *bank) book(pk string) bankclient.Result {
	if k := b.known(pk); k != nil {
		return k.result
	}
	return b.execute(pk)
}

func (b *bank) execute(pk string) bankclient.Result {
	id := fmt.Sprintf("tr_%d", len(b.executions)+1)
	b.executions = append(b.executions, execution{pk, id, b.now()})
	said := bankclient.Result{Verdict: bankclient.Authorized, TransferID: id}
	if k := b.kept[pk]; k == nil || !k.booked {
		b.kept[pk] = &kept{result: said, at: b.now(), booked: true}
	} else {
		k.at = b.now()
	}
	return said
}

// land executes one postponed request.
func (b *bank) land(i int) {
	l := b.late[i]
	b.late = append(b.late[:i:i], b.late[i+1:]...)
	if l.raced {
		b.execute(l.partnerKey)
		return
	}
	b.book(l.partnerKey)
}

// find is what a look-up may be answered.
type find string

const (
	truth    find = "truth"
	lags     find = "lags" // "not found", though it is there: only within the visibility bound, or where the look-up is not consistent
	noAnswer find = "no_answer"
	working  find = "working" // found, unfinished
)

func (b *bank) finds(pr bankclient.Prepared) []find {
	finds := []find{truth, noAnswer}
	if k := b.kept[pr.PartnerKey]; k != nil && (!b.profile.LookUpConsistent || b.now().Before(k.at.Add(b.profile.VisibilityBound))) {
		finds = append(finds, lags)
	}
	for _, l := range b.late {
		if l.partnerKey == pr.PartnerKey && b.kept[pr.PartnerKey] == nil {
			return append(finds, working)
		}
	}
	return finds
}

func (b *bank) lookUp(pr bankclient.Prepared, f find, token uuid.UUID) bankclient.Finding {
	found := bankclient.Finding{Answer: bankclient.NotFound}
	k := b.kept[pr.PartnerKey]
	switch {
	case f == noAnswer:
		found.Answer = bankclient.NoAnswer
	case f == working:
		found = bankclient.Finding{Answer: bankclient.Found, Result: bankclient.Result{Verdict: bankclient.InFlight}}
	case f == truth && k != nil:
		found = bankclient.Finding{Answer: bankclient.Found, Result: k.result}
	}
	b.lookUps = append(b.lookUps, lookedUp{pr.PartnerKey, b.now(), found, token})
	return found
}
