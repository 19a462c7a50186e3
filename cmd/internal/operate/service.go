package operate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
)

// DB is what the desk needs of the database; *pgxpool.Pool is one.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Limits say what one person may do alone.
type Limits struct {
	Counts  map[string]int   // by name of the act: most things at once. An act that is not named has none
	Amounts map[string]int64 // by currency, minor units: most money of one act. A currency that is not named: none at all
}

// Options bound what the desk does. The zero value works: then whatever moves money waits for a second person.
type Options struct {
	Limits      Limits
	ProposalTTL time.Duration    // how long a proposal and its approval hold. Default 24 h
	Judges      map[string]Judge // by name of the act. Default: none but the desk's own
}

// Judge knows of the proposals of one act what the desk itself does not.
type Judge struct {
	// Overtaken says in words what has happened since that leaves nothing to agree to; "" = it still stands. It asks the database alone. nil = nothing does
	Overtaken func(ctx context.Context, p Proposal) (string, error)
	// Compare refuses a proposal that shows something else than it would do. It runs before somebody agrees. nil = the content is all there is
	Compare func(ctx context.Context, p Proposal) error
}

// Service is safe for concurrent use.
type Service struct {
	ledger *ledger.Ledger
	db     DB
	opt    Options
}

// New makes the desk of a ledger.
func New(l *ledger.Ledger, db DB, opt Options) *Service {
	if opt.ProposalTTL <= 0 {
		opt.ProposalTTL = 24 * time.Hour
	}
	return &Service{ledger: l, db: db, opt: opt}
}

// Weight is how much an act is about.
type Weight struct {
	Count   int              `json:"count,omitzero"`
	Amounts map[string]int64 `json:"amounts,omitempty"` // by currency, minor units
	Always  bool             `json:"always,omitzero"`   // needs a second person whatever it weighs
}

// Act is one change that an operator asks for.
type Act interface {
	Name() string             // in the audit log: letters and _
	Role() Role               // that may ask for it
	Target() string           // what it is done to: a key, the id of a plan, a scope
	Content() ([]byte, error) // all that it will do, the same bytes each time; what a second person agrees to
	Weight() Weight
	// Run does it. Called twice, or by two at once, it has one effect. Outcome is a word for the audit log: "done", "no_effect", "partial".
	Run(ctx context.Context, by Operator) (outcome string, err error)
}

// Checker is an Act that knows beforehand what stands in its way. Check changes nothing; a dry run ends after it.
type Checker interface {
	Check(ctx context.Context, by Operator) error
}

// Request is an act, by whom and why.
type Request struct {
	By       Operator
	Reason   string
	Evidence string // where the proof is: a ticket, a statement's line
	Act      Act
	DryRun   bool // check everything, change nothing
}

// Done says what came of a request.
type Done struct {
	Outcome  string    // what Run said; "dry_run"
	Waits    bool      // with a dry run: a second person would be needed
	Proposal *Proposal // that it waits for, or ran under; nil = none was needed
	AuditID  int64
}

// Outcomes that the desk itself writes.
const (
	OutcomeDone        = "done"
	OutcomeNoEffect    = "no_effect"
	OutcomePartial     = "partial"
	outcomeDryRun      = "dry_run"
	outcomeWaiting     = "waiting"
	outcomeRefused     = "refused"
	outcomeFailed      = "failed"
	outcomeInterrupted = "interrupted"
)

// prepared is a request that was read once.
type prepared struct {
	Request
	content []byte
	digest  []byte
	weight  Weight
}

// Do runs an act: alone where one person may, else under the approval of another. ErrWaiting: a proposal is on record and waits for one.
func (s *Service) Do(ctx context.Context, r Request) (Done, error) {
	p, err := prepare(r)
	if err != nil {
		return Done{}, err
	}
	if err := s.permitted(ctx, p); err != nil {
		if !r.DryRun {
			err = errors.Join(err, s.refused(ctx, p, err))
		}
		return Done{}, err
	}
	waits, err := s.beyondOnePerson(ctx, p)
	if err != nil {
		return Done{}, err
	}
	if r.DryRun {
		return Done{Outcome: outcomeDryRun, Waits: waits}, nil
	}
	done, err := s.begin(ctx, p, waits)
	if err != nil {
		return done, err
	}
	done.Outcome, err = r.Act.Run(context.WithValue(ctx, underKey{}, done), r.By)
	return done, errors.Join(err, s.end(ctx, p, done, err))
}

type underKey struct{}

// under is the line and the approval that an act runs under.
func under(ctx context.Context) Done {
	done, _ := ctx.Value(underKey{}).(Done)
	return done
}

// lineOn is the same as the ledger asks for it.
func lineOn(ctx context.Context, by Operator) ledger.Line {
	return ledger.Line{Line: under(ctx).AuditID, Proof: by.proof}
}

func prepare(r Request) (prepared, error) {
	p := prepared{Request: r}
	if r.Reason == "" {
		return p, ErrNoReason
	}
	var err error
	if p.content, err = r.Act.Content(); err != nil {
		return p, fmt.Errorf("say what %s will do: %w", r.Act.Name(), err)
	}
	p.weight = r.Act.Weight()
	sum := sha256.Sum256(append([]byte(r.Act.Name()+"\n"), p.content...))
	p.digest = sum[:]
	return p, nil
}

func (s *Service) permitted(ctx context.Context, p prepared) error {
	if p.By.proof == "" {
		return ErrUnknownOperator
	}
	if !p.By.Has(p.Act.Role()) {
		return fmt.Errorf("%w: %s needs the role %s, and %s has %v", ErrNotPermitted, p.Act.Name(), p.Act.Role(), p.By.Name, p.By.Roles)
	}
	if c, ok := p.Act.(Checker); ok {
		return c.Check(ctx, p.By)
	}
	return nil
}

// refused keeps the line of what was not permitted. Whatever could not be found out is no refusal and leaves none.
func (s *Service) refused(ctx context.Context, p prepared, err error) error {
	if p.By.proof == "" || !errors.Is(err, ErrNotPermitted) && !errors.Is(err, ErrRefused) {
		return nil
	}
	return s.write(ctx, p.By, func(tx pgx.Tx) error {
		id, err2 := s.line(ctx, tx, p, nil)
		if err2 != nil {
			return err2
		}
		return result(ctx, tx, p.By, id, outcomeRefused, wordOf(err))
	})
}

func (l Limits) exceeded(act string, w Weight) bool {
	if most, ok := l.Counts[act]; ok && w.Count > most {
		return true
	}
	for _, currency := range slices.Sorted(maps.Keys(w.Amounts)) {
		if w.Amounts[currency] > l.Amounts[currency] {
			return true
		}
	}
	return w.Always
}

// beyondOnePerson asks the settings and, where it has any, the limits that the owner of the ledger keeps in the database.
func (s *Service) beyondOnePerson(ctx context.Context, p prepared) (bool, error) {
	if s.opt.Limits.exceeded(p.Act.Name(), p.weight) {
		return true, nil
	}
	kept, err := s.kept(ctx)
	if err != nil || len(kept) == 0 {
		return false, err
	}
	limits := Limits{Counts: map[string]int{}, Amounts: map[string]int64{}}
	for what, l := range kept {
		limits.Amounts[what] = *l.Owner
	}
	if l, ok := kept[p.Act.Name()]; ok {
		limits.Counts[p.Act.Name()] = int(*l.Owner)
	}
	return limits.exceeded(p.Act.Name(), p.weight), nil
}

// begin commits the line of the audit log, and with it what the approval is used up by.
func (s *Service) begin(ctx context.Context, p prepared, waits bool) (Done, error) {
	var done Done
	err := s.write(ctx, p.By, func(tx pgx.Tx) (err error) {
		if !waits {
			done.AuditID, err = s.line(ctx, tx, p, nil)
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended(encode($1, 'hex'), 0))`, p.digest); err != nil {
			return err
		}
		found, err := s.standing(ctx, tx, p)
		switch {
		case err != nil:
			return err
		case found == nil:
			found, err = s.propose(ctx, tx, p)
		case found.State == ProposalApproved, found.State == ProposalBegun:
			done.Proposal = found
			return s.execute(ctx, tx, p, &done)
		}
		done.Proposal = found
		return err
	})
	if err != nil {
		return Done{}, fmt.Errorf("begin %s: %w", p.Act.Name(), err)
	}
	if waits && done.AuditID == 0 {
		return Done{Outcome: outcomeWaiting, Waits: true, Proposal: done.Proposal}, fmt.Errorf("%s of %s %w: proposal %s",
			p.Act.Name(), p.Act.Target(), ErrWaiting, done.Proposal.ID)
	}
	return done, nil
}

func (s *Service) execute(ctx context.Context, tx pgx.Tx, p prepared, done *Done) (err error) {
	if done.AuditID, err = s.line(ctx, tx, p, &done.Proposal.ID); err != nil {
		return err
	}
	if done.Proposal.State == ProposalBegun {
		return nil
	}
	_, err = tx.Exec(ctx, `INSERT INTO executions (proposal_id, audit_id, by, digest) VALUES ($1, $2, $3, $4)`,
		done.Proposal.ID, done.AuditID, p.By.Name, p.digest)
	return err
}

// line writes the line of the audit log that comes before the act.
func (s *Service) line(ctx context.Context, tx pgx.Tx, p prepared, proposal *uuid.UUID) (id int64, err error) {
	return lineOf(ctx, tx, p.By, entry{act: p.Act.Name(), target: p.Act.Target(), reason: p.Reason, evidence: p.Evidence, digest: p.digest,
		weight: p.weight, proposal: proposal})
}

type entry struct {
	act, target, reason, evidence string
	digest                        []byte
	weight                        Weight
	proposal                      *uuid.UUID
}

func lineOf(ctx context.Context, tx pgx.Tx, by Operator, e entry) (id int64, err error) {
	weight, err := json.Marshal(e.weight, json.Deterministic(true))
	if err != nil {
		return 0, fmt.Errorf("render the weight: %w", err)
	}
	err = tx.QueryRow(ctx, `INSERT INTO audit (by, act, target, reason, evidence, digest, weight, proposal_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id`,
		by.Name, e.act, e.target, e.reason, e.evidence, e.digest, weight, e.proposal).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("write the audit log: %w", err)
	}
	return id, nil
}

// resultTimeout is how long the result is tried to be written after the act, whatever became of the caller.
const resultTimeout = 10 * time.Second

// end writes what came of the act. An interrupted caller still has it written.
func (s *Service) end(ctx context.Context, p prepared, done Done, err error) error {
	outcome := done.Outcome
	switch {
	case outcome != "":
	case err == nil:
		outcome = OutcomeDone
	case errors.Is(err, ErrRefused):
		outcome = outcomeRefused
	case errors.Is(err, context.Canceled):
		outcome = outcomeInterrupted
	default:
		outcome = outcomeFailed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resultTimeout)
	defer cancel()
	return s.write(ctx, p.By, func(tx pgx.Tx) error { return result(ctx, tx, p.By, done.AuditID, outcome, wordOf(err)) })
}

func result(ctx context.Context, tx pgx.Tx, by Operator, id int64, outcome, detail string) error {
	_, err := tx.Exec(ctx, `INSERT INTO audit_results (audit_id, by, outcome, detail) VALUES ($1, $2, $3, $4)`, id, by.Name, outcome, detail)
	if err != nil {
		return fmt.Errorf("write the result of audit line %d: %w", id, err)
	}
	return nil
}

// write runs one transaction in the name of an operator.
func (s *Service) write(ctx context.Context, by Operator, body func(pgx.Tx) error) (err error) {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx)) // err says why; after a failed commit there is nothing to roll back
		}
	}()
	const presented = `SELECT set_config('paidonce.proof', $1, true), set_config('lock_timeout', '5000', true), set_config('statement_timeout', '30000', true)`
	if _, err := tx.Exec(ctx, presented, by.proof); err != nil {
		return fmt.Errorf("present the operator's proof: %w", err)
	}
	if err := body(tx); err != nil {
		return denied(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", denied(err))
	}
	return nil
}
