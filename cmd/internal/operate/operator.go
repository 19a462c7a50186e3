package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Role is what an operator may do. Every change names the least role that may ask for it.
type Role string

// The roles. An operator may have several; an admin has all of them, except that nobody approves a proposal of their own.
const (
	RoleViewer   Role = "viewer"   // looks, masked
	RoleOperator Role = "operator" // asks for changes
	RoleApprover Role = "approver" // agrees to what others propose
	RoleAdmin    Role = "admin"    // makes operators, and all of the above
)

// Roles lists them.
func Roles() []Role { return []Role{RoleViewer, RoleOperator, RoleApprover, RoleAdmin} }

// Operator is a person as their token says. One that Identify did not give has no proof and can change nothing.
type Operator struct {
	Name  string
	Roles []Role

	proof string // SHA-256 of the token in hex, presented to the database with every change
}

// Has reports whether the operator may act in a role. Everybody may look; an admin may everything.
func (o Operator) Has(r Role) bool {
	return len(o.Roles) > 0 && (r == RoleViewer || slices.Contains(o.Roles, r) || slices.Contains(o.Roles, RoleAdmin))
}

// tokenPrefix lets scanners for leaked secrets, and people, see what it is.
const tokenPrefix = "po_"

// NewToken makes a token of 256 random bits. It is shown once and kept nowhere.
func NewToken() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return tokenPrefix + hex.EncodeToString(raw)
}

// proofOf is what stands for a token everywhere but in its file.
func proofOf(token string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return hex.EncodeToString(sum[:])
}

// digestOf is what the database keeps of a proof.
func digestOf(proof string) []byte {
	raw, err := hex.DecodeString(proof)
	if err != nil {
		panic("a proof is made here, in hex")
	}
	sum := sha256.Sum256(raw)
	return sum[:]
}

// Identify gives the operator whose token it is, or ErrUnknownOperator.
func (s *Service) Identify(ctx context.Context, token string) (Operator, error) {
	o := Operator{proof: proofOf(token)}
	var roles []string
	raw, _ := hex.DecodeString(o.proof)
	err := s.db.QueryRow(ctx, `SELECT name, roles FROM operator_of($1)`, raw).Scan(&o.Name, &roles)
	if errors.Is(err, pgx.ErrNoRows) {
		return Operator{}, s.nobody(ctx)
	}
	if err != nil {
		return Operator{}, fmt.Errorf("identify the operator: %w", denied(err))
	}
	for _, r := range roles {
		o.Roles = append(o.Roles, Role(r))
	}
	return o, nil
}

// nobody says why a token is not known: it is wrong, or there are no operators yet.
func (s *Service) nobody(ctx context.Context) error {
	var exist bool
	if err := s.db.QueryRow(ctx, `SELECT operators_any()`).Scan(&exist); err != nil {
		return fmt.Errorf("identify the operator: %w", denied(err))
	}
	if !exist {
		return ErrNoOperators
	}
	return ErrUnknownOperator
}

// Listed is one operator as lists show it.
type Listed struct {
	Name       string
	Roles      []Role
	MadeAt     time.Time
	MadeBy     string
	DisabledAt time.Time
	Tokens     []time.Time // when each token that is valid ends; zero = when it is replaced
}

// Operators lists everybody on record, by name.
func (s *Service) Operators(ctx context.Context) ([]Listed, error) {
	rows, err := s.db.Query(ctx, `
SELECT o.name, o.roles, o.made_at, o.made_by, o.disabled_at,
       ARRAY(SELECT nullif(t.valid_until, 'infinity') FROM operator_tokens t
              WHERE t.operator = o.name AND t.valid_until > now() AND o.disabled_at IS NULL ORDER BY t.made_at)
  FROM operators o ORDER BY o.name`)
	if err != nil {
		return nil, fmt.Errorf("list operators: %w", denied(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Listed, error) {
		var l Listed
		var roles []string
		var disabled *time.Time
		var tokens []*time.Time
		err := row.Scan(&l.Name, &roles, &l.MadeAt, &l.MadeBy, &disabled, &tokens)
		for _, r := range roles {
			l.Roles = append(l.Roles, Role(r))
		}
		l.DisabledAt = orZero(disabled)
		for _, t := range tokens {
			l.Tokens = append(l.Tokens, orZero(t))
		}
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("list operators: %w", denied(err))
	}
	return list, nil
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
