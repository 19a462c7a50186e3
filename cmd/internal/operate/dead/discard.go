package dead

import (
	"context"
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
)

// mostSingly is how many letters are discarded by naming them. More need a plan.
const mostSingly = 1000

// discardable are the classes of letters about which a discard decides anything.
func discardable() []Class {
	return []Class{ClassReplayable, ClassFinished, ClassUnfinished, ClassConflicting, ClassMalformed, ClassUnroutable, ClassDuplicate, ClassUnjudged}
}

// Discard is the act of deciding that letters are not replayed. They stay in the stream. Discarded is set after it ran.
type Discard struct {
	Discarded int64
	Decided   int64 // before, and left as they are

	d       *Desk
	plan    *Plan   // or
	entries []Entry // these
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
	act := &Discard{d: d, stream: micros(state.Created), why: why}
	for i, l := range letters {
		if l.Sequence != sequences[i] {
			return nil, missing(sequences[i])
		}
		act.entries = append(act.entries, entryOf(l))
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
		if err := a.discard(ctx, by, a.sequences()); err != nil {
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
		if err := a.discard(ctx, by, page); err != nil {
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

func (a *Discard) discard(ctx context.Context, by operate.Operator, sequences []uint64) error {
	stream, draft := a.stream, (*uuid.UUID)(nil)
	if a.plan != nil {
		stream, draft = a.plan.Stream, &a.plan.draft
	}
	return a.d.inTx(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, plan, key, reason)
			SELECT $1, w.sequence, 'discard', $2, $3, l.key, $4 FROM unnest($5::int8[]) AS w(sequence)
			  JOIN dead_letters l ON l.stream_at = $1 AND l.sequence = w.sequence
			ON CONFLICT DO NOTHING`, stream, by.Name, draft, a.why, sequences)
		if err != nil {
			return fmt.Errorf("discard %d letters: %w", len(sequences), err)
		}
		a.Discarded += done.RowsAffected()
		a.Decided += int64(len(sequences)) - done.RowsAffected()
		return nil
	})
}
