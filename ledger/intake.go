package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/ledger/money"
)

// Order is a job that is recorded here before anybody else has it: the operation as the job describes it.
type Order struct {
	Key           uuid.UUID
	Fingerprint   Fingerprint
	Source        string
	Route         string
	Partner       string // that the route leads to now, for the sweep; the first attempt pins it
	DebtorAccount string
	Amount        money.Amount
	NotBefore     time.Time     // zero = none
	NotAfter      time.Time     // zero = none
	Payload       []byte        // what the broker will be given
	TraceParent   string        // "" = none
	Grace         time.Duration // how long the sweep leaves the operation to its own message
	// RecordedAt is when the order was first put on record in this database, in whatever form, by the database's clock; zero = now. One that was
	// there before a recovery may have been accepted, and sent, on the server that was lost, whatever time its key tells.
	RecordedAt time.Time
	// Refused says that the policy of today does not allow the job. It is judged as every other, but not accepted.
	Refused bool
}

// AcceptAnswer is what the ledger says to an order.
type AcceptAnswer uint8

// The answers to an Order. NotAccepted comes with an error only.
const (
	NotAccepted        AcceptAnswer = iota
	Accepted                        // recorded now: operation, payload, event and job to publish are durable
	AcceptedBefore                  // the same order is on record
	AcceptConflict                  // the key belongs to another fingerprint; nothing of that is told
	AcceptOtherVersion              // the stored fingerprint has another version than the order's: compare under that one, or leave it to whoever knows it
	AcceptRefused                   // to a refused order only: there is no operation, and none was made
)

// Acceptance answers one Order. Err is set when it could not be found out; the order may be on record then.
type Acceptance struct {
	Answer   AcceptAnswer
	Standing Standing // with Accepted and AcceptedBefore
	Version  int16    // with AcceptOtherVersion: of the stored fingerprint
	Err      error
}

// Standing is what the source of an operation may know of it.
type Standing struct {
	Key        uuid.UUID
	Source     string
	Route      string
	State      State
	InDoubt    bool
	HeldReason string // "" = not held
	Amount     money.Amount
	Partner    string // "" = none pinned
	TransferID string
	Code       string
	Settlement string
	CreatedAt  time.Time
	OutcomeAt  time.Time // zero = no outcome
}

// accept records what is new. Rows are inserted in the order of their keys, as claims are. Where the key is there already nothing happens;
// an insert that meets another one waits for its commit, so that the second statement of a caller who lost finds the row. A key that does not
// exclude that it was made before the ledger was recovered may have been on record, and sent, on the server that was lost: it is asked after before
// it is sent. So is an order that lay here then, and a key of which evidence came without an operation.
const accept = `
WITH guard AS MATERIALIZED (
  SELECT doubt_before, lost_since, EXISTS (SELECT FROM strays) AS any_stray FROM ledger_identity WHERE ` + AtHome + `
), wish AS MATERIALIZED (
  SELECT w.key, w.version, w.fingerprint, w.source, w.route, w.partner, w.debtor_account, w.amount_minor, w.currency, w.not_before, w.not_after,
         w.body, w.traceparent, w.grace, w.recorded_at,
         CASE WHEN lost THEN g.lost_since END AS lost_since, lost OR coalesce(w.recorded_at < g.doubt_before, false) OR CASE WHEN g.any_stray THEN EXISTS (SELECT FROM strays s WHERE s.key = w.key) ELSE false END AS doubt
    FROM guard g CROSS JOIN unnest($1::uuid[], $2::int2[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int8[], $9::text[],
                                 $10::timestamptz[], $11::timestamptz[], $12::bytea[], $13::text[], $14::int8[], $15::timestamptz[])
      AS w(key, version, fingerprint, source, route, partner, debtor_account, amount_minor, currency, not_before, not_after, body, traceparent, grace,
           recorded_at)
   CROSS JOIN LATERAL (SELECT ` + KeyMayBeLost + ` AS lost) AS asked
), accepted AS (
  INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, in_doubt, first_sent_at)
  SELECT key, amount_minor, version, fingerprint, currency, source, route, debtor_account, 'open', doubt,
         CASE WHEN doubt THEN least(` + madeAt + `, recorded_at, lost_since, now()) - interval '1 ms' END
    FROM wish w ORDER BY key
  ON CONFLICT ON CONSTRAINT operations_key DO NOTHING
  RETURNING id, key, in_doubt
), payload AS (
  INSERT INTO payloads (operation_id, not_before, not_after, traceparent, body)
  SELECT a.id, w.not_before, w.not_after, nullif(w.traceparent, ''), w.body FROM accepted a JOIN wish w USING (key)
), look AS (
  INSERT INTO due (operation_id, due_at, partner)
  SELECT a.id, CASE WHEN w.not_after <= now() THEN now() ELSE greatest(now() + w.grace * interval '1 ms', w.not_before) END, w.partner
    FROM accepted a JOIN wish w USING (key)
), event AS (
  INSERT INTO outbox (operation_id, fence, type) SELECT id, 0, 'accepted' FROM accepted
), message AS (
  INSERT INTO unpublished_jobs (operation_id, holder) SELECT id, $16 FROM accepted
)
SELECT a.key, a.in_doubt, now() FROM accepted a`

// Accept records a batch of orders, each at most once under its key, and judges those that were on record: the fingerprint first, then where
// the operation stands. The answers stand in the order given.
func (l *Ledger) Accept(ctx context.Context, orders []Order) []Acceptance {
	answers := make([]Acceptance, 0, len(orders))
	for start := 0; start < len(orders); start += l.opt.MaxBatch {
		part := orders[start:min(start+l.opt.MaxBatch, len(orders))]
		if slices.ContainsFunc(part, isRefused) {
			answers = append(answers, l.acceptSome(ctx, part)...)
			continue
		}
		answers = append(answers, settle(ctx, part, l.acceptOnce, notAccepted)...)
	}
	return answers
}

func isRefused(o Order) bool { return o.Refused }

func notAccepted(err error) Acceptance { return Acceptance{Err: err} }

// acceptSome accepts what is not refused, and judges the rest after it.
func (l *Ledger) acceptSome(ctx context.Context, orders []Order) []Acceptance {
	answers := make([]Acceptance, len(orders))
	for _, refused := range []bool{false, true} {
		var part []Order
		var places []int
		for i := range orders {
			if orders[i].Refused == refused {
				part, places = append(part, orders[i]), append(places, i)
			}
		}
		once := l.acceptOnce
		if refused {
			once = l.judgeRefusedOrdersOnce
		}
		for n, answer := range settle(ctx, part, once, notAccepted) {
			answers[places[n]] = answer
		}
	}
	return answers
}

// acceptOnce is safe to repeat: what a lost reply hid is found on record.
func (l *Ledger) acceptOnce(ctx context.Context, orders []Order) ([]Acceptance, error) {
	answers := make([]Acceptance, len(orders))
	first := make(map[uuid.UUID]int, len(orders)) // the same key twice in one batch: the second is judged after the first
	c := &orderArrays{}
	for i := range orders {
		if _, twice := first[orders[i].Key]; !twice {
			first[orders[i].Key] = i
			c.add(&orders[i])
		}
	}
	accepted := 0
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(accept, append(c.all(), l.holder)...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				s := Standing{State: StateOpen}
				if err := rows.Scan(&s.Key, &s.InDoubt, &s.CreatedAt); err != nil {
					return err
				}
				i := first[s.Key]
				s.Source, s.Route, s.Amount = orders[i].Source, orders[i].Route, orders[i].Amount
				answers[i] = Acceptance{Answer: Accepted, Standing: s}
				accepted++
			}
			return rows.Err()
		})
	})
	if err == nil && accepted < len(orders) {
		err = l.judgeAccepted(ctx, orders, answers)
	}
	if err != nil {
		return nil, fmt.Errorf("accept %d orders: %w", len(orders), err)
	}
	return answers, nil
}

// judgeAccepted answers the orders whose keys were on record, with a snapshot of its own.
func (l *Ledger) judgeAccepted(ctx context.Context, orders []Order, answers []Acceptance) error {
	var keys []uuid.UUID
	var sums [][]byte
	var places []int
	for i := range orders {
		if answers[i].Answer == NotAccepted {
			keys, sums, places = append(keys, orders[i].Key), append(sums, orders[i].Fingerprint.Sum[:]), append(places, i)
		}
	}
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT w.n, o.fingerprint_version, o.fingerprint = w.fingerprint, `+standingColumns+`
			FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS w(key, fingerprint, n) JOIN operations o ON o.key = w.key`, keys, sums).
			Query(func(rows pgx.Rows) error {
				for rows.Next() {
					var n int
					var version int16
					var same bool
					var s Standing
					if err := rows.Scan(append([]any{&n, &version, &same}, s.targets()...)...); err != nil {
						return err
					}
					i := places[n-1]
					switch {
					case version != orders[i].Fingerprint.Version:
						answers[i] = Acceptance{Answer: AcceptOtherVersion, Version: version}
					case !same:
						answers[i] = Acceptance{Answer: AcceptConflict}
					default:
						answers[i] = Acceptance{Answer: AcceptedBefore, Standing: s}
					}
				}
				return rows.Err()
			})
	})
	if err != nil {
		return err
	}
	for i := range answers {
		if answers[i].Answer != NotAccepted {
			continue
		}
		if err := l.checkAtHome(ctx); err != nil {
			return err
		}
		if orders[i].Refused {
			answers[i].Answer = AcceptRefused
		} else { // neither recorded nor on record: the guard let nothing in
			answers[i].Err = errNotOnRecord
		}
	}
	return nil
}

const standingColumns = `o.key, o.source, o.route, o.state, o.in_doubt, CASE WHEN o.held THEN coalesce(o.code, '') ELSE '' END, o.amount_minor,
	o.currency, coalesce(o.partner, ''), coalesce(o.transfer_id, ''), CASE WHEN o.held THEN '' ELSE coalesce(o.code, '') END,
	coalesce(o.settlement::text, ''), o.created_at, o.outcome_at`

func (s *Standing) targets() []any {
	return []any{&s.Key, &s.Source, &s.Route, &s.State, &s.InDoubt, &s.HeldReason, &s.Amount.Minor, &s.Amount.Currency, &s.Partner, &s.TransferID,
		&s.Code, &s.Settlement, &s.CreatedAt, timeOrZero{&s.OutcomeAt}}
}

// Standings reads where operations stand, many in one query, in no order. A key that is not on record has none.
func (l *Ledger) Standings(ctx context.Context, keys []uuid.UUID) ([]Standing, error) {
	var found []Standing
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT `+standingColumns+` FROM unnest($1::uuid[]) AS w(key) JOIN operations o ON o.key = w.key`, keys).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var s Standing
				if err := rows.Scan(s.targets()...); err != nil {
					return err
				}
				found = append(found, s)
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read where %d operations stand: %w", len(keys), err)
	}
	return found, nil
}

// cancelIfOpen is decided by the row: a claim that was first makes it change nothing, and a claim that comes later finds an outcome.
const cancelIfOpen = `
WITH cancelled AS (
  UPDATE operations SET state = 'cancelled', outcome_at = now(), held = false, code = $3, lease_until = NULL
   WHERE key = $1 AND source = $2 AND state = 'open' AND NOT in_doubt
     AND EXISTS (SELECT FROM ledger_identity WHERE ` + AtHome + `) -- elsewhere a claim may be missing under which it was paid
  RETURNING id, fence
), note AS (
  INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, code) SELECT id, $4, 0, fence, 'note', '', $3 FROM cancelled
), event AS (
  INSERT INTO outbox (operation_id, fence, type, code) SELECT id, fence, 'cancelled', $3 FROM cancelled
), ended AS (
  DELETE FROM due USING cancelled c WHERE due.operation_id = c.id
)
SELECT count(*) FROM cancelled`

// CancelIfOpen ends an operation of source that nobody works on and that is not in doubt. It says whether it did, and where the operation
// stands now; ErrNotFound: the source has no such operation; ErrMoved: nobody knows what would be cancelled.
func (l *Ledger) CancelIfOpen(ctx context.Context, key uuid.UUID, source, code string) (cancelled bool, s Standing, err error) {
	token := newToken()
	results, err := onceMore(ctx, []uuid.UUID{key}, func(ctx context.Context, _ []uuid.UUID) ([]bool, error) {
		var n int
		err := l.inOneTrip(ctx, func(b *pgx.Batch) {
			b.Queue(cancelIfOpen, key, source, code, token).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		})
		return []bool{n == 1}, err
	})
	if err != nil {
		return false, s, fmt.Errorf("cancel %s: %w", key, err)
	}
	found, err := l.Standings(ctx, []uuid.UUID{key})
	switch {
	case err != nil:
		return results[0], s, fmt.Errorf("cancel %s: %w", key, err)
	case len(found) == 0 || found[0].Source != source:
		return false, s, fmt.Errorf("cancel %s: %w", key, ErrNotFound)
	case !results[0]:
		if err := l.checkAtHome(ctx); err != nil {
			return false, s, fmt.Errorf("cancel %s: %w", key, err)
		}
	}
	return results[0], found[0], nil
}

// orderArrays are orders as columns, in the order of accept's parameters.
type orderArrays struct {
	key                                                          []uuid.UUID
	version                                                      []int16
	fingerprint, body                                            [][]byte
	source, route, partner, debtorAccount, currency, traceParent []string
	amountMinor, graceMS                                         []int64
	notBefore, notAfter, recordedAt                              []*time.Time
}

func (c *orderArrays) add(o *Order) {
	c.key = append(c.key, o.Key)
	c.version = append(c.version, o.Fingerprint.Version)
	c.fingerprint = append(c.fingerprint, o.Fingerprint.Sum[:])
	c.source = append(c.source, o.Source)
	c.route = append(c.route, o.Route)
	c.partner = append(c.partner, o.Partner)
	c.debtorAccount = append(c.debtorAccount, o.DebtorAccount)
	c.amountMinor = append(c.amountMinor, o.Amount.Minor)
	c.currency = append(c.currency, o.Amount.Currency)
	c.notBefore = append(c.notBefore, nullTime(o.NotBefore))
	c.notAfter = append(c.notAfter, nullTime(o.NotAfter))
	c.body = append(c.body, o.Payload)
	c.traceParent = append(c.traceParent, o.TraceParent)
	c.graceMS = append(c.graceMS, o.Grace.Milliseconds())
	c.recordedAt = append(c.recordedAt, nullTime(o.RecordedAt))
}

func (c *orderArrays) all() []any {
	return []any{c.key, c.version, c.fingerprint, c.source, c.route, c.partner, c.debtorAccount, c.amountMinor, c.currency, c.notBefore, c.notAfter,
		c.body, c.traceParent, c.graceMS, c.recordedAt}
}
