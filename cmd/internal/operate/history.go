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

// LetterAct is one thing that was done to a dead letter of a key, or to the one that the key replaces.
type LetterAct struct {
	Sequence    int64
	At          time.Time
	Act         string // replay, discard, correct; published or failed: what came of it
	By          string
	ReplayN     int   // of a replay
	JobSequence int64 // where it was published
	Duplicate   bool  // the broker had it already
	Reason      string
}

// Correction links the key of a dead letter to the one that was made in its place.
type Correction struct {
	At             time.Time
	By             string
	Sequence       int64 // of the letter
	OldKey, NewKey uuid.UUID
}

// KeyHistory is what people did about one key, and what became a dead letter under it.
type KeyHistory struct {
	Audit     []AuditLine // oldest first
	Proposals []Proposal  // oldest first
	Letters   []KeyLetter // oldest first
	Acts      []LetterAct // upon the letters, oldest first
	Replaced  *Correction // of a letter of the key, by another key; nil = none
	Replaces  *Correction // a letter of another key; nil = none
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
	var indexed bool
	if err := s.db.QueryRow(ctx, `SELECT to_regclass('dead_letters') IS NOT NULL`).Scan(&indexed); err != nil || !indexed {
		return h, err
	}
	if err = s.letters(ctx, key, &h); err != nil {
		err = fmt.Errorf("list dead letters of %s: %w", key, denied(err))
	}
	return h, err
}

// mostLetters is how many letters of one key are told of.
const mostLetters = 100

func (s *Service) letters(ctx context.Context, key uuid.UUID, h *KeyHistory) error {
	rows, err := s.db.Query(ctx, `SELECT sequence, at, reason, detail, replays FROM dead_letters
 WHERE key = $1 AND stream_at = (SELECT max(stream_at) FROM dead_letters WHERE key = $1) ORDER BY at, sequence LIMIT $2`, key, mostLetters)
	if err != nil {
		return err
	}
	if h.Letters, err = pgx.CollectRows(rows, pgx.RowToStructByPos[KeyLetter]); err != nil {
		return err
	}
	if rows, err = s.db.Query(ctx, `SELECT a.sequence, a.at, a.act, a.by, coalesce(a.replay_n, 0), coalesce(a.job_sequence, 0), coalesce(a.duplicate, false), a.reason
  FROM ((SELECT l.stream_at, l.sequence FROM dead_letters l WHERE l.key = $1 ORDER BY l.at DESC LIMIT $2)
         UNION SELECT c.stream_at, c.sequence FROM corrections c WHERE c.new_key = $1) l
 CROSS JOIN LATERAL (SELECT d.id, d.sequence, d.at, d.act, d.by, d.replay_n, d.job_sequence, d.duplicate, d.reason FROM dead_letter_acts d
                      WHERE d.stream_at = l.stream_at AND d.sequence = l.sequence AND d.act IN ('replay', 'discard', 'correct')
                      UNION ALL
                     SELECT d.id, d.sequence, d.at, d.act, d.by, d.replay_n, d.job_sequence, d.duplicate, d.reason FROM dead_letter_acts d
                      WHERE d.stream_at = l.stream_at AND d.sequence = l.sequence AND d.act = 'published') a ORDER BY a.id`, key, mostLetters); err != nil {
		return err
	}
	if h.Acts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LetterAct]); err != nil {
		return err
	}
	rows, err = s.db.Query(ctx, `SELECT at, by, sequence, coalesce(old_key, '00000000-0000-0000-0000-000000000000'), new_key FROM corrections
 WHERE old_key = $1 UNION ALL
SELECT at, by, sequence, coalesce(old_key, '00000000-0000-0000-0000-000000000000'), new_key FROM corrections WHERE new_key = $1`, key)
	if err != nil {
		return err
	}
	corrections, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Correction])
	for _, c := range corrections {
		if c.NewKey == key {
			h.Replaces = c
		} else {
			h.Replaced = c
		}
	}
	return err
}
