package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Resend is one intention to send for an operation that the sweep claimed.
type Resend struct {
	Claim     Claim
	Intention Intention
}

// AttemptAnswer says whether a send may follow.
type AttemptAnswer uint8

// The answers to a Resend. Only AttemptCommitted allows a send.
const (
	NotCommitted     AttemptAnswer = iota // with an error only
	AttemptCommitted                      // visible to everybody; the send may follow
	AttemptFenced                         // the claim is no longer ours
	AttemptDiffers                        // partner, partner key, body or (in doubt) credential or endpoint are not those of the attempts before: park
	AttemptStopped                        // somebody wants it stopped since it was claimed: nothing more is sent
)

// AttemptResult answers one Resend.
type AttemptResult struct {
	Answer  AttemptAnswer
	Stopped string // with AttemptStopped: why, as in Work
	Err     error
}

// commitAttempts writes attempts under token and fence. What may not differ from the first attempt under the same partner key is compared
// here, in the row's own transaction, so that no program version and no configuration can send other bytes or another key (I7, I8). While
// nothing is in doubt, the credential and the endpoint may change: under the old ones nothing was executed. A hash of zeros is an attempt
// that the local check refused before there was a body. A stop is asked for here once more: it may have come since the claim, while
// the worker waited for its turn at the partner.
const commitAttempts = `
WITH resend AS MATERIALIZED (
  SELECT r.key, r.id, r.token, r.fence, r.partner, r.credential, r.endpoint, r.renderer, r.body_sha256, r.partner_key, r.end_to_end_id, r.n
    FROM unnest($1::uuid[], $2::int8[], $3::uuid[], $4::int4[], $5::text[], $6::text[], $7::text[], $8::int2[], $9::bytea[], $10::text[], $11::text[])
    WITH ORDINALITY AS r(key, id, token, fence, partner, credential, endpoint, renderer, body_sha256, partner_key, end_to_end_id, n)
   ORDER BY r.key
), held AS MATERIALIZED (
  SELECT r.n, o.id, -- once more, with the same token, it is told the same
         (SELECT s.code FROM (SELECT s.code FROM stops s WHERE s.operation_id = o.id UNION ALL SELECT k.code FROM key_stops k WHERE k.key = r.key LIMIT 1) AS s
           WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.operation_id = o.id AND a.claim_token = r.token)) AS stopped,
         coalesce(o.partner = r.partner, true) AND coalesce(o.partner_key = r.partner_key, true)
         AND NOT EXISTS (SELECT FROM attempts a WHERE a.operation_id = o.id AND a.partner_key = r.partner_key
                            AND ((a.body_sha256 <> r.body_sha256 AND a.body_sha256 <> decode(repeat('00', 32), 'hex'))
                              OR (o.in_doubt AND (a.endpoint <> r.endpoint OR a.credential <> r.credential)))) AS same
    FROM resend r CROSS JOIN LATERAL (
      SELECT o.id, o.partner, o.partner_key, o.in_doubt FROM operations o
       WHERE o.id = r.id AND o.key = r.key AND o.claim_token = r.token AND o.fence = r.fence AND o.state = 'claimed' FOR UPDATE) AS o
), pinned AS (
  UPDATE operations o SET partner = r.partner, credential = r.credential, partner_key = r.partner_key, in_doubt = true,
         first_sent_at = coalesce(o.first_sent_at, now())
    FROM held h JOIN resend r USING (n) WHERE o.id = h.id AND h.same AND h.stopped IS NULL
), attempt AS (
  INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
  SELECT h.id, r.fence, r.renderer, r.token, r.body_sha256, r.partner, r.credential, r.endpoint, r.partner_key, r.end_to_end_id
    FROM held h JOIN resend r USING (n) WHERE h.same AND h.stopped IS NULL
  ON CONFLICT DO NOTHING
)
SELECT n, same, coalesce(stopped, '') FROM held`

// CommitAttempts commits the attempts of a batch of resends, before any byte of them leaves. The answers stand in the order given.
func (l *Ledger) CommitAttempts(ctx context.Context, resends []Resend) []AttemptResult {
	return settle(ctx, resends, l.commitAttemptsOnce, func(err error) AttemptResult { return AttemptResult{Err: err} })
}

func (l *Ledger) commitAttemptsOnce(ctx context.Context, resends []Resend) ([]AttemptResult, error) {
	results := make([]AttemptResult, len(resends))
	for i := range results {
		results[i].Answer = AttemptFenced
	}
	c, in := &claimArrays{}, &intentionArrays{}
	for i := range resends {
		c.add(resends[i].Claim)
		in.add(&resends[i].Intention)
	}
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(commitAttempts, c.key, c.id, c.token, c.fence, in.partner, in.credential, in.endpoint, in.renderer, in.bodySHA256,
			in.partnerKey, in.endToEndID).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var n int
				var same bool
				var stopped string
				if err := rows.Scan(&n, &same, &stopped); err != nil {
					return err
				}
				switch {
				case stopped != "":
					results[n-1] = AttemptResult{Answer: AttemptStopped, Stopped: stopped}
				case same:
					results[n-1].Answer = AttemptCommitted
				default:
					results[n-1].Answer = AttemptDiffers
				}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("commit %d attempts: %w", len(resends), err)
	}
	return results, nil
}

// intentionArrays are intentions as columns.
type intentionArrays struct {
	partner, credential, endpoint, partnerKey, endToEndID []string
	renderer                                              []int16
	bodySHA256                                            [][]byte
}

func (c *intentionArrays) add(in *Intention) {
	c.partner = append(c.partner, in.Partner)
	c.credential = append(c.credential, in.Credential)
	c.endpoint = append(c.endpoint, in.Endpoint)
	c.renderer = append(c.renderer, in.Renderer)
	c.bodySHA256 = append(c.bodySHA256, in.BodySHA256[:])
	c.partnerKey = append(c.partnerKey, in.PartnerKey)
	c.endToEndID = append(c.endToEndID, in.EndToEndID)
}
