package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

func (s *session) ops() *cobra.Command {
	return s.group("ops", "Look at operations, and decide what waits for a person",
		"  paidonce ops list --state parked\n  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		s.opsList(), s.opsShow(), s.opsExplain(), s.opsLookUp(), s.opsResolve(), s.opsCancel())
}

// operationRow is `ops show KEY -o json`; programs rely on the names.
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
	WindowLeft    string `json:"key_window_left,omitempty"`
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
			"settlement", "attempts", "debtor_account", "created_at", "outcome_at", "due_at", "contradicted_at", "key_window_left"},
		Cells: func(r operationRow) []string {
			return []string{r.Key, r.State, fmt.Sprint(r.InDoubt), r.Amount, r.Currency, r.Source, r.Route, r.Partner, r.TransferID, r.Code,
				r.HeldReason, r.Settlement, fmt.Sprint(r.Attempts), r.DebtorAccount, r.CreatedAt, r.OutcomeAt, r.DueAt, r.Contradicted, r.WindowLeft}
		},
		Rows: rows,
	}
}

// The orders of `ops list`.
const (
	sortNewest = "newest"
	sortRisk   = "risk"
)

// listFlags are the flags of `ops list`.
type listFlags struct {
	filter ledger.Filter
	states []string
	sort   string
	since  string
	reach  int64
	all    bool
	reveal *reveal
}

// listStep is how many operations are looked through at a time, so that there is progress to tell of. A cold disk gives some 80,000 a second.
const listStep = 100_000

func (s *session) opsList() *cobra.Command {
	f := &listFlags{}
	command := &cobra.Command{
		Use:   "list",
		Short: "List operations: the newest first, parked ones by the money at risk",
		Long: "Lists operations, the newest first. With --sort risk, which is how parked ones alone are listed: what is in doubt first; then the\n" +
			"largest amount of each currency, then the second of each, and so on, since currencies are not compared; among equals what has least left of its\n" +
			"key's window (while it is open, the partner knows the operation by its key).\n" +
			"Unfinished operations are found at once, however many there are. For others the ledger is looked through, the newest first and so far as\n" +
			"--reach says; a page that is not full by then ends with the cursor to go on with. --since is the quick way to what is new.",
		Example: "  paidonce ops list --state parked\n  paidonce ops list --in-doubt --partner northbank --sort risk\n" +
			"  paidonce ops list --state rejected --since 24h\n  paidonce ops list --source wallet --limit 1000 -o csv\n  paidonce ops list --all -o jsonl",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if err := f.complete(); err != nil {
				return err
			}
			if err := s.revealing(ctx, f.reveal, "list of operations"); err != nil {
				return err
			}
			return s.withLedger(ctx, func(c *config.Config, l *ledger.Ledger) error { return s.listOperations(ctx, c, l, f) })
		}),
	}
	flags := command.Flags()
	flags.StringSliceVar(&f.states, "state", nil, "only these: "+strings.Join(knownStates(), ", "))
	flags.StringVar(&f.filter.Source, "source", "", "only this source")
	flags.StringVar(&f.filter.Route, "route", "", "only this route")
	flags.StringVar(&f.filter.Partner, "partner", "", "only this partner")
	flags.BoolVar(&f.filter.InDoubt, "in-doubt", false, "only those in doubt")
	flags.StringVar(&f.since, "since", "", "only those recorded since this time, or in the last of this long: 2026-11-30T12:00:00Z, 24h")
	flags.Int64Var(&f.reach, "reach", 1_000_000, "how many operations to look through for one page")
	flags.IntVar(&f.filter.Limit, "limit", 100, "most operations of one page")
	flags.Int64Var(&f.filter.Before, "before", 0, "the cursor that the page before printed")
	flags.StringVar(&f.sort, "sort", "", "newest or risk (default: risk for parked ones alone, else newest)")
	flags.BoolVar(&f.all, "all", false, "every page, however long it takes")
	f.reveal = s.revealFlags(command, "show debtor accounts in full")
	s.must(command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(knownStates(), cobra.ShellCompDirectiveNoFileComp)))
	s.must(command.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{sortNewest, sortRisk}, cobra.ShellCompDirectiveNoFileComp)))
	return command
}

// complete checks the flags and fills in what was left out.
func (f *listFlags) complete() error {
	for _, state := range f.states {
		if !slices.Contains(knownStates(), state) {
			return cli.Exit(cli.Usage, fmt.Errorf("--state %s: there are %s", state, strings.Join(knownStates(), ", ")))
		}
		f.filter.States = append(f.filter.States, ledger.State(state))
	}
	if f.filter.Limit < 1 || f.filter.Before < 0 {
		return cli.Exit(cli.Usage, errors.New("--limit must be at least 1, and --before a cursor that was printed"))
	}
	if f.reach < 1 {
		return cli.Exit(cli.Usage, errors.New("--reach must be at least 1"))
	}
	var err error
	if f.filter.Since, err = timeFlag("since", f.since); err != nil {
		return err
	}
	switch f.sort {
	case "":
		f.filter.ByRisk = slices.Equal(f.states, []string{string(ledger.StateParked)}) && f.filter.Before == 0
	case sortRisk:
		f.filter.ByRisk = true
	case sortNewest:
	default:
		return cli.Exit(cli.Usage, fmt.Errorf("--sort %s: there are %s, %s", f.sort, sortNewest, sortRisk))
	}
	if f.filter.ByRisk && slices.ContainsFunc(f.filter.States, ledger.State.Finished) {
		return cli.Exit(cli.Usage, errors.New("--sort risk is for what is not finished: open, claimed, parked"))
	}
	if f.filter.ByRisk && f.filter.Before > 0 {
		return cli.Exit(cli.Usage, errors.New("--sort risk has no pages: raise --limit, or list all with --all"))
	}
	if f.filter.ByRisk && f.all {
		f.filter.Limit = math.MaxInt32
	}
	return nil
}

// listing is what `ops list` has found so far.
type listing struct {
	s       *session
	c       *config.Config
	f       *listFlags
	rows    []operationRow
	printed int
	risk    map[string]int64
}

func (s *session) listOperations(ctx context.Context, c *config.Config, l *ledger.Ledger, f *listFlags) error {
	out := &listing{s: s, c: c, f: f, rows: []operationRow{}, risk: map[string]int64{}}
	bar := cli.NewBar(s.stderr, "looked through")
	defer bar.End()
	limit, filter := f.filter.Limit, f.filter
	filter.Windows = windowsOf(c)
	for looked := int64(0); ; {
		if filter.Reach = listStep; !f.all {
			filter.Reach = min(listStep, f.reach-looked)
		}
		page, next, err := l.List(ctx, filter)
		if err != nil {
			return err
		}
		if err := out.add(page); err != nil {
			return err
		}
		if len(page) < filter.Limit {
			looked += filter.Reach
			bar.Update(looked, reachOf(f, looked, next))
		}
		if filter.Before = next; next == 0 {
			break
		}
		if !f.all {
			if filter.Limit -= len(page); filter.Limit == 0 {
				bar.End()
				s.say("there are more: --before %d", next)
				break
			}
			if looked >= f.reach {
				bar.End()
				s.say("looked through %s operations: go on with --before %d, or through all of them with --all", cli.Thousands(looked), next)
				break
			}
		}
	}
	bar.End()
	if f.filter.ByRisk && out.printed+len(out.rows) == limit {
		s.say("there may be more: raise --limit, or list all with --all")
	}
	for _, currency := range slices.Sorted(maps.Keys(out.risk)) {
		if f.filter.ByRisk {
			s.say("in doubt, of those listed: %s", money.Amount{Minor: out.risk[currency], Currency: currency})
		}
	}
	return out.end()
}

// reachOf is how many operations there are to look through at most.
func reachOf(f *listFlags, looked, next int64) int64 {
	if all := looked + max(0, next-1); f.all || all < f.reach {
		return all
	}
	return f.reach
}

// add takes a page. Lists for machines are printed as they are found, so that no ledger is too large for them.
func (o *listing) add(page []ledger.Summary) error {
	now := time.Now()
	for _, one := range page {
		if sum, err := one.Amount.Add(money.Amount{Minor: o.risk[one.Amount.Currency], Currency: one.Amount.Currency}); one.InDoubt && err == nil {
			o.risk[one.Amount.Currency] = sum.Minor
		}
		row := operationRowOf(one, o.f.reveal.wanted)
		row.WindowLeft = windowLeft(o.c, one, now)
		o.rows = append(o.rows, row)
	}
	if format := o.s.printer().Format; format != cli.FormatJSONL && format != cli.FormatCSV || len(o.rows) == 0 {
		return nil
	}
	return o.end()
}

// end prints what was not printed.
func (o *listing) end() error {
	p := o.s.printer()
	if p.Headless = o.printed > 0; p.Headless && len(o.rows) == 0 {
		return nil
	}
	o.printed += len(o.rows)
	err := cli.List(p, operationTable(o.rows...))
	o.rows = o.rows[:0]
	return err
}

// windowLeft is how long the partner still knows an unfinished operation by its key; "" where that is not known or does not matter.
func windowLeft(c *config.Config, o ledger.Summary, now time.Time) string {
	p, known := profileOf(c, o.Partner)
	if !known || p.KeyWindow == 0 || o.FirstSentAt.IsZero() || o.State.Finished() {
		return ""
	}
	left := o.FirstSentAt.Add(p.KeyWindow).Sub(now)
	if left <= 0 {
		return "over"
	}
	return left.Round(time.Minute).String()
}

// windowsOf are the key windows of the partners that are configured here.
func windowsOf(c *config.Config) map[string]time.Duration {
	windows := map[string]time.Duration{}
	for partner := range c.Partners {
		if p, known := profileOf(c, partner); known {
			windows[partner] = p.KeyWindow
		}
	}
	return windows
}

func knownStates() []string {
	return []string{string(ledger.StateOpen), string(ledger.StateClaimed), string(ledger.StateAuthorized), string(ledger.StateRejected),
		string(ledger.StateCancelled), string(ledger.StateParked)}
}

func (s *session) opsShow() *cobra.Command {
	var r *reveal
	command := &cobra.Command{
		Use:     "show KEY",
		Short:   "Show one operation",
		Example: "  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11\n  paidonce ops show 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 -o json",
		Args:    exactly(1, "one operation key"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			return s.explained(ctx, args[0], r, func(d *desk, e ledger.Explanation) error {
				row := operationRowOf(e.Summary, r.wanted)
				row.Attempts, row.WindowLeft = len(e.Attempts), windowLeft(d.settings, e.Summary, e.Now)
				if e.State == ledger.StateOpen && !e.InDoubt && row.HeldReason == "" && len(e.Paused) > 0 {
					row.HeldReason = "paused" // nobody has tried to claim it since
				}
				return cli.One(s.printer(), operationTable(row))
			})
		}),
	}
	r = s.revealFlags(command, "show the debtor account in full")
	return command
}

// explained reads one operation and gives it to show, once the audit log knows of what is revealed.
func (s *session) explained(ctx context.Context, text string, r *reveal, show func(*desk, ledger.Explanation) error) error {
	key, err := cli.ParseKey(text)
	if err != nil {
		return err
	}
	return s.openDesk(ctx, func(d *desk) error {
		e, err := d.ledger.Explain(ctx, key)
		if errors.Is(err, ledger.ErrNotFound) {
			return noOperation(key)
		}
		if err != nil {
			return err
		}
		if err := s.revealing(ctx, r, key.String()); err != nil {
			return err
		}
		return show(d, e)
	})
}
