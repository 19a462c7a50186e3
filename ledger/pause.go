package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Scope says what a pause covers.
type Scope string

// The scopes of a pause. ScopeAll has no name.
const (
	ScopeAll     Scope = "all"
	ScopePartner Scope = "partner"
	ScopeRoute   Scope = "route"
	ScopeSource  Scope = "source"
)

// Pause stands until somebody resumes it.
type Pause struct {
	Scope  Scope     `json:"scope"`
	Name   string    `json:"name,omitzero"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// ByWorker is who pauses when no person does. byOlderProgram is what older programs wrote of a contradicted outcome. No person has such a name.
const (
	ByWorker       = "worker"
	byOlderProgram = "paidonce"
)

// The reasons for which a worker pauses by itself. DoubtReasons are those that leave money in doubt.
const (
	PausedMismatch     = "mismatch"             // the partner's answer disagrees with what was sent
	PausedContradicted = "contradicted outcome" // the partner authorized what has another outcome
	PausedViolation    = "invariant_violation"  // the ledger found what must never be
	PausedDoubtLimit   = "doubt_limit"          // more money in doubt at the partner than its setting allows
	PausedOurFunds     = "our_funds"            // our float at the partner is empty
	PausedOurLimits    = "our_limits"
)

// ProgramNames lists what programs write where a person's name stands.
func ProgramNames() []string { return []string{ByWorker, byOlderProgram} }

// DoubtReasons lists the reasons that leave money in doubt.
func DoubtReasons() []string {
	return []string{PausedMismatch, PausedContradicted, PausedViolation, PausedDoubtLimit}
}

// ForDoubt reports that a worker has set the pause because money is in doubt.
func (p Pause) ForDoubt() bool {
	return p.By == ByWorker && slices.Contains(DoubtReasons(), p.Reason) || p.By == byOlderProgram && p.Reason == PausedContradicted
}

// Pause stops claims within a scope at once, in every process: it is read inside the claim. Calls in flight finish. Pausing what is paused
// keeps the first reason; a further one is logged, so that whoever resumes sees it.
func (l *Ledger) Pause(ctx context.Context, scope Scope, name, reason, by string) error {
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`
WITH p AS (INSERT INTO pauses (scope, name, reason, by) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING scope)
INSERT INTO pause_log (scope, name, act, reason, by) SELECT $1, $2, 'pause', $3, $4
 WHERE EXISTS (SELECT FROM p) OR NOT EXISTS (
       SELECT FROM pause_log l WHERE l.scope = $1 AND l.name = $2 AND l.act = 'pause' AND l.reason = $3 AND l.by = $4 AND l.id > `+lastResume+`)`, scope, name, reason, by)
	})
	if err != nil {
		return fmt.Errorf("pause %s %s: %w", scope, name, err)
	}
	return nil
}

// PauseUnder is Pause by a person, under a line of the audit log.
func (l *Ledger) PauseUnder(ctx context.Context, under Line, scope Scope, name, reason, by string) error {
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT set_config('paidonce.proof', $1, true)`, under.Proof)
		b.Queue(`SELECT pause_scope($1, $2, $3, $4, $5)`, under.Line, scope, name, reason, by)
	})
	if err != nil {
		return fmt.Errorf("pause %s %s: %w", scope, name, err)
	}
	return nil
}

const lastResume = `coalesce((SELECT max(r.id) FROM pause_log r WHERE r.scope = $1 AND r.name = $2 AND r.act = 'resume'), 0)`

// PausedForDoubt gives the reasons for which workers have paused there, because money is in doubt, since it was last resumed.
func (l *Ledger) PausedForDoubt(ctx context.Context, scope Scope, name string) ([]string, error) {
	var reasons []string
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT DISTINCT l.reason FROM pause_log l
 WHERE l.scope = $1 AND l.name = $2 AND l.act = 'pause' AND (l.by = $3 AND l.reason = ANY($4) OR l.by = $5 AND l.reason = $6)
   AND l.id > `+lastResume+` ORDER BY 1`,
			scope, name, ByWorker, DoubtReasons(), byOlderProgram, PausedContradicted).Query(func(rows pgx.Rows) (err error) {
			reasons, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("ask why it is paused: %w", err)
	}
	return reasons, nil
}

const (
	// resumeSpread is over how long the operations held by a pause come back.
	resumeSpread = 30 * time.Second
	resumePoll   = 20 * time.Millisecond
)

// Resume is ResumeUnder by who owns the tables, and needs no line.
func (l *Ledger) Resume(ctx context.Context, scope Scope, name, reason, by string) error {
	return l.ResumeUnder(ctx, Line{}, scope, name, reason, by)
}

// ResumeUnder ends a pause, under a line of the audit log, and brings back what it held, spread over half a minute so that the partner is not
// flooded. A claim that began before the pause ended may still hold its operation after it, so it waits for such claims and looks a second time.
// ErrNotPaused: nothing was paused there.
func (l *Ledger) ResumeUnder(ctx context.Context, under Line, scope Scope, name, reason, by string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*(l.opt.StatementTimeout+silence)) // four trips
	defer cancel()
	var ended *string
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT set_config('paidonce.proof', $1, true)`, under.Proof)
		b.Queue(`SELECT resume_scope($1, $2, $3, $4, $5)`, under.Line, scope, name, reason, by).QueryRow(func(row pgx.Row) error { return row.Scan(&ended) })
	})
	if err != nil {
		return fmt.Errorf("resume %s %s: %w", scope, name, err)
	}
	if ended == nil { // or the reply to an earlier try was lost: what it should have brought back comes now
		return errors.Join(fmt.Errorf("resume %s %s: %w", scope, name, ErrNotPaused), l.bringBack(ctx, under, scope, name))
	}
	if err := l.bringBack(ctx, under, scope, name); err != nil {
		return err
	}
	if err := l.awaitOlderThan(ctx, *ended); err != nil {
		return err
	}
	return l.bringBack(ctx, under, scope, name)
}

// awaitOlderThan returns when every transaction older than xact has ended. It waits no longer than a claim's statement may take.
func (l *Ledger) awaitOlderThan(ctx context.Context, xact string) error {
	poll := time.NewTicker(resumePoll)
	defer poll.Stop()
	for begun := time.Now(); time.Since(begun) < l.opt.StatementTimeout; {
		var over bool
		err := l.inOneTrip(ctx, func(b *pgx.Batch) {
			b.Queue(`SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8`, xact).QueryRow(func(row pgx.Row) error { return row.Scan(&over) })
		})
		if err != nil {
			return fmt.Errorf("wait for older claims: %w", err)
		}
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for older claims: %w", ctx.Err())
		case <-poll.C:
		}
	}
	return nil
}

func (l *Ledger) bringBack(ctx context.Context, under Line, scope Scope, name string) error {
	_, err := onceMore(ctx, []Scope{scope}, func(ctx context.Context, _ []Scope) ([]Scope, error) {
		return nil, l.inOneTrip(ctx, func(b *pgx.Batch) {
			b.Queue(`SELECT set_config('paidonce.proof', $1, true)`, under.Proof)
			b.Queue(`SELECT bring_back($1, $2, $3, $4)`, under.Line, scope, name, resumeSpread.Milliseconds())
		})
	})
	if err != nil {
		return fmt.Errorf("bring back held operations: %w", err)
	}
	return nil
}

// Pauses lists what is paused.
func (l *Ledger) Pauses(ctx context.Context) ([]Pause, error) {
	var pauses []Pause
	err := l.inOneTrip(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT scope, name, reason, by, at FROM pauses ORDER BY at`).Query(func(rows pgx.Rows) (err error) {
			pauses, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Pause])
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return pauses, nil
}
