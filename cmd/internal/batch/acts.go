package batch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/worker/queue"
)

// Names of the acts in the audit log.
const (
	ActSubmit = "batch_submit"
	ActPause  = "batch_pause"
	ActResume = "batch_resume"
	ActCancel = "batch_cancel"
)

// submitAct releases a run. What a second person agrees to are the digests and totals of what is on record.
type submitAct struct {
	s   *Service
	run Run
	dry bool // the run is not on record
	// recovered is when the ledger was recovered, if that was shortly before the run came on record: a run of the same file may be lost, while the
	// broker delivers its jobs again. Zero = it was not.
	recovered time.Time
	asked     bool // a second person was asked about the run, or about the same payments under another run key
}

// submission is the act that releases a run.
func (s *Service) submission(ctx context.Context, run Run, dry bool) (*submitAct, error) {
	a := &submitAct{s: s, run: run, dry: dry}
	at := &run.At
	if dry {
		at = nil
	}
	recovered, err := readOne(ctx, s, pgx.RowTo[*time.Time], `SELECT max(r.at) FROM recoveries r WHERE coalesce($1::timestamptz, now()) BETWEEN r.at AND r.at + $2::int8 * interval '1 ms'`,
		at, queue.RedoWindow.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("look for a recovery: %w", err)
	}
	if recovered != nil {
		a.recovered = *recovered
	}
	a.asked, err = readOne(ctx, s, pgx.RowTo[bool], `SELECT EXISTS (SELECT FROM proposals WHERE act = '`+ActSubmit+`'
		AND (target = $1 OR position(convert_to('"content_digest":"' || $2 || '"', 'UTF8') IN content) > 0))`, run.RunKey, hex.EncodeToString(run.ContentDigest[:]))
	if err != nil {
		return nil, fmt.Errorf("look for what a second person was asked: %w", err)
	}
	return a, nil
}

// Name implements operate.Act.
func (a *submitAct) Name() string { return ActSubmit }

// Role implements operate.Act.
func (a *submitAct) Role() operate.Role { return operate.RoleOperator }

// Target implements operate.Act.
func (a *submitAct) Target() string { return a.run.RunKey }

// Content implements operate.Act.
func (a *submitAct) Content() ([]byte, error) {
	return json.Marshal(struct {
		Run           string           `json:"run"`
		ID            string           `json:"id"`
		Source        string           `json:"source"`
		Route         string           `json:"route,omitzero"`
		Format        string           `json:"format"`
		NotBefore     string           `json:"not_before,omitzero"`
		Rows          int              `json:"rows"`
		Sums          map[string]int64 `json:"sums_minor"`
		Digest        string           `json:"digest"`
		ContentDigest string           `json:"content_digest"`
		Again         bool             `json:"again,omitzero"`
		Duplicates    int              `json:"duplicates,omitzero"`
		Recovered     string           `json:"after_recovery,omitzero"`
	}{
		a.run.RunKey, a.run.ID.String(), a.run.Source, a.run.Route, string(a.run.Format), stamp(a.run.NotBefore), a.run.Rows, a.run.Sums,
		hex.EncodeToString(a.run.Digest[:]), hex.EncodeToString(a.run.ContentDigest[:]), a.run.AgainReason != "", a.run.Duplicates,
		stamp(a.recovered),
	}, json.Deterministic(true))
}

// Weight implements operate.Act. Once a second person was asked, neither other limits nor another run key do without one; the database holds to that.
func (a *submitAct) Weight() operate.Weight {
	return operate.Weight{Count: a.run.Rows, Amounts: a.run.Sums, Always: a.run.AgainReason != "" || !a.recovered.IsZero() || a.asked}
}

// Check implements operate.Checker.
func (a *submitAct) Check(ctx context.Context, _ operate.Operator) error {
	if a.dry {
		return nil
	}
	return a.s.refuseState(ctx, a.run.RunKey, Waiting, Released, Paused)
}

// Run implements operate.Act.
func (a *submitAct) Run(ctx context.Context, by operate.Operator) (string, error) {
	a.s.at(ctx, pointReleasing)
	return a.s.setState(ctx, a.run, by, Waiting, Released)
}

func contentOf(run *Run) ([]byte, error) {
	return json.Marshal(struct {
		Run string `json:"run"`
		ID  string `json:"id"`
	}{run.RunKey, run.ID.String()}, json.Deterministic(true))
}

// refuseState refuses an act that the run's state does not allow.
func (s *Service) refuseState(ctx context.Context, runKey string, allowed ...State) error {
	run, err := s.Run(ctx, runKey)
	if err != nil {
		return err
	}
	for _, state := range allowed {
		if run.State == state {
			return nil
		}
	}
	return operate.Refuse("run_is_"+string(run.State), "run %s is %s, by %s at %s", run.RunKey, run.State, run.ChangedBy, stamp(run.ChangedAt))
}

func (s *Service) setState(ctx context.Context, run Run, by operate.Operator, from, to State) (string, error) {
	outcome := operate.OutcomeNoEffect
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := by.Present(ctx, tx); err != nil {
			return err
		}
		if err := lockRun(ctx, tx, run.ID, false); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `UPDATE batch_runs SET state = $2, changed_at = now(), changed_by = $3 WHERE id = $1 AND state = $4`, run.ID, to, by.Name, from)
		if tag.RowsAffected() == 1 {
			outcome = operate.OutcomeDone
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("set run %s to %s: %w", run.RunKey, to, err)
	}
	return outcome, nil
}

// release asks the desk for the release of a run that is not released yet.
func (s *Service) release(ctx context.Context, sub Submission, out *Submitted) error {
	switch out.Run.State {
	case Released:
		if !sub.By.Has(operate.RoleOperator) { // nobody goes on with what they could not have begun
			return fmt.Errorf("%w: %s needs the role %s, and %s has %v", operate.ErrNotPermitted, ActSubmit, operate.RoleOperator, sub.By.Name, sub.By.Roles)
		}
		return nil
	case Paused:
		return fmt.Errorf("%w by %s at %s: `paidonce batch resume %s` goes on", ErrPaused, out.Run.ChangedBy, stamp(out.Run.ChangedAt), out.Run.RunKey)
	case Cancelled:
		return fmt.Errorf("%w by %s at %s: choose another run key", ErrCancelled, out.Run.ChangedBy, stamp(out.Run.ChangedAt))
	}
	act, err := s.submission(ctx, out.Run, sub.DryRun && !out.Found)
	if err != nil {
		return err
	}
	out.Recovered = act.recovered
	done, err := s.desk.Do(ctx, operate.Request{By: sub.By, Reason: sub.Reason, Act: act, DryRun: sub.DryRun})
	out.Waits, out.Proposal = done.Waits, done.Proposal
	if err != nil || sub.DryRun {
		return err
	}
	s.at(ctx, pointReleased)
	out.Run, err = s.Run(ctx, out.Run.RunKey)
	return err
}

// Approve agrees to the release of a run as it is on record now. The proposal must be for exactly that. With a dry run it says whether it would.
func (s *Service) Approve(ctx context.Context, runKey string, by operate.Operator, reason string, dryRun bool) (Run, operate.Proposal, error) {
	run, err := s.Run(ctx, runKey)
	if err != nil {
		return run, operate.Proposal{}, err
	}
	asked, digest, err := s.asked(ctx, run)
	switch {
	case err != nil:
		return run, operate.Proposal{}, err
	case asked == nil:
		return run, operate.Proposal{}, operate.ErrNoProposal
	case dryRun:
		return run, *asked, s.desk.Decidable(ctx, *asked, by, digest, true)
	}
	approved, err := s.desk.Approve(ctx, by, asked.ID, digest, reason)
	return run, approved, err
}

// asked gives the newest proposal to release a run, if there is any, and the digest of what would be released now.
func (s *Service) asked(ctx context.Context, run Run) (*operate.Proposal, []byte, error) {
	proposals, err := s.desk.Proposals(ctx, operate.ProposalFilter{Act: ActSubmit, Target: run.RunKey, Limit: 1})
	if err != nil || len(proposals) == 0 {
		return nil, nil, err
	}
	act, err := s.submission(ctx, run, false)
	if err != nil {
		return nil, nil, err
	}
	content, err := act.Content()
	if err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(append([]byte(ActSubmit+"\n"), content...)) // as the desk makes it
	return &proposals[0], digest[:], nil
}

// agreed reports whether a second person has agreed to exactly that, and it holds still.
func agreed(p *operate.Proposal, digest []byte) bool {
	return p != nil && bytes.Equal(p.Digest, digest) && (p.State == operate.ProposalApproved || p.State == operate.ProposalBegun)
}
