package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/worker/job"
)

type deadPlanRow struct {
	Plan    string             `json:"plan"`
	Digest  string             `json:"digest"`
	Letters int64              `json:"letters"`
	Replays int64              `json:"replayable"`
	Refused int64              `json:"refused"` // that the settings would refuse again
	Until   string             `json:"expires_at"`
	Classes []deadPlanClassRow `json:"classes"`
}

type deadPlanClassRow struct {
	Class   string            `json:"class"`
	Refused string            `json:"refused_for,omitempty"` // by the settings, as they are
	Count   int64             `json:"count"`
	Amounts map[string]string `json:"amounts"`
	Unread  int64             `json:"amount_unreadable"`
	Means   string            `json:"means"`

	money string
}

func deadPlanRowOf(p *dead.Plan) deadPlanRow {
	row := deadPlanRow{Plan: p.ID.String(), Digest: hex.EncodeToString(p.Digest[:]), Letters: p.Letters, Until: cli.Time(p.ExpiresAt)}
	for _, c := range p.Classes {
		if c.Class == dead.ClassReplayable {
			row.Replays = c.Count
		}
		if c.Class.Refused() {
			row.Refused += c.Count
		}
		one := deadPlanClassRow{Count: c.Count, Unread: c.Unread, Means: c.Class.Means()}
		one.Class, one.Refused = wordsOf(c.Class)
		one.Amounts, one.money = sumsOf(c.Amounts)
		row.Classes = append(row.Classes, one)
	}
	return row
}

// wordsOf is a class as it is shown: what the settings would refuse again is one, with its cause.
func wordsOf(c dead.Class) (class, refusedFor string) {
	if c.Refused() {
		return "refused", string(c)
	}
	return string(c), ""
}

func (s *session) deadPlan() *cobra.Command {
	var f *deadFlags
	var c *change
	command := &cobra.Command{
		Use:   "plan",
		Short: "Freeze a selection of dead letters, and say what a replay of it would do",
		Long: "Freezes the letters that are selected now, compares each with the ledger and the settings, and prints counts and money by what a replay\n" +
			"would do. What the settings would refuse again, as an amount over the limit of its route, is not replayed: raise the limit and make a new\n" +
			"plan, or correct it. The plan's id is made of the SHA-256 of its content. A plan publishes and changes nothing; replay and discard take it, and refuse it when a letter of it\n" +
			"has changed since. For a day its letters are listed as planned instead of new; they can be planned again.",
		Example: "  paidonce dead plan --dead-reason invalid --route gbp-fps --reason 'the limit was raised, ticket 812'\n" +
			"  paidonce dead plan --dead-reason unknown_route --since 24h --reason 'the route is configured now' -o json",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if c.reason == "" {
				c.reason = "a plan does nothing by itself"
			}
			if slices.Contains(deadReasons(), c.reason) { // as it was once written: it would select all letters now
				return cli.Exit(cli.Usage, fmt.Errorf("--reason is why you plan; letters are selected by --dead-reason %s", c.reason))
			}
			filter, err := f.read()
			if err != nil {
				return err
			}
			return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error {
				act := d.Freeze(filter)
				if _, err := desk.Do(ctx, c.request(desk.by, act)); err != nil {
					return err
				}
				d.bar.end()
				return s.printPlan(deadPlanRowOf(act.Plan))
			})
		}),
	}
	f = s.deadFlags(command)
	c = &change{}
	command.Flags().StringVar(&c.reason, "reason", "", "why, for the audit log (a plan does nothing by itself, so it may be left out)")
	return command
}

// printPlan prints the classes for people, with the plan on standard error where a table has no place for it.
func (s *session) printPlan(row deadPlanRow) error {
	if f := s.printer().Format; f == cli.FormatJSON || f == cli.FormatJSONL {
		return cli.One(s.printer(), cli.Table[deadPlanRow]{Rows: []deadPlanRow{row}})
	}
	err := cli.List(s.printer(), cli.Table[deadPlanClassRow]{
		Columns: []string{"plan", "class", "refused_for", "count", "amounts", "amount_unreadable", "means"},
		Cells: func(r deadPlanClassRow) []string {
			return []string{row.Plan, r.Class, r.Refused, fmt.Sprint(r.Count), r.money, fmt.Sprint(r.Unread), r.Means}
		},
		Rows: row.Classes,
	})
	if row.Replays > 0 {
		s.say("until %s: paidonce dead replay %s --reason ...", row.Until, row.Plan)
	}
	return err
}

// deadDoneRow is what replay and discard print.
type deadDoneRow struct {
	changeRow

	Published int64 `json:"published"`
	Before    int64 `json:"published_before"`
	Duplicate int64 `json:"duplicate"`
	Failed    int64 `json:"failed"`
	Changed   int64 `json:"changed"`
	Left      int64 `json:"left"`
	Discarded int64 `json:"discarded"`
	Closed    int64 `json:"keys_closed"`
	Open      int64 `json:"keys_not_closed"` // of discarded letters

	About string `json:"about,omitempty"` // how many letters, and how much money, while nothing is done yet
}

// number is for people nothing where there is none.
func (s *session) number(n int64) string {
	if n == 0 && s.printer().Format == cli.FormatTable {
		return ""
	}
	return fmt.Sprint(n)
}

func (s *session) printDone(row deadDoneRow) error {
	return cli.One(s.printer(), cli.Table[deadDoneRow]{
		Columns: []string{"act", "target", "outcome", "by", "audit", "proposal", "needs", "published", "published_before", "duplicate", "failed", "changed",
			"left", "discarded", "keys_closed", "keys_not_closed", "about"},
		Cells: func(r deadDoneRow) []string {
			cells := []string{r.Act, r.Target, r.Outcome, r.By, s.number(r.Audit), r.Proposal, r.Needs}
			for _, n := range []int64{r.Published, r.Before, r.Duplicate, r.Failed, r.Changed, r.Left, r.Discarded, r.Closed, r.Open} {
				cells = append(cells, s.number(n))
			}
			return append(cells, r.About)
		},
		Rows: []deadDoneRow{row},
	})
}

// changeRowOf says what came of a change, and to a person what is to be done where it waits.
func (s *session) changeRowOf(desk *desk, act operate.Act, done operate.Done, err error) changeRow {
	row := changeRow{Act: act.Name(), Target: act.Target(), Outcome: done.Outcome, By: desk.by.Name, Audit: done.AuditID}
	if done.Proposal != nil {
		row.Proposal = done.Proposal.ID.String()
	}
	if done.Waits {
		row.Needs = "approval by another person"
	}
	if errors.Is(err, operate.ErrWaiting) {
		s.say("another person approves with: paidonce proposals approve %s --reason ...   then run the same command again", row.Proposal)
	}
	return row
}

// askDead does the act of a command and prints what came of it, also of one that was interrupted, or waits for another person.
func (s *session) askDead(ctx context.Context, desk *desk, d *deadDesk, c *change, act operate.Act, tally func(*deadDoneRow)) error {
	done, err := desk.Do(ctx, c.request(desk.by, act))
	d.bar.end()
	if err != nil && done.AuditID == 0 && !errors.Is(err, operate.ErrWaiting) {
		return err
	}
	row := deadDoneRow{changeRow: s.changeRowOf(desk, act, done, err)}
	if c.dryRun || errors.Is(err, operate.ErrWaiting) {
		if row.About = weightText(act.Name(), act.Weight()); row.About == "" {
			row.About = "0"
		}
	}
	if done.Outcome == operate.OutcomePartial {
		err = cli.Exit(cli.Partial, errors.New("some letters were not done; run the same command again, or make a new plan"))
	}
	tally(&row)
	return errors.Join(s.printDone(row), err)
}

func (s *session) deadReplay() *cobra.Command {
	var c *change
	var rate int
	command := &cobra.Command{
		Use:   "replay PLAN",
		Short: "Publish again what is replayable in a plan, each letter once",
		Long: "Publishes the letters of a plan that never became operations, each once, under its own subject and key. It may be interrupted, and killed;\n" +
			"run again it goes on, and run again when it is done it does nothing. A plan whose letters have changed is refused. Many letters, or much\n" +
			"money, wait for another person.",
		Example: "  paidonce dead replay 7d2c5a90-3f1e-8b44-9a01-2f6f0b0f4a11 --reason 'the route is configured now' --rate 50\n" +
			"  paidonce dead replay 7d2c5a90-3f1e-8b44-9a01-2f6f0b0f4a11 --dry-run --reason test",
		Args: exactly(1, "one plan, as `paidonce dead plan` prints it"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			id, err := uuid.Parse(args[0])
			if err != nil {
				return cli.Exit(cli.Usage, errors.New("a plan is named by its id, as `paidonce dead plan` prints it"))
			}
			if rate < 0 {
				return cli.Exit(cli.Usage, errors.New("--rate must not be negative"))
			}
			if err := c.complete(); err != nil {
				return err
			}
			return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error {
				plan, err := d.Plan(ctx, id)
				if err != nil {
					return err
				}
				act, err := d.Replay(ctx, plan, rate)
				if err != nil {
					return err
				}
				return s.askDead(ctx, desk, d, c, act, func(row *deadDoneRow) {
					t := act.Tally
					row.Published, row.Before, row.Duplicate, row.Failed, row.Changed, row.Left = t.Published, t.Before, t.Duplicate, t.Failed, t.Changed, t.Left
				})
			})
		}),
	}
	c = s.deskFlags(command)
	command.Flags().IntVar(&rate, "rate", 100, "most letters per second; 0 = as fast as the broker confirms them")
	return command
}

func (s *session) deadDiscard() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "discard PLAN | SEQUENCE...",
		Short: "Decide that letters are not replayed; they stay where they are",
		Long: "Keeps for each letter who decided, when and why. It is never replayed or corrected after that. The letter stays in the stream, and so does its\n" +
			"job, which would be read again when its route is configured, or after a recovery. So its key is closed: it becomes an operation that is\n" +
			"cancelled from its beginning, with code `discarded`, and an event tells the source. The same withdrawal is never paid under that key.\n" +
			"Not closed is the key of a letter that is no job; of one that may have been sent before a recovery; and while another letter under it asks\n" +
			"for something else, or is being replayed. The command says how many those are, and what may still happen to them.",
		Example: "  paidonce dead discard 17 18 --reason 'test messages of staging'\n" +
			"  paidonce dead discard 7d2c5a90-3f1e-8b44-9a01-2f6f0b0f4a11 --reason 'the customer withdrew them, ticket 812'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("takes one plan, or sequences")
			}
			return nil
		},
		RunE: s.do(func(ctx context.Context, args []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			discard, err := discardOf(args, c.reason)
			if err != nil {
				return err
			}
			return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error {
				act, err := discard(ctx, d.Desk)
				if err != nil {
					return err
				}
				return s.askDead(ctx, desk, d, c, act, func(row *deadDoneRow) {
					row.Discarded, row.Closed, row.Open = act.Discarded, act.Closed, act.Contested+act.Doubtful+act.Unreadable
					s.sayOpen(act)
				})
			})
		}),
	}
	c = s.deskFlags(command)
	return command
}

// sayOpen says what may still happen to letters that were discarded.
func (s *session) sayOpen(act *dead.Discard) {
	if n := act.Contested; n > 0 {
		s.say("%d: the key is not closed, since another letter under it asks for something else, or a replay of it is under way. Until that one is an operation, "+
			"the job of the discarded letter is paid when its route is configured, or after `paidonce recover`", n)
	}
	if n := act.Doubtful; n > 0 {
		s.say("%d: the key is not closed, since the job is older than the last recovery and may have been sent: ask the partner", n)
	}
	if n := act.Unreadable; n > 0 {
		s.say("%d: no job that can be read, so no key is closed. It is in the stream still: it is read again when its route is configured, or after "+
			"`paidonce recover`, and becomes a dead letter again. In good form, under its key or another one, its source can still have it paid", n)
	}
}

// discardOf reads what is to be discarded: a plan, or letters.
func discardOf(args []string, why string) (func(context.Context, *dead.Desk) (*dead.Discard, error), error) {
	if id, err := uuid.Parse(args[0]); err == nil && len(args) == 1 {
		return func(ctx context.Context, d *dead.Desk) (*dead.Discard, error) {
			plan, err := d.Plan(ctx, id)
			if err != nil {
				return nil, err
			}
			return d.DiscardPlan(ctx, plan, why)
		}, nil
	}
	sequences := make([]uint64, len(args))
	for i, text := range args {
		var err error
		if sequences[i], err = sequenceOf(text); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, d *dead.Desk) (*dead.Discard, error) {
		return d.DiscardLetters(ctx, sequences, why)
	}, nil
}

// correction is what the flags of correct say.
type correction struct {
	set, unset []string
	payload    string
	route      string
}

func (f *correction) edit(stdin io.Reader) (dead.Edit, error) {
	e := dead.Edit{Unset: f.unset, Route: f.route}
	for _, one := range f.set {
		member, text, ok := strings.Cut(one, "=")
		if !ok {
			return e, cli.Exit(cli.Usage, errors.New("--set takes member=value, as amount=49.00"))
		}
		if e.Set == nil {
			e.Set = map[string]string{}
		}
		e.Set[member] = text
	}
	if f.payload == "" {
		return e, nil
	}
	from := stdin
	if f.payload != "-" {
		file, err := os.Open(f.payload)
		if err != nil {
			return e, cli.Exit(cli.Usage, fmt.Errorf("read the corrected job: %w", err))
		}
		defer func() { _ = file.Close() }() // nothing was written
		from = file
	}
	var err error
	if e.Payload, err = io.ReadAll(io.LimitReader(from, job.MaxBytes+1)); err != nil {
		return e, fmt.Errorf("read the corrected job: %w", err)
	}
	return e, nil
}

type deadCorrectRow struct {
	changeRow

	NewKey   string `json:"new_key"`
	OldKey   string `json:"old_key,omitempty"`
	Closed   bool   `json:"old_key_closed"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
	Changed  string `json:"changed"`
}

func (s *session) deadCorrect() *cobra.Command {
	var c *change
	f := &correction{}
	command := &cobra.Command{
		Use:   "correct SEQUENCE",
		Short: "Make a new operation, under a new key, in place of a dead letter",
		Long: "A payload is never changed and replayed. A correction is a new withdrawal with a new key, linked to the letter, made once, and always agreed to\n" +
			"by another person, whom `paidonce proposals show` tells for each member that changes what it was and what it would be. The new key is made of the\n" +
			"letter and of what is asked for: whoever has the same correction can see by --dry-run that it has the same key. The old key is closed: it\n" +
			"becomes an operation that is cancelled from its beginning, so that the job is not paid as well when its source sends it again. A letter\n" +
			"without a readable key has nothing to close: tell its source before you correct it. One withdrawal is corrected once, however many letters it\n" +
			"has; and not at all when it is older than the last recovery of the ledger and may have been sent. What was interrupted goes on when the same\n" +
			"is asked for again, without another approval.\n" +
			"Names and accounts belong into a file or standard input (--payload), since others may see the arguments of a program.",
		Example: "  paidonce dead correct 17 --set amount=49.00 --reason 'ticket 812'\n" +
			"  paidonce dead correct 17 --payload corrected.json --reason 'ticket 812'\n" +
			"  paidonce dead correct 17 --route gbp-fps --reason 'the old route is gone'",
		Args: exactly(1, "one sequence, as `paidonce dead list` prints it"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			sequence, err := sequenceOf(args[0])
			if err != nil {
				return err
			}
			if err := c.complete(); err != nil {
				return err
			}
			edit, err := f.edit(s.stdin)
			if err != nil {
				return err
			}
			return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error { return s.correctDead(ctx, desk, d, c, sequence, edit) })
		}),
	}
	c = s.deskFlags(command)
	flags := command.Flags()
	flags.StringArrayVar(&f.set, "set", nil, "one member of the job, as amount=49.00, reference=... or metadata.ticket=...; repeatable")
	flags.StringSliceVar(&f.unset, "unset", nil, "members of the job to leave out")
	flags.StringVar(&f.payload, "payload", "", "file with the whole corrected job; - reads standard input")
	flags.StringVar(&f.route, "route", "", "another route than the letter's")
	return command
}

func (s *session) correctDead(ctx context.Context, desk *desk, d *deadDesk, c *change, sequence uint64, edit dead.Edit) error {
	act, err := d.Correct(ctx, sequence, edit)
	var fault *job.Fault
	if errors.As(err, &fault) {
		return cli.Exit(cli.Usage, fmt.Errorf("the corrected job is none: %w", err))
	}
	if err != nil {
		return err
	}
	done, err := desk.Do(ctx, c.request(desk.by, act))
	d.bar.end()
	if err != nil && done.AuditID == 0 && !errors.Is(err, operate.ErrWaiting) {
		return err
	}
	row := deadCorrectRow{changeRow: s.changeRowOf(desk, act, done, err), NewKey: act.Key().String(), Closed: act.Closed, Amount: act.Amount().Decimal(), Currency: act.Amount().Currency, Changed: strings.Join(act.Changed(), ", ")}
	if key := act.OldKey(); key != uuid.Nil {
		row.OldKey = key.String()
	}
	return errors.Join(cli.One(s.printer(), cli.Table[deadCorrectRow]{
		Columns: []string{"act", "target", "outcome", "by", "audit", "proposal", "needs", "new_key", "old_key", "old_key_closed", "amount", "currency", "changed"},
		Cells: func(r deadCorrectRow) []string {
			return []string{r.Act, r.Target, r.Outcome, r.By, s.number(r.Audit), r.Proposal, r.Needs, r.NewKey, r.OldKey, fmt.Sprint(r.Closed), r.Amount,
				r.Currency, r.Changed}
		},
		Rows: []deadCorrectRow{row},
	}), err)
}

func (s *session) deadReindex() *cobra.Command {
	var c *change
	command := &cobra.Command{
		Use:   "reindex",
		Short: "Read the index of dead letters from their stream again",
		Long: "Reads every dead letter again and drops from the index what the stream does not have. What was done to letters is not in the index and is kept.\n" +
			"The commands bring the index up to date by themselves: this is for an index that is not believed.",
		Example: "  paidonce dead reindex --reason 'the database was restored'",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if err := c.complete(); err != nil {
				return err
			}
			return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error {
				act := d.Rebuild()
				if err := s.ask(ctx, desk, c, act); err != nil {
					return err
				}
				d.bar.end()
				if c.dryRun {
					return nil
				}
				s.say("%d letters, %d gone from the stream", act.Found.Letters, act.Found.Gone)
				return nil
			})
		}),
	}
	c = s.deskFlags(command)
	return command
}
