package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func (s *session) dead() *cobra.Command {
	return s.group("dead", "Dead letters: messages that could not become operations",
		"  paidonce dead list --group\n  paidonce dead plan --dead-reason invalid --route gbp-fps --reason 'ticket 812'\n"+
			"  paidonce dead replay 7d2c5a90-3f1e-8b44-9a01-2f6f0b0f4a11 --reason 'the route is configured now'",
		s.deadList(), s.deadShow(), s.deadPlan(), s.deadReplay(), s.deadDiscard(), s.deadCorrect(), s.deadReindex())
}

// deadDesk is where dead letters are looked at, and changed.
type deadDesk struct {
	*dead.Desk
	bar *bars
}

// withDead opens the desk of dead letters for the settings.
func (s *session) withDead(ctx context.Context, c *config.Config, body func(*deadDesk) error) error {
	nc, err := s.connect(ctx, c, queue.RoleOperator, "")
	if err != nil {
		return err
	}
	defer nc.Close()
	b := &bars{s: s}
	defer b.end()
	desk, closeDesk, err := app.OpenDead(ctx, c, nc, b.update)
	if err != nil {
		return err
	}
	defer closeDesk()
	return body(&deadDesk{Desk: desk, bar: b})
}

// bars shows one bar after the other on standard error.
type bars struct {
	s     *session
	label string
	bar   *cli.Bar
}

func (b *bars) update(label string, done, of int64) {
	if label != b.label {
		b.end()
		b.label, b.bar = label, cli.NewBar(b.s.stderr, label)
	}
	b.bar.Update(done, of)
}

func (b *bars) end() {
	if b.bar != nil {
		b.bar.End()
	}
	b.label, b.bar = "", nil
}

// deadFlags are those that select letters.
type deadFlags struct {
	filter       dead.Filter
	key          string
	state        string
	since, until string
}

// deadReasons are why a message becomes a dead letter.
func deadReasons() []string {
	return []string{string(job.ReasonUndecodable), string(job.ReasonInvalid), string(job.ReasonKeyMissing), string(job.ReasonTooLarge),
		string(job.ReasonUnknownRoute), string(job.ReasonKeyReused), string(job.ReasonPoison)}
}

func (s *session) deadFlags(command *cobra.Command) *deadFlags {
	reasons := deadReasons()
	f := &deadFlags{}
	flags := command.Flags()
	flags.StringVar(&f.filter.Reason, "dead-reason", "", "only letters with this reason: "+strings.Join(reasons, ", "))
	flags.StringVar(&f.filter.Detail, "detail", "", "only letters with exactly this detail")
	flags.StringVar(&f.filter.Source, "source", "", "only this source")
	flags.StringVar(&f.filter.Route, "route", "", "only this route")
	flags.StringVar(&f.key, "key", "", "only this operation key")
	flags.StringVar(&f.state, "state", "", "only letters that are new, planned, replayed, discarded or corrected")
	flags.StringVar(&f.since, "since", "", "only letters since this time, or of the last of this long: 2026-11-30T12:00:00Z, 24h")
	flags.StringVar(&f.until, "until", "", "only letters before this time, or older than this long")
	flags.Uint64Var(&f.filter.From, "from", 0, "from this sequence on")
	flags.Uint64Var(&f.filter.To, "to", 0, "up to this sequence")
	states := make([]string, 0, len(dead.States()))
	for _, state := range dead.States() {
		states = append(states, string(state))
	}
	s.must(command.RegisterFlagCompletionFunc("dead-reason", cobra.FixedCompletions(reasons, cobra.ShellCompDirectiveNoFileComp)))
	s.must(command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp)))
	return f
}

// read gives the filter that the flags say.
func (f *deadFlags) read() (dead.Filter, error) {
	filter := f.filter
	filter.State = dead.State(f.state)
	var err error
	if filter.Since, err = timeFlag("since", f.since); err != nil {
		return filter, err
	}
	if filter.Until, err = timeFlag("until", f.until); err != nil {
		return filter, err
	}
	if f.key != "" {
		if filter.Key, err = cli.ParseKey(f.key); err != nil {
			return filter, err
		}
	}
	return filter, cli.Exit(cli.Usage, filter.Check())
}

// timeFlag reads a time, or how long ago it was.
func timeFlag(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	return time.Time{}, cli.Exit(cli.Usage, fmt.Errorf("--%s takes a time as 2026-11-30T12:00:00Z, or how long ago, as 24h", name))
}

type deadRow struct {
	Sequence       uint64 `json:"sequence"`
	At             string `json:"at"`
	State          string `json:"state,omitempty"` // not by the stream alone
	Reason         string `json:"reason"`
	Detail         string `json:"detail,omitempty"`
	Source         string `json:"source"`
	Route          string `json:"route"`
	Key            string `json:"key,omitempty"`
	Amount         string `json:"amount,omitempty"`
	Currency       string `json:"currency,omitempty"`
	Deliveries     int    `json:"deliveries"`
	Replays        int    `json:"replays"`
	StreamSequence uint64 `json:"stream_sequence"`
	FirstSeen      string `json:"first_seen,omitempty"`
	Bytes          int    `json:"bytes"`
}

func deadRowOf(e *dead.Entry, state dead.State) deadRow {
	row := deadRow{
		Sequence: e.Sequence, At: cli.Time(e.At), State: string(state), Reason: e.Reason, Detail: e.Detail, Source: e.Source, Route: e.Route,
		Deliveries: e.Deliveries, Replays: e.Replays, StreamSequence: e.JobSequence, FirstSeen: cli.Time(e.FirstSeen), Bytes: e.Bytes,
	}
	if e.Key != uuid.Nil {
		row.Key = e.Key.String()
	}
	if e.Amount.Currency != "" {
		row.Amount, row.Currency = e.Amount.Decimal(), e.Amount.Currency
	}
	return row
}

func deadColumns() []string {
	return []string{"sequence", "at", "state", "reason", "detail", "source", "route", "key", "amount", "currency", "deliveries", "replays",
		"stream_sequence", "first_seen", "bytes"}
}

func (r deadRow) cells() []string {
	return []string{fmt.Sprint(r.Sequence), r.At, r.State, r.Reason, r.Detail, r.Source, r.Route, r.Key, r.Amount, r.Currency, fmt.Sprint(r.Deliveries),
		fmt.Sprint(r.Replays), fmt.Sprint(r.StreamSequence), r.FirstSeen, fmt.Sprint(r.Bytes)}
}

func (s *session) deadList() *cobra.Command {
	var f *deadFlags
	var limit int
	var group bool
	command := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first, or their causes",
		Long: "Lists dead letters where they are: nothing is consumed, and listing them twice shows the same. With --group it shows each cause\n" +
			"once, with its count and money. While Postgres is away the stream alone tells; then nobody knows what was done to a letter.",
		Example: "  paidonce dead list --group\n  paidonce dead list --state new --dead-reason invalid --since 24h\n" +
			"  paidonce dead list --source wallet --from 18 --limit 50 -o json\n  paidonce dead list --key 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			filter, err := f.read()
			if err != nil {
				return err
			}
			if limit < 1 {
				return cli.Exit(cli.Usage, errors.New("--limit must be at least 1"))
			}
			c, err := s.load()
			if err != nil {
				return err
			}
			return s.withDead(ctx, c, func(d *deadDesk) error {
				if group {
					return s.groupDead(ctx, d, filter)
				}
				return s.listDead(ctx, d, filter, limit)
			})
		}),
	}
	f = s.deadFlags(command)
	command.Flags().StringVar(&f.filter.Reason, "reason", "", "same as --dead-reason")
	s.must(command.Flags().MarkHidden("reason")) // everywhere else it is why somebody changes something
	command.Flags().IntVar(&limit, "limit", 100, "most letters to list")
	command.Flags().BoolVar(&group, "group", false, "show causes instead of letters: each reason and detail with count, money, oldest and newest")
	return command
}

// aside asks the index, and where that cannot be had the stream alone. Only what the stream cannot tell is an error then.
func aside[T any](ctx context.Context, s *session, d *deadDesk, byIndex, byStream func() (T, error)) (T, error) {
	if !d.HasDB() {
		return byStream()
	}
	found, err := byIndex()
	if err == nil || ctx.Err() != nil || errors.Is(err, queue.ErrNoDeadLetter) || errors.Is(err, queue.ErrNotProvisioned) {
		return found, err
	}
	d.bar.end()
	alone, errAlone := byStream()
	if errAlone != nil {
		return alone, errors.Join(errAlone, err)
	}
	s.say("by the stream alone, which does not know what was done to a letter: %v", err)
	return alone, nil
}

func (s *session) listDead(ctx context.Context, d *deadDesk, filter dead.Filter, limit int) error {
	collect := func(all func(func(dead.Listed, error) bool)) ([]deadRow, error) {
		rows := []deadRow{}
		for l, err := range all {
			if err != nil {
				return nil, err
			}
			rows = append(rows, deadRowOf(&l.Entry, l.State))
		}
		return rows, nil
	}
	rows, err := aside(ctx, s, d, func() ([]deadRow, error) { return collect(d.List(ctx, filter, limit)) },
		func() ([]deadRow, error) { return collect(d.ListStream(ctx, filter, limit)) })
	if err != nil {
		return err
	}
	d.bar.end()
	if len(rows) == limit {
		s.say("there may be more: --from %d", rows[len(rows)-1].Sequence+1)
	}
	return cli.List(s.printer(), cli.Table[deadRow]{Columns: deadColumns(), Cells: deadRow.cells, Rows: rows})
}

type deadGroupRow struct {
	Reason    string            `json:"reason"`
	Detail    string            `json:"detail,omitempty"`
	Count     int64             `json:"count"`
	Undecided *int64            `json:"undecided,omitempty"` // not by the stream alone
	Amounts   map[string]string `json:"amounts"`
	Unread    int64             `json:"amount_unreadable"`
	Oldest    string            `json:"oldest"`
	Newest    string            `json:"newest"`

	money string
}

func sumsOf(sums []dead.Sum) (byCurrency map[string]string, text string) {
	byCurrency = map[string]string{}
	parts := make([]string, len(sums))
	for i, sum := range sums {
		amount := money.Amount{Minor: sum.Minor, Currency: sum.Currency}
		byCurrency[sum.Currency], parts[i] = amount.Decimal(), amount.String()
	}
	return byCurrency, strings.Join(parts, ", ")
}

func (s *session) groupDead(ctx context.Context, d *deadDesk, filter dead.Filter) error {
	groups, err := aside(ctx, s, d, func() ([]dead.Group, error) { return d.Groups(ctx, filter) },
		func() ([]dead.Group, error) { return d.GroupsStream(ctx, filter) })
	if err != nil {
		return err
	}
	d.bar.end()
	rows := make([]deadGroupRow, len(groups))
	for i, g := range groups {
		rows[i] = deadGroupRow{Reason: g.Reason, Detail: g.Detail, Count: g.Count, Unread: g.Unread, Oldest: cli.Time(g.Oldest), Newest: cli.Time(g.Newest)}
		if g.Undecided >= 0 {
			rows[i].Undecided = &g.Undecided
		}
		rows[i].Amounts, rows[i].money = sumsOf(g.Amounts)
	}
	return cli.List(s.printer(), cli.Table[deadGroupRow]{
		Columns: []string{"count", "undecided", "reason", "detail", "amounts", "amount_unreadable", "oldest", "newest"},
		Cells: func(r deadGroupRow) []string {
			undecided := ""
			if r.Undecided != nil {
				undecided = fmt.Sprint(*r.Undecided)
			}
			return []string{fmt.Sprint(r.Count), undecided, r.Reason, r.Detail, r.money, fmt.Sprint(r.Unread), r.Oldest, r.Newest}
		},
		Rows: rows,
	})
}

func sequenceOf(text string) (uint64, error) {
	sequence, err := strconv.ParseUint(text, 10, 63)
	if err != nil || sequence == 0 {
		return 0, cli.Exit(cli.Usage, errors.New("a dead letter is named by its sequence, as `paidonce dead list` prints it"))
	}
	return sequence, nil
}
