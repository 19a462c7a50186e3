package operate

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger"
)

// Owner is whoever logs in as the role that owns the ledger. It makes the first operators, while fewer than two can decide anything, and
// gives a new token to one who has lost the last; the database believes nobody else to be it.
func (s *Service) Owner(ctx context.Context) (Operator, error) {
	role, owns, err := s.login(ctx)
	if err != nil {
		return Operator{}, err
	}
	if !owns {
		return Operator{}, fmt.Errorf("%w: %s does not own the ledger", ErrNotPermitted, role)
	}
	return Operator{Name: "database:" + role, Roles: []Role{RoleAdmin}, proof: ownerProof}, nil
}

// login tells the database role that this is, and whether it owns the ledger.
func (s *Service) login(ctx context.Context) (role string, owns bool, err error) {
	err = s.db.QueryRow(ctx, `SELECT session_user::text, pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'operators'::regclass), 'MEMBER')`).
		Scan(&role, &owns)
	if err != nil {
		return "", false, fmt.Errorf("ask whose database role it is: %w", denied(err))
	}
	return role, owns, nil
}

// ownerProof is nobody's: what the owner may, its login says.
const ownerProof = "00"

// Person is an Act upon an operator. Token is the new one after it ran; it is kept nowhere else.
type Person struct {
	Token string

	s      *Service
	act    string
	name   string
	roles  []Role
	grace  time.Duration
	always bool
	own    bool
}

// AddOperator makes an operator with a first token.
func (s *Service) AddOperator(ctx context.Context, by Operator, name string, roles []Role) (*Person, error) {
	roles = slices.Compact(slices.Sorted(slices.Values(roles)))
	always, err := s.othersDecide(ctx, by)
	return &Person{s: s, act: "operator_add", name: name, roles: roles, always: always && !slices.Equal(roles, []Role{RoleViewer})}, err
}

// RotateToken gives an operator a new token. The old ones hold for the grace.
func (s *Service) RotateToken(ctx context.Context, by Operator, name string, grace time.Duration) (*Person, error) {
	always, err := s.othersDecide(ctx, by)
	return &Person{s: s, act: "operator_rotate", name: name, grace: grace, own: by.Name == name, always: always && by.Name != name}, err
}

// DisableOperator ends an operator for good, at once: whoever fears for a token waits for nobody.
func (s *Service) DisableOperator(name string) *Person {
	return &Person{s: s, act: "operator_disable", name: name}
}

// othersDecide reports whether somebody else could agree to a new identity. The owner of the database needs nobody.
func (s *Service) othersDecide(ctx context.Context, by Operator) (others bool, err error) {
	if by.proof == ownerProof {
		return false, nil
	}
	if err := s.db.QueryRow(ctx, `SELECT others_decide($1)`, by.Name).Scan(&others); err != nil {
		return true, fmt.Errorf("ask who else decides: %w", denied(err))
	}
	return others, nil
}

// Name is the act's.
func (p *Person) Name() string { return p.act }

// Role is admin, but for one's own token.
func (p *Person) Role() Role {
	if p.own {
		return RoleViewer
	}
	return RoleAdmin
}

// Target is the operator's name.
func (p *Person) Target() string { return p.name }

// Weight asks for a second person wherever an identity could be made to agree with oneself.
func (p *Person) Weight() Weight { return Weight{Always: p.always} }

// Content says who, and which roles.
func (p *Person) Content() ([]byte, error) {
	grace := ""
	if p.grace > 0 {
		grace = p.grace.String()
	}
	return json.Marshal(struct {
		Name  string `json:"name"`
		Roles []Role `json:"roles,omitempty"`
		Grace string `json:"grace,omitempty"`
	}{p.name, p.roles, grace}, json.Deterministic(true))
}

// Check refuses names that are none or taken, and people who are not there.
func (p *Person) Check(ctx context.Context, _ Operator) error {
	var known, disabled bool
	err := p.s.db.QueryRow(ctx, `SELECT count(*) > 0, count(disabled_at) > 0 FROM operators WHERE name = $1`, p.name).Scan(&known, &disabled)
	switch {
	case err != nil:
		return fmt.Errorf("look for the operator: %w", denied(err))
	case p.act != "operator_add" && !known:
		return fmt.Errorf("%w: %s", ErrNoOperator, p.name)
	case p.act == "operator_rotate" && disabled:
		return fmt.Errorf("%w: %s", ErrDisabled, p.name)
	case p.act != "operator_add":
		return nil
	case known:
		return fmt.Errorf("%w: %s", ErrKnownOperator, p.name)
	case !regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`).MatchString(p.name):
		return Refuse("name", "%q is not a name: use a-z, 0-9, '.', _ and -, at most 63, starting with a letter or digit", p.name)
	case slices.Contains(ledger.ProgramNames(), p.name):
		return Refuse("name", "%s is how the log names the program itself", p.name)
	case len(p.roles) == 0 || slices.ContainsFunc(p.roles, func(r Role) bool { return !slices.Contains(Roles(), r) }):
		return Refuse("role", "an operator needs at least one of the roles %v", Roles())
	}
	return nil
}

// Run does it in one transaction.
func (p *Person) Run(ctx context.Context, by Operator) (outcome string, err error) {
	token := NewToken()
	outcome = OutcomeDone
	err = p.s.write(ctx, by, func(tx pgx.Tx) error {
		switch p.act {
		case "operator_disable":
			tag, err := tx.Exec(ctx, `UPDATE operators SET disabled_at = clock_timestamp(), disabled_by = $2 WHERE name = $1 AND disabled_at IS NULL`, p.name, by.Name)
			if err == nil && tag.RowsAffected() == 0 {
				outcome = OutcomeNoEffect
			}
			return err
		case "operator_add":
			if _, err := tx.Exec(ctx, `INSERT INTO operators (name, roles, made_by) VALUES ($1, $2, $3)`, p.name, texts(p.roles), by.Name); isTwice(err) {
				return fmt.Errorf("%w: %s", ErrKnownOperator, p.name)
			} else if err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO operator_tokens (digest, operator, made_by) VALUES ($1, $2, $3)`, digestOf(proofOf(token)), p.name, by.Name)
		if err != nil || p.act == "operator_add" {
			return err
		}
		// Two at most: the newest of the old ones holds for the grace, what is older ends.
		_, err = tx.Exec(ctx, `
WITH old AS (SELECT made_at, row_number() OVER (ORDER BY made_at DESC) AS n FROM operator_tokens WHERE operator = $1 AND valid_until > clock_timestamp())
UPDATE operator_tokens t SET valid_until = least(t.valid_until, clock_timestamp() + CASE o.n WHEN 2 THEN $2::int8 ELSE 0 END * interval '1 ms')
  FROM old o WHERE t.operator = $1 AND t.made_at = o.made_at AND o.n > 1`, p.name, p.grace.Milliseconds())
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", p.act, p.name, err)
	}
	if p.act != "operator_disable" {
		p.Token = token
	}
	return outcome, nil
}

func texts(roles []Role) []string {
	list := make([]string, len(roles))
	for i, r := range roles {
		list[i] = string(r)
	}
	return list
}
