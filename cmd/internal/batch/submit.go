package batch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

// Submission is a file that shall become a run.
type Submission struct {
	RunKey           string
	By               operate.Operator
	Reason           string
	File             io.Reader
	Format           file.Format
	Read             file.Options
	Columns          []string          // that the file has, for its report; nil = those that Read declares
	Check            file.CheckOptions // without Each
	DuplicatesReason string            // why rows that look alike are all meant; "" = they are not allowed
	AgainReason      string            // why payments that are on record under another run key are made again; "" = they are not
	DryRun           bool              // the same, but nothing is kept
}

// Submitted says what came of a submission, with an error too.
type Submitted struct {
	Report   file.Report
	Run      Run               // on record; with a dry run as it would be
	Found    bool              // it was on record before
	Waits    bool              // a second person is, or would be, needed
	Proposal *operate.Proposal // that it waits for
	Freed    int               // operations that a pause held, and that come back
	Enqueues int               // with a dry run of Release: rows that would be enqueued
	// Recovered is when the ledger was recovered, if the run came on record so shortly after it that a second person is needed; zero = it did not
	Recovered time.Time
}

// Submit checks a file, puts its run on record and releases it. operate.ErrWaiting: a second person has to agree first; then the same submission,
// or Release, goes on. What the file has against it is in the report.
func (s *Service) Submit(ctx context.Context, sub Submission) (Submitted, error) {
	if !ValidRunKey(sub.RunKey) {
		return Submitted{}, ErrRunKey
	}
	found, err := s.Run(ctx, sub.RunKey)
	known := err == nil
	if err != nil && !errors.Is(err, ErrNoRun) {
		return Submitted{}, err
	}
	var out Submitted
	own := s.compared(&sub)
	if known || sub.DryRun {
		if !known {
			sub.Check.Each = own.addRow
		}
		out.Report, err = file.Check(ctx, sub.File, sub.Format, sub.Read, sub.Check)
	} else {
		out, err = s.checkAndStage(ctx, sub, own)
	}
	if err == nil {
		err = Accepted(&out.Report, sub.DuplicatesReason)
	}
	switch {
	case err != nil:
		return out, err
	case known:
		out.Run, out.Found = found, true
	case sub.DryRun:
		out.Run = sub.run(&out.Report)
		if err := s.refuseRepeats(ctx, s.db, sub, out.Report.ContentDigest, own); err != nil {
			return out, err
		}
	}
	if out.Found {
		if err := sub.sameAs(&out.Run, &out.Report); err != nil {
			return out, err
		}
	}
	return out, s.release(ctx, sub, &out)
}

// Accepted says whether a file that was checked may become a run: ErrFaulty, ErrDuplicates.
func Accepted(report *file.Report, duplicatesReason string) error {
	switch {
	case !report.Good():
		return ErrFaulty
	case report.DuplicateSets > 0 && duplicatesReason == "":
		return ErrDuplicates
	}
	return nil
}

// checkAndStage checks the file and packs its rows at the same time, and puts the run on record. Whatever comes to nothing is removed.
func (s *Service) checkAndStage(ctx context.Context, sub Submission, own *ownSums) (out Submitted, err error) {
	if err := s.removeOrphans(ctx); err != nil {
		return out, err
	}
	st := s.stage(ctx, own)
	defer func() {
		if err != nil || out.Found {
			err = errors.Join(err, st.discard(ctx))
		}
	}()
	sub.Check.Each = st.add
	out.Report, err = file.Check(ctx, sub.File, sub.Format, sub.Read, sub.Check)
	if err = errors.Join(st.close(), err); err != nil {
		return out, err
	}
	if err = Accepted(&out.Report, sub.DuplicatesReason); err != nil {
		return out, err
	}
	// Here, where it may take its time. What comes on record after it is looked at by register.
	if err = s.refuseRepeats(ctx, s.db, sub, out.Report.ContentDigest, own); err != nil {
		return out, err
	}
	s.at(ctx, pointChecked)
	run := sub.run(&out.Report)
	run.ID, run.Counts = st.run, st.counts
	out.Run, out.Found, err = s.register(ctx, sub, run, st.parts, own)
	s.at(ctx, pointRegistered)
	return out, err
}

// run is what a submission will be on record as.
func (sub *Submission) run(report *file.Report) Run {
	run := Run{
		RunKey: sub.RunKey, By: sub.By.Name, Reason: sub.Reason, Format: report.Format, Columns: sub.Read.Dialect.Columns, Source: sub.Read.Source, Route: sub.Read.Route,
		NotBefore: sub.Read.NotBefore, Rows: report.Rows, Sums: map[string]int64{}, Digest: report.Digest, ContentDigest: report.ContentDigest,
		AgainReason: sub.AgainReason, Duplicates: report.DuplicateRows, DuplicatesReason: sub.DuplicatesReason, State: Waiting, ChangedBy: sub.By.Name,
	}
	if len(run.Columns) == 0 {
		run.Columns = sub.Columns
	}
	for _, sum := range report.Sums {
		run.Sums[sum.Currency] = sum.Minor
	}
	return run
}

// sameAs refuses a submission that is not the run which has its run key. Another order of the rows, or another file with the same payments, is.
func (sub *Submission) sameAs(run *Run, report *file.Report) error {
	switch {
	case run.ContentDigest != report.ContentDigest || run.Source != sub.Read.Source || run.Route != sub.Read.Route:
		return fmt.Errorf("%w: %s pays %d rows, submitted by %s at %s: choose another run key", ErrOtherContent, run.RunKey, run.Rows, run.By, stamp(run.At))
	case !run.NotBefore.Equal(sub.Read.NotBefore):
		return fmt.Errorf("%w: %s is not sent before %s", ErrOtherContent, run.RunKey, orWord(stamp(run.NotBefore), "any time"))
	}
	return nil
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

func orWord(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// register puts a run on record, with the parts that were written for it. True: somebody else was first, and this is that run.
func (s *Service) register(ctx context.Context, sub Submission, run Run, parts int, own *ownSums) (on Run, found bool, err error) {
	err = s.inTxAgain(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// Whoever submits the same content is one after the other, so that each finds the run of the one before. So is, below, whoever compares rows.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('paidonce batch ' || $1, 0))`, hex.EncodeToString(run.ContentDigest[:])); err != nil {
			return err
		}
		if err := own.lock(ctx, tx, run.Source); err != nil {
			return err
		}
		on, err = s.readRun(ctx, tx, run.RunKey)
		if found = err == nil; found || !errors.Is(err, ErrNoRun) {
			return err
		}
		if err := s.refuseRepeats(ctx, tx, sub, run.ContentDigest, own); err != nil {
			return err
		}
		if err := insertRun(ctx, tx, run); err != nil {
			return err
		}
		// Locked: whoever would remove them, since we seem dead or interrupted, waits for our commit, and finds that they belong to a run.
		var written, rows int
		if err := tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(rows), 0) FROM (SELECT rows FROM batch_parts WHERE run_id = $1 FOR SHARE) p`, run.ID).
			Scan(&written, &rows); err != nil {
			return err
		}
		s.at(ctx, pointRegister)
		if written != parts || rows != run.Rows {
			return fmt.Errorf("%d parts with %d rows were written, %d with %d are there: %w", parts, run.Rows, written, rows, errPart)
		}
		on, err = s.readRun(ctx, tx, run.RunKey)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "batch_runs_run_key" { // with other content: the lock was another one
		on, err = s.Run(ctx, run.RunKey)
		return on, err == nil, err
	}
	if err != nil {
		return Run{}, false, fmt.Errorf("put run %s on record: %w", run.RunKey, err)
	}
	return on, found, nil
}

func insertRun(ctx context.Context, tx pgx.Tx, run Run) error {
	sums, err := json.Marshal(run.Sums, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("render the sums: %w", err)
	}
	counts, err := json.Marshal(run.Counts, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("render the counts: %w", err)
	}
	var notBefore *time.Time
	if !run.NotBefore.IsZero() {
		notBefore = &run.NotBefore
	}
	columns := run.Columns
	if columns == nil {
		columns = []string{}
	}
	_, err = tx.Exec(ctx, `
INSERT INTO batch_runs (id, run_key, by, reason, format, columns, source, route, not_before, rows, sums, counts, digest, content_digest, content_guard,
                        again_reason, duplicates, duplicates_reason, changed_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, CASE WHEN $15 = '' THEN $14::bytea END, nullif($15, ''), $16, nullif($17, ''), $3)`,
		run.ID, run.RunKey, run.By, run.Reason, run.Format, columns, run.Source, run.Route, notBefore, run.Rows, sums, counts, run.Digest[:], run.ContentDigest[:],
		run.AgainReason, run.Duplicates, run.DuplicatesReason)
	return err
}

// refuseRepeats refuses payments that other runs have made, or will: all of them, or some.
func (s *Service) refuseRepeats(ctx context.Context, db querier, sub Submission, content [32]byte, own *ownSums) error {
	if err := s.refuseSameContent(ctx, db, sub, content); err != nil {
		return err
	}
	return s.refuseOverlap(ctx, db, sub, content, own)
}

// paysNothing is true of a run r that was cancelled before anything of it was enqueued. One that still has parts may have paid, on a server that was lost.
const paysNothing = `(r.state = 'cancelled' AND NOT EXISTS (SELECT FROM batch_rows b WHERE b.run_id = r.id)
           AND NOT EXISTS (SELECT FROM batch_parts p WHERE p.run_id = r.id))`

// refuseSameContent finds runs that pay, or may have paid, the same.
func (s *Service) refuseSameContent(ctx context.Context, db querier, sub Submission, content [32]byte) error {
	if sub.AgainReason != "" {
		return nil
	}
	same, err := read(ctx, s, db, scanRun, `
SELECT `+runColumns+` FROM batch_runs r WHERE content_digest = $1 AND run_key <> $2
   AND NOT `+paysNothing+` ORDER BY at LIMIT 1`, content[:], sub.RunKey)
	if err != nil {
		return fmt.Errorf("look for the same content: %w", err)
	}
	if len(same) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s, submitted by %s at %s. To pay them again all the same: --again with the reason; a second person has to agree",
		ErrSameContent, same[0].RunKey, same[0].By, stamp(same[0].At))
}
