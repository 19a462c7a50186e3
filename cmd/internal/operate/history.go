package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// KeyLetter is one dead letter that carries a key, as the index of the dead letters knows it.
type KeyLetter struct {
	Sequence int64
	At       time.Time
	Reason   string
	Detail   string
	Replays  int // of its job before
}

// KeyHistory is what people did about one key, and what became a dead letter under it.
type KeyHistory struct {
	Audit     []AuditLine // oldest first
	Proposals []Proposal  // oldest first
	Letters   []KeyLetter // oldest first
}

// History reads what the desk knows of one key.
func (s *Service) History(ctx context.Context, key uuid.UUID) (h KeyHistory, err error) {
	for line, err := range s.Audit(ctx, AuditFilter{Target: key.String(), Limit: 1000}) {
		if err != nil {
			return h, err
		}
		h.Audit = append([]AuditLine{line}, h.Audit...)
	}
	proposals, err := s.Proposals(ctx, ProposalFilter{Target: key.String()})
	if err != nil {
		return h, err
	}
	for _, p := range proposals {
		h.Proposals = append([]Proposal{p}, h.Proposals...)
	}
	h.Letters, err = s.letters(ctx, key)
	return h, err
}

func (s *Service) letters(ctx context.Context, key uuid.UUID) ([]KeyLetter, error) {
	var indexed bool
	if err := s.db.QueryRow(ctx, `SELECT to_regclass('dead_letters') IS NOT NULL`).Scan(&indexed); err != nil || !indexed {
		return nil, err
	}
	rows, err := s.db.Query(ctx, `SELECT sequence, at, reason, detail, replays FROM dead_letters
 WHERE key = $1 AND stream_at = (SELECT max(stream_at) FROM dead_letters WHERE key = $1) ORDER BY at, sequence LIMIT 100`, key)
	if err != nil {
		return nil, fmt.Errorf("list dead letters of %s: %w", key, denied(err))
	}
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KeyLetter])
	if err != nil {
		return nil, fmt.Errorf("list dead letters of %s: %w", key, denied(err))
	}
	return letters, nil
}
