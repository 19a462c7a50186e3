package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Late is evidence found outside of a claim: a look-up of a parked operation, a webhook.
type Late struct {
	Key        uuid.UUID
	Facts      []Fact
	PartnerKey string // under which the partner was asked; "" = nobody did
}

// verdictAuthorized is the one verdict that is exempt from the fence; beside verdictMismatch it decides nothing.
const (
	verdictAuthorized = "authorized"
	verdictMismatch   = "mismatch"
)

// Append keeps evidence found outside of a claim. Authorized evidence decides an unfinished operation; against another outcome it sets
// contradicted_at, publishes `contradicted` and pauses the partner. Beside a mismatch it decides nothing. Evidence for an unknown key is kept as
// a stray; a later claim of that key is in doubt from the start.
func (l *Ledger) Append(ctx context.Context, lates []Late) []RecordResult {
	results := make([]RecordResult, len(lates))
	for i := range lates {
		claim := Claim{Key: lates[i].Key, Token: newToken()}
		results[i] = l.keepEvidence(ctx, claim, lates[i].Facts, Record{PartnerKey: lates[i].PartnerKey})
	}
	return results
}

// errStillOurs: the record found no row under its internal id, yet the claim stands. Recording again, with what Explain says, is safe.
var errStillOurs = errors.New("the claim stands but its internal id does not match: was the database restored? run `paidonce recover`")

// standing is an operation as keepEvidence finds it, locked.
type standing struct {
	id                  int64
	state               State
	fence               int32
	token               uuid.UUID
	transferID, partner string
	contradicted        bool
	mismatch            bool // on record already
}

// keepEvidence is what Record does with a row that is not (or no longer) held under this token and fence. It is addressed by key and claim
// token alone, since ids and fences can be issued again after a failover. wanted is the record that found itself fenced, if any.
func (l *Ledger) keepEvidence(ctx context.Context, claim Claim, facts []Fact, wanted Record) RecordResult {
	results, err := onceMore(ctx, []Claim{claim}, func(ctx context.Context, _ []Claim) ([]RecordResult, error) {
		ctx, cancel := l.bound(ctx)
		defer cancel()
		var result RecordResult
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) (err error) {
			if err = l.limit(ctx, tx); err != nil {
				return err
			}
			result, err = keepEvidenceIn(ctx, tx, claim, facts, wanted)
			return err
		})
		return []RecordResult{result}, err
	})
	if err != nil {
		return RecordResult{Err: fmt.Errorf("keep evidence of %s: %w", claim.Key, err)}
	}
	return results[0]
}

func keepEvidenceIn(ctx context.Context, tx pgx.Tx, claim Claim, facts []Fact, wanted Record) (RecordResult, error) {
	var s standing
	err := tx.QueryRow(ctx, `
		SELECT id, state, fence, coalesce(claim_token, '00000000-0000-0000-0000-000000000000'), coalesce(transfer_id, ''), coalesce(partner, ''),
		       contradicted_at IS NOT NULL, EXISTS (SELECT FROM observations x WHERE x.operation_id = o.id AND x.verdict = 'mismatch')
		  FROM operations o WHERE key = $1 FOR UPDATE OF o`, claim.Key).
		Scan(&s.id, &s.state, &s.fence, &s.token, &s.transferID, &s.partner, &s.contradicted, &s.mismatch)
	if errors.Is(err, pgx.ErrNoRows) {
		return RecordResult{Answer: Stray}, addStrays(ctx, tx, claim, facts)
	}
	if err != nil {
		return RecordResult{}, err
	}
	if wanted.Next != "" && s.token == claim.Token && s.fence == claim.Fence && s.state != StateClaimed {
		return RecordResult{Answer: Recorded, State: s.state}, nil // our own record: only its reply was lost
	}
	if wanted.Next != "" && s.token == claim.Token && s.fence == claim.Fence {
		return RecordResult{}, errStillOurs
	}
	if err := addObservations(ctx, tx, s, claim, facts, wanted.Next != ""); err != nil {
		return RecordResult{}, err
	}
	authorized, mismatch := decisiveEvidence(facts)
	switch {
	case mismatch && s.state == StateOpen:
		return RecordResult{Answer: Fenced, State: s.state}, dropHold(ctx, tx, s)
	case mismatch && wanted.Next == "":
		return RecordResult{Answer: Fenced, State: s.state}, fenceOff(ctx, tx, s)
	case mismatch: // a stale holder changes no state; what the present one records is held against it
	case authorized != "" && (s.state.Finished() || !s.mismatch):
		return decideLate(ctx, tx, s, authorized, wanted.PartnerKey)
	}
	return RecordResult{Answer: Fenced, State: s.state}, nil
}

// decisiveEvidence finds a transfer that may decide, and a mismatch, beside which nothing decides but a person.
func decisiveEvidence(facts []Fact) (transferID string, mismatch bool) {
	for _, f := range facts {
		mismatch = mismatch || f.Verdict == verdictMismatch
		if transferID == "" && f.Verdict == verdictAuthorized {
			transferID = f.TransferID
		}
	}
	return transferID, mismatch
}

// fenceOff takes a claim from its holder, who does not know of the mismatch that was put on record just now. The lease lapses, and the next
// one parks the operation.
func fenceOff(ctx context.Context, tx pgx.Tx, s standing) error {
	_, err := tx.Exec(ctx, `UPDATE operations SET fence = fence + 1 WHERE id = $1 AND state = 'claimed'`, s.id)
	return err
}

// dropHold has the sweep take, and park, an operation that a paused batch run holds: beside a mismatch it is in doubt, which waits for no run.
func dropHold(ctx context.Context, tx pgx.Tx, s standing) error {
	_, err := tx.Exec(ctx, `
WITH dropped AS (
  UPDATE operations SET held = false, code = NULL, in_doubt = true, first_sent_at = coalesce(first_sent_at, created_at)
   WHERE id = $1 AND state = 'open' AND held AND code = $2 RETURNING id
)
UPDATE due d SET due_at = now() FROM dropped o WHERE d.operation_id = o.id`, s.id, HeldByRun)
	return err
}

// decideLate lets Authorized evidence decide an unfinished operation, or contradict a finished one.
func decideLate(ctx context.Context, tx pgx.Tx, s standing, transferID, partnerKey string) (RecordResult, error) {
	switch {
	case s.state == StateAuthorized && s.transferID == transferID:
		return RecordResult{Answer: Fenced, State: s.state}, nil // nothing new
	case s.state.Finished():
		return RecordResult{Answer: LateContradicted, State: s.state}, contradict(ctx, tx, s)
	}
	_, err := tx.Exec(ctx, `
WITH decided AS (
  UPDATE operations SET state = 'authorized', fence = fence + 1, transfer_id = $2, outcome_at = now(), settlement = 'pending', in_doubt = false,
         held = false, code = NULL, lease_until = NULL, unobserved = 0,
         -- what a failover or a new epoch took from the row comes from the attempt, or from where the operation was due
         first_sent_at = coalesce(first_sent_at, created_at),
         partner = coalesce(partner, (SELECT d.partner FROM due d WHERE d.operation_id = $1)),
         partner_key = coalesce(partner_key, (SELECT a.partner_key FROM attempts a WHERE a.operation_id = $1 ORDER BY a.fence DESC LIMIT 1), nullif($3, ''), 'unknown')
   WHERE id = $1 AND state IN ('open', 'claimed', 'parked')
  RETURNING id, fence, amount_minor, currency, source, debtor_account, partner
), entry AS (
  INSERT INTO entries (operation_id, event, amount_minor, currency, account)
  SELECT d.id, 'authorized', side.sign * d.amount_minor, d.currency, side.account
    FROM decided d
   CROSS JOIN LATERAL (VALUES (-1, 'customer:' || d.source || '/' || d.debtor_account), (1, 'transit:' || d.partner)) AS side(sign, account)
), event AS (
  INSERT INTO outbox (operation_id, fence, type) SELECT id, fence, 'authorized' FROM decided
)
DELETE FROM due USING decided d WHERE due.operation_id = d.id`, s.id, transferID, partnerKey)
	return RecordResult{Answer: LateAuthorized, State: StateAuthorized}, err
}

// contradict marks an outcome that evidence speaks against: money moved though we said it did not, or moved twice. The partner pauses. Where
// none is on record, as of an operation that was cancelled before it was sent, whoever serves its route does: money left on that way that
// nobody here knows of.
func contradict(ctx context.Context, tx pgx.Tx, s standing) error {
	if s.contradicted {
		return nil
	}
	_, err := tx.Exec(ctx, `
WITH marked AS (
  UPDATE operations SET contradicted_at = now() WHERE id = $1 AND contradicted_at IS NULL RETURNING id, fence, route, partner
), stopped AS (
  SELECT CASE WHEN partner IS NULL THEN 'route' ELSE 'partner' END AS scope, coalesce(partner, route) AS name FROM marked
), event AS (
  INSERT INTO outbox (operation_id, fence, type, code) SELECT id, fence, 'contradicted', 'late_authorized' FROM marked
), pause AS (
  INSERT INTO pauses (scope, name, reason, by) SELECT scope, name, $2::text, $3::text FROM stopped
  ON CONFLICT DO NOTHING
)
INSERT INTO pause_log (scope, name, act, reason, by) SELECT scope, name, 'pause', $2::text, $3::text FROM stopped`,
		s.id, PausedContradicted, ByWorker) // logged also beneath a pause that stands: whoever resumes must see it
	return err
}

func addObservations(ctx context.Context, tx pgx.Tx, s standing, claim Claim, facts []Fact, stale bool) error {
	f := &factArrays{}
	for n := range facts {
		fact := facts[n]
		if stale {
			fact.Kind = FactLate
		}
		f.add(1, n, &fact)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO observations (operation_id, claim_token, n, fence, at, kind, verdict, authoritative, transfer_id, code, evidence)
		SELECT $1, $2, f.n, $3, least(now(), f.asked_at), f.kind, f.verdict, f.authoritative, nullif(f.transfer_id, ''), nullif(f.code, ''), f.evidence::jsonb
		  FROM unnest($4::int2[], $5::text[], $6::text[], $7::bool[], $8::text[], $9::text[], $10::text[], $11::timestamptz[])
		    AS f(n, kind, verdict, authoritative, transfer_id, code, evidence, asked_at)
		ON CONFLICT DO NOTHING`,
		s.id, claim.Token, max(claim.Fence, 0), f.n, f.kind, f.verdict, f.authoritative, f.transferID, f.code, f.evidence, f.askedAt)
	return err
}

func addStrays(ctx context.Context, tx pgx.Tx, claim Claim, facts []Fact) error {
	f := &factArrays{}
	for n := range facts {
		f.add(1, n, &facts[n])
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO strays (key, claim_token, n, kind, verdict, transfer_id, code, evidence)
		SELECT $1, $2, f.n, f.kind, f.verdict, nullif(f.transfer_id, ''), nullif(f.code, ''), f.evidence::jsonb
		  FROM unnest($3::int2[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) AS f(n, kind, verdict, transfer_id, code, evidence)
		ON CONFLICT DO NOTHING`,
		claim.Key, claim.Token, f.n, f.kind, f.verdict, f.transferID, f.code, f.evidence)
	return err
}
