package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

type pauseRow struct {
	Scope  string `json:"scope"`
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
	By     string `json:"by"`
	At     string `json:"at"`
	Ends   string `json:"ends"` // by whom
}

func (s *session) printPauses(rows ...pauseRow) error {
	return cli.List(s.printer(), cli.Table[pauseRow]{
		Columns: []string{"scope", "name", "reason", "by", "at", "ends"},
		Cells:   func(r pauseRow) []string { return []string{r.Scope, r.Name, r.Reason, r.By, r.At, r.Ends} },
		Rows:    rows,
	})
}

func (s *session) pause() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "pause [all | partner NAME | route NAME | source NAME]",
		Short: "Stop starting operations at once, everywhere; without arguments: list what is paused",
		Long: "Stops claims within a scope, in every worker at once. Calls in flight end and are recorded; look-ups go on. What is paused\n" +
			"stays paused until it is resumed. Workers pause by themselves: a partner whose answer disagrees with what was sent, that contradicts an\n" +
			"outcome, where our own funds or limits are used up, or where more money is in doubt than partners.<name>.doubt_limits allows; everything,\n" +
			"when the ledger refuses what breaks an invariant. An open breaker is listed too: it is no pause, and ends by itself.",
		Example: "  paidonce pause\n  paidonce pause partner northbank --reason 'maintenance until 14:00'\n  paidonce pause all --reason 'incident 812'",
		Args:    pauseArgs(true), ValidArgsFunction: s.completeScope,
		RunE: s.do(func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return s.withLedger(ctx, func(_ *config.Config, l *ledger.Ledger) error { return s.listPauses(ctx, l) })
			}
			return s.changePause(ctx, args, c, (*operate.Service).Pause)
		}),
	}
	c = s.deskFlags(command)
	return command
}

func (s *session) resume() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "resume all | partner NAME | route NAME | source NAME",
		Short: "End a pause",
		Long: "Ends a pause; what it held comes back over half a minute. A pause that a worker has set because money is in doubt (mismatch,\n" +
			"contradicted, invariant_violation, doubt_limit) is ended by an approver or an admin.",
		Example: "  paidonce resume partner northbank --reason 'maintenance is over'",
		Args:    pauseArgs(false), ValidArgsFunction: s.completeScope,
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.changePause(ctx, args, c, (*operate.Service).Resume)
		}),
	}
	c = s.deskFlags(command)
	return command
}

func pauseArgs(none bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && none, len(args) == 1 && args[0] == "all":
			return nil
		case len(args) == 2 && (args[0] == "partner" || args[0] == "route" || args[0] == "source"):
			return nil
		}
		return errors.New("takes: all, partner NAME, route NAME or source NAME")
	}
}

// completeScope offers the scopes, and the configured names below each.
func (s *session) completeScope(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"all", "partner", "route", "source"}, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := s.load()
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	switch ledger.Scope(args[0]) {
	case ledger.ScopePartner:
		names = slices.Sorted(maps.Keys(c.Partners))
	case ledger.ScopeRoute:
		names = slices.Sorted(maps.Keys(c.Routes))
	case ledger.ScopeSource:
		names = slices.Sorted(maps.Keys(c.Sources))
	case ledger.ScopeAll:
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (s *session) listPauses(ctx context.Context, l *ledger.Ledger) error {
	pauses, err := l.Pauses(ctx)
	if err != nil {
		return err
	}
	var rows []pauseRow
	for _, p := range pauses {
		doubts, err := l.PausedForDoubt(ctx, p.Scope, p.Name)
		if err != nil {
			return err
		}
		row := pauseRow{Scope: string(p.Scope), Name: p.Name, Reason: p.Reason, By: p.By, At: cli.Time(p.At), Ends: "an operator resumes it"}
		if doubts = slices.DeleteFunc(doubts, func(reason string) bool { return reason == p.Reason }); len(doubts) > 0 {
			row.Reason += "; since then also: " + strings.Join(doubts, ", ")
		}
		if len(doubts) > 0 || p.ForDoubt() {
			row.Ends = "an approver resumes it: money is in doubt"
		}
		rows = append(rows, row)
	}
	closures, err := l.Closures(ctx)
	if err != nil {
		return err
	}
	for _, c := range closures {
		rows = append(rows, pauseRow{Scope: string(ledger.ScopePartner), Name: c.Partner, Reason: "breaker open", By: ledger.ByWorker, At: cli.Time(c.Since), Ends: closureWords(c)})
	}
	return s.printPauses(rows...)
}

func (s *session) changePause(ctx context.Context, args []string, c *change,
	act func(*operate.Service, ledger.Scope, string, string) *operate.PauseAct,
) error {
	if err := c.complete(); err != nil {
		return err
	}
	scope, name := ledger.Scope(args[0]), ""
	if len(args) == 2 {
		name = args[1]
	}
	return s.atDesk(ctx, func(d *desk) error {
		if !knownName(d.settings, scope, name) {
			return cli.Exit(cli.NotFound, fmt.Errorf("%s %q is not configured", scope, name))
		}
		return s.ask(ctx, d, c, act(d.Service, scope, name, c.reason))
	})
}

// knownName refuses a pause of what a slip of the keyboard has made up. Without a configuration it cannot.
func knownName(c *config.Config, scope ledger.Scope, name string) bool {
	switch scope {
	case ledger.ScopePartner:
		return len(c.Partners) == 0 || c.Partners[name] != nil
	case ledger.ScopeRoute:
		return len(c.Routes) == 0 || c.Routes[name] != nil
	case ledger.ScopeSource:
		return len(c.Sources) == 0 || c.Sources[name] != nil
	}
	return true
}

type recoveryRow struct {
	FromSystem   string `json:"from_system"`
	FromTimeline int32  `json:"from_timeline"`
	ToSystem     string `json:"to_system"`
	ToTimeline   int32  `json:"to_timeline"`
	PutInDoubt   int64  `json:"put_in_doubt"`
	DoubtBefore  string `json:"doubt_before,omitempty"`
	DeliverFrom  uint64 `json:"deliver_from,omitempty"`
	DryRun       bool   `json:"dry_run"`
}

func (s *session) recover() *cobra.Command {
	var c *change
	var dryRun, force bool
	var redo time.Duration
	command := &cobra.Command{
		Use:   "recover",
		Short: "Accept another database server or timeline after a failover or restore",
		Long: "After a failover or a restore, claims that were committed may be missing, and would look as if they never were. Recover puts\n" +
			"every unfinished operation in doubt, so that the partner is asked before anything is sent, and then lets claims go on.\n" +
			"Operations may be missing whose jobs were acknowledged: the broker delivers again what it has stored within --redo.\n" +
			"Needs the owner's role in the database. Does nothing while the ledger is where it remembers to be, unless forced.",
		Example: "  paidonce recover --dry-run\n  paidonce recover --reason 'failover to db2'",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if !dryRun {
				if err := c.complete(); err != nil {
					return err
				}
			}
			return s.openDesk(ctx, func(d *desk) error {
				return s.recoverLedger(ctx, d, c, recoveryOptions{dryRun: dryRun, Force: force, Redo: redo.String(), redo: redo})
			})
		}),
	}
	c = s.changeFlags(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "show where the ledger remembers to be and where it is, and change nothing")
	command.Flags().BoolVar(&force, "force", false, "also when server and timeline are unchanged, as after a restore in place")
	command.Flags().DurationVar(&redo, "redo", queue.RedoWindow, "how far back jobs are delivered again; longer than what may be lost, 0 = none")
	return command
}

// recoveryOptions are the flags of recover.
type recoveryOptions struct {
	Force  bool   `json:"force,omitzero"`
	Redo   string `json:"redo"`
	dryRun bool
	redo   time.Duration
}

func (s *session) recoverLedger(ctx context.Context, d *desk, c *change, o recoveryOptions) error {
	id, err := d.ledger.Identity(ctx)
	if err != nil {
		return err
	}
	row := recoveryRow{FromSystem: id.System, FromTimeline: id.Timeline, ToSystem: id.FoundSystem, ToTimeline: id.FoundTimeline, DryRun: o.dryRun}
	switch {
	case !id.Moved() && !o.Force:
		s.say("the ledger is where it remembers to be: nothing to recover")
	case !o.dryRun:
		if d.by, err = d.Owner(ctx); err != nil {
			return err
		}
		_, err := d.Do(ctx, c.request(d.by, operate.Plain{Act: "recover", By: operate.RoleAdmin, On: "system " + id.FoundSystem, What: o,
			Does: func(ctx context.Context, by operate.Operator) (string, error) {
				return s.recoverNow(ctx, d, c.reason, by.Name, o, &row)
			}}))
		if err != nil {
			return err
		}
	}
	return cli.One(s.printer(), cli.Table[recoveryRow]{
		Columns: []string{"from_system", "from_timeline", "to_system", "to_timeline", "put_in_doubt", "doubt_before", "deliver_from", "dry_run"},
		Cells: func(r recoveryRow) []string {
			return []string{r.FromSystem, fmt.Sprint(r.FromTimeline), r.ToSystem, fmt.Sprint(r.ToTimeline), fmt.Sprint(r.PutInDoubt), r.DoubtBefore,
				fmt.Sprint(r.DeliverFrom), fmt.Sprint(r.DryRun)}
		},
		Rows: []recoveryRow{row},
	})
}

func (s *session) recoverNow(ctx context.Context, d *desk, reason, by string, o recoveryOptions, row *recoveryRow) (string, error) {
	done, err := d.ledger.Recover(ctx, reason, by)
	if err != nil {
		return "", err
	}
	row.PutInDoubt, row.DoubtBefore = done.PutInDoubt, cli.Time(done.Before)
	if row.DeliverFrom, err = s.rewind(ctx, d.settings, o.redo); err != nil {
		return operate.OutcomePartial, fmt.Errorf("the ledger is recovered, but jobs that it may have lost are not delivered again, run it again with --force: %w", err)
	}
	return operate.OutcomeDone, nil
}

// rewind has the broker deliver again what it stored within a time, and says from which sequence on.
func (s *session) rewind(ctx context.Context, settings *config.Config, redo time.Duration) (uint64, error) {
	if redo <= 0 {
		return 0, nil
	}
	nc, err := s.connect(ctx, settings, queue.RoleOperator, "")
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	done, err := queue.Rewind(ctx, nc, redo)
	return done.From, err
}
