package operate_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
)

func TestMain(m *testing.M) { stack.Main(m) }

// desk is a ledger with its desk, as the command line has it, and people of every role.
type desk struct {
	t    *testing.T
	urls stack.DatabaseURLs
	*operate.Service
	ledger *ledger.Ledger
	pool   *pgxpool.Pool
	people map[string]operate.Operator
	tokens map[string]string
}

// people of a desk: adam is the admin, the others have one role each; olga and oscar are both operators, ada and abel both approvers.
func people() [][2]string {
	return [][2]string{{"ada", "approver"}, {"abel", "approver"}, {"olga", "operator"}, {"oscar", "operator"}, {"vera", "viewer"}}
}

func newDesk(t *testing.T, opt operate.Options) *desk {
	t.Helper()
	d := emptyDesk(t, opt)
	owner := d.as(d.urls.Owner, opt)
	d.add(owner, d.owner(owner), "adam", operate.RoleAdmin)
	for _, p := range people() {
		d.add(d.Service, d.people["adam"], p[0], operate.Role(p[1]))
	}
	return d
}

// emptyDesk has nobody yet.
func emptyDesk(t *testing.T, opt operate.Options) *desk {
	t.Helper()
	d := &desk{t: t, urls: stack.Databases(t), people: map[string]operate.Operator{}, tokens: map[string]string{}}
	l, err := ledger.Open(t.Context(), d.urls.Desk, ledger.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	d.ledger = l
	d.pool = d.connect(d.urls.Desk)
	d.Service = operate.New(l, d.pool, opt)
	return d
}

func (d *desk) connect(url string) *pgxpool.Pool {
	d.t.Helper()
	pool, err := ledger.OpenPool(d.t.Context(), url, ledger.Options{MaxConns: 8})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(pool.Close)
	return pool
}

// as is the same desk under another database role.
func (d *desk) as(url string, opt operate.Options) *operate.Service {
	return operate.New(d.ledger, d.connect(url), opt)
}

func (d *desk) owner(s *operate.Service) operate.Operator {
	d.t.Helper()
	o, err := s.Owner(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

// add makes an operator, with another admin's or approver's agreement where that is needed.
func (d *desk) add(s *operate.Service, by operate.Operator, name string, roles ...operate.Role) {
	d.t.Helper()
	ctx := d.t.Context()
	act, err := s.AddOperator(ctx, by, name, roles)
	if err != nil {
		d.t.Fatal(err)
	}
	r := operate.Request{By: by, Reason: "joins", Act: act}
	done, err := s.Do(ctx, r)
	if done.Proposal != nil {
		if _, err := s.Approve(ctx, d.people["ada"], done.Proposal.ID, done.Proposal.Digest, "known to me"); err != nil {
			d.t.Fatal(err)
		}
		_, err = s.Do(ctx, r)
	}
	if err != nil {
		d.t.Fatalf("add %s: %v", name, err)
	}
	d.tokens[name] = act.Token
	if d.people[name], err = d.Identify(ctx, act.Token); err != nil {
		d.t.Fatal(err)
	}
}

// superuser runs SQL as nobody of paidonce may.
func (d *desk) superuser() *pgx.Conn {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.urls.Superuser)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
