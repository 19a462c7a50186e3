package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// pauseCovers is true where a pause covers operation o of partner $1.
const pauseCovers = `EXISTS (SELECT FROM pauses p WHERE p.scope = 'all' OR (p.scope = 'partner' AND p.name = $1)
	OR (p.scope = 'route' AND p.name = o.route) OR (p.scope = 'source' AND p.name = o.source))`

// HeldByRun is why an operation is held that a paused batch run has enqueued. Until the run is resumed its next look lies far ahead, or where its
// not_after is: past that it is claimed like any other, and ends.
const HeldByRun = "run_paused"

// waitsForRun is true of an operation o that its paused run holds, and that may still be sent.
const waitsForRun = `CASE WHEN o.held AND o.code = '` + HeldByRun + `' THEN NOT EXISTS (
	SELECT FROM payloads y WHERE y.operation_id = o.id AND y.not_after <= now()) ELSE false END`

// claimDue claims what is due: open past its next attempt time, or claimed with a lapsed lease. It never waits for a lock, so it cannot
// deadlock with claim and record. What a pause covers, or a paused batch run holds, is put off instead, as it stands.
const claimDue = `
WITH guard AS MATERIALIZED (
  SELECT doubt_before, EXISTS (SELECT FROM strays) AS any_stray FROM ledger_identity WHERE ` + AtHome + `
), picked AS MATERIALIZED (
  SELECT d.operation_id FROM due d, guard WHERE d.partner = $1 AND NOT d.parked AND d.due_at <= now()
   ORDER BY d.due_at LIMIT $2::int8 + CASE WHEN EXISTS (SELECT FROM pauses) THEN 1000 ELSE 0 END FOR UPDATE OF d SKIP LOCKED
), locked AS MATERIALIZED (
  SELECT o.id, o.state AS before, o.paused, o.put_off
    FROM picked p CROSS JOIN LATERAL (
      SELECT o.id, o.state, pause.paused, (pause.paused OR ` + waitsForRun + `) AND NOT o.in_doubt AS put_off
        FROM operations o CROSS JOIN LATERAL (SELECT ` + pauseCovers + ` AS paused) AS pause
       WHERE o.id = p.operation_id AND (o.state = 'open' OR (o.state = 'claimed' AND o.lease_until <= now()))
         FOR UPDATE OF o SKIP LOCKED) AS o
), chosen AS MATERIALIZED ( -- what a pause covers takes nobody's place
  SELECT l.id, l.before, l.paused, l.put_off, row_number() OVER (PARTITION BY l.put_off) AS place FROM locked l
), nobodys AS ( -- a row without its operation, which no program of ours writes: out of the way, or a batch of them would stop the sweep
  UPDATE due d SET due_at = now() + interval '10 years' FROM picked p
   WHERE d.operation_id = p.operation_id AND (SELECT o.id FROM operations o WHERE o.id = p.operation_id LIMIT 1) IS NULL
), put_off AS (
  UPDATE due d SET due_at = now() + interval '15 s' + random() * interval '15 s' FROM chosen l WHERE l.put_off AND d.operation_id = l.id
), claimed AS (
  UPDATE operations o
     SET state = 'claimed', fence = o.fence + 1, unobserved = o.unobserved + 1, claim_token = $3, lease_until = now() + $4::int8 * interval '1 ms',
         held = false,
         -- never attempted here, but older than a failover: somebody may have sent it under a claim that was lost
         in_doubt = o.in_doubt OR (o.first_sent_at IS NULL AND lost.claim),
         first_sent_at = coalesce(o.first_sent_at, CASE WHEN lost.claim THEN o.created_at END)
    FROM chosen l JOIN operations c ON c.id = l.id CROSS JOIN guard g
   CROSS JOIN LATERAL (SELECT c.created_at < g.doubt_before
      OR CASE WHEN g.any_stray THEN EXISTS (SELECT FROM strays s WHERE s.key = c.key) ELSE false END AS claim) AS lost
   WHERE o.id = l.id AND NOT l.put_off AND l.place <= $2
  RETURNING l.paused, o.id, o.key, o.fence, o.unobserved - 1 AS unobserved, l.before, o.source, o.route, o.partner, o.partner_key, o.epoch, o.in_doubt,
            o.first_sent_at, o.created_at
), leased AS (
  UPDATE due d SET due_at = now() + $4 * interval '1 ms' FROM claimed c WHERE d.operation_id = c.id
)
SELECT c.id, c.key, c.fence, c.unobserved, c.before, c.source, c.route, coalesce(c.partner, ''), coalesce(c.partner_key, ''), c.epoch,
       c.in_doubt, c.first_sent_at, c.created_at, c.paused, now()
  FROM claimed c`

// ClaimDue claims up to limit due operations of one partner for the sweep and returns what the next step depends on. No attempt is
// committed yet: CommitAttempts does that before anything is sent.
func (l *Ledger) ClaimDue(ctx context.Context, partner string, limit int) ([]Work, error) {
	l.handBackUnanswered(ctx, partner)
	token, began := newToken(), time.Now()
	work, err := l.claimDueOnce(ctx, partner, limit, token)
	if err == nil {
		return work, nil
	}
	if len(work) > 0 || mayStand(err) {
		l.unanswered.add(unansweredClaim{partner: partner, token: token, began: began, lost: time.Now()})
		l.handBackUnanswered(ctx, partner)
	}
	return nil, err
}

// claimDueOnce returns what it has claimed also where the rest of it could not be read.

func (l *Ledger) claimDueOnce(ctx context.Context, partner string, limit int, token uuid.UUID) ([]Work, error) {
	var work []Work
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(claimDue, partner, limit, token, l.opt.Lease.Milliseconds()).Query(func(rows pgx.Rows) (err error) {
			work, err = scanWork(rows, token)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("claim due operations of %s: %w", partner, err)
	}
	if len(work) == 0 {
		return nil, l.checkAtHome(ctx) // the guard lets nothing through elsewhere, which must not look like an empty sweep
	}
	if err := l.remember(ctx, work); err != nil {
		return work, fmt.Errorf("read %d claimed operations of %s: %w", len(work), partner, err)
	}
	return work, nil
}

// lookAtParked takes parked operations whose look-up is due, and puts the next one a day ahead. It claims nothing.
const lookAtParked = `
WITH picked AS MATERIALIZED (
  SELECT operation_id FROM due WHERE partner = $1 AND parked AND due_at <= now() ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE due d SET due_at = now() + interval '1 day' FROM picked p WHERE d.operation_id = p.operation_id RETURNING d.operation_id
)
SELECT o.id, o.key, o.fence, o.unobserved, o.state, o.source, o.route, coalesce(o.partner, ''), coalesce(o.partner_key, ''), o.epoch, o.in_doubt,
       o.first_sent_at, o.created_at, false, now()
  FROM moved m JOIN operations o ON o.id = m.operation_id AND o.state = 'parked'`

// LookAtParked returns parked operations of one partner whose look-up is due. Nothing may be sent for them; what is found goes to Append.
func (l *Ledger) LookAtParked(ctx context.Context, partner string, limit int) ([]Work, error) {
	var work []Work
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(lookAtParked, partner, limit).Query(func(rows pgx.Rows) (err error) {
			work, err = scanWork(rows, uuid.Nil)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look at parked operations of %s: %w", partner, err)
	}
	if err := l.remember(ctx, work); err != nil {
		return nil, fmt.Errorf("read %d parked operations of %s: %w", len(work), partner, err)
	}
	return work, nil
}

func scanWork(rows pgx.Rows, token uuid.UUID) ([]Work, error) {
	var work []Work
	for rows.Next() {
		w := Work{Claim: Claim{Token: token}}
		err := rows.Scan(&w.Claim.OperationID, &w.Claim.Key, &w.Claim.Fence, &w.UnobservedClaims, &w.State, &w.Source, &w.Route, &w.Pinned,
			&w.PartnerKey, &w.Epoch, &w.InDoubt, timeOrZero{&w.FirstSentAt}, &w.CreatedAt, &w.Paused, &w.Now)
		if err != nil {
			return nil, err
		}
		work = append(work, w)
	}
	return work, rows.Err()
}

// remember adds payloads, stops, attempts and facts to work.
func (l *Ledger) remember(ctx context.Context, work []Work) error {
	if len(work) == 0 {
		return nil
	}
	ids, keys := make([]int64, len(work)), make([]uuid.UUID, len(work))
	place := make(map[int64]*Work, len(work))
	inDoubt := []int64{}
	for i := range work {
		ids[i], keys[i] = work[i].Claim.OperationID, work[i].Claim.Key
		place[ids[i]] = &work[i]
		if work[i].InDoubt {
			inDoubt = append(inDoubt, ids[i])
		}
	}
	return l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT p.operation_id, coalesce(p.traceparent, ''), p.body, o.fingerprint_version, o.fingerprint FROM payloads p
		  CROSS JOIN LATERAL (SELECT o.fingerprint_version, o.fingerprint FROM operations o WHERE o.id = p.operation_id LIMIT 1) AS o
		  WHERE p.operation_id = ANY($1)`, ids).Query(
			func(rows pgx.Rows) error {
				for rows.Next() {
					var id int64
					var trace string
					var body, sum []byte
					var version int16
					if err := rows.Scan(&id, &trace, &body, &version, &sum); err != nil {
						return err
					}
					w := place[id]
					w.TraceParent, w.Payload, w.Fingerprint.Version = trace, body, version
					copy(w.Fingerprint.Sum[:], sum)
				}
				return rows.Err()
			})
		b.Queue(`SELECT operation_id, code FROM stops WHERE operation_id = ANY($1)
		  UNION ALL SELECT w.id, s.code FROM key_stops s JOIN unnest($1::int8[], $2::uuid[]) AS w(id, key) USING (key)`, ids, keys).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id int64
				var code string
				if err := rows.Scan(&id, &code); err != nil {
					return err
				}
				place[id].Stopped = code
			}
			return rows.Err()
		})
		// What is in doubt is asked after whatever is paused, and of a run that is paused nothing is sent. The rows are looked for only while there is one.
		b.Queue(`SELECT b.operation_id FROM batch_rows b JOIN batch_runs r ON r.id = b.run_id
		  WHERE b.operation_id = ANY (CASE WHEN EXISTS (SELECT FROM batch_runs WHERE state = 'paused') THEN $1::int8[] ELSE '{}' END) AND r.state = 'paused'`, inDoubt).Query(
			func(rows pgx.Rows) error {
				for rows.Next() {
					var id int64
					if err := rows.Scan(&id); err != nil {
						return err
					}
					place[id].Paused = true
				}
				return rows.Err()
			})
		queueHistory(b, ids, func(id int64, a Attempt) { place[id].Attempts = append(place[id].Attempts, a) },
			func(id int64, f Fact) { place[id].Facts = append(place[id].Facts, f) })
	})
}

// queueHistory reads attempts and facts of operations, oldest first.
func queueHistory(b *pgx.Batch, ids []int64, attempt func(int64, Attempt), fact func(int64, Fact)) {
	b.Queue(`SELECT operation_id, fence, claim_token, at, partner, credential, endpoint, renderer, body_sha256, partner_key, end_to_end_id
	           FROM attempts WHERE operation_id = ANY($1) ORDER BY operation_id, fence, at`, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			var a Attempt
			var sum []byte
			err := rows.Scan(&id, &a.Fence, &a.Token, &a.At, &a.Partner, &a.Credential, &a.Endpoint, &a.Renderer, &sum, &a.PartnerKey, &a.EndToEndID)
			if err != nil {
				return err
			}
			copy(a.BodySHA256[:], sum)
			attempt(id, a)
		}
		return rows.Err()
	})
	b.Queue(`SELECT operation_id, fence, claim_token, at, kind, verdict, authoritative, coalesce(transfer_id, ''), coalesce(code, ''), evidence::text
	           FROM observations WHERE operation_id = ANY($1) ORDER BY operation_id, at, fence, n`, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id int64
			var f Fact
			var evidence string
			if err := rows.Scan(&id, &f.Fence, &f.Token, &f.At, &f.Kind, &f.Verdict, &f.Authoritative, &f.TransferID, &f.Code, &evidence); err != nil {
				return err
			}
			f.Evidence = []byte(evidence)
			fact(id, f)
		}
		return rows.Err()
	})
}

// Renew extends leases that are still ours; false means the claim is no longer ours.
func (l *Ledger) Renew(ctx context.Context, claims []Claim) ([]bool, error) {
	still := make([]bool, len(claims))
	c := claimColumns(claims)
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`
WITH held AS MATERIALIZED (
  SELECT o.id, c.n FROM (SELECT key, id, token, fence, n FROM unnest($1::uuid[], $2::int8[], $3::uuid[], $4::int4[]) WITH ORDINALITY AS c(key, id, token, fence, n) ORDER BY key) c
   CROSS JOIN LATERAL (SELECT o.id FROM operations o WHERE o.id = c.id AND o.key = c.key AND o.claim_token = c.token AND o.fence = c.fence
                          AND o.state = 'claimed' FOR UPDATE) AS o
), renewed AS (
  UPDATE operations o SET lease_until = now() + $5::int8 * interval '1 ms' FROM held h WHERE o.id = h.id RETURNING h.n, o.id
), leased AS (
  UPDATE due d SET due_at = now() + $5 * interval '1 ms' FROM renewed r WHERE d.operation_id = r.id
)
SELECT n FROM renewed`, c.key, c.id, c.token, c.fence, l.opt.Lease.Milliseconds()).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var n int
				if err := rows.Scan(&n); err != nil {
					return err
				}
				still[n-1] = true
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d leases: %w", len(claims), err)
	}
	return still, nil
}

// claimArrays are claims as columns.
type claimArrays struct {
	key, token uuids
	id         []int64
	fence      []int32
}

func (c *claimArrays) add(claim Claim) {
	c.key = append(c.key, pgUUID(claim.Key))
	c.id = append(c.id, claim.OperationID)
	c.token = append(c.token, pgUUID(claim.Token))
	c.fence = append(c.fence, claim.Fence)
}

func claimColumns(claims []Claim) *claimArrays {
	c := &claimArrays{}
	for _, claim := range claims {
		c.add(claim)
	}
	return c
}
