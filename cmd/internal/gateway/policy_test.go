package gateway_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// nothingAllowed is a policy that was tightened as far as it goes.
func nothingAllowed(o *gateway.Options) {
	o.Allowed = func(*job.Job) *job.Fault {
		return &job.Fault{Reason: job.ReasonInvalid, Code: "amount_over_limit", Path: "/amount", Detail: "more than the route takes"}
	}
}

// TestSubmit_PolicyTightenedSince: a repeated request gets what is on record, whatever the policy says today; a new one is refused.
func TestSubmit_PolicyTightenedSince(t *testing.T) {
	c := newCity(t)
	before := c.newGate(c.open(ledger.Options{}), nil)
	since := c.newGate(c.open(ledger.Options{}), nothingAllowed)
	finished, open := newKey(), newKey()
	for _, key := range []string{finished, open} {
		before.post(key, body).want(t, http.StatusAccepted, "", false)
	}
	c.record(ledger.Authorize(c.claim(finished), "tr_7", fact("authorized")))
	for range 2 {
		a := since.post(finished, body)
		a.want(t, http.StatusOK, "", true)
		if a.State != "authorized" || a.TransferID != "tr_7" {
			t.Errorf("told %s", a.text)
		}
		since.post(open, body).want(t, http.StatusAccepted, "", true)
		since.post(finished, with("49.00", "49.01")).want(t, http.StatusUnprocessableEntity, "key_reused", false)
		a = since.post(newKey(), body)
		a.want(t, http.StatusUnprocessableEntity, "amount_over_limit", false)
		if a.Path != "/amount" {
			t.Errorf("path %q", a.Path)
		}
	}
	c.wantCount(2, "operations", `SELECT count(*) FROM operations`)
	c.wantCount(2, "jobs to publish", `SELECT count(*) FROM unpublished_jobs`)
}

// TestSubmit_RefusedWithAKeyFromBeforeARecovery: it may have been accepted and sent on the server that was lost, so it is put in doubt and asked
// after. A key that is made here is surely new.
func TestSubmit_RefusedWithAKeyFromBeforeARecovery(t *testing.T) {
	c := newCity(t)
	key := newKey()
	if _, err := c.conn.Exec(t.Context(), `UPDATE ledger_identity SET doubt_before = $1`, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	g := c.newGate(c.open(ledger.Options{}), nothingAllowed)
	a := g.post(key, body)
	a.want(t, http.StatusAccepted, "", true)
	if a.State != "open" || !a.InDoubt {
		t.Errorf("told %s", a.text)
	}
	c.wantCount(1, "operations in doubt, due now", `SELECT count(*) FROM operations o JOIN due d ON d.operation_id = o.id JOIN payloads p ON p.operation_id = o.id
		WHERE o.in_doubt AND o.state = 'open' AND d.due_at <= now() AND d.partner = 'northbank'`)
	g.must("POST", "/v1/withdrawals", map[string]string{"Authorization": "Bearer " + shopToken}, body).
		want(t, http.StatusUnprocessableEntity, "amount_over_limit", false)
	c.wantCount(1, "operations", `SELECT count(*) FROM operations`)
}

// TestSubmit_RefusedWhilePostgresIsAway: what is on record is not known, so it is not said that nothing was accepted.
func TestSubmit_RefusedWhilePostgresIsAway(t *testing.T) {
	c := newCity(t)
	l := c.open(ledger.Options{})
	g := c.newGate(l, nothingAllowed)
	l.Close()
	g.post(newKey(), body).want(t, http.StatusServiceUnavailable, "try_again", false)
}

// newerIntake is what a later program will put: every order under a newer version of the fingerprint first. What is put a second time goes
// through as it is.
type newerIntake struct {
	gateway.Intake
	puts int
}

// Do implements gateway.Intake.
func (n *newerIntake) Do(ctx context.Context, o ledger.Order) (ledger.Acceptance, error) {
	if n.puts++; n.puts%2 == 1 {
		o.Fingerprint = ledger.Fingerprint{Version: 2, Sum: [32]byte{1}}
	}
	return n.Intake.Do(ctx, o)
}

// TestSubmit_OlderFingerprintIsComparedUnderItsOwnVersion: what an older program has recorded is known to a newer one.
func TestSubmit_OlderFingerprintIsComparedUnderItsOwnVersion(t *testing.T) {
	c := newCity(t)
	key, ahead := newKey(), newKey()
	c.newGate(c.open(ledger.Options{}), nil).post(key, body).want(t, http.StatusAccepted, "", false)
	c.around = func(in gateway.Intake) gateway.Intake { return &newerIntake{Intake: in} }
	g := c.newGate(c.open(ledger.Options{}), nil)
	g.post(key, body).want(t, http.StatusAccepted, "", true)
	g.post(key, with("49.00", "49.01")).want(t, http.StatusUnprocessableEntity, "key_reused", false)
	if _, err := c.conn.Exec(t.Context(), `INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)
		VALUES ($1, 4900, 9, decode(repeat('00', 32), 'hex'), 'GBP', 'wallet', 'gbp-fps', 'cust', 'open')`, ahead); err != nil {
		t.Fatal(err)
	}
	g.post(ahead, body).want(t, http.StatusServiceUnavailable, "newer_version", false)
}
