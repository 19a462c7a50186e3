package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ProposalState is where a proposal stands.
type ProposalState string

// The states of a proposal. Begun: it was executed, and did not come to its end; the same act goes on under it until it expires. Overtaken: what it
// would do cannot be done any more, so that nobody can agree to it.
const (
	ProposalOpen      ProposalState = "open"
	ProposalApproved  ProposalState = "approved"
	ProposalDeclined  ProposalState = "declined"
	ProposalExpired   ProposalState = "expired"
	ProposalBegun     ProposalState = "begun"
	ProposalExecuted  ProposalState = "executed"
	ProposalOvertaken ProposalState = "overtaken"
)

// ProposalStates lists them.
func ProposalStates() []ProposalState {
	return []ProposalState{ProposalOpen, ProposalApproved, ProposalDeclined, ProposalExpired, ProposalBegun, ProposalExecuted, ProposalOvertaken}
}

// Proposal is an act that waits for another person, or waited.
type Proposal struct {
	ID         uuid.UUID
	At         time.Time
	By         string
	Act        string
	Target     string
	Reason     string
	Evidence   string
	Content    []byte // what it will do
	Digest     []byte // of the act's name and the content: what an approval is bound to
	Weight     Weight
	ExpiresAt  time.Time
	State      ProposalState
	Overtaken  string // with that state: by what
	DecidedBy  string
	DecidedAt  time.Time
	Decision   string // why
	ExecutedAt time.Time
	ExecutedBy string
}

// ProposalFilter selects proposals; zero fields select all.
type ProposalFilter struct {
	States []ProposalState
	Act    string
	Target string
	Limit  int // default 100, the newest
}

const proposalColumns = `p.id, p.at, p.by, p.act, p.target, p.reason, p.evidence, p.content, p.digest, p.weight, p.expires_at,
       CASE WHEN e.proposal_id IS NOT NULL AND EXISTS (SELECT FROM audit l JOIN audit_results r ON r.audit_id = l.id
                   WHERE l.proposal_id = p.id AND l.act = p.act AND r.outcome IN ('done', 'no_effect')) THEN 'executed'
            WHEN a.decision = 'declined' THEN 'declined'
            WHEN p.expires_at <= clock_timestamp() THEN 'expired'
            WHEN e.proposal_id IS NOT NULL THEN 'begun'
            WHEN a.decision = 'approved' THEN 'approved'
            ELSE 'open' END AS state,
       coalesce(a.by, '') AS decided_by, a.at AS decided_at, coalesce(a.reason, '') AS decision, e.at AS executed_at, coalesce(e.by, '') AS executed_by`

const proposalTables = ` FROM proposals p LEFT JOIN approvals a ON a.proposal_id = p.id LEFT JOIN executions e ON e.proposal_id = p.id `

func scanProposal(row pgx.CollectableRow) (Proposal, error) {
	var p Proposal
	var weight []byte
	var decided, executed *time.Time
	err := row.Scan(&p.ID, &p.At, &p.By, &p.Act, &p.Target, &p.Reason, &p.Evidence, &p.Content, &p.Digest, &weight, &p.ExpiresAt, &p.State,
		&p.DecidedBy, &decided, &p.Decision, &executed, &p.ExecutedBy)
	p.DecidedAt, p.ExecutedAt = orZero(decided), orZero(executed)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(weight, &p.Weight)
}

// Proposals lists proposals, the newest first.
func (s *Service) Proposals(ctx context.Context, f ProposalFilter) (list []Proposal, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	for last := (Proposal{}); ; {
		page, err := s.page(ctx, f, last)
		if err != nil {
			return nil, fmt.Errorf("list proposals: %w", denied(err))
		}
		for _, p := range page {
			if last = p; len(list) == f.Limit {
				return list, nil
			}
			if err := s.judge(ctx, &p); err != nil { // of one that cannot be judged now the others are listed all the same
				p.Overtaken = "not judged: " + err.Error()
			}
			if len(f.States) == 0 || slices.Contains(f.States, p.State) {
				list = append(list, p)
			}
		}
		if len(page) < f.Limit {
			return list, nil
		}
	}
}

// page gives proposals that are older than one, as the database alone knows them.
func (s *Service) page(ctx context.Context, f ProposalFilter, last Proposal) ([]Proposal, error) {
	states := make([]string, len(f.States))
	for i, state := range f.States {
		states[i] = string(state)
	}
	if slices.Contains(f.States, ProposalOvertaken) {
		states = append(states, string(ProposalOpen), string(ProposalApproved))
	}
	rows, err := s.db.Query(ctx, `WITH all_of AS (SELECT `+proposalColumns+proposalTables+`
  WHERE ($2 = '' OR p.act = $2) AND ($3 = '' OR p.target = $3) AND ($5::timestamptz IS NULL OR (p.at, $6::uuid) < ($5, p.id)))
SELECT id, at, by, act, target, reason, evidence, content, digest, weight, expires_at, state, decided_by, decided_at, decision, executed_at, executed_by
  FROM all_of WHERE cardinality($1::text[]) = 0 OR state = ANY($1) ORDER BY at DESC, id LIMIT $4`, states, f.Act, f.Target, f.Limit,
		orNil(last.At, time.Time{}), last.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanProposal)
}

// Proposal gives one, or ErrNoProposal.
func (s *Service) Proposal(ctx context.Context, id uuid.UUID) (Proposal, error) {
	rows, err := s.db.Query(ctx, `SELECT `+proposalColumns+proposalTables+`WHERE p.id = $1`, id)
	if err != nil {
		return Proposal{}, fmt.Errorf("read proposal %s: %w", id, denied(err))
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanProposal)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, fmt.Errorf("%w: %s", ErrNoProposal, id)
	}
	if err != nil {
		return p, fmt.Errorf("read proposal %s: %w", id, denied(err))
	}
	return p, s.judge(ctx, &p)
}

// judge finds out whether what waits for somebody, or for its author, can still be done. Nothing is written: the proposal and what was decided about
// it stay as they are, and it ends at its time.
func (s *Service) judge(ctx context.Context, p *Proposal) (err error) {
	if p.State != ProposalOpen && p.State != ProposalApproved {
		return nil
	}
	overtaken := s.opt.Judges[p.Act].Overtaken
	if own, ok := s.judges()[p.Act]; ok {
		overtaken = own
	}
	if overtaken == nil {
		return nil
	}
	p.Overtaken, err = overtaken(ctx, *p)
	switch err = denied(err); {
	case errors.Is(err, ErrNotPermitted): // a login that may read proposals and not what they are about: it is told what is on record
		return nil
	case err == nil && p.Overtaken != "":
		p.State = ProposalOvertaken
	}
	return err
}

// standing gives the proposal for what is now to be done that still holds, or nil.
func (s *Service) standing(ctx context.Context, tx pgx.Tx, p prepared) (*Proposal, error) {
	rows, err := tx.Query(ctx, `SELECT `+proposalColumns+proposalTables+`WHERE p.digest = $1 AND p.act = $2 ORDER BY p.at DESC, p.id LIMIT 1`,
		p.digest, p.Act.Name())
	if err != nil {
		return nil, fmt.Errorf("look for a proposal: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanProposal)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a proposal: %w", err)
	}
	switch found.State {
	case ProposalOpen, ProposalApproved, ProposalBegun:
		return &found, nil
	case ProposalDeclined, ProposalExpired, ProposalExecuted, ProposalOvertaken:
	}
	return nil, nil
}

// propose writes the proposal, and the line that says who asked.
func (s *Service) propose(ctx context.Context, tx pgx.Tx, p prepared) (*Proposal, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make the id of a proposal: %w", err)
	}
	weight, err := json.Marshal(p.weight, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("render the weight: %w", err)
	}
	made := Proposal{ID: id, By: p.By.Name, Act: p.Act.Name(), Target: p.Act.Target(), Reason: p.Reason, Evidence: p.Evidence, Content: p.content,
		Digest: p.digest, Weight: p.weight, State: ProposalOpen}
	err = tx.QueryRow(ctx, `
INSERT INTO proposals (id, by, act, target, reason, evidence, content, digest, weight, at, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, now, now + $10::int8 * interval '1 ms' FROM clock_timestamp() AS now RETURNING at, expires_at`,
		id, made.By, made.Act, made.Target, made.Reason, made.Evidence, made.Content, made.Digest, weight, s.opt.ProposalTTL.Milliseconds()).
		Scan(&made.At, &made.ExpiresAt)
	if err != nil {
		return nil, fmt.Errorf("write the proposal: %w", err)
	}
	line, err := s.line(ctx, tx, p, &id)
	if err != nil {
		return nil, err
	}
	return &made, result(ctx, tx, p.By, line, outcomeWaiting, "")
}

// Approve agrees to a proposal as it was read: digest is the one that the approver saw. ErrOwnProposal, ErrExpired, ErrChanged, ErrDecided.
func (s *Service) Approve(ctx context.Context, by Operator, id uuid.UUID, digest []byte, reason string) (Proposal, error) {
	return s.decide(ctx, by, id, digest, reason, "approved")
}

// Decline ends a proposal. Its author may, too.
func (s *Service) Decline(ctx context.Context, by Operator, id uuid.UUID, digest []byte, reason string) (Proposal, error) {
	return s.decide(ctx, by, id, digest, reason, "declined")
}

func (s *Service) decide(ctx context.Context, by Operator, id uuid.UUID, digest []byte, reason, decision string) (Proposal, error) {
	if reason == "" {
		return Proposal{}, ErrNoReason
	}
	if by.proof == "" {
		return Proposal{}, ErrUnknownOperator
	}
	p, err := s.Proposal(ctx, id)
	if err != nil {
		return p, err
	}
	act := map[string]string{"approved": "approve", "declined": "decline"}[decision]
	e := entry{act: act, target: id.String(), reason: reason, digest: p.Digest, weight: p.Weight, proposal: &id}
	err = decidable(p, by, digest, decision)
	if err == nil && decision == "approved" {
		err = s.agreeable(ctx, p)
	}
	if err == nil {
		err = s.write(ctx, by, func(tx pgx.Tx) error {
			line, err := lineOf(ctx, tx, by, e)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO approvals (proposal_id, by, decision, digest, reason) VALUES ($1, $2, $3, $4, $5)`,
				id, by.Name, decision, digest, reason)
			if isTwice(err) {
				return ErrDecided
			}
			if err != nil {
				return err
			}
			return result(ctx, tx, by, line, OutcomeDone, "")
		})
	}
	if err != nil {
		return p, errors.Join(fmt.Errorf("%s proposal %s: %w", act, id, err), s.declinedToDecide(ctx, by, e, err))
	}
	return s.Proposal(ctx, id)
}

// agreeable refuses what nobody should agree to, whoever it is.
func (s *Service) agreeable(ctx context.Context, p Proposal) error {
	if compare := s.opt.Judges[p.Act].Compare; compare != nil {
		return compare(ctx, p)
	}
	return nil
}

// Decidable checks by the same code whether a decision would be taken, and changes nothing.
func (s *Service) Decidable(ctx context.Context, p Proposal, by Operator, digest []byte, approves bool) error {
	if !approves {
		return decidable(p, by, digest, "declined")
	}
	if err := decidable(p, by, digest, "approved"); err != nil {
		return err
	}
	return s.agreeable(ctx, p)
}

// decidable says first what the database would say as well, and what needs no transaction.
func decidable(p Proposal, by Operator, digest []byte, decision string) error {
	withdraws := decision == "declined" && p.By == by.Name
	switch {
	case !by.Has(RoleApprover) && !withdraws:
		return fmt.Errorf("%w: it needs the role %s, and %s has %v", ErrNotPermitted, RoleApprover, by.Name, by.Roles)
	case decision == "approved" && p.By == by.Name:
		return ErrOwnProposal
	case !bytes.Equal(digest, p.Digest):
		return ErrChanged
	case p.State == ProposalExpired:
		return ErrExpired
	case p.State == ProposalOvertaken && p.DecidedBy == "" && decision == "approved":
		return Refuse("overtaken", "overtaken: %s. What it proposes cannot be done any more: decline it, or let it expire", p.Overtaken)
	case p.State == ProposalOvertaken && p.DecidedBy == "":
		return nil
	case p.State != ProposalOpen:
		return ErrDecided
	}
	return nil
}

// declinedToDecide keeps that somebody tried what was not theirs to decide.
func (s *Service) declinedToDecide(ctx context.Context, by Operator, e entry, err error) error {
	if !errors.Is(err, ErrNotPermitted) && !errors.Is(err, ErrOwnProposal) && !errors.Is(err, ErrChanged) && !errors.Is(err, ErrRefused) {
		return nil
	}
	return s.write(ctx, by, func(tx pgx.Tx) error {
		line, failed := lineOf(ctx, tx, by, e)
		if failed != nil {
			return failed
		}
		return result(ctx, tx, by, line, outcomeRefused, wordOf(err))
	})
}
