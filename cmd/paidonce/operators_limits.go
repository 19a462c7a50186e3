package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

func (s *session) operatorsLimits() *cobra.Command {
	return s.group("limits", "What one person may do alone",
		"  paidonce operators limits show\n  paidonce operators limits set GBP 100000.00 --reason 'agreed with the board'",
		s.limitsShow(), s.limitsSet(), s.limitsUnset())
}

// limitsMean is the same for all three.
const limitsMean = "What one person may do alone stands in the settings (operator.*), and the owner of the ledger can keep limits in the database, which hold\n" +
	"beside the settings: the narrower one does. A limit is one of a currency, most money of one act, or of an act, most things at once: batch_submit,\n" +
	"discard, replay, resolve. Once any limit is kept, one person alone decides upon no amount of a currency that has none."

type limitRow struct {
	What     string `json:"what"`
	Holds    string `json:"holds"`
	Settings string `json:"settings,omitempty"`
	Owner    string `json:"owner,omitempty"`
	At       string `json:"at,omitempty"`
	By       string `json:"by,omitempty"`
}

func (s *session) limitsShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Show what one person may do alone, by the settings and by the owner of the ledger, and which of the two holds",
		Long:    limitsMean,
		Example: "  paidonce operators limits show\n  paidonce operators limits show -o json",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			return s.openDesk(ctx, func(d *desk) error {
				limits, err := s.saidLimits(ctx, d)
				if err != nil {
					return err
				}
				rows := []limitRow{}
				for _, l := range limits {
					rows = append(rows, limitRow{What: l.What, Holds: l.Text(l.Holds), Settings: l.Text(l.Settings), Owner: l.Text(l.Owner), At: cli.Time(l.At), By: l.By})
				}
				return cli.List(s.printer(), cli.Table[limitRow]{
					Columns: []string{"what", "holds", "settings", "owner", "at", "by"},
					Cells:   func(r limitRow) []string { return []string{r.What, r.Holds, r.Settings, r.Owner, r.At, r.By} },
					Rows:    rows,
				})
			})
		}),
	}
}

// saidLimits reads the limits, and says what their being there or not means for the others.
func (s *session) saidLimits(ctx context.Context, d *desk) ([]operate.Limit, error) {
	limits, kept, err := d.Limits(ctx)
	if err != nil {
		return nil, err
	}
	var without []string
	for _, l := range limits {
		if l.Owner == nil && !slices.Contains(operate.CountedActs(), l.What) {
			without = append(without, l.What)
		}
	}
	switch {
	case !kept:
		s.say("the owner of the ledger keeps no limit: the settings alone hold, and whoever runs a command chooses the file that it reads")
	case len(without) > 0:
		s.say("of %s, and of every currency that is not listed, one person alone decides upon nothing: the owner of the ledger keeps limits, and none of these",
			strings.Join(without, ", "))
	}
	return limits, nil
}

func (s *session) limitsSet() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "set WHAT MOST",
		Short: "Keep a limit in the database, where only the owner of the ledger writes",
		Long: limitsMean + "\nNeeds the owner's login in the database, and where a token is named, that of an admin: then the log says who it was, and not\n" +
			"only which login. It holds from the next act on.",
		Example: "  paidonce operators limits set GBP 100000.00 --reason 'agreed with the board'\n" +
			"  paidonce operators limits set batch_submit 1000 --reason 'agreed with the board' --dry-run",
		Args: exactly(2, "a currency and an amount, or an act and a number"), ValidArgsFunction: s.completeLimits,
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.changeLimit(ctx, c, func(d *desk) (*operate.LimitAct, error) { return d.SetLimit(args[0], args[1]) })
		}),
	}
	c = s.deskFlags(command)
	return command
}

func (s *session) limitsUnset() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "unset WHAT",
		Short: "Keep a limit in the database no more",
		Long: limitsMean + "\nSo without a limit of its own a currency is not freed but bound, until the last limit is gone. Needs the owner's login in the\n" +
			"database, and where a token is named, that of an admin.",
		Example: "  paidonce operators limits unset batch_submit --reason 'the settings bound it'",
		Args:    exactly(1, "a currency or an act"), ValidArgsFunction: s.completeLimits,
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.changeLimit(ctx, c, func(d *desk) (*operate.LimitAct, error) { return d.UnsetLimit(args[0]) })
		}),
	}
	c = s.deskFlags(command)
	return command
}

func (s *session) changeLimit(ctx context.Context, c *change, act func(*desk) (*operate.LimitAct, error)) error {
	if err := c.complete(); err != nil {
		return err
	}
	return s.byOwnerOrAdmin(ctx, func(d *desk) error {
		a, err := act(d)
		if err != nil {
			return cli.Exit(cli.Usage, err)
		}
		if err := s.ask(ctx, d, c, a); err != nil || c.dryRun {
			return err
		}
		_, err = s.saidLimits(ctx, d)
		return err
	})
}

func (s *session) completeLimits(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	whats := operate.CountedActs()
	c, err := s.load()
	if err != nil {
		return whats, cobra.ShellCompDirectiveNoFileComp
	}
	for _, route := range c.Routes {
		whats = append(whats, route.Currencies...)
	}
	slices.Sort(whats)
	return slices.Compact(whats), cobra.ShellCompDirectiveNoFileComp
}
