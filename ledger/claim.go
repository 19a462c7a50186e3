package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Claim decides a batch of wishes: who may advance its operation now, with the attempt committed, and what the others are told. The same
// key twice in one batch is merged before the database sees it: the second is judged after the first. The answers stand in the order of
// the wishes.
func (l *Ledger) Claim(ctx context.Context, wishes []Wish) []ClaimAnswer {
	answers := make([]ClaimAnswer, len(wishes))
	firsts := make([]Wish, 0, len(wishes))
	var refused []Wish
	var twins []int
	place := make(map[uuid.UUID]int, len(wishes)) // key -> index of its first wish
	for i, w := range wishes {
		if _, twice := place[w.Key]; twice {
			twins = append(twins, i)
			continue
		}
		place[w.Key] = i
		if w.Refused {
			refused = append(refused, w)
		} else {
			firsts = append(firsts, w)
		}
	}
	decide := func(wishes []Wish, once func(context.Context, []Wish) ([]ClaimAnswer, error)) {
		for start := 0; start < len(wishes); start += l.opt.MaxBatch {
			part := wishes[start:min(start+l.opt.MaxBatch, len(wishes))]
			settled := settle(ctx, part, once, func(err error) ClaimAnswer { return ClaimAnswer{Err: err} })
			for i := range part {
				answers[place[part[i].Key]] = settled[i]
			}
		}
	}
	token := newToken()
	decide(firsts, func(ctx context.Context, rows []Wish) ([]ClaimAnswer, error) { return l.claimOnce(ctx, token, rows) })
	decide(refused, l.judgeRefusedOnce)
	if len(twins) > 0 {
		again := make([]Wish, len(twins))
		for n, i := range twins {
			again[n] = wishes[i]
		}
		for n, answer := range l.Claim(ctx, again) {
			answers[twins[n]] = answer
		}
	}
	return answers
}

// newToken mints a claim token. Version 7, so that the index it stands in grows at its end.
func newToken() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// claimWinners inserts what is new and takes what was recorded but never claimed; with the same token again it returns the same claims.
// Rows are locked in the order of their keys. A wish that may not start yet is recorded open, for the sweep. A row is new exactly when this
// transaction made it; what hangs on a new row is inserted plainly, since every ON CONFLICT costs a second look and a second WAL record.
const claimWinners = `
WITH guard AS MATERIALIZED (
  SELECT doubt_before, lost_since, EXISTS (SELECT FROM pauses) AS any_pause, EXISTS (SELECT FROM strays) AS any_stray FROM ledger_identity WHERE ` + AtHome + `
), wish AS MATERIALIZED (
  SELECT w.*, paused,
         NOT paused AND coalesce(w.not_before <= now(), true) AND coalesce(w.not_after > now(), true) AS start,
         coalesce(w.published_at < g.doubt_before, g.doubt_before > '-infinity') OR lost -- published again since
         OR CASE WHEN g.any_stray THEN EXISTS (SELECT FROM strays s WHERE s.key = w.key) ELSE false END AS doubt,
         CASE WHEN lost THEN g.lost_since END AS lost_since
    FROM guard g
   CROSS JOIN unnest($1::uuid[], $2::int2[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::int8[], $8::text[], $9::timestamptz[],
                     $10::timestamptz[], $11::bytea[], $12::text[], $13::timestamptz[], $14::text[], $15::text[], $16::text[], $17::int2[],
                     $18::bytea[], $19::text[], $20::text[])
      AS w(key, version, fingerprint, source, route, debtor_account, amount_minor, currency, not_before, not_after, body, traceparent,
           published_at, partner, credential, endpoint, renderer, body_sha256, partner_key, end_to_end_id)
   CROSS JOIN LATERAL (SELECT CASE WHEN g.any_pause THEN EXISTS (SELECT FROM pauses p WHERE p.scope = 'all'
           OR (p.scope = 'partner' AND p.name = w.partner) OR (p.scope = 'route' AND p.name = w.route)
           OR (p.scope = 'source' AND p.name = w.source)) ELSE false END AS paused, ` + KeyMayBeLost + ` AS lost) AS asked
), won AS (
  INSERT INTO operations AS o (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account,
         state, in_doubt, held, code, unobserved, fence, claim_token, lease_until, first_sent_at, partner, credential, partner_key)
  SELECT key, amount_minor, version, fingerprint, currency, source, route, debtor_account,
         CASE WHEN start THEN 'claimed' ELSE 'open' END::operation_state, start OR doubt, paused, CASE WHEN paused THEN 'paused' END, start::int, start::int,
         CASE WHEN start THEN $21::uuid END, CASE WHEN start THEN now() + $22::int8 * interval '1 ms' END,
         CASE WHEN doubt THEN least(published_at, ` + madeAt + `, lost_since, now()) - interval '1 ms' WHEN start THEN now() END,
         CASE WHEN start THEN partner END, CASE WHEN start THEN credential END, CASE WHEN start THEN partner_key END
    FROM wish w ORDER BY key
  ON CONFLICT ON CONSTRAINT operations_key DO UPDATE
     SET state = 'claimed', in_doubt = true, claim_token = excluded.claim_token, lease_until = excluded.lease_until,
         fence = o.fence + (o.state = 'open')::int, unobserved = o.unobserved + (o.state = 'open')::int,
         first_sent_at = coalesce(o.first_sent_at, excluded.first_sent_at),
         partner = excluded.partner, credential = excluded.credential, partner_key = excluded.partner_key
   WHERE excluded.state = 'claimed'
     AND o.fingerprint = excluded.fingerprint AND o.fingerprint_version = excluded.fingerprint_version
     AND ((o.state = 'open' AND o.fence = 0 AND NOT o.held AND NOT o.in_doubt) OR (o.state = 'claimed' AND o.claim_token = excluded.claim_token))
  RETURNING o.id, o.key, o.fence, o.state, o.created_at = now() AS new
), attempt AS (
  INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
  SELECT won.id, won.fence, w.renderer, $21, w.body_sha256, w.partner, w.credential, w.endpoint, w.partner_key, w.end_to_end_id
    FROM won JOIN wish w USING (key) WHERE won.state = 'claimed' AND NOT w.doubt AND won.new
), attempt_again AS (
  INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
  SELECT won.id, won.fence, w.renderer, $21, w.body_sha256, w.partner, w.credential, w.endpoint, w.partner_key, w.end_to_end_id
    FROM won JOIN wish w USING (key) WHERE won.state = 'claimed' AND NOT w.doubt AND NOT won.new
  ON CONFLICT DO NOTHING
), payload AS (
  INSERT INTO payloads (operation_id, not_before, not_after, published_at, traceparent, body)
  SELECT won.id, w.not_before, w.not_after, w.published_at, nullif(w.traceparent, ''), w.body FROM won JOIN wish w USING (key) WHERE won.new
), look AS (
  INSERT INTO due (operation_id, due_at, partner)
  SELECT won.id, CASE WHEN w.start THEN now() + $22 * interval '1 ms' WHEN w.paused THEN now() + interval '10 min'
                      ELSE greatest(now(), CASE WHEN w.not_after <= now() THEN now() ELSE w.not_before END) END, w.partner
    FROM won JOIN wish w USING (key) WHERE won.new
), look_again AS (
  UPDATE due d SET due_at = now() + $22 * interval '1 ms', partner = w.partner
    FROM won JOIN wish w USING (key) WHERE NOT won.new AND d.operation_id = won.id
)
SELECT won.key, won.id, won.fence, w.doubt, now() FROM won JOIN wish w USING (key) WHERE won.state = 'claimed'`

// claimLosers has its own snapshot and tells those who did not win what stands there. It can never answer "claimed": a row under our own
// token is left out. No row at all for a key means that the guard let nothing in, or that the row is ours but may not start any more.
const claimLosers = `
SELECT w.n, o.state, o.fingerprint_version, o.fingerprint = w.fingerprint, o.held, coalesce(o.code, ''), now()
  FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS w(key, fingerprint, n)
 JOIN operations o ON o.key = w.key
 WHERE NOT (o.state = 'claimed' AND o.claim_token = $3)`

func (l *Ledger) claimOnce(ctx context.Context, token uuid.UUID, wishes []Wish) ([]ClaimAnswer, error) {
	answers := make([]ClaimAnswer, len(wishes))
	place := make(map[uuid.UUID]int, len(wishes))
	for i := range wishes {
		place[wishes[i].Key] = i
	}
	columns := wishColumns(wishes)
	winners := append(columns.all(), token, l.opt.Lease.Milliseconds())
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(claimWinners, winners...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				a := ClaimAnswer{Answer: Claimed, State: StateClaimed, Claim: Claim{Token: token}}
				if err := rows.Scan(&a.Claim.Key, &a.Claim.OperationID, &a.Claim.Fence, &a.InDoubt, &a.Now); err != nil {
					return err
				}
				answers[place[a.Claim.Key]] = a
			}
			return rows.Err()
		})
		b.Queue(claimLosers, columns.key, columns.fingerprint, token).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := scanLoser(rows, wishes, answers); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("claim %d operations: %w", len(wishes), err)
	}
	for i := range answers {
		if answers[i].Answer != NoAnswer {
			continue
		}
		if err := l.checkAtHome(ctx); err != nil {
			return nil, fmt.Errorf("claim %d operations: %w", len(wishes), err)
		}
		// Ours from a try whose reply was lost, and paused or expired since: as it may not start, nobody sends, and the sweep takes it over.
		answers[i] = ClaimAnswer{Answer: Busy, State: StateClaimed}
	}
	return answers, nil
}

func scanLoser(rows pgx.Rows, wishes []Wish, answers []ClaimAnswer) error {
	var n int
	var version int16
	var same, held bool
	var state State
	var code string
	var now time.Time
	if err := rows.Scan(&n, &state, &version, &same, &held, &code, &now); err != nil {
		return err
	}
	a := ClaimAnswer{State: state, Now: now}
	switch {
	case version != wishes[n-1].Fingerprint.Version:
		a.Answer, a.Version = OtherVersion, version
	case !same:
		a = ClaimAnswer{Answer: Conflict, Now: now} // nothing of the first job is told
	case state.Finished():
		a.Answer = Finished
	case state == StateParked:
		a.Answer = Parked
	case state == StateClaimed:
		a.Answer = Busy
	case held:
		a.Answer, a.HeldReason = Held, code
	default:
		a.Answer = Scheduled
	}
	answers[n-1] = a
	return nil
}

// wishArrays are the wishes as columns, in the order of claimWinners' parameters.
type wishArrays struct {
	key                                                   uuids
	version, renderer                                     []int16
	fingerprint, body, bodySHA256                         pgtype.FlatArray[[]byte]
	source, route, debtorAccount, currency, traceParent   []string
	partner, credential, endpoint, partnerKey, endToEndID []string
	amountMinor                                           []int64
	notBefore, notAfter, publishedAt                      pgtype.FlatArray[*time.Time]
}

func wishColumns(wishes []Wish) *wishArrays {
	c := &wishArrays{}
	for i := range wishes {
		w := &wishes[i]
		c.key = append(c.key, pgUUID(w.Key))
		c.version = append(c.version, w.Fingerprint.Version)
		c.fingerprint = append(c.fingerprint, w.Fingerprint.Sum[:])
		c.source = append(c.source, w.Source)
		c.route = append(c.route, w.Route)
		c.debtorAccount = append(c.debtorAccount, w.DebtorAccount)
		c.amountMinor = append(c.amountMinor, w.Amount.Minor)
		c.currency = append(c.currency, w.Amount.Currency)
		c.notBefore = append(c.notBefore, nullTime(w.NotBefore))
		c.notAfter = append(c.notAfter, nullTime(w.NotAfter))
		c.body = append(c.body, w.Payload)
		c.traceParent = append(c.traceParent, w.TraceParent)
		c.publishedAt = append(c.publishedAt, nullTime(w.PublishedAt))
		c.partner = append(c.partner, w.Intention.Partner)
		c.credential = append(c.credential, w.Intention.Credential)
		c.endpoint = append(c.endpoint, w.Intention.Endpoint)
		c.renderer = append(c.renderer, w.Intention.Renderer)
		c.bodySHA256 = append(c.bodySHA256, w.Intention.BodySHA256[:])
		c.partnerKey = append(c.partnerKey, w.Intention.PartnerKey)
		c.endToEndID = append(c.endToEndID, w.Intention.EndToEndID)
	}
	return c
}

func (c *wishArrays) all() []any {
	return []any{c.key, c.version, c.fingerprint, c.source, c.route, c.debtorAccount, c.amountMinor, c.currency, c.notBefore, c.notAfter,
		c.body, c.traceParent, c.publishedAt, c.partner, c.credential, c.endpoint, c.renderer, c.bodySHA256, c.partnerKey, c.endToEndID}
}
