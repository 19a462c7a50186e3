package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

const (
	followEvery = 2 * time.Second
	// followShare bounds what following costs the database: a look of a second comes every twenty.
	followShare = 20
)

func (s *session) batchStatus() *cobra.Command {
	var rows, follow bool
	var states []string
	var key string
	command := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show where runs, or the rows of one, stand",
		Long: "Without a run: the newest runs. With one: its rows counted by where their operations stand, with sums and the oldest that is unfinished.\n" +
			"With --rows every enqueued row; with --follow what changes, until nothing more happens by itself; with --key the run and row that an\n" +
			"operation came from. Exit code 6: some rows are rejected or parked.",
		Example: "  paidonce batch status\n  paidonce batch status 2026-11-payroll\n  paidonce batch status 2026-11-payroll --rows --state parked,rejected -o csv\n" +
			"  paidonce batch status 2026-11-payroll --rows --follow -o jsonl\n  paidonce batch status --key 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11",
		Args: cobra.MaximumNArgs(1),
		RunE: s.do(func(ctx context.Context, args []string) error {
			for _, state := range states {
				if !slices.Contains(stateNames(), state) {
					return cli.Exit(cli.Usage, fmt.Errorf("--state must be of %s", strings.Join(stateNames(), ", ")))
				}
			}
			if key != "" {
				return s.showRowOf(ctx, key)
			}
			if len(args) == 0 && (rows || follow || len(states) > 0) {
				return cli.Exit(cli.Usage, errors.New("--rows, --state and --follow are about one run: name it"))
			}
			return s.seeBatches(ctx, func(b batches) error {
				switch {
				case len(args) == 0:
					return s.listRuns(ctx, b)
				case follow:
					return s.followRun(ctx, b, args[0], rows, states)
				case rows:
					return s.listRows(ctx, b, args[0], states)
				}
				status, err := b.Status(ctx, args[0])
				if err != nil {
					return err
				}
				return errors.Join(s.showStatus(&status), trouble(&status))
			})
		}),
	}
	flags := command.Flags()
	flags.BoolVar(&rows, "rows", false, "every enqueued row")
	flags.BoolVar(&follow, "follow", false, "go on until nothing more happens by itself")
	flags.StringVar(&key, "key", "", "the run and row that the operation with this key came from")
	flags.StringSliceVar(&states, "state", nil, "with --rows: only rows in these states")
	s.must(command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp)))
	s.completeRuns(command)
	return command
}

func stateNames() []string {
	var names []string
	for _, state := range []ledger.State{ledger.StateOpen, ledger.StateClaimed, ledger.StateAuthorized, ledger.StateRejected, ledger.StateCancelled, ledger.StateParked} {
		names = append(names, string(state))
	}
	return append(names, batch.Held)
}

type runRow struct {
	Run           string            `json:"run"`
	State         string            `json:"state"`
	Rows          int               `json:"rows"`
	Sums          map[string]string `json:"sums"`
	Source        string            `json:"source"`
	Route         string            `json:"route,omitzero"`
	Format        string            `json:"format"`
	By            string            `json:"by"`
	At            string            `json:"at,omitzero"`
	NotBefore     string            `json:"not_before,omitzero"`
	Digest        string            `json:"digest"`
	ContentDigest string            `json:"content_digest"`
	Again         string            `json:"again,omitzero"`
	Duplicates    int               `json:"duplicates,omitzero"`
	Meant         string            `json:"duplicates_reason,omitzero"`
	Reason        string            `json:"reason"`
	ChangedBy     string            `json:"changed_by"`
	ChangedAt     string            `json:"changed_at,omitzero"`

	sums string
}

func runRowOf(run batch.Run) runRow {
	row := runRow{
		Run: run.RunKey, State: string(run.State), Rows: run.Rows, Sums: map[string]string{}, Source: run.Source, Route: run.Route, Format: string(run.Format),
		By: run.By, At: cli.Time(run.At), NotBefore: cli.Time(run.NotBefore), Digest: fmt.Sprintf("%x", run.Digest), ContentDigest: fmt.Sprintf("%x", run.ContentDigest),
		Again: run.AgainReason, Duplicates: run.Duplicates, Meant: run.DuplicatesReason,
		Reason: run.Reason, ChangedBy: run.ChangedBy, ChangedAt: cli.Time(run.ChangedAt), sums: amountsText(run.Sums),
	}
	for currency, minor := range run.Sums {
		row.Sums[currency] = money.Amount{Minor: minor, Currency: currency}.Decimal()
	}
	return row
}

func runTable(rows ...runRow) cli.Table[runRow] {
	return cli.Table[runRow]{
		Columns: []string{"run", "state", "rows", "sums", "source", "route", "format", "by", "at", "not_before", "digest", "content_digest", "again", "duplicates",
			"duplicates_reason", "reason", "changed_by", "changed_at"},
		Cells: func(r runRow) []string {
			return []string{r.Run, r.State, fmt.Sprint(r.Rows), r.sums, r.Source, r.Route, r.Format, r.By, r.At, r.NotBefore, r.Digest, r.ContentDigest, r.Again,
				number(uint64(r.Duplicates)), r.Meant, r.Reason, r.ChangedBy, r.ChangedAt} //nolint:gosec // from 0
		},
		Rows: rows,
	}
}

func (s *session) listRuns(ctx context.Context, b batches) error {
	runs, err := b.Runs(ctx, 100)
	if err != nil {
		return err
	}
	table := runTable()
	for _, run := range runs {
		table.Rows = append(table.Rows, runRowOf(run))
	}
	if s.printer().Format == cli.FormatTable { // a screen is not wide enough for digests
		full := table.Cells
		table.Columns = table.Columns[:9]
		table.Cells = func(r runRow) []string { return full(r)[:9] }
	}
	return cli.List(s.printer(), table)
}

type (
	statusRow struct {
		runRow
		Enqueued  int        `json:"enqueued"`
		Published int        `json:"published"`
		Finished  int        `json:"finished"`
		InDoubt   int        `json:"in_doubt"`
		Oldest    string     `json:"oldest_unfinished,omitzero"`
		Complete  bool       `json:"complete"`
		Counts    []countRow `json:"counts"`
		Proposal  string     `json:"proposal,omitzero"`
		Waits     string     `json:"proposal_state,omitzero"`
		Expires   string     `json:"proposal_expires_at,omitzero"`
	}
	countRow struct {
		State    string `json:"state"`
		Currency string `json:"currency"`
		Rows     int    `json:"rows"`
		Amount   string `json:"amount"`
	}
)

func statusRowOf(status *batch.Status) statusRow {
	row := statusRow{
		runRow: runRowOf(status.Run), Enqueued: status.Enqueued, Published: status.Published, Finished: status.Finished(), InDoubt: status.InDoubt,
		Oldest: cli.Time(status.Oldest), Complete: status.Complete(), Counts: []countRow{},
	}
	for _, c := range status.Counts {
		row.Counts = append(row.Counts, countRow{c.State, c.Currency, c.Rows, money.Amount{Minor: c.Minor, Currency: c.Currency}.Decimal()})
	}
	if status.Proposal != nil {
		row.Proposal, row.Waits, row.Expires = status.Proposal.ID.String(), string(status.Proposal.State), cli.Time(status.Proposal.ExpiresAt)
	}
	return row
}

func (s *session) showStatus(status *batch.Status) error {
	row := statusRowOf(status)
	p := s.printer()
	if p.Format == cli.FormatCSV {
		return s.showCounts(row.Counts)
	}
	run := runTable()
	if err := cli.One(p, cli.Table[statusRow]{
		Columns: append(run.Columns, "enqueued", "published", "finished", "in_doubt", "oldest_unfinished", "proposal", "proposal_state", "proposal_expires_at"),
		Cells: func(r statusRow) []string {
			return append(run.Cells(r.runRow), fmt.Sprint(r.Enqueued), fmt.Sprint(r.Published), fmt.Sprint(r.Finished), fmt.Sprint(r.InDoubt), r.Oldest,
				r.Proposal, r.Waits, r.Expires)
		},
		Rows: []statusRow{row},
	}); err != nil || p.Format != cli.FormatTable {
		return err
	}
	_, _ = fmt.Fprintf(s.stdout, "\n%s\n\n", share(status))
	return s.showCounts(row.Counts)
}

func (s *session) showCounts(counts []countRow) error {
	return cli.List(s.printer(), cli.Table[countRow]{
		Columns: []string{"state", "currency", "rows", "amount"},
		Cells:   func(c countRow) []string { return []string{c.State, c.Currency, fmt.Sprint(c.Rows), c.Amount} },
		Rows:    counts,
	})
}

// share is a bar of what became of a run: # authorized, x rejected or cancelled, ? parked, . under way, = held, - not enqueued.
func share(status *batch.Status) string {
	const width = 60
	var b strings.Builder
	done, rows := 0, status.Run.Rows
	for _, part := range []struct {
		mark string
		rows int
	}{
		{"#", status.Rows("authorized")}, {"x", status.Rows("rejected", "cancelled")}, {"?", status.Rows("parked")},
		{".", status.Rows("open", "claimed")}, {"=", status.Rows(batch.Held)}, {"-", status.Rows(batch.NotEnqueued)},
	} {
		from := done * width / rows
		done += part.rows
		n := done*width/rows - from
		if n == 0 && part.rows > 0 && b.Len() < width {
			n = 1 // one row of a million shows too
		}
		b.WriteString(strings.Repeat(part.mark, n))
	}
	text := b.String()
	return fmt.Sprintf("[%s] %d of %d finished", text[:min(len(text), width)], status.Finished(), rows)
}

// showRun prints where a run stands, after something was done to it.
func (s *session) showRun(ctx context.Context, b batches, run batch.Run) error {
	status, err := b.Status(ctx, run.RunKey)
	if err != nil {
		return err
	}
	return s.showStatus(&status)
}

// showRowOf prints which row of which run an operation came from.
func (s *session) showRowOf(ctx context.Context, text string) error {
	key, err := cli.ParseKey(text)
	if err != nil {
		return err
	}
	return s.seeBatches(ctx, func(b batches) error {
		run, row, err := b.RowOf(ctx, key)
		if err != nil {
			return err
		}
		return cli.One(s.printer(), outcomeTable(outcomeRowOf(run.RunKey, row)))
	})
}

type outcomeRow struct {
	Run        string `json:"run"`
	Row        int    `json:"row"`
	Line       int    `json:"line"`
	RowRef     string `json:"row_ref,omitzero"`
	Key        string `json:"key"`
	State      string `json:"state"`
	InDoubt    bool   `json:"in_doubt"`
	Amount     string `json:"amount"`
	Currency   string `json:"currency"`
	TransferID string `json:"transfer_id,omitzero"`
	Reason     string `json:"reason,omitzero"`
	OutcomeAt  string `json:"outcome_at,omitzero"`
	Settlement string `json:"settlement,omitzero"`
}

func outcomeRowOf(run string, r batch.RowOutcome) outcomeRow {
	return outcomeRow{run, r.N, r.Line, r.RowRef, r.Key.String(), string(r.State), r.InDoubt, r.Amount.Decimal(), r.Amount.Currency, r.TransferID, r.Code,
		cli.Time(r.OutcomeAt), r.Settlement}
}

func outcomeTable(rows ...outcomeRow) cli.Table[outcomeRow] {
	return cli.Table[outcomeRow]{
		Columns: []string{"run", "row", "line", "row_ref", "key", "state", "in_doubt", "amount", "currency", "transfer_id", "reason", "outcome_at", "settlement"},
		Cells: func(r outcomeRow) []string {
			return []string{r.Run, fmt.Sprint(r.Row), fmt.Sprint(r.Line), r.RowRef, r.Key, r.State, fmt.Sprint(r.InDoubt), r.Amount, r.Currency, r.TransferID, r.Reason,
				r.OutcomeAt, r.Settlement}
		},
		Rows: rows,
	}
}

// listRows prints rows as they are read: a million of them never lie in memory, unless a JSON array or an aligned table is asked for.
func (s *session) listRows(ctx context.Context, b batches, runKey string, states []string) error {
	status, err := b.Status(ctx, runKey)
	if err != nil {
		return err
	}
	format := s.printer().Format
	if format == cli.FormatJSONL || format == cli.FormatCSV {
		w := s.newRowWriter()
		err = b.Rows(ctx, status.Run, states, func(r batch.RowOutcome) error { return w.write(outcomeRowOf(runKey, r)) })
		return errors.Join(err, w.flush(), trouble(&status))
	}
	table := outcomeTable()
	err = b.Rows(ctx, status.Run, states, func(r batch.RowOutcome) error {
		table.Rows = append(table.Rows, outcomeRowOf(runKey, r))
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(cli.List(s.printer(), table), trouble(&status))
}

// rowWriter writes rows one by one: as CSV with one header, else as lines of JSON; for people as lines of words.
type rowWriter struct {
	s      *session
	csv    *csv.Writer
	header bool
}

func (s *session) newRowWriter() *rowWriter { return &rowWriter{s: s, csv: csv.NewWriter(s.stdout)} }

func (w *rowWriter) write(row outcomeRow) error {
	table := outcomeTable()
	switch w.s.printer().Format {
	case cli.FormatCSV:
		if !w.header {
			w.header = true
			if err := w.csv.Write(table.Columns); err != nil {
				return err
			}
		}
		return w.csv.Write(table.Cells(row))
	case cli.FormatTable:
		_, err := fmt.Fprintf(w.s.stdout, "%8d  %-36s  %-10s  %12s %s  %s\n", row.Row, row.Key, row.State, row.Amount, row.Currency,
			cli.Clean(strings.Join(slices.DeleteFunc([]string{row.RowRef, row.TransferID, row.Reason}, func(t string) bool { return t == "" }), "  ")))
		return err
	}
	raw, err := json.Marshal(row, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("render JSON: %w", err)
	}
	_, err = w.s.stdout.Write(append(raw, '\n'))
	return err
}

func (w *rowWriter) flush() error {
	w.csv.Flush()
	return w.csv.Error()
}

// followRun shows a bar and, if asked, each row whose state has changed, until nothing more happens by itself.
func (s *session) followRun(ctx context.Context, b batches, runKey string, rows bool, states []string) error {
	bar := cli.NewBar(s.stderr, runKey)
	defer bar.End()
	w := s.newRowWriter()
	var seen map[int]ledger.State
	for {
		began := time.Now()
		status, err := b.Status(ctx, runKey)
		if err != nil {
			return err
		}
		bar.Update(int64(status.Finished()), int64(status.Run.Rows))
		if rows {
			if seen == nil {
				seen = make(map[int]ledger.State, status.Run.Rows)
			}
			err := b.Rows(ctx, status.Run, states, func(r batch.RowOutcome) error {
				if seen[r.N] == r.State {
					return nil
				}
				seen[r.N] = r.State
				return w.write(outcomeRowOf(runKey, r))
			})
			if err := errors.Join(err, w.flush()); err != nil {
				return err
			}
		}
		if status.AtRest() {
			bar.End()
			if rows {
				return trouble(&status)
			}
			return errors.Join(s.showStatus(&status), trouble(&status))
		}
		pause := time.NewTimer(max(followEvery, followShare*time.Since(began)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// rowOf gives run and row that an operation came from; nothing where there is none, or where this role or this schema cannot tell.
func rowOf(ctx context.Context, d *desk, key uuid.UUID) (run batch.Run, row int, err error) {
	service, closeBatch, err := app.OpenBatch(ctx, d.settings, d.ledger, d.Service)
	if err != nil {
		return run, 0, err
	}
	defer closeBatch()
	run, found, err := service.RowOf(ctx, key)
	var pg *pgconn.PgError
	if errors.Is(err, batch.ErrNoRun) || errors.As(err, &pg) && (pg.Code == "42501" || pg.Code == "42P01") {
		return batch.Run{}, 0, nil
	}
	return run, found.N, err
}
