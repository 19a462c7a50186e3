package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
)

func (s *session) operators() *cobra.Command {
	return s.group("operators", "Who may change what",
		"  paidonce operators list\n  paidonce operators add olga --role operator --token-out olga.token --reason 'joins the night shift'",
		s.operatorsAdd(), s.operatorsList(), s.operatorsRotate(), s.operatorsDisable(), s.operatorsLimits())
}

func roleNames() []string {
	var names []string
	for _, r := range operate.Roles() {
		names = append(names, string(r))
	}
	return names
}

func (s *session) operatorsAdd() *cobra.Command {
	var c *change
	var roles []string
	var out string
	command := &cobra.Command{
		Use:   "add NAME --role ROLE",
		Short: "Make an operator with a token of its own",
		Long: "Makes an operator. A viewer looks; an operator asks for changes; an approver agrees to what others propose; an admin makes\n" +
			"operators and does all of it, but never agrees with themselves. The token is written once, to --token-out or to standard output,\n" +
			"and kept nowhere. Once a second person can agree, a new identity needs that agreement: else an admin could agree under its name.\n" +
			"The first operators are made under the database role that owns the ledger, without a token, while fewer than two can decide.",
		Example: "  paidonce operators add adam --role admin --token-out adam.token --reason 'first operator'\n" +
			"  paidonce operators add olga --role operator --role approver --token-out olga.token --reason 'joins the night shift'",
		Args: exactly(1, "one name"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.byOwnerOrAdmin(ctx, func(d *desk) error {
				wanted := make([]operate.Role, len(roles))
				for i, r := range roles {
					wanted[i] = operate.Role(r)
				}
				act, err := d.AddOperator(ctx, d.by, args[0], wanted)
				if err != nil {
					return err
				}
				return s.askForToken(ctx, d, c, act, out)
			})
		}),
	}
	c = s.deskFlags(command)
	command.Flags().StringSliceVar(&roles, "role", nil, "what the operator may do: "+strings.Join(roleNames(), ", ")+" (needed, repeatable)")
	command.Flags().StringVar(&out, "token-out", "", "file to write the token to; it must not be there yet (default: standard output)")
	s.must(command.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(roleNames(), cobra.ShellCompDirectiveNoFileComp)))
	return command
}

func (s *session) operatorsRotate() *cobra.Command {
	var c *change
	var out string
	var grace time.Duration
	command := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give an operator a new token",
		Long: "Gives an operator a new token. The one before holds for --grace, so that no shift stands without one. Everybody may rotate\n" +
			"their own; an admin that of others, with another person's approval; the owner of the database that of whoever lost it.",
		Example: "  paidonce operators rotate olga --token-out olga.token.new --reason 'yearly'\n" +
			"  paidonce operators rotate olga --grace 0s --token-out olga.token.new --reason 'laptop stolen'",
		Args: exactly(1, "one name"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.byOwnerOrAdmin(ctx, func(d *desk) error {
				act, err := d.RotateToken(ctx, d.by, args[0], grace)
				if err != nil {
					return err
				}
				return s.askForToken(ctx, d, c, act, out)
			})
		}),
	}
	c = s.deskFlags(command)
	command.Flags().DurationVar(&grace, "grace", 24*time.Hour, "how long the old token still holds")
	command.Flags().StringVar(&out, "token-out", "", "file to write the token to; it must not be there yet (default: standard output)")
	return command
}

func (s *session) operatorsDisable() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:     "disable NAME",
		Short:   "End an operator and all tokens of that name, at once and for good",
		Example: "  paidonce operators disable olga --reason 'left the company'",
		Args:    exactly(1, "one name"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.byOwnerOrAdmin(ctx, func(d *desk) error { return s.ask(ctx, d, c, d.DisableOperator(args[0])) })
		}),
	}
	c = s.deskFlags(command)
	return command
}

// byOwnerOrAdmin runs body for the operator of the settings or, without a token, for the owner of the database.
func (s *session) byOwnerOrAdmin(ctx context.Context, body func(*desk) error) error {
	return s.openDesk(ctx, func(d *desk) error {
		token, err := d.settings.OperatorToken()
		if err != nil {
			return err
		}
		if token == "" {
			if d.by, err = d.Owner(ctx); errors.Is(err, operate.ErrNotPermitted) {
				_, err = s.identify(ctx, d)
			}
		} else {
			d.by, err = d.Identify(ctx, token.Reveal())
		}
		if err != nil {
			return err
		}
		return body(d)
	})
}

// askForToken does the act and hands over the token that it made. The file is opened before, so that no token is made that cannot be handed over.
func (s *session) askForToken(ctx context.Context, d *desk, c *change, act *operate.Person, out string) error {
	if c.showToken = out == ""; c.showToken || c.dryRun {
		return s.ask(ctx, d, c, act)
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return cli.Exit(cli.Usage, fmt.Errorf("make the file for the token: %w", err))
	}
	err = s.ask(ctx, d, c, act)
	if act.Token == "" {
		return errors.Join(err, file.Close(), os.Remove(out))
	}
	_, failed := fmt.Fprintln(file, act.Token)
	return errors.Join(err, failed, file.Close())
}

type operatorRow struct {
	Name     string   `json:"name"`
	Roles    []string `json:"roles"`
	Tokens   int      `json:"tokens"`
	Until    string   `json:"token_until,omitempty"`
	MadeAt   string   `json:"made_at"`
	MadeBy   string   `json:"made_by"`
	Disabled string   `json:"disabled_at,omitempty"`
}

func (s *session) operatorsList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List operators, their roles and how many tokens each has",
		Example: "  paidonce operators list\n  paidonce operators list -o json",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			return s.openDesk(ctx, func(d *desk) error {
				list, err := d.Operators(ctx)
				if err != nil {
					return err
				}
				rows := []operatorRow{}
				for _, o := range list {
					row := operatorRow{Name: o.Name, Tokens: len(o.Tokens), MadeAt: cli.Time(o.MadeAt), MadeBy: o.MadeBy, Disabled: cli.Time(o.DisabledAt)}
					for _, r := range o.Roles {
						row.Roles = append(row.Roles, string(r))
					}
					for _, until := range o.Tokens {
						if !until.IsZero() {
							row.Until = cli.Time(until)
						}
					}
					rows = append(rows, row)
				}
				return cli.List(s.printer(), cli.Table[operatorRow]{
					Columns: []string{"name", "roles", "tokens", "token_until", "made_at", "made_by", "disabled_at"},
					Cells: func(r operatorRow) []string {
						return []string{r.Name, strings.Join(r.Roles, " "), fmt.Sprint(r.Tokens), r.Until, r.MadeAt, r.MadeBy, r.Disabled}
					},
					Rows: rows,
				})
			})
		}),
	}
}
