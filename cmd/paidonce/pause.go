package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
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
