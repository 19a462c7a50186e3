package dead

import (
	"slices"

	"github.com/paidonce/paidonce/ledger"
)

// Class is how a letter stands to the ledger, and so what a replay would do.
type Class string

// The classes. Only a replayable letter is ever published.
const (
	ClassReplayable  Class = "replayable"  // never became an operation
	ClassFinished    Class = "finished"    // its operation has an outcome: a replay has no effect
	ClassUnfinished  Class = "unfinished"  // its operation is owned by the ledger
	ClassConflicting Class = "conflicting" // its key belongs to another withdrawal
	ClassMalformed   Class = "malformed"   // is no job
	ClassUnroutable  Class = "unroutable"  // its route is not configured
	// What the settings would refuse again, by the code of the refusal.
	ClassOverLimit  Class = "amount_over_limit"
	ClassCurrency   Class = "currency_not_on_route"
	ClassNotAllowed Class = "route_not_allowed"
	ClassDuplicate  Class = "duplicate" // another letter, or its replay, stands for the same withdrawal
	ClassReplayed   Class = "replayed"
	ClassDiscarded  Class = "discarded"
	ClassCorrected  Class = "corrected"
	ClassUnjudged   Class = "unjudged" // its operation has a fingerprint of another version
)

// Classes lists them in the order in which plans show them.
func Classes() []Class {
	return []Class{ClassReplayable, ClassFinished, ClassUnfinished, ClassConflicting, ClassMalformed, ClassUnroutable, ClassOverLimit, ClassCurrency,
		ClassNotAllowed, ClassDuplicate, ClassReplayed, ClassDiscarded, ClassCorrected, ClassUnjudged}
}

// Means says it in words.
func (c Class) Means() string {
	switch c {
	case ClassReplayable:
		return "never became an operation: is replayed"
	case ClassFinished:
		return "its operation has an outcome: a replay has no effect"
	case ClassUnfinished:
		return "its operation is open, claimed or parked: the ledger drives it, see `paidonce ops`"
	case ClassConflicting:
		return "its key belongs to another withdrawal: needs a new key, see `paidonce dead correct`"
	case ClassMalformed:
		return "is no job: not replayable as it is, see `paidonce dead correct`"
	case ClassUnroutable:
		return "its route is not configured: would be a dead letter again"
	case ClassOverLimit:
		return "more than its route takes: would be refused again, until the limit is raised or `paidonce dead correct`"
	case ClassCurrency:
		return "its route does not take the currency: would be refused again, see `paidonce dead correct`"
	case ClassNotAllowed:
		return "its source may not use the route: would be refused again, until the settings let it or `paidonce dead correct --route`"
	case ClassDuplicate:
		return "another letter, or a replay that is under way, stands for the same withdrawal"
	case ClassReplayed, ClassDiscarded, ClassCorrected:
		return "was " + string(c) + ": not again"
	case ClassUnjudged:
		return "its operation was recorded by another version of the fingerprint: leave it to the version that knows it"
	}
	panic("a class without a meaning")
}

// Refused reports whether the settings would refuse a letter of the class again: the class is the code of that refusal.
func (c Class) Refused() bool {
	return c == ClassOverLimit || c == ClassCurrency || c == ClassNotAllowed
}

// same reports whether a plan may still run when a letter of one class is found to be of another: an operation that comes to its end by itself
// changes nothing for a plan, which does nothing about either.
func (c Class) same(now Class) bool {
	passing := []Class{ClassUnfinished, ClassFinished}
	return c == now || slices.Contains(passing, c) && slices.Contains(passing, now)
}

// classified joins what classOf needs, beside decided. o: the operation under the key. k: the letters of the key in the stream, and whether one
// asks for something else that nobody has discarded. s: how often the key was replayed. c: whether it was replaced.
const classified = decided + `
 LEFT JOIN LATERAL (SELECT x.id, x.state, x.code, x.fingerprint_version, x.fingerprint FROM operations x WHERE x.key = l.key LIMIT 1) o ON true
 LEFT JOIN LATERAL (
   SELECT bool_or(CASE WHEN m.fingerprint <> l.fingerprint THEN (
            SELECT true FROM dead_letters n CROSS JOIN LATERAL (
              SELECT FROM dead_letter_acts d WHERE d.stream_at = n.stream_at AND d.sequence = n.sequence AND d.act = 'discard' LIMIT 1) e
             WHERE n.key = m.key AND n.stream_at = m.stream_at AND n.fingerprint = m.fingerprint LIMIT 1) IS NULL
            ELSE false END) AS differs,
          (array_agg(m.sequence ORDER BY m.replays DESC, m.sequence) FILTER (WHERE m.fingerprint = l.fingerprint AND b.act IS NULL))[1] AS foremost,
          bool_or(b.act = 'discard' AND m.fingerprint = l.fingerprint) AS discarded
     FROM dead_letters m
     LEFT JOIN LATERAL (
       SELECT d.act FROM dead_letter_acts d
        WHERE d.stream_at = m.stream_at AND d.sequence = m.sequence AND d.act IN ('replay', 'discard', 'correct') LIMIT 1) b ON true
    WHERE m.key = l.key AND m.stream_at = l.stream_at AND m.fingerprint IS NOT NULL
 ) k ON l.fingerprint IS NOT NULL
 LEFT JOIN LATERAL (
   SELECT max(r.replay_n) AS replays FROM dead_letter_acts r WHERE r.key = l.key AND r.act = 'replay'
 ) s ON l.fingerprint IS NOT NULL
 LEFT JOIN LATERAL (SELECT true AS corrected FROM corrections c WHERE c.old_key = l.key LIMIT 1) c ON l.key IS NOT NULL `

// classOf tells the class of l, beside classified; policy is a parameter: a Policy, or NULL.
func classOf(policy string) string {
	policy = "(" + policy + "::jsonb)"
	return `CASE WHEN a.act = 'discard' THEN 'discarded' WHEN a.act = 'correct' THEN 'corrected' WHEN a.act = 'replay' THEN 'replayed'
 WHEN c.corrected THEN 'corrected' WHEN l.fingerprint IS NULL THEN 'malformed'
 WHEN o.fingerprint_version <> l.fingerprint_version THEN 'unjudged' WHEN o.fingerprint <> l.fingerprint THEN 'conflicting'
 WHEN o.state = 'cancelled' AND o.code = 'discarded' THEN 'discarded' WHEN o.state IN ('authorized', 'rejected', 'cancelled') THEN 'finished' WHEN o.id IS NOT NULL THEN 'unfinished'
 WHEN k.discarded THEN 'discarded' WHEN k.differs THEN 'conflicting' WHEN s.replays > l.replays OR k.foremost <> l.sequence THEN 'duplicate'
 WHEN ` + policy + ` IS NULL THEN 'replayable' WHEN ` + policy + ` -> 'routes' -> l.route IS NULL THEN 'unroutable'
 WHEN ` + policy + ` ? 'sources' AND NOT coalesce(` + policy + ` -> 'sources' -> l.source ? l.route, false) THEN 'route_not_allowed'
 WHEN ` + policy + ` -> 'routes' -> l.route -> l.currency IS NULL THEN 'currency_not_on_route'
 WHEN l.amount_minor > (` + policy + ` -> 'routes' -> l.route ->> l.currency)::int8 THEN 'amount_over_limit' ELSE 'replayable' END`
}

// maySent tells of l whether a claim of its key may have been lost in a failover, so that it may have been sent: the rules of the ledger's claims,
// and what the worker that buried it has found out. While nobody has recovered a ledger that has moved, that is so of every letter.
const maySent = `coalesce((SELECT NOT (` + ledger.AtHome + `)
    OR coalesce(coalesce(l.first_seen, l.at) < g.doubt_before, false) OR position('may have been sent' IN l.detail) > 0
    OR EXISTS (SELECT FROM strays y WHERE y.key = l.key)
    OR l.key IS NOT NULL AND (SELECT ` + ledger.KeyMayBeLost + ` FROM (SELECT l.key, l.source) w)
  FROM ledger_identity g), true)`
