package prove_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/internal/prove"
	"github.com/paidonce/paidonce/ledger"
)

var transferIDs = regexp.MustCompile(`tr_[0-9a-f]+`)

// send makes a call that paidonce did not make: with the same key and bytes as the n-th job would.
func (w *world) send(n int) {
	w.t.Helper()
	j := usualJob(n)
	prepared, err := w.partner.Prepare(j.Key, 0, bankclient.Transfer{
		Amount: j.Amount.Decimal(), AmountMinor: j.Amount.Minor, Currency: j.Amount.Currency,
		Beneficiary: bankclient.Beneficiary{Name: canaryName, IBAN: canaryIBAN}, Reference: canaryReference,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if r := w.partner.Send(w.t.Context(), prepared); r.Verdict != bankclient.Authorized {
		w.t.Fatalf("the bank answers %s", r.Verdict)
	}
}

func (w *world) usualNumbers(r prove.Report) {
	w.t.Helper()
	got := []int64{r.Keys, r.Authorized, r.Rejected, r.Cancelled, r.Parked, r.Open, r.Dead, r.OutboxPending, r.Transfers, r.Younger}
	if want := []int64{10, 6, 1, 1, 1, 1, 2, 0, 7, 0}; !slices.Equal(got, want) {
		w.t.Errorf("keys, authorized, rejected, cancelled, parked, open, dead, outbox, transfers, younger: %v, want %v", got, want)
	}
}

func TestInvariant12_CleanRunHolds(t *testing.T) {
	w := usual(t)
	r := w.prove(w.options())
	w.finds(r)
	w.usualNumbers(r)
	if age := time.Since(r.CheckedAt); age < -time.Minute || age > time.Minute {
		t.Errorf("checked at %s", r.CheckedAt)
	}
	if len(r.Notes) > 0 {
		t.Errorf("notes %v", r.Notes)
	}
	// The same for one partner, and since a time before all and after all of it.
	options := w.options()
	options.Partner, options.Since = "northbank", time.Now().Add(-time.Hour)
	r = w.prove(options)
	w.finds(r)
	w.usualNumbers(r)
	options.Since = time.Now().Add(time.Minute)
	if r = w.prove(options); r.Keys != 0 || !r.Held {
		t.Errorf("since a minute ahead: %+v", r)
	}
	options.Partner, options.Since, options.Routes = "southbank", time.Time{}, nil
	if r = w.prove(options); r.Keys != 0 || r.Dead != 0 || !r.Held {
		t.Errorf("another partner: %+v", r)
	}
}

// Damage that only the ledger shows, or the ledger against the others. Keys end in their number.
func TestDamagedLedgerIsFound(t *testing.T) {
	w := usual(t)
	operation := func(n int) string { return `(SELECT id FROM operations WHERE key = '` + key(n).String() + `')` }
	k := func(n int) string { return key(n).String() }
	for name, c := range map[string]struct {
		do   []string
		want []string
	}{
		"I12 due row deleted": {
			[]string{`DELETE FROM due WHERE operation_id = ` + operation(keyOpen)},
			[]string{"lost " + k(keyOpen) + ": open, and no due row: no sweep will ever look at it"},
		},
		"I12 due row of a parked operation deleted": {
			[]string{`DELETE FROM due WHERE operation_id = ` + operation(keyParked)},
			[]string{"lost " + k(keyParked) + ": parked, and no due row: no sweep will ever look at it"},
		},
		"I12 finished and due": {
			[]string{`INSERT INTO due (operation_id, due_at, partner) VALUES (` + operation(3) + `, now(), 'northbank')`},
			[]string{"misplaced " + k(3) + ": authorized, and still due for the sweep"},
		},
		"I12 parked, and due as if it were open": {
			[]string{`UPDATE due SET parked = false WHERE operation_id = ` + operation(keyParked)},
			[]string{"misplaced " + k(keyParked) + ": parked, and its due row says otherwise"},
		},
		"I12 due at another partner": {
			[]string{`UPDATE due SET partner = 'southbank' WHERE operation_id = ` + operation(keyParked)},
			[]string{"misplaced " + k(keyParked) + ": parked at partner northbank, and due at southbank"},
		},
		"I12 claim lost in a failover, with all that hangs on it": {
			[]string{
				`DELETE FROM attempts WHERE operation_id = ` + operation(3), `DELETE FROM entries WHERE operation_id = ` + operation(3),
				`DELETE FROM operations WHERE id = ` + operation(3),
			},
			[]string{
				"lost " + k(3) + ": its job (message 3) was acknowledged, and there is neither operation nor dead letter",
				"orphan_theirs: the partner has a transfer that belongs to no operation: 4903 GBP",
			},
		},
		"P5 operation deleted, its attempts left": {
			[]string{`DELETE FROM entries WHERE operation_id = ` + operation(keyRejected) + ` OR operation_id = ` + operation(3), `DELETE FROM operations WHERE id = ` + operation(keyRejected)},
			[]string{
				"lost: the ledger has attempts of operation OPERATION, and the operation is gone",
				"lost " + k(keyRejected) + ": its job (message 7) was acknowledged, and there is neither operation nor dead letter",
				"unbalanced " + k(3) + ": authorized, and the journal has no entries of authorized",
			},
		},
		"P1 another job acknowledged instead of dead-lettered": {
			[]string{`UPDATE operations SET amount_minor = amount_minor + 10 WHERE id = ` + operation(keyCancelled)},
			[]string{"lost " + k(keyCancelled) + ": a job that differs from the operation (message 8) was acknowledged, and is no dead letter"},
		},
		"P3 authorized changed into rejected": {
			[]string{
				`UPDATE operations SET state = 'rejected', settlement = NULL, code = 'account_closed' WHERE id = ` + operation(4),
				`DELETE FROM entries WHERE operation_id = ` + operation(4),
			},
			[]string{
				"mismatch " + k(4) + ": rejected, and the partner has transfer TRANSFER: accepted",
				"unannounced " + k(4) + ": rejected, and neither an event nor the outbox says: rejected",
			},
		},
		"P3 another transfer recorded": {
			[]string{`UPDATE operations SET transfer_id = 'tr_0' WHERE id = ` + operation(4)},
			[]string{"mismatch " + k(4) + ": authorized, and the partner has another transfer for it: TRANSFER"},
		},
		"P5 two operations share a transfer": {
			[]string{`UPDATE operations SET transfer_id = (SELECT transfer_id FROM operations WHERE id = ` + operation(5) + `) WHERE id = ` + operation(4)},
			[]string{
				"mismatch " + k(4) + ": authorized, and the partner has another transfer for it: TRANSFER",
				"mismatch " + k(5) + ": shares its transfer id with operation " + k(4),
			},
		},
		"P4 amount changed in the ledger": {
			[]string{`UPDATE operations SET amount_minor = 4800 WHERE id = ` + operation(5)},
			[]string{
				"lost " + k(5) + ": a job that differs from the operation (message 5) was acknowledged, and is no dead letter",
				"mismatch " + k(5) + ": authorized with 4800 GBP, and transfer TRANSFER is about 4905 GBP",
				"unbalanced " + k(5) + ": authorized, and the journal's authorized is about 4905, the operation about 4800",
			},
		},
		"I6 entry changed": {
			[]string{`UPDATE entries SET amount_minor = amount_minor + 1 WHERE amount_minor > 0 AND operation_id = ` + operation(6)},
			[]string{"unbalanced " + k(6) + ": authorized, and the journal's authorized does not sum to zero: 4907 and 4906"},
		},
		"I6 entry deleted": {
			[]string{`DELETE FROM entries WHERE amount_minor > 0 AND operation_id = ` + operation(6)},
			[]string{"unbalanced " + k(6) + ": authorized, and the journal's authorized does not sum to zero: 0 and 4906"},
		},
		"I6 entries of a rejected operation": {
			[]string{`INSERT INTO entries (operation_id, event, amount_minor, currency, account) SELECT ` + operation(keyRejected) + `, event, amount_minor, currency, account FROM entries WHERE operation_id = ` + operation(6)},
			[]string{"unbalanced " + k(keyRejected) + ": rejected, and the journal's authorized is not due to any"},
		},
		"I6 entries of a settlement that did not happen": {
			[]string{`INSERT INTO entries (operation_id, event, amount_minor, currency, account) SELECT operation_id, 'settled', amount_minor, currency, account FROM entries WHERE operation_id = ` + operation(6)},
			[]string{"unbalanced " + k(6) + ": authorized, and the journal's settled is not due to any"},
		},
		"I6 entries in another currency": {
			[]string{`UPDATE entries SET currency = 'EUR' WHERE operation_id = ` + operation(6)},
			[]string{"unbalanced " + k(6) + ": authorized, and the journal's authorized is in another currency"},
		},
		"I11 settled without an event": {
			[]string{
				`UPDATE operations SET settlement = 'settled' WHERE id = ` + operation(6),
				`INSERT INTO entries (operation_id, event, amount_minor, currency, account) SELECT operation_id, 'settled', amount_minor, currency, account FROM entries WHERE operation_id = ` + operation(6),
			},
			[]string{"unannounced " + k(6) + ": authorized, and neither an event nor the outbox says: settled"},
		},
		"I7 two partner keys in one epoch": {
			[]string{`INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
				SELECT operation_id, fence + 1, renderer, claim_token, body_sha256, partner, credential, endpoint, 'another', end_to_end_id FROM attempts WHERE operation_id = ` + operation(6)},
			[]string{"mismatch " + k(6) + ": 2 partner keys in 1 epochs"},
		},
		"P8 contradicted": {
			[]string{`UPDATE operations SET contradicted_at = now() WHERE id = ` + operation(keyRejected)},
			[]string{
				"contradicted " + k(keyRejected) + ": rejected, and the partner said later that it was authorized, or authorized as another transfer",
				"unannounced " + k(keyRejected) + ": rejected, and neither an event nor the outbox says: contradicted",
			},
		},
		"P8 stray of an unknown key": {
			[]string{`INSERT INTO strays (key, claim_token, n, kind, verdict, transfer_id) VALUES ('` + k(99) + `', '` + k(98) + `', 0, 'webhook', 'authorized', 'tr_99')`},
			[]string{"stray " + k(99) + ": stray 1 (authorized) is about a key that the ledger does not know"},
		},
		"P8 stray that says otherwise": {
			[]string{`INSERT INTO strays (key, claim_token, n, kind, verdict, transfer_id) VALUES ('` + k(keyRejected) + `', '` + k(98) + `', 0, 'webhook', 'authorized', 'tr_99')`},
			[]string{"stray " + k(keyRejected) + ": stray 1 says authorized, and the operation does not say the same"},
		},
		"P8 stray whose operation tells the same holds": {
			[]string{`INSERT INTO strays (key, claim_token, n, kind, verdict, transfer_id) SELECT key, '` + k(98) + `', 0, 'webhook', 'authorized', transfer_id FROM operations WHERE id = ` + operation(4)},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, bank: w.bank, partner: w.partner, databases: w.databases, js: w.js, jobs: w.jobs}
			database, options := w.clone()
			w.damage(database, c.do...)
			r := w.prove(options)
			for i := range r.Findings {
				r.Findings[i].Text = regexp.MustCompile(`operation \d+,`).ReplaceAllString(r.Findings[i].Text, "operation OPERATION,")
			}
			w.finds(r, c.want...)
		})
	}
}

func TestInvariant11_DeletedOutboxRowIsFound(t *testing.T) {
	w := usual(t)
	database, options := w.clone()
	conn := w.superuser(database)
	defer func() { _ = conn.Close(context.Background()) }()
	// One more authorized operation whose event waits in the outbox: it has no job and no transfer here, so it is made of a rejected one.
	w.damage(database,
		`UPDATE operations SET state = 'cancelled', code = 'expired' WHERE key = '`+key(keyRejected).String()+`'`,
		`INSERT INTO outbox (operation_id, fence, type) SELECT id, fence, 'cancelled' FROM operations WHERE key = '`+key(keyRejected).String()+`'`)
	r := w.prove(options)
	w.finds(r)
	if r.OutboxPending != 1 {
		t.Errorf("%d rows pending in the outbox, want 1", r.OutboxPending)
	}
	w.damage(database, `DELETE FROM outbox`)
	w.finds(w.prove(options), "unannounced "+key(keyRejected).String()+": cancelled, and neither an event nor the outbox says: cancelled")
	w.damage(database, `INSERT INTO outbox (operation_id, fence, type) VALUES (4711, 1, 'cancelled')`,
		`UPDATE operations SET state = 'rejected', code = 'account_closed' WHERE key = '`+key(keyRejected).String()+`'`)
	w.finds(w.prove(options), "lost: the ledger has an outbox row of operation 4711, and the operation is gone")
}

// TestInvariant12_AcceptedAndNotPublishedIsTheLedgersOwn: an order whose job the broker does not have is open, not lost.
func TestInvariant12_AcceptedAndNotPublishedIsTheLedgersOwn(t *testing.T) {
	w := usual(t)
	database, options := w.clone()
	w.damage(database, `UPDATE ledger_identity SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())`) // at home in the copy
	l, err := ledger.Open(t.Context(), options.DatabaseURL, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 20; n <= 21; n++ {
		j := usualJob(n)
		answers := l.Accept(t.Context(), []ledger.Order{{
			Key: j.Key, Fingerprint: j.Fingerprint(), Source: j.Source, Route: j.Route, Partner: "northbank", DebtorAccount: j.DebtorAccount.Reveal(),
			Amount: j.Amount, Payload: []byte("{}"), Grace: time.Hour,
		}})
		if answers[0].Answer != ledger.Accepted {
			t.Fatal(answers[0].Err)
		}
	}
	l.Close()
	wants := func(open, jobs int64, findings ...string) {
		t.Helper()
		r := w.prove(options)
		w.finds(r, findings...)
		if r.Keys != 9+open || r.Open != open || r.JobsPending != jobs {
			t.Errorf("%d keys, %d open, %d jobs pending; want %d, %d, %d", r.Keys, r.Open, r.JobsPending, 9+open, open, jobs)
		}
	}
	wants(3, 2)
	w.damage(database, `DELETE FROM unpublished_jobs WHERE operation_id = (SELECT id FROM operations WHERE key = '`+key(21).String()+`')`)
	wants(3, 1) // the sweep owns it still
	w.damage(database, `DELETE FROM due WHERE operation_id = (SELECT id FROM operations WHERE key = '`+key(21).String()+`')`)
	wants(3, 1, "lost "+key(21).String()+": open, and no due row: no sweep will ever look at it")
	w.damage(database, `INSERT INTO due (operation_id, due_at, partner) SELECT id, now(), 'northbank' FROM operations WHERE key = '`+key(21).String()+`'`,
		`INSERT INTO unpublished_jobs (operation_id, holder) VALUES (4711, '`+key(1).String()+`')`)
	wants(3, 1, "lost: the ledger has an unpublished job of operation 4711, and the operation is gone")
	options.Partner = "southbank"
	if r := w.prove(options); r.JobsPending != 0 || r.Keys != 0 {
		t.Errorf("another partner: %d jobs pending of %d keys", r.JobsPending, r.Keys)
	}
	options.Partner = ""
	conn := w.superuser(database)
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `DROP TABLE unpublished_jobs`); err != nil {
		t.Fatal(err)
	}
	wants(3, 0) // the schema before has no such table, and may still be proved
}

// A correction of a dead letter is on record before its job is published: then it is the only place of its key.
func TestInvariant12_CorrectionThatWasNotPublishedIsCounted(t *testing.T) {
	w := usual(t)
	database, options := w.clone()
	correction := func(n int, route string) string {
		return fmt.Sprintf(`INSERT INTO corrections (new_key, stream_at, sequence, old_sha256, payload_sha256, source, route, amount_minor, currency, by)
			VALUES ('%s', '2026-11-30', %d, sha256('%d'), sha256('b'), 'wallet', '%s', 1, 'GBP', 'olga')`, key(n), n, n, route)
	}
	wants := func(open, corrections int64, findings ...string) {
		t.Helper()
		r := w.prove(options)
		w.finds(r, findings...)
		if r.Open != open || r.CorrectionsPending != corrections {
			t.Errorf("%d open, %d corrections pending; want %d, %d", r.Open, r.CorrectionsPending, open, corrections)
		}
	}
	w.damage(database, correction(20, "gbp-fps"), correction(21, "gbp-fps"), correction(1, "gbp-fps")) // the last one is an operation
	wants(3, 2)
	w.damage(database, `INSERT INTO dead_letter_acts (stream_at, sequence, act, by, job_sequence, duplicate) VALUES ('2026-11-30', 21, 'published', 'olga', 1, false)`)
	wants(2, 1, "lost "+key(21).String()+": its job, the correction of a dead letter, was published, and there is neither message nor operation nor dead letter")
	options.Partner = "southbank"
	if r := w.prove(options); r.CorrectionsPending != 0 {
		t.Errorf("another partner: %d corrections pending", r.CorrectionsPending)
	}
	options.Partner = ""
	conn := w.superuser(database)
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `REVOKE ALL ON corrections FROM paidonce_app, paidonce_reader`); err != nil {
		t.Fatal(err)
	}
	if r := w.prove(options); r.CorrectionsPending != 0 || !strings.Contains(fmt.Sprint(r.Notes), "corrections of dead letters were not read") {
		t.Errorf("without the right: %+v", r)
	}
	if _, err := conn.Exec(t.Context(), `DROP TABLE corrections`); err != nil {
		t.Fatal(err)
	}
	wants(1, 0) // the schema before has no such table, and may still be proved
}

func TestB20_TwoTransfersUnderOneKeyAreFound(t *testing.T) {
	w := usual(t)
	w.fault(banksim.Fault{Name: "ignore_key", Key: partnerKey(3)})
	w.send(3)
	w.finds(w.prove(w.options()), "twice "+key(3).String()+": authorized, and the partner has 2 transfers: TRANSFER, TRANSFER")
	// Also where the operation itself is too old to be judged.
	options := w.options()
	options.Since = time.Now().Add(30 * time.Minute)
	w.finds(w.prove(options), "twice "+key(3).String()+": authorized, and the partner has 2 transfers: TRANSFER, TRANSFER")
}

func TestP2_DeliveredTwiceToABankThatIgnoresKeysIsFound(t *testing.T) {
	w := newWorld(t)
	keys := w.bank.Idempotency()
	keys.Ignored = true
	if err := w.bank.SetIdempotency(keys); err != nil {
		t.Fatal(err)
	}
	w.fault(banksim.Fault{Name: "delivered_twice", Key: partnerKey(3)})
	for n := 3; n <= 5; n++ {
		w.publish(usualJob(n))
	}
	stop := w.work()
	w.until(3)
	stop()
	w.finds(w.prove(w.options()), "twice "+key(3).String()+": authorized, and the partner has 2 transfers: TRANSFER, TRANSFER")
}

func TestP5_TransferOfNobodyIsFound(t *testing.T) {
	w := usual(t)
	w.send(keyNew)
	w.finds(w.prove(w.options()), "orphan_theirs: the partner has a transfer that belongs to no operation: 4911 GBP")
}

func TestP3_TransferOfCancelledAndRejectedIsFound(t *testing.T) {
	w := usual(t)
	if err := w.bank.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	w.bank.Forget(partnerKey(keyRejected))
	w.send(keyRejected)
	w.send(keyCancelled)
	// Cancelled before any attempt: nothing says whose transfer it is.
	w.finds(w.prove(w.options()),
		"orphan_theirs: the partner has a transfer that belongs to no operation: 4908 GBP",
		"mismatch "+key(keyRejected).String()+": rejected, and the partner has transfer TRANSFER: accepted")
}

func TestStatementThatDiffersIsFound(t *testing.T) {
	w := usual(t)
	ninetyNine, euro, float, nobody := "99.00", "EUR", "49.050", "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	at := func(change func(*bankclient.Seen)) func([]bankclient.Seen) []bankclient.Seen {
		return func(page []bankclient.Seen) []bankclient.Seen {
			for i := range page {
				if *page[i].Amount == "49.05" {
					change(&page[i])
				}
			}
			return page
		}
	}
	k := key(5).String()
	for name, c := range map[string]struct {
		edit func([]bankclient.Seen) []bankclient.Seen
		want []string
	}{
		"P4 another amount": {at(func(s *bankclient.Seen) { s.Amount = &ninetyNine }),
			[]string{"mismatch " + k + ": authorized with 4905 GBP, and transfer TRANSFER is about 9900 GBP"}},
		"P4 another currency": {at(func(s *bankclient.Seen) { s.Currency = &euro }),
			[]string{"mismatch " + k + ": authorized with 4905 GBP, and transfer TRANSFER is about 4905 EUR"}},
		"P4 an amount with too many digits": {at(func(s *bankclient.Seen) { s.Amount = &float }),
			[]string{"mismatch " + k + ": authorized with 4905 GBP, and transfer TRANSFER is about an amount that is none of its currency"}},
		"P4 no amount": {at(func(s *bankclient.Seen) { s.Amount = nil }),
			[]string{"mismatch " + k + ": authorized with 4905 GBP, and transfer TRANSFER is about an amount that is none of its currency"}},
		"P3 a failed state": {at(func(s *bankclient.Seen) { s.State = "rejected" }),
			[]string{"mismatch " + k + ": authorized, and the partner calls transfer TRANSFER rejected"}},
		"P3 the end-to-end id of nobody": {at(func(s *bankclient.Seen) { s.EndToEndID = &nobody }),
			[]string{"mismatch " + k + ": authorized, and transfer TRANSFER carries an end-to-end id of none of its attempts"}},
		"P3 left out": {func(page []bankclient.Seen) []bankclient.Seen {
			return slices.DeleteFunc(page, func(s bankclient.Seen) bool { return *s.Amount == "49.05" })
		}, []string{"orphan_ours " + k + ": authorized, and the partner's statement does not have its transfer"}},
		"returned later holds": {at(func(s *bankclient.Seen) { s.State = "returned" }), nil},
		"without an end-to-end id, by transfer id, is still a difference": {at(func(s *bankclient.Seen) { s.EndToEndID = nil }),
			[]string{"mismatch " + k + ": authorized, and transfer TRANSFER carries an end-to-end id of none of its attempts"}},
		"the same transfer on two pages holds": {func(page []bankclient.Seen) []bankclient.Seen { return append(page, page...) }, nil},
		"a rejected transfer of nobody holds": {func(page []bankclient.Seen) []bankclient.Seen {
			return append(page, bankclient.Seen{ID: "tr_1", State: "rejected", EndToEndID: &nobody})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, bank: w.bank, partner: w.partner, databases: w.databases, js: w.js, jobs: w.jobs}
			options := w.options()
			options.Banks = []prove.Bank{&testBank{Partner: w.partner, edit: c.edit}}
			w.finds(w.prove(options), c.want...)
		})
	}
}

func TestUnreadableStatementProvesNothing(t *testing.T) {
	w := usual(t)
	options := w.options()
	options.Banks = []prove.Bank{&testBank{Partner: w.partner, err: errors.New("away")}}
	r := w.prove(options)
	if r.Held || r.Unproved != 6 || r.Faults() != 6 || len(r.Notes) != 1 || r.Notes[0] != "the statement of northbank could not be read: away" {
		t.Errorf("%+v", r)
	}
	options.Banks = nil // as if the partner had left the configuration
	if r = w.prove(options); r.Held || r.Unproved != 6 {
		t.Errorf("%+v", r)
	}
}

// A statement that is behind for a day: what was just authorized is open, what is in it is judged.
func TestSlowStatementLeavesTheYoungestOpen(t *testing.T) {
	w := usual(t)
	options := w.options()
	options.Banks = []prove.Bank{&testBank{Partner: w.partner, bound: 24 * time.Hour, edit: func(page []bankclient.Seen) []bankclient.Seen {
		return slices.DeleteFunc(page, func(s bankclient.Seen) bool { return *s.Amount == "49.05" })
	}}}
	r := w.prove(options)
	w.finds(r)
	if r.Authorized != 5 || r.Open != 2 {
		t.Errorf("authorized %d, open %d, want 5 and 2", r.Authorized, r.Open)
	}
}

// The bound of the statement is waited for, from the cut on.
func TestVisibilityBoundIsWaitedFor(t *testing.T) {
	w := usual(t)
	options := w.options()
	options.Banks = []prove.Bank{&testBank{Partner: w.partner, bound: 700 * time.Millisecond}}
	began := time.Now()
	w.finds(w.prove(options))
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("read after %s", took)
	}
}

func TestP1_RemovedJobIsFound(t *testing.T) {
	w := usual(t)
	w.publish(usualJob(keyNew))
	r := w.prove(w.options())
	w.finds(r)
	if r.Keys != 11 || r.Open != 2 { // the queue owns it
		t.Errorf("keys %d, open %d, want 11 and 2", r.Keys, r.Open)
	}
	if err := w.jobs.DeleteMsg(t.Context(), w.last); err != nil {
		t.Fatal(err)
	}
	w.finds(w.prove(w.options()), "lost: job message 13 was removed from the stream before anybody had acknowledged it")
	// What was acknowledged may be removed, as the janitor does.
	if err := w.jobs.Purge(t.Context(), jetstreamBelow(10)); err != nil {
		t.Fatal(err)
	}
	w.finds(w.prove(w.options()), "lost: job message 13 was removed from the stream before anybody had acknowledged it")
}

func TestP1_RemovedDeadLetterIsFound(t *testing.T) {
	w := usual(t)
	dead, err := w.js.Stream(t.Context(), "WITHDRAWAL_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	for sequence := uint64(1); sequence <= 2; sequence++ {
		if err := dead.DeleteMsg(t.Context(), sequence); err != nil {
			t.Fatal(err)
		}
	}
	w.finds(w.prove(w.options()),
		"lost: message 12 is no job, was acknowledged, and is no dead letter",
		"lost "+key(1).String()+": a job that differs from the operation (message 11) was acknowledged, and is no dead letter")
}

func TestInvariant11_RemovedEventIsFound(t *testing.T) {
	w := usual(t)
	events, err := w.js.Stream(t.Context(), "WITHDRAWAL_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	last, err := events.GetLastMsgForSubject(t.Context(), "withdrawals.events.gbp-fps.wallet.cancelled")
	if err != nil {
		t.Fatal(err)
	}
	if err := events.DeleteMsg(t.Context(), last.Sequence); err != nil {
		t.Fatal(err)
	}
	if last.Sequence > 1 {
		w.finds(w.prove(w.options()), "unannounced "+key(keyCancelled).String()+": cancelled, and neither an event nor the outbox says: cancelled")
	}
	// A purge of the past is said, and not taken for a fault.
	if err := events.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := w.prove(w.options())
	w.finds(r)
	if len(r.Notes) != 1 {
		t.Errorf("notes %v", r.Notes)
	}
}

// While workers work and jobs come in, every run holds.
func TestCut_HoldsWhileWorkersWork(t *testing.T) {
	w := newWorld(t)
	w.bank.SetLatency(5 * time.Millisecond)
	stop := w.work()
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for n := 100; n < 700; n++ {
			w.publish(usualJob(n))
		}
	})
	open, younger, last := int64(0), int64(0), prove.Report{}
	for range 6 {
		last = w.prove(w.options())
		w.finds(last)
		open, younger = open+last.Open, younger+last.Younger
	}
	publishing.Wait()
	w.until(600)
	stop()
	last = w.prove(w.options())
	w.finds(last)
	if last.Authorized != 600 || open == 0 || younger == 0 {
		t.Errorf("%d authorized; %d were open and %d transfers younger than the cut while they worked: the test has seen nothing", last.Authorized, open, younger)
	}
}

func jetstreamBelow(sequence uint64) jetstream.StreamPurgeOpt {
	return jetstream.WithPurgeSequence(sequence)
}
