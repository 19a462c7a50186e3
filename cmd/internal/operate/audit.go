package operate

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// AuditLine is who did what, why, and with what result.
type AuditLine struct {
	ID       int64
	At       time.Time
	By       string
	Act      string
	Target   string
	Reason   string
	Evidence string
	Digest   []byte
	Weight   Weight
	Proposal uuid.UUID // Nil = none
	Outcome  string    // "begun" while no result is on record
	Detail   string
	EndedAt  time.Time
}

// OutcomeBegun stands for a line without a result: the act may have run.
const OutcomeBegun = "begun"

// AuditFilter selects lines; zero fields select all.
type AuditFilter struct {
	By, Act, Target, Outcome string
	Proposal                 uuid.UUID
	Since, Until             time.Time
	Before                   int64 // only lines older than this one
	Limit                    int   // default: all
}

// Audit gives the lines of the log, the newest first.
func (s *Service) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditLine, error] {
	return func(yield func(AuditLine, error) bool) {
		rows, err := s.db.Query(ctx, `
SELECT l.id, l.at, l.by, l.act, l.target, l.reason, l.evidence, l.digest, l.weight, l.proposal_id, coalesce(r.outcome, 'begun'),
       coalesce(r.detail, ''), r.at
  FROM audit l LEFT JOIN audit_results r ON r.audit_id = l.id
 WHERE ($1 = '' OR l.by = $1) AND ($2 = '' OR l.act = $2) AND ($3 = '' OR l.target = $3) AND ($4 = '' OR coalesce(r.outcome, 'begun') = $4)
   AND ($5::uuid IS NULL OR l.proposal_id = $5) AND ($6::timestamptz IS NULL OR l.at >= $6) AND ($7::timestamptz IS NULL OR l.at < $7)
   AND ($8::int8 = 0 OR l.id < $8)
 ORDER BY l.id DESC LIMIT $9`,
			f.By, f.Act, f.Target, f.Outcome, orNil(f.Proposal, uuid.Nil), orNil(f.Since, time.Time{}), orNil(f.Until, time.Time{}), f.Before, orNil(f.Limit, 0))
		if err != nil {
			yield(AuditLine{}, fmt.Errorf("read the audit log: %w", denied(err)))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var l AuditLine
			var weight []byte
			var proposal *uuid.UUID
			var ended *time.Time
			err := rows.Scan(&l.ID, &l.At, &l.By, &l.Act, &l.Target, &l.Reason, &l.Evidence, &l.Digest, &weight, &proposal, &l.Outcome, &l.Detail, &ended)
			if err == nil {
				err = json.Unmarshal(weight, &l.Weight)
			}
			if proposal != nil {
				l.Proposal = *proposal
			}
			l.EndedAt = orZero(ended)
			if !yield(l, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(AuditLine{}, fmt.Errorf("read the audit log: %w", denied(err)))
		}
	}
}

// orNil gives NULL for the zero value.
func orNil[T comparable](v, zero T) *T {
	if v == zero {
		return nil
	}
	return &v
}
