package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// story is one operation for a person: what happened, what that proves, and what may be done.
type story struct {
	ledger.Explanation
	operate.KeyHistory
	profile bankclient.Profile
	known   bool  // the partner is configured here
	here    terms // what look-ups are made under, by the configuration here
	reveal  bool
	lease   time.Duration // of claims, by the configuration here
	streams streams
	run     batch.Run // of the file that it came from; zero = none, or not to be seen
	row     int
}

// storyLine is one thing that happened.
type storyLine struct {
	At    string `json:"at"`
	Fence int32  `json:"fence,omitzero"`
	What  string `json:"what"`
	Words string `json:"words"`

	at time.Time
}

// lines puts everything that happened in the order of the database clock.
func (s *story) lines() []storyLine {
	var lines []storyLine
	add := func(at time.Time, fence int32, what, format string, args ...any) {
		lines = append(lines, storyLine{At: precise(at), Fence: fence, What: what, Words: fmt.Sprintf(format, args...), at: at})
	}
	jobs := s.tellJobs()
	if !s.PublishedAt.IsZero() && !slices.ContainsFunc(jobs, func(j jobRow) bool { return j.at.Truncate(time.Microsecond).Equal(s.PublishedAt) }) {
		add(s.PublishedAt, 0, "job", "the broker stored the job, for the first time")
	}
	for _, j := range jobs {
		add(j.at, 0, "job", "%s", j.words())
	}
	add(s.CreatedAt, 0, "recorded", "the ledger recorded the operation, from %s over %s%s", s.Source, s.Route, s.ofRun())
	for i, a := range s.Explanation.Attempts {
		add(a.At, a.Fence, fmt.Sprintf("attempt %d", i+1), "claimed under fence %d and, before any byte left, committed: %s to %s as %s, body %x.. (renderer %d)",
			a.Fence, a.Endpoint, a.Partner, a.Credential, a.BodySHA256[:4], a.Renderer)
	}
	for _, f := range s.Facts {
		add(f.At, f.Fence, string(f.Kind), "%s", factWords(f))
	}
	for _, e := range s.Entries {
		add(e.At, 0, "entry "+e.Event, "%s %s %s", maskEntry(e.Account, s.reveal), signed(e.AmountMinor, e.Currency), e.Currency)
	}
	if !s.OutcomeAt.IsZero() {
		add(s.OutcomeAt, 0, "outcome", "%s, for good", s.State)
	}
	if !s.ContradictedAt.IsZero() {
		add(s.ContradictedAt, 0, "contradicted", "the partner said otherwise afterwards")
	}
	for _, l := range s.Audit {
		add(l.At, 0, "desk", "%s: %s (%s) -> %s", l.By, l.Act, l.Reason, strings.TrimSpace(l.Outcome+" "+l.Detail))
	}
	s.letterLines(add)
	s.leaseLines(add)
	for _, e := range s.tellEvents() {
		add(e.at, 0, "event "+e.Type, "%s %s", e.ID, e.words)
	}
	slices.SortStableFunc(lines, func(a, b storyLine) int { return a.at.Compare(b.at) })
	return lines
}

func (s *story) ofRun() string {
	if s.run.RunKey == "" {
		return ""
	}
	return fmt.Sprintf(", as row %d of run %s", s.row, s.run.RunKey)
}

// heldWords say why an open operation is not started.
func (s *story) heldWords() string {
	if s.HeldReason != ledger.HeldByRun {
		return "It is not started because of: " + s.HeldReason + "."
	}
	return "It is not started: " + strings.TrimSpace("its run "+s.run.RunKey) + " was paused, which holds what was neither under way nor in doubt. The end of another pause does not let it go."
}

// whatHeldMay is what lets go an operation that its run holds.
func (s *story) whatHeldMay(key string) []string {
	cancel := "paidonce ops cancel " + key + " --reason ...   # end it before it is sent; nothing else of the run"
	switch {
	case s.run.RunKey == "":
		return []string{"paidonce batch status --key " + key + "   # names the run; `paidonce batch resume RUN --reason ...` lets it go", cancel}
	case s.run.State == batch.Cancelled:
		return []string{"paidonce batch cancel " + s.run.RunKey + " --reason ...   # goes on with the cancellation of the run, which was interrupted"}
	}
	return []string{"paidonce batch resume " + s.run.RunKey + " --reason ...   # lets it go, with all that the run holds", cancel}
}

// factEvidence is what is told of an observation's evidence: of a call what bankclient writes, of a decision what the ledger writes.
type factEvidence struct {
	Phase     string `json:"phase"`
	Status    int    `json:"status"`
	Why       string `json:"why"`
	Error     string `json:"error"`
	State     string `json:"state"`
	Replayed  bool   `json:"replayed"`
	ElapsedMS int64  `json:"elapsed_ms"`
	Decision  string `json:"decision"`
	By        string `json:"by"`
	Reason    string `json:"reason"`
	Evidence  string `json:"evidence"`

	Differs     []string `json:"differs"`
	TransferID  string   `json:"transfer_id"`
	TransferIDs []string `json:"transfer_ids"`
}

// factWords tells one observation.
func factWords(f ledger.Fact) string {
	var e factEvidence
	_ = json.Unmarshal(f.Evidence, &e) // what is not told this way stands in -o json as it is
	switch f.Kind {
	case ledger.FactResolution:
		return fmt.Sprintf("%s decided: %s (%s)%s", e.By, decisionWords(e.Decision, f), e.Reason, prefixed("; evidence: ", e.Evidence))
	case ledger.FactNote:
		return "noted: " + f.Code + prefixed(", transfer ", f.TransferID)
	}
	words := verdictWords(f) + e.disagreement(f) + e.elsewhere(f)
	if f.Kind == ledger.FactLookUp {
		words = "asked the partner: " + words
	}
	if f.Kind == ledger.FactLate {
		words = "came after the claim had ended: " + words
	}
	var how []string
	for _, part := range []string{
		prefixed("got as far as ", e.Phase), number2("HTTP ", e.Status), e.Error, prefixed("state ", e.State), e.Why,
	} {
		if part != "" {
			how = append(how, part)
		}
	}
	if e.Replayed {
		how = append(how, "a replay of an earlier answer")
	}
	if e.ElapsedMS > 0 {
		how = append(how, fmt.Sprintf("%d ms", e.ElapsedMS))
	}
	if len(how) == 0 {
		return words
	}
	return words + " (" + strings.Join(how, ", ") + ")"
}

func decisionWords(to string, f ledger.Fact) string {
	switch ledger.State(to) {
	case ledger.StateAuthorized:
		return "authorized, transfer " + f.TransferID
	case ledger.StateRejected:
		return "rejected, " + f.Code
	}
	return "open again, for the worker's rules to go on"
}

func verdictWords(f ledger.Fact) string {
	code := prefixed(" ", f.Code)
	switch f.Verdict {
	case "authorized":
		return "authorized, transfer " + f.TransferID
	case "rejected":
		if f.Authoritative {
			return "rejected, and kept under the key:" + code
		}
		return "rejected:" + code
	case "not_executed":
		return "proved that this call moved nothing:" + code
	case "in_flight":
		return "the partner is at work on it" + code
	case "key_reused":
		return "the partner has the key with another content" + code
	case "mismatch":
		return "the answer disagrees with what was sent" + code
	case "not_found":
		return "it has nothing under this key"
	case "no_answer":
		return "no answer that proves anything" + code
	case "unknown":
		return "it is not known whether money moved" + code
	}
	return strings.TrimSpace(f.Verdict + code)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func number2(prefix string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(prefix, n)
}

// said reports whether the partner ever said so.
func (s *story) said(verdicts ...string) bool {
	return slices.ContainsFunc(s.Facts, func(f ledger.Fact) bool { return slices.Contains(verdicts, f.Verdict) })
}

// notFound reports that a look-up since the last attempt found nothing, and none found anything after it.
func (s *story) notFound() bool {
	var last, notFound, found time.Time
	for _, a := range s.Explanation.Attempts {
		last = laterOf(last, a.At)
	}
	for _, f := range s.Facts {
		switch {
		case f.Kind == ledger.FactLookUp && f.Verdict == "not_found":
			notFound = laterOf(notFound, f.At)
		case (f.Kind == ledger.FactLookUp || f.Kind == ledger.FactWebhook) && slices.Contains([]string{"unknown", "in_flight", "key_reused"}, f.Verdict):
			found = laterOf(found, f.At)
		}
	}
	return notFound.After(last) && !found.After(notFound)
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// halfWindow is until when something may be sent again; zero = never.
func (s *story) halfWindow() time.Time {
	if !s.known || !s.profile.HonoursKeys || s.profile.KeyWindow == 0 || s.FirstSentAt.IsZero() {
		return time.Time{}
	}
	return s.FirstSentAt.Add(s.profile.KeyWindow / 2)
}

// recovered is what a recovery raises every fence by.
const recovered = 1_000_000

// whatIsKnown are sentences that rest on what is recorded.
func (s *story) whatIsKnown() []string {
	known := []string{fmt.Sprintf("It is for %s, from %s over %s.", s.Amount, s.Source, s.Route)}
	switch n := len(s.Explanation.Attempts); {
	case n == 0 && s.FirstSentAt.IsZero():
		known = append(known, "It was never sent: no attempt is on record.")
	case n == 0:
		known = append(known, "No attempt is on record, but one may have been lost in a failover.")
	default:
		known = append(known, fmt.Sprintf("It was to be sent %d time(s), each time to %s under the partner key %s; the first time at %s.", n, s.Partner, s.PartnerKey, cli.Time(s.FirstSentAt)))
	}
	for _, one := range []struct {
		holds bool
		words string
	}{
		{s.Fence > 0 && s.Fence < recovered, fmt.Sprintf("It was claimed, or decided outside of a claim, %d time(s): its fence.", s.Fence)},
		{s.Fence >= recovered, "It has been through a recovery, so some of its claims may be missing."},
		{s.State == ledger.StateAuthorized, "The partner authorized it as " + s.TransferID + "."},
		{s.State == ledger.StateRejected, "It is rejected: " + s.Code + ". No money moved."},
		{s.State == ledger.StateCancelled, "It is cancelled: " + s.Code + ". It was not sent."},
		{s.said("mismatch"), "The partner's answer disagreed with what was sent."},
		{s.InDoubt && s.notFound(), "A look-up since the last attempt found nothing at the partner."},
		{s.InDoubt && s.said("in_flight"), "The partner has said that it was at work on it."},
		{s.State == ledger.StateParked, "It waits for a person because of: " + cmp.Or(s.Code, "no reason on record") + "."},
		{s.HeldReason != "", s.heldWords()},
		{!s.ContradictedAt.IsZero(), "The partner said something else than the outcome afterwards: money may have moved that should not have."},
		{s.State == ledger.StateClaimed, "A worker holds it until " + cli.Time(s.LeaseUntil) + "; then the sweep takes over."},
		{len(s.Unpublished) > 0, "Not yet published: " + strings.Join(s.Unpublished, ", ") + "."},
		{len(s.Unpublished) == 0 && s.State.Finished(), "Its events are published."},
	} {
		if one.holds {
			known = append(known, one.words)
		}
	}
	known = append(known, s.links()...)
	if s.InDoubt && s.known {
		known = append(known, s.changedTerms()...)
	}
	if half := s.halfWindow(); s.InDoubt && !half.IsZero() {
		known = append(known, fmt.Sprintf("Nothing is sent again after %s, half of the key's window of %v.", cli.Time(half), s.profile.KeyWindow))
	}
	return known
}

// whatIsNot are the questions that nothing on record answers.
func (s *story) whatIsNot() []string {
	var open []string
	for _, one := range []struct {
		holds bool
		words string
	}{
		{s.InDoubt, "Whether the partner moved the money."},
		{s.InDoubt && s.said("key_reused"), "What the partner has under this key."},
		{s.said("mismatch"), "What exactly the partner did: the amount or the beneficiary may be others."},
		{!s.ContradictedAt.IsZero(), "Whether money moved twice, or against the outcome."},
		{s.State == ledger.StateAuthorized && s.Settlement == "pending", "Whether the transfer is settled."},
		{s.Payload == nil, "The job as it arrived: its payload is purged."},
		{s.Partner != "" && !s.known, "What partner " + s.Partner + " declares: it is not configured here."},
	} {
		if one.holds {
			open = append(open, one.words)
		}
	}
	return append(open, s.streamsNotKnown()...)
}

// whatMayBeDone are exact commands, each with what it is for.
func (s *story) whatMayBeDone() []string {
	key := s.Key.String()
	var next []string
	for _, p := range s.Proposals {
		switch p.State {
		case operate.ProposalOpen:
			next = append(next, "paidonce proposals approve "+p.ID.String()+" --reason ...   # another person than "+p.By+" agrees to "+p.Act)
		case operate.ProposalApproved, operate.ProposalBegun:
			next = append(next, "# proposal "+p.ID.String()+" is approved: run the same "+p.Act+" again, before "+cli.Time(p.ExpiresAt))
		case operate.ProposalOvertaken:
			next = append(next, "# proposal "+p.ID.String()+" of "+p.By+" to "+p.Act+" is overtaken: "+p.Overtaken)
		case operate.ProposalDeclined, operate.ProposalExpired, operate.ProposalExecuted:
		}
	}
	asks := !s.known || s.profile.LookUp != bankclient.LookUpNone
	switch {
	case !s.ContradictedAt.IsZero():
		next = append(next, "paidonce prove   # what the partner's statement says; then call the partner")
	case s.State == ledger.StateParked:
		next = append(next, s.whatParkedMay(key, asks)...)
	case s.State == ledger.StateOpen && s.InDoubt && asks:
		next = append(next, "paidonce ops lookup "+key+" --reason ...   # ask the partner now; the worker does by itself at "+cli.Time(s.DueAt))
	case s.State == ledger.StateOpen && s.HeldReason == ledger.HeldByRun:
		next = append(next, s.whatHeldMay(key)...)
	case s.State == ledger.StateOpen && !s.InDoubt:
		next = append(next, "paidonce ops cancel "+key+" --reason ...   # end it before it is sent; due at "+cli.Time(s.DueAt))
	}
	for _, p := range s.Paused { // the last thing to do: what made it pause comes first
		who := ""
		if p.ForDoubt() {
			who = "an approver, once it is understood; "
		}
		next = append(next, strings.TrimSpace("paidonce resume "+string(p.Scope)+" "+p.Name)+" --reason ...   # "+who+"paused by "+p.By+": "+p.Reason)
	}
	if len(next) == 0 {
		next = append(next, "# nothing: no person is needed")
	}
	return next
}

func (s *story) whatParkedMay(key string, asks bool) []string {
	var next []string
	sent := !s.FirstSentAt.IsZero()
	if sent && asks {
		next = append(next, "paidonce ops lookup "+key+" --reason ...   # have a worker ask the partner now")
	}
	if sent {
		next = append(next, "paidonce ops resolve "+key+" --authorized --transfer-id T --evidence ... --reason ...   # the partner has the transfer T")
	}
	if !s.said("authorized") {
		next = append(next, "paidonce ops resolve "+key+" --rejected --code C --evidence ... --reason ...   # no money moved, and none will")
	}
	half := s.halfWindow()
	switch {
	case s.said("mismatch"):
		next = append(next, "# no retry: the partner's answer disagreed with what was sent")
	case s.InDoubt && !s.notFound():
		next = append(next, "# no retry yet: it is in doubt, and no look-up since the last attempt proves that the partner has nothing")
	case s.InDoubt && (half.IsZero() || !s.Now.Before(half)):
		next = append(next, "# no retry: the partner's key protects it no longer")
	default:
		next = append(next, "paidonce ops resolve "+key+" --retry --reason ...   # open it again; the worker's rules say what may be sent")
	}
	return next
}
