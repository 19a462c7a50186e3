package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// unanswered are claims of the sweep that may stand although nobody works under them: their reply was lost, or what is on record of them could
// not be read. Left alone they would lapse, and count as claims that killed their worker.
type unanswered struct {
	mu     sync.Mutex
	claims []unansweredClaim
}

// mostUnanswered bounds what is remembered; what is forgotten lapses.
const mostUnanswered = 64

type unansweredClaim struct {
	partner string
	token   uuid.UUID
	began   time.Time // before the claim's statement
	lost    time.Time // when its reply was given up
}

func (u *unanswered) add(c unansweredClaim) {
	u.mu.Lock()
	u.claims = append(u.claims, c)
	u.claims = u.claims[max(0, len(u.claims)-mostUnanswered):]
	u.mu.Unlock()
}

// take gives the claims at a partner to one caller.
func (u *unanswered) take(partner string) (taken []unansweredClaim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var rest []unansweredClaim
	for _, c := range u.claims {
		if c.partner == partner {
			taken = append(taken, c)
		} else {
			rest = append(rest, c)
		}
	}
	u.claims = rest
	return taken
}

// handBack opens what is claimed under one of these tokens, as it was, and takes back that the claim was counted: nothing was done under it.
// The rows are found by when their lease ends, since there is no index on tokens. What is locked is being taken over.
const handBack = `
WITH held AS MATERIALIZED (
  SELECT o.id, o.claim_token FROM due d CROSS JOIN LATERAL (
      SELECT o.id, o.claim_token FROM operations o
       WHERE o.id = d.operation_id AND o.state = 'claimed' AND o.claim_token = ANY($2::uuid[]) FOR UPDATE SKIP LOCKED) AS o
   WHERE d.partner = $1 AND NOT d.parked AND d.due_at <= now() + $3::int8 * interval '1 ms'
     AND d.due_at >= now() + ($3 - $4::int8) * interval '1 ms'
), opened AS (
  UPDATE operations o SET state = 'open', lease_until = NULL, unobserved = greatest(o.unobserved - 1, 0) FROM held h WHERE o.id = h.id
  RETURNING o.id, h.claim_token
), again AS (
  UPDATE due d SET due_at = now() FROM opened o WHERE d.operation_id = o.id
)
SELECT DISTINCT claim_token FROM opened`

// handBackUnanswered hands back what a partner's sweep has claimed in vain. What cannot be handed back now is tried again with the next
// sweep: the ledger may be away, or the statement whose reply was lost still be at work.
func (l *Ledger) handBackUnanswered(ctx context.Context, partner string) {
	claims := l.unanswered.take(partner)
	if len(claims) == 0 {
		return
	}
	tokens := make([]uuid.UUID, len(claims))
	for i := range claims {
		tokens[i] = claims[i].token
	}
	began, opened := time.Now(), map[uuid.UUID]bool{}
	age := began.Sub(claims[0].began) + time.Second // the first is the oldest
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(handBack, partner, tokens, l.opt.Lease.Milliseconds(), age.Milliseconds()).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var token uuid.UUID
				if err := rows.Scan(&token); err != nil {
					return err
				}
				opened[token] = true
			}
			return rows.Err()
		})
	})
	for _, c := range claims {
		if err != nil || (!opened[c.token] && began.Sub(c.lost) < l.opt.StatementTimeout) {
			l.unanswered.add(c)
		}
	}
}

// mayStand reports whether a claim may have been committed although its statement ended with this error.
func mayStand(err error) bool {
	var pg *pgconn.PgError
	return err != nil && !errors.As(err, &pg) && !pgconn.SafeToRetry(err) && !errors.Is(err, ErrMoved)
}
