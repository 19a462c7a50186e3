package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// parkedLookUp is how long a parked operation waits for its next look-up where nothing else is said.
const parkedLookUp = 24 * time.Hour

// Authorize is the record of a transfer that the partner authorized.
func Authorize(c Claim, transferID string, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateAuthorized, TransferID: transferID}
}

// Reject is the record of a listed, authoritative rejection.
func Reject(c Claim, code string, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateRejected, Code: code}
}

// Cancel ends an operation that is not in doubt and will not be sent.
func Cancel(c Claim, code string, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateCancelled, Code: code}
}

// Schedule opens the operation again, due after in.
func Schedule(c Claim, inDoubt bool, in time.Duration, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateOpen, InDoubt: inDoubt, DueIn: in}
}

// Hold opens the operation again, not to be started until resumed; it is looked at after in.
func Hold(c Claim, reason string, inDoubt bool, in time.Duration, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateOpen, Held: true, Code: reason, InDoubt: inDoubt, DueIn: in}
}

// Park puts the operation before a person.
func Park(c Claim, reason string, inDoubt bool, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateParked, Code: reason, InDoubt: inDoubt}
}

// Release hands back a claim under which nothing was sent; the operation is due at once. facts say so for an attempt that was committed.
func Release(c Claim, inDoubt bool, facts ...Fact) Record {
	return Record{Claim: c, Facts: facts, Next: StateOpen, InDoubt: inDoubt}
}

// recordBatch writes what each claim came to: observations, state, entries and event, in one statement, under token and fence. Rows are
// locked in the order of their keys. A mismatch that an earlier holder put on record meanwhile parks what this one calls authorized.
const recordBatch = `
WITH record AS MATERIALIZED (
  SELECT r.key, r.id, r.token, r.fence, r.next, r.in_doubt, r.transfer_id, r.code, r.held, r.due_in, r.raise, r.asked, r.partner_key, r.n
    FROM unnest($1::uuid[], $2::int8[], $3::uuid[], $4::int4[], $5::text[], $6::bool[], $7::text[], $8::text[], $9::bool[], $10::int8[], $11::int2[],
                $22::bool[], $23::text[])
    WITH ORDINALITY AS r(key, id, token, fence, next, in_doubt, transfer_id, code, held, due_in, raise, asked, partner_key, n)
   ORDER BY r.key
), held AS MATERIALIZED (
  SELECT r.n, r.token, r.transfer_id, r.held, r.raise, r.partner_key, o.id, beside.mismatch OR r.in_doubt AS in_doubt,
         CASE WHEN beside.mismatch THEN 'parked' ELSE r.next END AS next, CASE WHEN beside.mismatch THEN 'mismatch' ELSE r.code END AS code,
         CASE WHEN beside.mismatch THEN $21::int8 ELSE r.due_in END AS due_in
    FROM record r CROSS JOIN LATERAL (
      SELECT o.id FROM operations o
       WHERE o.id = r.id AND o.key = r.key AND o.claim_token = r.token AND o.fence = r.fence AND o.state = 'claimed' FOR UPDATE) AS o
   CROSS JOIN LATERAL (SELECT r.next = 'authorized' AND (r.fence > 1 OR r.asked)
      AND EXISTS (SELECT FROM observations x WHERE x.operation_id = o.id AND x.verdict = 'mismatch') AS mismatch OFFSET 0) AS beside
), recorded AS (
  UPDATE operations o
     SET state = h.next::operation_state, in_doubt = h.in_doubt, held = h.held, unobserved = 0, lease_until = NULL,
         code = nullif(h.code, ''), transfer_id = CASE WHEN h.next = 'authorized' THEN h.transfer_id END,
         outcome_at = CASE WHEN h.next IN ('authorized', 'rejected', 'cancelled') THEN now() END,
         settlement = CASE WHEN h.next = 'authorized' THEN 'pending'::settlement_state END,
         epoch = o.epoch + h.raise,
         -- what came in doubt from before a failover has no attempt that would have pinned them
         partner = coalesce(o.partner, CASE WHEN h.in_doubt OR h.next = 'authorized' THEN
           (SELECT d.partner FROM due d WHERE d.operation_id = o.id) END),
         partner_key = CASE WHEN h.raise = 0 THEN coalesce(o.partner_key, CASE WHEN h.next = 'authorized' THEN
           coalesce((SELECT a.partner_key FROM attempts a WHERE a.operation_id = o.id ORDER BY a.fence DESC LIMIT 1), nullif(h.partner_key, ''), 'unknown') END) END,
         -- doubt without an attempt on record comes from before a failover
         first_sent_at = CASE WHEN h.raise = 0 THEN coalesce(o.first_sent_at, CASE WHEN h.in_doubt OR h.next = 'authorized' THEN o.created_at END) END
    FROM held h WHERE o.id = h.id
  RETURNING h.n, h.token, h.due_in, o.id, o.fence, o.state, o.code, o.amount_minor, o.currency, o.source, o.debtor_account, o.partner
), observation AS (
  INSERT INTO observations (operation_id, claim_token, n, fence, at, kind, verdict, authoritative, transfer_id, code, evidence)
  SELECT r.id, r.token, f.n, r.fence, least(now(), f.asked_at), f.kind, f.verdict, f.authoritative, nullif(f.transfer_id, ''), nullif(f.code, ''),
         f.evidence::jsonb
    FROM unnest($12::int8[], $13::int2[], $14::text[], $15::text[], $16::bool[], $17::text[], $18::text[], $19::text[], $20::timestamptz[])
      AS f(record, n, kind, verdict, authoritative, transfer_id, code, evidence, asked_at)
    JOIN recorded r ON r.n = f.record
), entry AS (
  INSERT INTO entries (operation_id, event, amount_minor, currency, account)
  SELECT r.id, 'authorized', side.sign * r.amount_minor, r.currency, side.account
    FROM recorded r
   CROSS JOIN LATERAL (VALUES (-1, 'customer:' || r.source || '/' || r.debtor_account), (1, 'transit:' || r.partner)) AS side(sign, account)
   WHERE r.state = 'authorized'
), event AS (
  INSERT INTO outbox (operation_id, fence, type, code)
  SELECT id, fence, state::text::outbox_type, code FROM recorded WHERE state IN ('authorized', 'rejected', 'cancelled', 'parked')
), ended AS (
  DELETE FROM due d USING recorded r WHERE d.operation_id = r.id AND r.state IN ('authorized', 'rejected', 'cancelled')
), goes_on AS (
  UPDATE due d SET due_at = now() + r.due_in * interval '1 ms', parked = r.state = 'parked'
    FROM recorded r WHERE d.operation_id = r.id AND r.state IN ('open', 'parked')
)
SELECT n, state FROM recorded`

// Record writes what a batch of claims came to. A stale claim changes no state; its evidence is kept and, if it is Authorized, decides
// (I5). The results stand in the order given.
func (l *Ledger) Record(ctx context.Context, records []Record) []RecordResult {
	results := make([]RecordResult, 0, len(records))
	for start := 0; start < len(records); start += l.opt.MaxBatch {
		part := records[start:min(start+l.opt.MaxBatch, len(records))]
		results = append(results, settle(ctx, part, l.recordOnce, notRecorded)...)
	}
	for i := range results {
		if results[i].Answer == Fenced {
			results[i] = l.keepEvidence(ctx, records[i].Claim, records[i].Facts, records[i])
		}
	}
	return results
}

func notRecorded(err error) RecordResult { return RecordResult{Err: err} }

// recordOnce answers Fenced for every row that is not ours any more; whether it was recorded before is found out by keepEvidence.
func (l *Ledger) recordOnce(ctx context.Context, records []Record) ([]RecordResult, error) {
	results := make([]RecordResult, len(records))
	c, r, f := &claimArrays{}, &recordArrays{}, &factArrays{}
	for i := range records {
		results[i] = RecordResult{Answer: Fenced}
		c.add(records[i].Claim)
		r.add(&records[i])
		for n := range records[i].Facts {
			f.add(i+1, n, &records[i].Facts[n])
		}
	}
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(recordBatch, c.key, c.id, c.token, c.fence, r.next, r.inDoubt, r.transferID, r.code, r.held, r.dueInMS, r.raise,
			f.record, f.n, f.kind, f.verdict, f.authoritative, f.transferID, f.code, f.evidence, f.askedAt,
			parkedLookUp.Milliseconds(), r.asked, r.partnerKey).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var n int
				var state State
				if err := rows.Scan(&n, &state); err != nil {
					return err
				}
				results[n-1] = RecordResult{Answer: Recorded, State: state}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("record %d operations: %w", len(records), err)
	}
	return results, nil
}

// recordArrays are records as columns.
type recordArrays struct {
	next, transferID, code []string
	partnerKey             []string
	inDoubt, held, asked   []bool // asked: a look-up is among the facts, so somebody may have been here before
	dueInMS                []int64
	raise                  []int16
}

func (c *recordArrays) add(r *Record) {
	dueIn := r.DueIn
	if r.Next == StateParked && dueIn == 0 {
		dueIn = parkedLookUp
	}
	var raise int16
	if r.RaiseEpoch {
		raise = 1
	}
	c.next = append(c.next, string(r.Next))
	c.transferID = append(c.transferID, r.TransferID)
	c.code = append(c.code, r.Code)
	c.partnerKey = append(c.partnerKey, r.PartnerKey)
	c.inDoubt = append(c.inDoubt, r.InDoubt)
	c.held = append(c.held, r.Held)
	c.asked = append(c.asked, slices.ContainsFunc(r.Facts, func(f Fact) bool { return f.Kind == FactLookUp }))
	c.dueInMS = append(c.dueInMS, dueIn.Milliseconds())
	c.raise = append(c.raise, raise)
}

// factArrays are facts as columns; record says (from 1) to which record each belongs.
type factArrays struct {
	record                                    []int64
	n                                         []int16
	kind, verdict, transferID, code, evidence []string
	authoritative                             []bool
	askedAt                                   []*time.Time
}

func (c *factArrays) add(record, n int, f *Fact) {
	evidence := "{}"
	if len(f.Evidence) > 0 {
		evidence = string(f.Evidence)
	}
	c.record = append(c.record, int64(record))
	c.n = append(c.n, int16(n))
	c.kind = append(c.kind, string(f.Kind))
	c.verdict = append(c.verdict, f.Verdict)
	c.authoritative = append(c.authoritative, f.Authoritative)
	c.transferID = append(c.transferID, f.TransferID)
	c.code = append(c.code, f.Code)
	c.evidence = append(c.evidence, evidence)
	c.askedAt = append(c.askedAt, nullTime(f.AskedAt))
}
