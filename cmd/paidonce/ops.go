package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
)

func (s *session) ops() *cobra.Command {
	return s.group("ops", "Look at operations",
		"  paidonce ops list --state parked\n  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		s.opsList(), s.opsShow(), s.opsExplain())
}

// operationRow is `ops show KEY -o json`, member by member as CONTRACT section 6 names them.
type operationRow struct {
	Key           string `json:"key"`
	Source        string `json:"source"`
	Route         string `json:"route"`
	State         string `json:"state"`
	InDoubt       bool   `json:"in_doubt"`
	HeldReason    string `json:"held_reason,omitempty"`
	Partner       string `json:"partner,omitempty"`
	DebtorAccount string `json:"debtor_account"`
	Amount        string `json:"amount"`
	Currency      string `json:"currency"`
	TransferID    string `json:"transfer_id,omitempty"`
	Code          string `json:"code,omitempty"`
	Settlement    string `json:"settlement,omitempty"`
	Attempts      int    `json:"attempts"`
	CreatedAt     string `json:"created_at"`
	OutcomeAt     string `json:"outcome_at,omitempty"`
	DueAt         string `json:"due_at,omitempty"`
	Contradicted  string `json:"contradicted_at,omitempty"`
}

func operationRowOf(o ledger.Summary, reveal bool) operationRow {
	account := o.DebtorAccount
	if !reveal {
		account = cli.MaskAccount(account)
	}
	return operationRow{
		Key: o.Key.String(), Source: o.Source, Route: o.Route, State: string(o.State), InDoubt: o.InDoubt, HeldReason: o.HeldReason,
		Partner: o.Partner, DebtorAccount: account, Amount: o.Amount.Decimal(), Currency: o.Amount.Currency, TransferID: o.TransferID,
		Code: o.Code, Settlement: o.Settlement, Attempts: o.Attempts, CreatedAt: cli.Time(o.CreatedAt), OutcomeAt: cli.Time(o.OutcomeAt),
		DueAt: cli.Time(o.DueAt), Contradicted: cli.Time(o.ContradictedAt),
	}
}

func operationTable(rows ...operationRow) cli.Table[operationRow] {
	return cli.Table[operationRow]{
		Columns: []string{"key", "state", "in_doubt", "amount", "currency", "source", "route", "partner", "transfer_id", "code", "held_reason",
			"settlement", "attempts", "debtor_account", "created_at", "outcome_at", "due_at", "contradicted_at"},
		Cells: func(r operationRow) []string {
			return []string{r.Key, r.State, fmt.Sprint(r.InDoubt), r.Amount, r.Currency, r.Source, r.Route, r.Partner, r.TransferID, r.Code,
				r.HeldReason, r.Settlement, fmt.Sprint(r.Attempts), r.DebtorAccount, r.CreatedAt, r.OutcomeAt, r.DueAt, r.Contradicted}
		},
		Rows: rows,
	}
}

func (s *session) opsList() *cobra.Command {
	var filter ledger.Filter
	var states []string
	var all, reveal bool
	command := &cobra.Command{
		Use:   "list",
		Short: "List operations, the newest first",
		Example: "  paidonce ops list --state parked\n  paidonce ops list --in-doubt --partner northbank\n" +
			"  paidonce ops list --source wallet --limit 1000 -o csv\n  paidonce ops list --all -o jsonl",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			for _, state := range states {
				if !slices.Contains(knownStates(), state) {
					return cli.Exit(cli.Usage, fmt.Errorf("--state %s: there are %s", state, strings.Join(knownStates(), ", ")))
				}
				filter.States = append(filter.States, ledger.State(state))
			}
			if filter.Limit < 1 || filter.Before < 0 {
				return cli.Exit(cli.Usage, errors.New("--limit must be at least 1, and --before a cursor that was printed"))
			}
			return s.withLedger(ctx, func(_ *config.Config, l *ledger.Ledger) error { return s.listOperations(ctx, l, filter, all, reveal) })
		}),
	}
	flags := command.Flags()
	flags.StringSliceVar(&states, "state", nil, "only these: "+strings.Join(knownStates(), ", "))
	flags.StringVar(&filter.Source, "source", "", "only this source")
	flags.StringVar(&filter.Route, "route", "", "only this route")
	flags.StringVar(&filter.Partner, "partner", "", "only this partner")
	flags.BoolVar(&filter.InDoubt, "in-doubt", false, "only those in doubt")
	flags.IntVar(&filter.Limit, "limit", 100, "most operations of one page")
	flags.Int64Var(&filter.Before, "before", 0, "the cursor that the page before printed")
	flags.BoolVar(&all, "all", false, "every page")
	flags.BoolVar(&reveal, "reveal", false, "show debtor accounts in full")
	s.must(command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(knownStates(), cobra.ShellCompDirectiveNoFileComp)))
	return command
}

func (s *session) listOperations(ctx context.Context, l *ledger.Ledger, filter ledger.Filter, all, reveal bool) error {
	var rows []operationRow
	for {
		page, next, err := l.List(ctx, filter)
		if err != nil {
			return err
		}
		for _, o := range page {
			rows = append(rows, operationRowOf(o, reveal))
		}
		if next == 0 {
			break
		}
		if !all {
			s.say("there are more: --before %d", next)
			break
		}
		filter.Before = next
	}
	return cli.List(s.printer(), operationTable(rows...))
}

func knownStates() []string {
	return []string{string(ledger.StateOpen), string(ledger.StateClaimed), string(ledger.StateAuthorized), string(ledger.StateRejected),
		string(ledger.StateCancelled), string(ledger.StateParked)}
}

func (s *session) opsShow() *cobra.Command {
	var reveal bool
	command := &cobra.Command{
		Use:     "show KEY",
		Short:   "Show one operation",
		Example: "  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11\n  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		Args:    exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.explained(ctx, args[0], func(e ledger.Explanation) error {
				row := operationRowOf(e.Summary, reveal)
				row.Attempts = len(e.Attempts)
				return cli.One(s.printer(), operationTable(row))
			})
		}),
	}
	command.Flags().BoolVar(&reveal, "reveal", false, "show the debtor account in full")
	return command
}

// explained reads one operation and gives it to show.
func (s *session) explained(ctx context.Context, text string, show func(ledger.Explanation) error) error {
	key, err := cli.ParseKey(text)
	if err != nil {
		return err
	}
	return s.withLedger(ctx, func(_ *config.Config, l *ledger.Ledger) error {
		e, err := l.Explain(ctx, key)
		if errors.Is(err, ledger.ErrNotFound) {
			return cli.Exit(cli.NotFound, fmt.Errorf("%s: no such operation; its job may wait in the queue or be a dead letter", key))
		}
		if err != nil {
			return err
		}
		return show(e)
	})
}
