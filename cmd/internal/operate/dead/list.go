package dead

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/queue"
)

// pageRows is how many rows are read at a time.
const pageRows = 1000

// Listed is a letter as lists show it.
type Listed struct {
	Entry
	State State // "" = the stream alone does not tell
}

const entryFields = `l.sequence, l.at, l.first_seen, l.job_sequence, l.deliveries, l.replays, l.bytes, l.sha256, l.reason, l.detail, l.source, l.route,
	l.fault, l.key, l.fingerprint_version, l.fingerprint, l.amount_minor, l.currency`

// scanEntry reads entryFields and whatever follows them.
func scanEntry(row pgx.CollectableRow, e *Entry, more ...any) error {
	var firstSeen *time.Time
	var key *uuid.UUID
	var version *int16
	var minor *int64
	var currency *string
	var sum, fingerprint []byte
	err := row.Scan(append([]any{&e.Sequence, &e.At, &firstSeen, &e.JobSequence, &e.Deliveries, &e.Replays, &e.Bytes, &sum, &e.Reason, &e.Detail,
		&e.Source, &e.Route, &e.Fault, &key, &version, &fingerprint, &minor, &currency}, more...)...)
	if err != nil {
		return err
	}
	copy(e.SHA256[:], sum)
	if firstSeen != nil {
		e.FirstSeen = *firstSeen
	}
	if key != nil {
		e.Key = *key
	}
	if version != nil {
		e.Fingerprint.Version = *version
		copy(e.Fingerprint.Sum[:], fingerprint)
	}
	if minor != nil {
		e.Amount = money.Amount{Minor: *minor, Currency: *currency}
	}
	return nil
}

// List gives the letters of a selection in order, from an index that is brought up to date first. limit 0 = all.
func (d *Desk) List(ctx context.Context, f Filter, limit int) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		state, err := d.Sync(ctx)
		if err != nil {
			yield(Listed{}, err)
			return
		}
		for given := 0; limit <= 0 || given < limit; {
			page, err := d.page(ctx, state.Created, f, limit-given)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			given += len(page)
			f.From = page[len(page)-1].Sequence + 1
		}
	}
}

func (d *Desk) page(ctx context.Context, stream time.Time, f Filter, limit int) ([]Listed, error) {
	if limit <= 0 || limit > pageRows {
		limit = pageRows
	}
	page, err := collect(ctx, d, func(row pgx.CollectableRow) (l Listed, err error) { return l, scanEntry(row, &l.Entry, &l.State) },
		`SELECT `+entryFields+`, `+stateOf+` FROM dead_letters l`+decided+where+`ORDER BY l.stream_at, l.sequence LIMIT $12`, append(f.args(stream), limit)...)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return page, nil
}

// ListStream is List by the stream alone, while Postgres is away: the states are not told.
func (d *Desk) ListStream(ctx context.Context, f Filter, limit int) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		if f.State != "" {
			yield(Listed{}, fmt.Errorf("select by state: %w", ErrNeedsDB))
			return
		}
		given := 0
		for e, err := range d.selected(ctx, f) {
			if err != nil {
				yield(Listed{}, err)
				return
			}
			given++
			if !yield(Listed{Entry: *e}, nil) || given == limit {
				return
			}
		}
	}
}

// selected gives the entries of the stream that a filter selects.
func (d *Desk) selected(ctx context.Context, f Filter) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for letter, err := range d.letters.Scan(ctx, queue.DeadFilter{Route: f.Route, Source: f.Source, From: f.From}) {
			if err != nil {
				yield(nil, err)
				return
			}
			if f.To > 0 && letter.Sequence > f.To {
				return
			}
			if e := entryOf(letter); f.matches(&e) && !yield(&e, nil) {
				return
			}
		}
	}
}

// Group is one cause: the letters of one reason and detail.
type Group struct {
	Reason string
	Detail string
	Count  int64
	// Amounts is the money of those whose amount can be read, by currency in order. Minor units may be more than one amount can be.
	Amounts   []Sum
	Unread    int64 // whose amount cannot be read
	Oldest    time.Time
	Newest    time.Time
	Undecided int64 // new or planned; -1 = the stream alone does not tell
}

// Sum is money of one currency.
type Sum struct {
	Currency string
	Minor    int64
}

const groups = `
WITH chosen AS (SELECT l.reason, l.detail, l.currency, l.amount_minor, l.at, a.act IS NULL OR (a.act = 'replay' AND p.id IS NULL) OR ` + stateOf + ` = 'planned' AS undecided
                  FROM dead_letters l` + decided + where + `)
SELECT reason, detail, coalesce(currency, ''), count(*), least(coalesce(sum(amount_minor), 0), 9223372036854775807)::int8, min(at), max(at), count(*) FILTER (WHERE undecided)
  FROM chosen GROUP BY reason, detail, currency`

// Groups tells the causes of a selection, the most frequent first.
func (d *Desk) Groups(ctx context.Context, f Filter) ([]Group, error) {
	state, err := d.Sync(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := d.db.Query(ctx, groups, f.args(state.Created)...)
	if err != nil {
		return nil, fmt.Errorf("group dead letters: %w", err)
	}
	defer rows.Close()
	var g grouping
	for rows.Next() {
		var one Group
		var currency string
		var minor int64
		if err := rows.Scan(&one.Reason, &one.Detail, &currency, &one.Count, &minor, &one.Oldest, &one.Newest, &one.Undecided); err != nil {
			return nil, fmt.Errorf("group dead letters: %w", err)
		}
		g.add(one, currency, minor)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("group dead letters: %w", err)
	}
	return g.sorted(), nil
}

// GroupsStream is Groups by the stream alone.
func (d *Desk) GroupsStream(ctx context.Context, f Filter) ([]Group, error) {
	if f.State != "" {
		return nil, fmt.Errorf("select by state: %w", ErrNeedsDB)
	}
	var g grouping
	for e, err := range d.selected(ctx, f) {
		if err != nil {
			return nil, err
		}
		g.add(Group{Reason: e.Reason, Detail: e.Detail, Count: 1, Oldest: e.At, Newest: e.At, Undecided: -1}, e.Amount.Currency, e.Amount.Minor)
	}
	return g.sorted(), nil
}

// grouping adds up groups by reason and detail. Details are constant texts of ours, so that there are few.
type grouping map[[2]string]*Group

func (g *grouping) add(one Group, currency string, minor int64) {
	if *g == nil {
		*g = grouping{}
	}
	name := [2]string{one.Reason, one.Detail}
	into, known := (*g)[name]
	if !known {
		into = &Group{Reason: one.Reason, Detail: one.Detail, Oldest: one.Oldest, Newest: one.Newest}
		(*g)[name] = into
	}
	into.Count += one.Count
	if one.Undecided < 0 {
		into.Undecided = -1
	} else {
		into.Undecided += one.Undecided
	}
	if one.Oldest.Before(into.Oldest) {
		into.Oldest = one.Oldest
	}
	if one.Newest.After(into.Newest) {
		into.Newest = one.Newest
	}
	if currency == "" {
		into.Unread += one.Count
		return
	}
	into.Amounts = addSum(into.Amounts, currency, minor)
}

// addSum keeps sums in the order of their currencies. What is more than can be counted stays the most that can.
func addSum(sums []Sum, currency string, minor int64) []Sum {
	at, found := slices.BinarySearchFunc(sums, currency, func(s Sum, c string) int { return strings.Compare(s.Currency, c) })
	if !found {
		sums = slices.Insert(sums, at, Sum{Currency: currency})
	}
	if sums[at].Minor > math.MaxInt64-minor { // letters say what they like
		sums[at].Minor = math.MaxInt64
		return sums
	}
	sums[at].Minor += minor
	return sums
}

func (g *grouping) sorted() []Group {
	all := make([]Group, 0, len(*g))
	for _, one := range *g {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Group) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return strings.Compare(a.Reason+"\x00"+a.Detail, b.Reason+"\x00"+b.Detail)
	})
	return all
}
