package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/archive"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// youngestPurge leaves people time to look at what went wrong today.
const youngestPurge = 24 * time.Hour

// purgeAct deletes payloads of finished operations. What is not archived is gone, so it takes two people.
type purgeAct struct {
	ledger  *ledger.Ledger
	purge   ledger.Purge
	archive string // path; "" = none
	done    ledger.Purged
}

// Name is that of the act in the audit log.
func (*purgeAct) Name() string { return "purge" }

// Role may ask for it.
func (*purgeAct) Role() operate.Role { return operate.RoleOperator }

// Target is what it is done to.
func (*purgeAct) Target() string { return "payloads" }

// Content is what a second person agrees to. Where the archive lies is the business of whoever makes it.
func (a *purgeAct) Content() ([]byte, error) {
	return json.Marshal(struct {
		OlderThan string `json:"older_than"`
		Limit     int64  `json:"limit,omitzero"`
		Archived  bool   `json:"archived"`
	}{a.purge.OlderThan.String(), a.purge.Limit, a.archive != ""})
}

// Weight asks for a second person where nothing is left behind.
func (a *purgeAct) Weight() operate.Weight { return operate.Weight{Always: a.archive == ""} }

// Run purges. Twice is once: what is gone is not found again.
func (a *purgeAct) Run(ctx context.Context, _ operate.Operator) (outcome string, err error) {
	purge := a.purge
	if a.archive != "" {
		file, err := archive.Create(a.archive)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		purge.Archive = file.Write
	}
	a.done, err = a.ledger.PurgePayloads(ctx, purge)
	switch {
	case err != nil && a.done.Deleted > 0:
		return operate.OutcomePartial, err
	case err != nil:
		return "", err
	case a.done.Deleted == 0:
		return operate.OutcomeNoEffect, nil
	}
	return operate.OutcomeDone, nil
}

// purgeRow is what a purge came to.
type purgeRow struct {
	OlderThan string `json:"older_than"`
	Deleted   int64  `json:"deleted"`
	Bytes     int64  `json:"bytes"`
	Kept      int64  `json:"kept"`
	Examined  int64  `json:"examined"`
	Archive   string `json:"archive,omitempty"`
	DryRun    bool   `json:"dry_run"`
}

func (s *session) purge() *cobra.Command {
	var c *change
	var olderThan string
	act := &purgeAct{}
	command := &cobra.Command{
		Use:   "purge",
		Short: "Delete the payloads of operations that have been finished for long",
		Long: "Deletes bodies of jobs, with names and account numbers in them, and nothing else: keys, fingerprints, outcomes, attempts, evidence and\n" +
			"entries stay, so a job that comes again is never sent again. Unfinished and contradicted operations keep theirs. It works in\n" +
			"small transactions with rests between them, may run while workers do, and can be stopped and run again.\n" +
			"With --archive the bodies are written to a new file first, and are on disk before they are deleted. Without, a second person has to\n" +
			"approve. Needs the operators' role in the database.",
		Example: "  paidonce purge --older-than 90d --dry-run --reason 'how many?'\n" +
			"  paidonce purge --older-than 90d --archive /var/lib/paidonce/2026-11.jsonl.zst --reason 'retention'",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			if err := act.read(olderThan); err != nil {
				return cli.Exit(cli.Usage, err)
			}
			return s.atDesk(ctx, func(d *desk) error { return s.runPurge(ctx, d, c, act) })
		}),
	}
	c = s.deskFlags(command)
	flags := command.Flags()
	flags.StringVar(&olderThan, "older-than", "", "how long ago the outcome was, as 90d or 2160h; at least 1d (needed)")
	flags.StringVar(&act.archive, "archive", "", "new file, .jsonl.gz or .jsonl.zst, that the payloads are written to first")
	flags.Int64Var(&act.purge.Limit, "limit", 0, "most payloads to delete (default: all)")
	flags.IntVar(&act.purge.Ease, "rest", 3, "rest so many times as long as each step took; more is gentler to the workers beside")
	return command
}

// read judges the flags.
func (a *purgeAct) read(olderThan string) (err error) {
	if a.purge.OlderThan, err = readAge(olderThan); err != nil {
		return err
	}
	if a.archive != "" {
		if err := archive.Named(a.archive); err != nil {
			return fmt.Errorf("--archive: %w", err)
		}
	}
	if a.purge.Limit < 0 || a.purge.Ease < 1 {
		return errors.New("--limit must not be negative, and --rest at least 1")
	}
	return nil
}

// readAge reads days as well, which time.ParseDuration does not.
func readAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		var days int
		days, err = strconv.Atoi(number)
		age = time.Duration(min(days, 36500)) * 24 * time.Hour
	}
	if err != nil || age < youngestPurge {
		return 0, errors.New("--older-than takes 1d or more, as 90d or 2160h")
	}
	return age, nil
}

func (s *session) runPurge(ctx context.Context, d *desk, c *change, act *purgeAct) error {
	act.ledger = d.ledger
	next := time.Now().Add(progressAfter)
	act.purge.Progress = func(p ledger.Purged) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressEvery)
			s.say("%d of %d payloads purged, %d kept", p.Deleted, p.Examined, p.Kept)
		}
	}
	if c.dryRun {
		if _, err := d.Do(ctx, c.request(d.by, act)); err != nil {
			return err
		}
		would := act.purge
		would.DryRun, would.Ease = true, -1
		var err error
		if act.done, err = d.ledger.PurgePayloads(ctx, would); err != nil {
			return err
		}
		return s.showPurge(act, true)
	}
	done, err := d.Do(ctx, c.request(d.by, act))
	if errors.Is(err, operate.ErrWaiting) && done.Proposal != nil {
		s.say("nothing was purged: without an archive another person approves first, with: paidonce proposals approve %s --reason ...", done.Proposal.ID)
		return err
	}
	if err != nil && act.done.Deleted == 0 {
		return err
	}
	return errors.Join(s.showPurge(act, false), cli.Exit(cli.Partial, err))
}

func (s *session) showPurge(act *purgeAct, dryRun bool) error {
	return cli.One(s.printer(), cli.Table[purgeRow]{
		Columns: []string{"older_than", "deleted", "bytes", "kept", "examined", "archive", "dry_run"},
		Cells: func(r purgeRow) []string {
			return []string{r.OlderThan, fmt.Sprint(r.Deleted), fmt.Sprint(r.Bytes), fmt.Sprint(r.Kept), fmt.Sprint(r.Examined), r.Archive, fmt.Sprint(r.DryRun)}
		},
		Rows: []purgeRow{{
			OlderThan: act.purge.OlderThan.String(), Deleted: act.done.Deleted, Bytes: act.done.Bytes, Kept: act.done.Kept, Examined: act.done.Examined,
			Archive: act.archive, DryRun: dryRun,
		}},
	})
}
