package dead

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// mostSingly is how many letters are discarded by naming them. More need a plan.
const mostSingly = 1000

// discardable are the classes of letters about which a discard decides anything.
func discardable() []Class {
	return []Class{ClassReplayable, ClassFinished, ClassUnfinished, ClassConflicting, ClassMalformed, ClassUnroutable, ClassOverLimit, ClassCurrency, ClassNotAllowed,
		ClassDuplicate, ClassUnjudged}
}

// Discard is the act of deciding that letters are not replayed. They stay in the stream, and so do their jobs: the keys are closed. The numbers are
// set after it ran.
type Discard struct {
	Discarded int64
	Decided   int64 // before, and left as they are
	Closed    int64 // keys, now
	// Of the discarded letters whose key is no operation, those that have no key closed:
	Contested  int64 // another letter under the key asks for something else, or a replay of it is under way
	Doubtful   int64 // may have been sent before the last recovery
	Unreadable int64 // are no jobs

	d       *Desk
	plan    *Plan   // or
	entries []Entry // these
	letters map[uint64]queue.DeadLetter
	stream  time.Time
	why     string
	done    bool // before this run
}

// DiscardPlan is the act upon all of a plan that nothing was decided about. Why is kept with each letter.
func (d *Desk) DiscardPlan(ctx context.Context, p *Plan, why string) (*Discard, error) {
	a := &Discard{d: d, plan: p, why: why}
	left, err := d.undecided(ctx, p, 0, 1, discardable()...)
	a.done = len(left) == 0
	return a, err
}

// DiscardLetters is the act upon letters by their sequences.
func (d *Desk) DiscardLetters(ctx context.Context, sequences []uint64, why string) (*Discard, error) {
	sequences = slices.Compact(slices.Sorted(slices.Values(sequences)))
	if len(sequences) == 0 || len(sequences) > mostSingly {
		return nil, operate.Refuse("too_many", "name between 1 and %d letters, or make a plan", mostSingly)
	}
	state, err := d.Sync(ctx)
	if err != nil {
		return nil, err
	}
	letters, err := d.letters.Read(ctx, sequences)
	if err != nil {
		return nil, err
	}
	act := &Discard{d: d, stream: micros(state.Created), why: why, letters: map[uint64]queue.DeadLetter{}}
	for i, l := range letters {
		if l.Sequence != sequences[i] {
			return nil, missing(sequences[i])
		}
		act.entries = append(act.entries, entryOf(l))
		act.letters[l.Sequence] = l
	}
	var discarded int
	err = d.db.QueryRow(ctx, `SELECT count(*) FROM dead_letter_acts WHERE stream_at = $1 AND sequence = ANY ($2::int8[]) AND act = 'discard'`,
		act.stream, act.sequences()).Scan(&discarded)
	if err != nil {
		return nil, fmt.Errorf("read what was done to the letters: %w", err)
	}
	act.done = discarded == len(sequences)
	return act, nil
}

// Name is discard.
func (*Discard) Name() string { return "discard" }

// Role is the operator's.
func (*Discard) Role() operate.Role { return operate.RoleOperator }

// Target is the plan, or the letters.
func (a *Discard) Target() string {
	switch {
	case a.plan != nil:
		return a.plan.ID.String()
	case len(a.entries) == 1:
		return fmt.Sprintf("dead letter %d", a.entries[0].Sequence)
	}
	return fmt.Sprintf("%d dead letters from %d", len(a.entries), a.entries[0].Sequence)
}

// Content is the plan, or each letter by sequence and bytes.
func (a *Discard) Content() ([]byte, error) {
	if a.plan != nil {
		return a.plan.contentOf(a.plan.weightOf(discardable()...))
	}
	type one struct {
		Letter uint64 `json:"letter"`
		SHA256 string `json:"sha256"`
	}
	all := make([]one, len(a.entries))
	for i := range a.entries {
		all[i] = one{a.entries[i].Sequence, hex.EncodeToString(a.entries[i].SHA256[:])}
	}
	raw, err := json.Marshal(map[string]any{"stream_at": a.stream.Format(time.RFC3339Nano), "letters": all}, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("render the letters: %w", err)
	}
	return raw, nil
}

// Weight is the letters that would be discarded, and their money as far as it can be read.
func (a *Discard) Weight() operate.Weight {
	if a.done {
		return operate.Weight{}
	}
	if a.plan != nil {
		return a.plan.weightOf(discardable()...)
	}
	w := operate.Weight{Count: len(a.entries), Amounts: map[string]int64{}}
	for i := range a.entries {
		amount := a.entries[i].Amount
		switch sum := w.Amounts[amount.Currency]; {
		case amount.Currency == "":
		case sum > math.MaxInt64-amount.Minor:
			w.Amounts[amount.Currency] = math.MaxInt64
		default:
			w.Amounts[amount.Currency] = sum + amount.Minor
		}
	}
	return w
}

// Check refuses a plan that has changed, and letters about which something else was decided.
func (a *Discard) Check(ctx context.Context, _ operate.Operator) error {
	if a.plan != nil {
		left, err := a.d.undecided(ctx, a.plan, 0, 1, discardable()...)
		if err != nil || len(left) == 0 {
			return err
		}
		begun, err := a.begun(ctx)
		if err != nil || begun {
			return err // what is left of it is what nobody has decided about
		}
		if !time.Now().Before(a.plan.ExpiresAt) {
			return operate.Refuse("plan_expired", "plan %s could be begun until %s: make a new one", a.plan.ID, a.plan.ExpiresAt.UTC().Format(time.RFC3339))
		}
		return a.d.fresh(ctx, a.plan, nil)
	}
	var sequence uint64
	var act string
	err := a.d.db.QueryRow(ctx, `SELECT sequence, act FROM dead_letter_acts WHERE stream_at = $1 AND sequence = ANY ($2::int8[]) AND act IN ('replay', 'correct')
		ORDER BY sequence LIMIT 1`, a.stream, a.sequences()).Scan(&sequence, &act)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read what was done to the letters: %w", err)
	case act == "correct":
		return operate.Refuse("corrected", "dead letter %d was corrected: there is nothing left to decide", sequence)
	}
	return operate.Refuse("replayed", "dead letter %d was replayed: there is nothing left to decide; what came of it is its operation, or a later letter", sequence)
}

func (a *Discard) begun(ctx context.Context) (is bool, err error) {
	err = a.d.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM dead_letter_acts WHERE plan = $1 AND act = 'discard')`, a.plan.draft).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("read what was done of plan %s: %w", a.plan.ID, err)
	}
	return is, nil
}

func (a *Discard) sequences() []uint64 {
	all := make([]uint64, len(a.entries))
	for i := range a.entries {
		all[i] = a.entries[i].Sequence
	}
	return all
}

// Run decides, in parts that are each committed. A letter that was decided meanwhile is left as it is.
func (a *Discard) Run(ctx context.Context, by operate.Operator) (string, error) {
	if a.plan == nil {
		if err := a.discard(ctx, by, a.sequences(), a.letters); err != nil {
			return "", err
		}
		return a.outcome(), nil
	}
	ctx, lease, err := a.d.hold(ctx, a.plan)
	if err != nil {
		return "", err
	}
	defer lease.release(ctx)
	for after := uint64(0); ; {
		page, err := a.d.undecided(ctx, a.plan, after, pageRows, discardable()...)
		if err != nil {
			return "", err
		}
		if len(page) == 0 {
			return a.outcome(), nil
		}
		after = page[len(page)-1]
		letters, err := a.d.lettersIn(ctx, a.plan, page)
		if err != nil {
			return "", err
		}
		if err := a.discard(ctx, by, page, letters); err != nil {
			return "", err
		}
		a.d.opt.Progress("discard", a.Discarded, int64(a.Weight().Count))
	}
}

func (a *Discard) outcome() string {
	if a.Discarded == 0 {
		return operate.OutcomeNoEffect
	}
	return operate.OutcomeDone
}

func (a *Discard) discard(ctx context.Context, by operate.Operator, sequences []uint64, letters map[uint64]queue.DeadLetter) error {
	stream, draft := a.stream, (*uuid.UUID)(nil)
	if a.plan != nil {
		stream, draft = a.plan.Stream, &a.plan.draft
	}
	return a.d.inTxOf(ctx, by, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, plan, key, reason)
			SELECT $1, w.sequence, 'discard', $2, $3, l.key, $4 FROM unnest($5::int8[]) AS w(sequence)
			  JOIN dead_letters l ON l.stream_at = $1 AND l.sequence = w.sequence
			ON CONFLICT DO NOTHING RETURNING sequence`, stream, by.Name, draft, a.why, sequences)
		if err != nil {
			return fmt.Errorf("discard %d letters: %w", len(sequences), err)
		}
		now, err := pgx.CollectRows(rows, pgx.RowTo[uint64])
		if err != nil {
			return fmt.Errorf("discard %d letters: %w", len(sequences), err)
		}
		if err := a.closeKeys(ctx, tx, stream, now, letters); err != nil {
			return err
		}
		a.Discarded += int64(len(now))
		a.Decided += int64(len(sequences) - len(now))
		return nil
	})
}

// openKeys are letters whose key is no operation.
const openKeys = `SELECT l.sequence, l.sha256, l.fingerprint IS NULL, coalesce(k.differs, false) OR coalesce(s.replays, 0) > l.replays, ` + maySent + `
  FROM unnest($2::int8[]) AS w(sequence)
  JOIN LATERAL (SELECT x.stream_at, x.sequence, x.at, x.first_seen, x.detail, x.sha256, x.source, x.key, x.fingerprint_version, x.fingerprint, x.replays FROM dead_letters x
                 WHERE x.stream_at = $1 AND x.sequence = w.sequence LIMIT 1) l ON true` + classified + `
 WHERE o.id IS NULL`

const closeKeys = `SELECT count(*) FILTER (WHERE close_discarded_key($1, w.sequence, w.version, w.fingerprint, w.source, w.route, w.account, w.minor, w.currency))
  FROM unnest($2::int8[], $3::int2[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::int8[], $9::text[])
    AS w(sequence, version, fingerprint, source, route, account, minor, currency)`

// closeKeys closes the keys of letters that were discarded now. Without that their jobs would be paid when their route is configured, or after a
// recovery, since they are in the stream still.
func (a *Discard) closeKeys(ctx context.Context, tx pgx.Tx, stream time.Time, now []uint64, letters map[uint64]queue.DeadLetter) error {
	rows, err := tx.Query(ctx, openKeys, stream, now)
	if err != nil {
		return fmt.Errorf("read the keys of %d letters: %w", len(now), err)
	}
	var c closings
	var sequence uint64
	var sum []byte
	var unreadable, contested, doubtful bool
	_, err = pgx.ForEachRow(rows, []any{&sequence, &sum, &unreadable, &contested, &doubtful}, func() error {
		switch {
		case unreadable:
			a.Unreadable++
		case doubtful:
			a.Doubtful++
		case contested:
			a.Contested++
		default:
			return c.add(letters[sequence], sequence, sum)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the keys of %d letters: %w", len(now), err)
	}
	var closed int64
	err = tx.QueryRow(ctx, closeKeys, stream, c.sequence, c.version, c.fingerprint, c.source, c.route, c.account, c.minor, c.currency).Scan(&closed)
	if err != nil {
		return fmt.Errorf("close the keys of %d letters: %w", len(c.sequence), err)
	}
	a.Closed += closed
	return nil
}

// closings are what the operations of closed keys are made of, as columns.
type closings struct {
	sequence, minor                  []int64
	version                          []int16
	fingerprint                      [][]byte
	source, route, account, currency []string
}

// add reads a letter. One that is not the letter of the index is refused.
func (c *closings) add(l queue.DeadLetter, sequence uint64, sum []byte) error {
	j, err := job.Decode(l.Source, l.Route, l.Payload)
	if now := sha256.Sum256(l.Payload); err != nil || !bytes.Equal(now[:], sum) {
		return operate.Refuse("letter_changed", "dead letter %d is not the one that was indexed: ask again", sequence)
	}
	fingerprint := j.Fingerprint()
	c.sequence, c.minor = append(c.sequence, int64(sequence)), append(c.minor, j.Amount.Minor) //nolint:gosec // a sequence
	c.version, c.fingerprint = append(c.version, fingerprint.Version), append(c.fingerprint, fingerprint.Sum[:])
	c.source, c.route = append(c.source, j.Source), append(c.route, j.Route)
	c.account, c.currency = append(c.account, j.DebtorAccount.Reveal()), append(c.currency, j.Amount.Currency)
	return nil
}
