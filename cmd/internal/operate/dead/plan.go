package dead

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// Plan is a selection that was frozen.
type Plan struct {
	ID        uuid.UUID // made of the digest
	Digest    [32]byte  // of everything below and of every letter
	At        time.Time
	ExpiresAt time.Time // until when it may be begun
	By        string
	Stream    time.Time
	Filter    string
	Letters   int64
	Classes   []ClassSum // those that there are, in the order of Classes

	draft uuid.UUID
}

// ClassSum is how many letters of a plan are of one class, and the money of those whose amount can be read.
type ClassSum struct {
	Class   Class
	Count   int64
	Amounts []Sum
	Unread  int64
}

// sum gives one class; zero when there is none of it.
func (p *Plan) sum(c Class) ClassSum {
	for _, s := range p.Classes {
		if s.Class == c {
			return s
		}
	}
	return ClassSum{Class: c}
}

// weightOf is how much an act upon some classes of a plan is about.
func (p *Plan) weightOf(classes ...Class) operate.Weight {
	w := operate.Weight{Amounts: map[string]int64{}}
	for _, c := range classes {
		s := p.sum(c)
		w.Count += int(s.Count)
		for _, one := range s.Amounts {
			if w.Amounts[one.Currency] > math.MaxInt64-one.Minor {
				w.Amounts[one.Currency] = math.MaxInt64
				continue
			}
			w.Amounts[one.Currency] += one.Minor
		}
	}
	return w
}

// Planning is the act of freezing a selection. Plan is set after it ran. It is always a new plan: a frozen one is never changed.
type Planning struct {
	Plan *Plan

	d      *Desk
	filter Filter
}

// Freeze is the act of freezing what a filter selects.
func (d *Desk) Freeze(f Filter) *Planning { return &Planning{d: d, filter: f} }

// Name is plan.
func (*Planning) Name() string { return "plan" }

// Role is the operator's.
func (*Planning) Role() operate.Role { return operate.RoleOperator }

// Target is the dead letters.
func (*Planning) Target() string { return "dead letters" }

// Content is the filter.
func (p *Planning) Content() ([]byte, error) { return []byte(p.filter.text()), nil }

// Weight is nothing: a plan does nothing.
func (*Planning) Weight() operate.Weight { return operate.Weight{} }

// Run freezes the selection: the letters with their class, all as one snapshot tells them, and then the plan that names them.
func (p *Planning) Run(ctx context.Context, by operate.Operator) (string, error) {
	state, err := p.d.Sync(ctx)
	if err != nil {
		return "", err
	}
	draft, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make the id of a plan: %w", err)
	}
	plan := &Plan{By: by.Name, Stream: micros(state.Created), Filter: p.filter.text(), draft: draft}
	err = p.d.inTxOf(ctx, by, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT now(), now() + $1::int8 * interval '1 ms'`, p.d.opt.PlanTTL.Milliseconds()).Scan(&plan.At, &plan.ExpiresAt); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, `INSERT INTO dead_plan_letters (draft, sequence, class, sha256, key, amount_minor, currency)
			SELECT $12, l.sequence, `+classOf("$13")+`, l.sha256, l.key, l.amount_minor, l.currency FROM dead_letters l`+classified+where,
			append(p.filter.args(state.Created), draft, p.d.opt.Policy)...)
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return ErrNothing
		}
		plan.Letters = done.RowsAffected()
		if plan.Digest, err = plan.digest(func(after uint64) ([]planned, error) { return plan.letters(ctx, tx, after) }); err != nil {
			return err
		}
		plan.ID = planID(plan.Digest)
		_, err = tx.Exec(ctx, `INSERT INTO dead_plans (id, draft, digest, at, expires_at, by, stream_at, filter, letters) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			plan.ID, draft, plan.Digest[:], plan.At, plan.ExpiresAt, plan.By, plan.Stream, plan.Filter, plan.Letters)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("freeze the plan: %w", err)
	}
	p.Plan = plan
	return operate.OutcomeDone, nil
}

// planID is a UUID of version 8 made of a digest.
func planID(digest [32]byte) uuid.UUID {
	id := uuid.UUID(digest[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// planned is one letter as a plan froze it.
type planned struct {
	sequence uint64
	class    Class
	sha256   []byte
	key      *uuid.UUID
	minor    *int64
	currency *string
}

// planPage is how many letters of a plan are read at a time.
const planPage = 4 * pageRows

const planLetters = `SELECT sequence, class, sha256, key, amount_minor, currency FROM dead_plan_letters WHERE draft = $1 AND sequence > $2
	ORDER BY draft, sequence LIMIT $3`

func scanPlanned(row pgx.CollectableRow) (l planned, err error) {
	return l, row.Scan(&l.sequence, &l.class, &l.sha256, &l.key, &l.minor, &l.currency)
}

// letters reads a page of a plan's letters, those behind a sequence.
func (p *Plan) letters(ctx context.Context, tx pgx.Tx, after uint64) ([]planned, error) {
	rows, err := tx.Query(ctx, planLetters, p.draft, after, planPage)
	if err != nil {
		return nil, fmt.Errorf("read the letters of a plan: %w", err)
	}
	page, err := pgx.CollectRows(rows, scanPlanned)
	if err != nil {
		return nil, fmt.Errorf("read the letters of a plan: %w", err)
	}
	return page, nil
}

// lettersOf is the same in a transaction of its own.
func (d *Desk) lettersOf(ctx context.Context, p *Plan, after uint64) (page []planned, err error) {
	err = d.inTx(ctx, func(tx pgx.Tx) error {
		page, err = p.letters(ctx, tx, after)
		return err
	})
	return page, err
}

// digest hashes the plan and its letters in order, every part with its length, and counts the classes on the way.
func (p *Plan) digest(page func(after uint64) ([]planned, error)) (sum [32]byte, err error) {
	h := hasher{sha256.New()}
	h.text("paidonce/dead/plan/1")
	h.text(p.draft.String())
	h.number(p.At.UnixMicro())
	h.number(p.ExpiresAt.UnixMicro())
	h.text(p.By)
	h.number(p.Stream.UnixMicro())
	h.text(p.Filter)
	h.number(p.Letters)
	sums := map[Class]*ClassSum{}
	var n int64
	for after := uint64(0); ; {
		letters, err := page(after)
		if err != nil {
			return sum, err
		}
		if len(letters) == 0 {
			break
		}
		for i := range letters {
			h.letter(&letters[i])
			count(sums, &letters[i])
		}
		n += int64(len(letters))
		after = letters[len(letters)-1].sequence
	}
	h.number(n)
	p.Classes = p.Classes[:0]
	for _, c := range Classes() {
		if s := sums[c]; s != nil {
			p.Classes = append(p.Classes, *s)
		}
	}
	return [32]byte(h.Sum(nil)), nil
}

func count(sums map[Class]*ClassSum, l *planned) {
	s := sums[l.class]
	if s == nil {
		s = &ClassSum{Class: l.class}
		sums[l.class] = s
	}
	s.Count++
	if l.minor == nil {
		s.Unread++
		return
	}
	s.Amounts = addSum(s.Amounts, *l.currency, *l.minor)
}

type hasher struct{ hash.Hash }

func (h hasher) number(n int64) {
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // all 64 bits, whatever the sign
}

func (h hasher) text(s string) {
	h.number(int64(len(s)))
	_, _ = h.Write([]byte(s))
}

func (h hasher) letter(l *planned) {
	h.number(int64(l.sequence)) //nolint:gosec // all 64 bits
	h.text(string(l.class))
	h.text(string(l.sha256))
	key, minor, currency := uuid.Nil, int64(0), ""
	if l.key != nil {
		key = *l.key
	}
	if l.minor != nil {
		minor, currency = *l.minor, *l.currency
	}
	h.text(string(key[:]))
	h.number(minor)
	h.text(currency)
}

// Plan reads a plan, and refuses one whose letters are not those that its id was made of.
func (d *Desk) Plan(ctx context.Context, id uuid.UUID) (*Plan, error) {
	p := &Plan{}
	var digest []byte
	err := d.db.QueryRow(ctx, `SELECT id, draft, digest, at, expires_at, by, stream_at, filter, letters FROM dead_plans WHERE id = $1`, id).
		Scan(&p.ID, &p.draft, &digest, &p.At, &p.ExpiresAt, &p.By, &p.Stream, &p.Filter, &p.Letters)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", ErrNoPlan, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", id, err)
	}
	sum, err := p.digest(func(after uint64) ([]planned, error) { return d.lettersOf(ctx, p, after) })
	if err != nil {
		return nil, err
	}
	if p.Digest = sum; !slices.Equal(sum[:], digest) || planID(sum) != id {
		return nil, operate.Refuse("plan_forged", "plan %s is not what it was when it was made: make a new one", id)
	}
	return p, nil
}

// contentOf is what a second person agrees to: the plan to the byte, and in numbers what it will do.
func (p *Plan) contentOf(w operate.Weight) ([]byte, error) {
	raw, err := json.Marshal(struct {
		Plan    string           `json:"plan"`
		Digest  string           `json:"digest"`
		Letters int              `json:"letters"`
		Amounts map[string]int64 `json:"amounts_minor"`
	}{p.ID.String(), hex.EncodeToString(p.Digest[:]), w.Count, w.Amounts}, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("render plan %s: %w", p.ID, err)
	}
	return raw, nil
}
