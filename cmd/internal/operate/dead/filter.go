package dead

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// State is where a letter stands, read from what was done to it.
type State string

// The states. Planned: a plan that may still be begun holds it, or its replay was begun and is not confirmed, or its correction is on record and was
// neither published nor worked.
const (
	StateNew       State = "new"
	StatePlanned   State = "planned"
	StateReplayed  State = "replayed"
	StateDiscarded State = "discarded"
	StateCorrected State = "corrected"
)

// States lists them.
func States() []State {
	return []State{StateNew, StatePlanned, StateReplayed, StateDiscarded, StateCorrected}
}

// Filter selects letters. The zero value selects all.
type Filter struct {
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"` // exactly
	Route  string    `json:"route,omitempty"`
	Source string    `json:"source,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of becoming a dead letter; from it on
	Until  time.Time `json:"until,omitzero"` // and before it
	Key    uuid.UUID `json:"key,omitzero"`
	State  State     `json:"state,omitempty"`
	From   uint64    `json:"from,omitzero"` // sequence
	To     uint64    `json:"to,omitzero"`
}

// Check says what is wrong with a filter.
func (f Filter) Check() error {
	if f.State != "" && !slices.Contains(States(), f.State) {
		names := make([]string, 0, len(States()))
		for _, s := range States() {
			names = append(names, string(s))
		}
		return fmt.Errorf("there is no state %q: %s", f.State, strings.Join(names, ", "))
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return fmt.Errorf("the times of the selection leave nothing between them")
	}
	return nil
}

// text is the filter as a plan keeps it.
func (f Filter) text() string {
	if !f.Since.IsZero() {
		f.Since = f.Since.UTC()
	}
	if !f.Until.IsZero() {
		f.Until = f.Until.UTC()
	}
	raw, err := json.Marshal(f, json.Deterministic(true))
	if err != nil {
		panic("a filter is texts, numbers and times: " + err.Error())
	}
	return string(raw)
}

// matches judges an entry by all that the stream tells.
func (f Filter) matches(e *Entry) bool {
	return (f.Reason == "" || f.Reason == e.Reason) && (f.Detail == "" || f.Detail == e.Detail) && (f.Route == "" || f.Route == e.Route) &&
		(f.Source == "" || f.Source == e.Source) && (f.Since.IsZero() || !e.At.Before(f.Since)) && (f.Until.IsZero() || e.At.Before(f.Until)) &&
		(f.Key == uuid.Nil || f.Key == e.Key) && e.Sequence >= f.From && (f.To == 0 || e.Sequence <= f.To)
}

// where is the same in SQL, over dead_letters l, with parameters from $2 on; $1 is the time of the stream. State is told by stateOf.
const where = ` WHERE l.stream_at = $1 AND ($2 = '' OR l.reason = $2) AND ($3 = '' OR l.detail = $3) AND ($4 = '' OR l.route = $4) AND ($5 = '' OR l.source = $5)
   AND ($6::timestamptz IS NULL OR l.at >= $6) AND ($7::timestamptz IS NULL OR l.at < $7) AND ($8::uuid IS NULL OR l.key = $8)
   AND l.sequence >= $9 AND ($10::int8 = 0 OR l.sequence <= $10) AND ($11 = '' OR ` + stateOf + ` = $11) `

func (f Filter) args(stream time.Time) []any {
	return []any{micros(stream), f.Reason, f.Detail, f.Route, f.Source, orNil(f.Since, time.Time{}), orNil(f.Until, time.Time{}), orNil(f.Key, uuid.Nil),
		int64(min(f.From, 1<<62)), int64(min(f.To, 1<<62)), string(f.State)} //nolint:gosec // bounded
}

// decided joins the one decision about a letter, and what came of it. Each is looked up by itself: to a planner that has not seen these tables grow
// any join looks as good, also one that reads all acts for each letter.
const decided = ` LEFT JOIN LATERAL (
   SELECT d.act, d.plan, d.key FROM dead_letter_acts d
    WHERE d.stream_at = l.stream_at AND d.sequence = l.sequence AND d.act IN ('replay', 'discard', 'correct') LIMIT 1) a ON true
 LEFT JOIN LATERAL (
   SELECT d.id FROM dead_letter_acts d WHERE d.stream_at = l.stream_at AND d.sequence = l.sequence AND d.act = 'published' LIMIT 1) p ON true `

// stateOf tells where a letter stands, beside decided.
const stateOf = `CASE a.act WHEN 'discard' THEN 'discarded'
 WHEN 'correct' THEN CASE WHEN p.id IS NULL AND (SELECT true FROM operations v WHERE v.key = a.key LIMIT 1) IS NULL THEN 'planned' ELSE 'corrected' END
 WHEN 'replay' THEN CASE WHEN p.id IS NULL THEN 'planned' ELSE 'replayed' END
 ELSE CASE WHEN (SELECT true FROM dead_plan_letters g JOIN dead_plans h ON h.draft = g.draft
                  WHERE g.sequence = l.sequence AND h.stream_at = l.stream_at AND h.expires_at > now() LIMIT 1) THEN 'planned' ELSE 'new' END END`

// orNil gives NULL for the zero value.
func orNil[T comparable](v, zero T) *T {
	if v == zero {
		return nil
	}
	return &v
}
