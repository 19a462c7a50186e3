package queue

import (
	"strings"

	"github.com/paidonce/paidonce/worker/job"
)

// The streams. Their names are part of the contract.
const (
	StreamJobs   = "WITHDRAWALS"
	StreamEvents = "WITHDRAWAL_EVENTS"
	StreamDead   = "WITHDRAWAL_DEAD"
)

// The first tokens of the subjects of the three streams.
const (
	jobsPrefix   = "withdrawals.jobs."
	eventsPrefix = "withdrawals.events."
	deadPrefix   = "withdrawals.dead."
)

// The headers of a dead letter. No name may end in Nats-Msg-Id: the server looks for that suffix.
const (
	headerReason     = "Paidonce-Reason"
	headerDetail     = "Paidonce-Detail"
	headerDeliveries = "Paidonce-Deliveries"
	headerStreamSeq  = "Paidonce-Stream-Seq"
	headerFirstSeen  = "Paidonce-First-Seen" // also of a job that is replayed
	headerStray      = "Paidonce-Stray"
	headerReplays    = "Paidonce-Replays" // also of a job that is replayed

	headerLedger = "Paidonce-Ledger" // of an event: the ledger that tells it

	headerTraceParent = "traceparent"
)

// ConsumerName is the name of the durable consumer of a route.
func ConsumerName(route string) string { return "route_" + route }

// RouteFilter is the subject filter of the durable consumer of a route: one token for the source, no more.
func RouteFilter(route string) string { return jobsPrefix + route + ".*" }

// splitSubject takes route and source from a subject below prefix. It says false when the subject does not have exactly these two
// tokens, or one of them is not a name; then no route's consumer may be expected to cover it.
func splitSubject(subject, prefix string) (route, source string, ok bool) {
	rest, found := strings.CutPrefix(subject, prefix)
	if !found {
		return "", "", false
	}
	route, source, found = strings.Cut(rest, ".")
	if !found || strings.Contains(source, ".") {
		return route, source, false
	}
	return route, source, job.ValidName(route) && job.ValidName(source)
}

// coverable takes the route from the subject of a job whose route, if it has a consumer, covers it: the filter of a consumer takes any
// source, even one that is no name, but exactly one token.
func coverable(subject string) (route string, ok bool) {
	route, source, found := strings.Cut(strings.TrimPrefix(subject, jobsPrefix), ".")
	return route, found && !strings.Contains(source, ".") && job.ValidName(route)
}
