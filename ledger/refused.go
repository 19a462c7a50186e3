package ledger

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// recordDoubtful judges jobs that the policy of today refuses. Of those that may have been sent under a claim that was lost in a failover, and
// are not on record, it makes operations: open, in doubt and due, so that the sweep asks the partner. Of all others it makes nothing. A job
// that no partner is known for only learns of the doubt. $15 says that the jobs were published: one that was never published, or whose time
// is not known, counts as published long ago then.
const recordDoubtful = `
WITH guard AS MATERIALIZED (
  SELECT doubt_before, lost_since, EXISTS (SELECT FROM strays) AS any_stray FROM ledger_identity WHERE ` + AtHome + `
), wish AS MATERIALIZED (
  SELECT w.*, coalesce(w.published_at < g.doubt_before, $15 AND g.doubt_before > '-infinity') OR lost
         OR CASE WHEN g.any_stray THEN EXISTS (SELECT FROM strays s WHERE s.key = w.key) ELSE false END AS doubt,
         CASE WHEN lost THEN g.lost_since END AS lost_since
    FROM guard g
   CROSS JOIN unnest($1::uuid[], $2::int2[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::int8[], $8::text[], $9::timestamptz[],
                     $10::timestamptz[], $11::bytea[], $12::text[], $13::timestamptz[], $14::text[]) WITH ORDINALITY
      AS w(key, version, fingerprint, source, route, debtor_account, amount_minor, currency, not_before, not_after, body, traceparent,
           published_at, partner, n)
   CROSS JOIN LATERAL (SELECT ` + KeyMayBeLost + ` AS lost) AS asked
), recorded AS (
  INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, in_doubt, first_sent_at)
  SELECT key, amount_minor, version, fingerprint, currency, source, route, debtor_account, 'open', true, least(published_at, ` + madeAt + `, lost_since, now()) - interval '1 ms'
    FROM wish w WHERE doubt AND partner <> '' ORDER BY key
  ON CONFLICT ON CONSTRAINT operations_key DO NOTHING
  RETURNING id, key
), payload AS (
  INSERT INTO payloads (operation_id, not_before, not_after, published_at, traceparent, body)
  SELECT r.id, w.not_before, w.not_after, w.published_at, nullif(w.traceparent, ''), w.body FROM recorded r JOIN wish w USING (key)
), look AS (
  INSERT INTO due (operation_id, due_at, partner) SELECT r.id, now(), w.partner FROM recorded r JOIN wish w USING (key)
)
SELECT n, doubt FROM wish`

// judgeRefusedOnce answers refused wishes, whose keys differ. It is safe to repeat: what a lost reply hid is found on record.
func (l *Ledger) judgeRefusedOnce(ctx context.Context, wishes []Wish) ([]ClaimAnswer, error) {
	answers := make([]ClaimAnswer, len(wishes))
	c := wishColumns(wishes)
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		queueDoubtful(b, c, true, func(n int, doubt bool) { answers[n-1] = ClaimAnswer{Answer: NotOnRecord, InDoubt: doubt} })
		b.Queue(claimLosers, c.key, c.fingerprint, uuid.Nil).Query(func(rows pgx.Rows) error { // overrules: it has its own, later snapshot
			for rows.Next() {
				if err := scanLoser(rows, wishes, answers); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("judge %d refused jobs: %w", len(wishes), err)
	}
	for i := range answers {
		if answers[i].Answer == NoAnswer { // not on record, and the guard said nothing
			if err := l.checkAtHome(ctx); err != nil {
				return nil, fmt.Errorf("judge %d refused jobs: %w", len(wishes), err)
			}
			answers[i].Err = errNotOnRecord
		}
	}
	return answers, nil
}

func queueDoubtful(b *pgx.Batch, c *wishArrays, published bool, each func(n int, doubt bool)) {
	b.Queue(recordDoubtful, c.key, c.version, c.fingerprint, c.source, c.route, c.debtorAccount, c.amountMinor, c.currency, c.notBefore, c.notAfter,
		c.body, c.traceParent, c.publishedAt, c.partner, published).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n int
			var doubt bool
			if err := rows.Scan(&n, &doubt); err != nil {
				return err
			}
			each(n, doubt)
		}
		return rows.Err()
	})
}

// judgeRefusedOrdersOnce answers refused orders. It is safe to repeat.
func (l *Ledger) judgeRefusedOrdersOnce(ctx context.Context, orders []Order) ([]Acceptance, error) {
	answers := make([]Acceptance, len(orders))
	seen := make(map[uuid.UUID]bool, len(orders))
	var wishes []Wish
	for i := range orders {
		o := &orders[i]
		if seen[o.Key] {
			continue // judged with the first
		}
		seen[o.Key] = true
		wishes = append(wishes, Wish{Key: o.Key, Fingerprint: o.Fingerprint, Source: o.Source, Route: o.Route, DebtorAccount: o.DebtorAccount,
			Amount: o.Amount, NotBefore: o.NotBefore, NotAfter: o.NotAfter, Payload: o.Payload, TraceParent: o.TraceParent,
			PublishedAt: o.RecordedAt, Intention: Intention{Partner: o.Partner}})
	}
	err := l.inOneTrip(ctx, func(b *pgx.Batch) { queueDoubtful(b, wishColumns(wishes), false, func(int, bool) {}) })
	if err == nil {
		err = l.judgeAccepted(ctx, orders, answers)
	}
	if err != nil {
		return nil, fmt.Errorf("judge %d refused orders: %w", len(orders), err)
	}
	return answers, nil
}
