package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger/money"
)

// CountedActs lists the acts that are about so many things, and so can have a limit of them.
func CountedActs() []string { return []string{"batch_submit", "discard", "replay", "resolve"} }

// Limit is what one person may do alone of one thing: of an act at most so many things at once, of a currency at most so much money in one act, in
// minor units.
type Limit struct {
	What     string
	Settings *int64 // in the settings; nil = none there, which for a currency is none at all
	Owner    *int64 // what the owner of the ledger keeps in the database; nil = none there
	Holds    *int64 // the narrower of the two; nil = no limit
	At       time.Time
	By       string // who set Owner, and when
}

// Text is a limit in the form in which SetLimit takes it.
func (l Limit) Text(most *int64) string {
	switch {
	case most == nil:
		return ""
	case isAct(l.What):
		return strconv.FormatInt(*most, 10)
	}
	return money.Amount{Minor: *most, Currency: l.What}.Decimal()
}

func isAct(what string) bool { return slices.Contains(CountedActs(), what) }

// kept is what the owner of the ledger keeps in the database. An older schema has nothing of the kind.
func (s *Service) kept(ctx context.Context) (map[string]Limit, error) {
	rows, err := s.db.Query(ctx, `SELECT what, most, at, by FROM operator_limits`)
	kept := map[string]Limit{}
	if err == nil {
		var l Limit
		var most int64
		_, err = pgx.ForEachRow(rows, []any{&l.What, &most, &l.At, &l.By}, func() error {
			one := l
			one.Owner = new(most)
			kept[l.What] = one
			return nil
		})
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeNoTable {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the limits of operators: %w", denied(err))
	}
	return kept, nil
}

// Limits lists what one person may do alone: acts first, then currencies. Kept says whether the owner keeps any: then a currency that it does not
// name has none.
func (s *Service) Limits(ctx context.Context) (list []Limit, kept bool, err error) {
	all, err := s.kept(ctx)
	if err != nil {
		return nil, false, err
	}
	if all == nil {
		all = map[string]Limit{}
	}
	kept = len(all) > 0
	for what, most := range s.opt.Limits.Counts {
		l := all[what]
		l.What, l.Settings = what, new(int64(most))
		all[what] = l
	}
	for what, most := range s.opt.Limits.Amounts {
		l := all[what]
		l.What, l.Settings = what, new(most)
		all[what] = l
	}
	for what, l := range all {
		l.Holds = l.holds(kept)
		all[what] = l
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Limit) int {
		if isAct(a.What) != isAct(b.What) {
			if isAct(a.What) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.What, b.What)
	}), kept, nil
}

func (l Limit) holds(kept bool) *int64 {
	settings, owner := l.Settings, l.Owner
	if !isAct(l.What) {
		none := int64(0)
		if settings == nil {
			settings = &none
		}
		if owner == nil && kept {
			owner = &none
		}
	}
	if settings == nil || owner != nil && *owner < *settings {
		return owner
	}
	return settings
}

// LimitAct changes what the owner of the ledger keeps.
type LimitAct struct {
	s    *Service
	what string
	most *int64 // nil = no limit is kept
}

// SetLimit keeps a limit: of an act a number of things, of a currency an amount with all its digits.
func (s *Service) SetLimit(what, most string) (*LimitAct, error) {
	if isAct(what) {
		n, err := strconv.ParseInt(most, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("the limit of %s is how many at once, 0 or more", what)
		}
		return &LimitAct{s: s, what: what, most: &n}, nil
	}
	digits, ok := money.Digits(what)
	if !ok {
		return nil, fmt.Errorf("a limit is one of a currency, or of one of the acts %v", CountedActs())
	}
	if none := (money.Amount{Currency: what}).Decimal(); most == none {
		return &LimitAct{s: s, what: what, most: new(int64)}, nil
	}
	amount, err := money.Parse(most, what)
	if err != nil {
		return nil, fmt.Errorf("the limit of %s is an amount with %d digits behind the point: %w", what, digits, err)
	}
	return &LimitAct{s: s, what: what, most: &amount.Minor}, nil
}

// UnsetLimit keeps none.
func (s *Service) UnsetLimit(what string) (*LimitAct, error) {
	if _, ok := money.Digits(what); !ok && !isAct(what) {
		return nil, fmt.Errorf("a limit is one of a currency, or of one of the acts %v", CountedActs())
	}
	return &LimitAct{s: s, what: what}, nil
}

// Name is limit_set or limit_unset.
func (a *LimitAct) Name() string {
	if a.most == nil {
		return "limit_unset"
	}
	return "limit_set"
}

// Role is admin; Check asks for the login, too.
func (a *LimitAct) Role() Role { return RoleAdmin }

// Target is the limit as it will be, so that the log says it.
func (a *LimitAct) Target() string {
	if a.most == nil {
		return a.what
	}
	return a.what + " " + Limit{What: a.what}.Text(a.most)
}

// Weight is none: the login is what another person has given.
func (a *LimitAct) Weight() Weight { return Weight{} }

// Content is the limit.
func (a *LimitAct) Content() ([]byte, error) {
	return json.Marshal(struct {
		What string `json:"what"`
		Most *int64 `json:"most,omitempty"`
	}{a.what, a.most}, json.Deterministic(true))
}

// Check refuses whoever is not logged in as the owner of the ledger: what bounds the desk is not the desk's to change.
func (a *LimitAct) Check(ctx context.Context, _ Operator) error {
	role, owns, err := a.s.login(ctx)
	if err != nil {
		return err
	}
	if !owns {
		return fmt.Errorf("%w: %s does not own the ledger, and only its owner keeps limits", ErrNotPermitted, role)
	}
	return nil
}

// Run keeps it.
func (a *LimitAct) Run(ctx context.Context, by Operator) (outcome string, err error) {
	statement, args := `DELETE FROM operator_limits WHERE what = $1`, []any{a.what}
	if a.most != nil {
		statement, args = `INSERT INTO operator_limits AS l (what, most, by) VALUES ($1, $2, $3)
			ON CONFLICT (what) DO UPDATE SET most = excluded.most, at = clock_timestamp(), by = excluded.by WHERE l.most <> excluded.most`,
			append(args, *a.most, by.Name)
	}
	err = a.s.write(ctx, by, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, statement, args...)
		if outcome = OutcomeDone; tag.RowsAffected() == 0 {
			outcome = OutcomeNoEffect
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", a.Name(), a.what, err)
	}
	return outcome, nil
}
