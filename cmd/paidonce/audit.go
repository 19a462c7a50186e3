package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

func (s *session) audit() *cobra.Command {
	return s.group("audit", "Who did what, why, and with what result",
		"  paidonce audit list --since 24h", s.auditList())
}

type auditRow struct {
	ID       int64  `json:"id"`
	At       string `json:"at"`
	By       string `json:"by"`
	Act      string `json:"act"`
	Target   string `json:"target"`
	Outcome  string `json:"outcome"`
	Detail   string `json:"detail,omitempty"`
	Reason   string `json:"reason"`
	Evidence string `json:"evidence,omitempty"`
	Weight   string `json:"weight,omitempty"`
	Proposal string `json:"proposal,omitempty"`
	EndedAt  string `json:"ended_at,omitempty"`
}

func auditRowOf(l operate.AuditLine) auditRow {
	row := auditRow{ID: l.ID, At: cli.Time(l.At), By: l.By, Act: l.Act, Target: l.Target, Outcome: l.Outcome, Detail: l.Detail, Reason: l.Reason,
		Evidence: l.Evidence, Weight: weightText(l.Act, l.Weight), EndedAt: cli.Time(l.EndedAt)}
	if l.Proposal != uuid.Nil {
		row.Proposal = l.Proposal.String()
	}
	return row
}

func (s *session) auditList() *cobra.Command {
	var f operate.AuditFilter
	var since, until string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the audit log, the newest line first",
		Long: "Lists who did what, why, and with what result. A line is written before the act: one whose outcome is begun has no result yet,\n" +
			"because the act is at work, or because its program died.",
		Example: "  paidonce audit list --since 24h\n  paidonce audit list --by olga --act resolve\n" +
			"  paidonce audit list --target 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json\n  paidonce audit list --outcome begun",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if f.Limit < 1 || f.Before < 0 {
				return cli.Exit(cli.Usage, errors.New("--limit must be at least 1, and --before the id of a line"))
			}
			var err error
			if f.Since, err = timeFlag("since", since); err != nil {
				return err
			}
			if f.Until, err = timeFlag("until", until); err != nil {
				return err
			}
			return s.openDesk(ctx, func(d *desk) error {
				rows := []auditRow{}
				for l, err := range d.Audit(ctx, f) {
					if err != nil {
						return err
					}
					rows = append(rows, auditRowOf(l))
				}
				if len(rows) == f.Limit {
					s.say("there may be more: --before %d", rows[len(rows)-1].ID)
				}
				return cli.List(s.printer(), auditTable(rows...))
			})
		}),
	}
	flags := command.Flags()
	flags.StringVar(&f.By, "by", "", "only this operator")
	flags.StringVar(&f.Act, "act", "", "only this act, as resolve, pause or reveal")
	flags.StringVar(&f.Target, "target", "", "only this key, plan or scope")
	flags.StringVar(&f.Outcome, "outcome", "", "only this outcome, as done, refused, waiting or begun")
	flags.StringVar(&since, "since", "", "only lines since this time, or of the last of this long: 2026-11-30T12:00:00Z, 24h")
	flags.StringVar(&until, "until", "", "only lines before this time, or older than this long")
	flags.Int64Var(&f.Before, "before", 0, "only lines older than this one")
	flags.IntVar(&f.Limit, "limit", 100, "most lines to list")
	return command
}

func auditTable(rows ...auditRow) cli.Table[auditRow] {
	return cli.Table[auditRow]{
		Columns: []string{"id", "at", "by", "act", "target", "outcome", "detail", "weight", "reason", "evidence", "proposal", "ended_at"},
		Cells: func(r auditRow) []string {
			return []string{fmt.Sprint(r.ID), r.At, r.By, r.Act, r.Target, r.Outcome, r.Detail, r.Weight, r.Reason, r.Evidence, r.Proposal, r.EndedAt}
		},
		Rows: rows,
	}
}
