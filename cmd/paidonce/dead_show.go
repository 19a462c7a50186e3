package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
)

type deadShownRow struct {
	deadRow

	Fault   string       `json:"fault,omitempty"`       // why it is no job
	Job     []string     `json:"job,omitempty"`         // masked
	Class   string       `json:"class,omitempty"`       // not by the stream alone
	Refused string       `json:"refused_for,omitempty"` // by the settings, as they are
	Means   string       `json:"means,omitempty"`
	Letters int          `json:"letters_of_key,omitempty"`
	NewKey  string       `json:"new_key,omitempty"`
	Acts    []deadActRow `json:"acts,omitempty"`
	SHA256  string       `json:"sha256"`
	Payload string       `json:"payload,omitempty"` // only with --reveal
}

type deadActRow struct {
	At          string `json:"at"`
	Act         string `json:"act"`
	By          string `json:"by"`
	Plan        string `json:"plan,omitempty"`
	MessageID   string `json:"message_id,omitempty"`
	JobSequence uint64 `json:"job_sequence,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

func (r deadActRow) text() string {
	text := r.At + " " + r.Act + " by " + r.By
	for _, part := range []struct{ name, value string }{{"plan", r.Plan}, {"as", r.MessageID}, {"because", r.Reason}} {
		if part.value != "" {
			text += " " + part.name + " " + part.value
		}
	}
	if r.JobSequence > 0 {
		text += fmt.Sprint(" message ", r.JobSequence)
	}
	return text
}

func deadShownRowOf(shown *dead.Shown) deadShownRow {
	row := deadShownRow{deadRow: deadRowOf(&shown.Entry, shown.State), Fault: shown.Fault, Job: shown.Masked, Letters: shown.Letters,
		SHA256: fmt.Sprintf("%x", shown.SHA256)}
	row.Class, row.Refused = wordsOf(shown.Class)
	if shown.Class != "" {
		row.Means = shown.Class.Means()
	}
	if shown.NewKey != uuid.Nil {
		row.NewKey = shown.NewKey.String()
	}
	for _, a := range shown.Acts {
		act := deadActRow{At: cli.Time(a.At), Act: a.Act, By: a.By, JobSequence: a.JobSequence, Reason: a.Reason}
		if a.Plan != uuid.Nil {
			act.Plan = a.Plan.String()
		}
		if a.ReplayN > 0 {
			act.MessageID = fmt.Sprintf("%s:r%d", a.Key, a.ReplayN)
		}
		row.Acts = append(row.Acts, act)
	}
	return row
}

func (s *session) printShown(row deadShownRow) error {
	return cli.One(s.printer(), cli.Table[deadShownRow]{
		Columns: append(deadColumns(), "fault", "job", "class", "refused_for", "means", "letters_of_key", "new_key", "acts", "sha256", "payload"),
		Cells: func(r deadShownRow) []string {
			acts := make([]string, len(r.Acts))
			for i := range r.Acts {
				acts[i] = r.Acts[i].text()
			}
			letters := ""
			if r.Letters > 0 {
				letters = fmt.Sprint(r.Letters)
			}
			return append(r.cells(), r.Fault, strings.Join(r.Job, "; "), r.Class, r.Refused, r.Means, letters, r.NewKey, strings.Join(acts, "; "), r.SHA256, r.Payload)
		},
		Rows: []deadShownRow{row},
	})
}

func (s *session) deadShow() *cobra.Command {
	var c *change
	var reveal bool
	command := &cobra.Command{
		Use:   "show SEQUENCE",
		Short: "Show one dead letter, what it asks for, and what may be done with it",
		Long: "Shows one dead letter: what it asks for, without names and accounts, how it stands to the ledger, and what was done to it. With\n" +
			"--reveal its payload is shown as it is, which needs an operator and a reason and is kept in the audit log.",
		Example: "  paidonce dead show 17\n  paidonce dead show 17 --reveal --reason 'ticket 812' -o json",
		Args:    exactly(1, "one sequence, as `paidonce dead list` prints it"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			sequence, err := sequenceOf(args[0])
			if err != nil {
				return err
			}
			if !reveal {
				settings, err := s.load()
				if err != nil {
					return err
				}
				return s.showDead(ctx, settings, sequence)
			}
			if err := c.complete(); err != nil {
				return err
			}
			return s.atDeadDesk(ctx, func(desk *desk, d *deadDesk) error {
				shown, err := d.Show(ctx, sequence)
				if err != nil {
					return err
				}
				act := shown.Reveal()
				if _, err := desk.Do(ctx, c.request(desk.by, act)); err != nil {
					return err
				}
				row := deadShownRowOf(&shown)
				row.Payload = act.Payload
				return s.printShown(row)
			})
		}),
	}
	c = s.changeFlags(command)
	command.Flags().BoolVar(&reveal, "reveal", false, "show the payload, names and account numbers included")
	return command
}

func (s *session) showDead(ctx context.Context, settings *config.Config, sequence uint64) error {
	return s.withDead(ctx, settings, func(d *deadDesk) error {
		shown, err := aside(ctx, s, d, func() (dead.Shown, error) { return d.Show(ctx, sequence) },
			func() (dead.Shown, error) { return d.ShowStream(ctx, sequence) })
		if err != nil {
			return err
		}
		d.bar.end()
		return s.printShown(deadShownRowOf(&shown))
	})
}

// atDeadDesk opens both desks: of the operator, and of the dead letters.
func (s *session) atDeadDesk(ctx context.Context, body func(*desk, *deadDesk) error) error {
	return s.atDesk(ctx, func(desk *desk) error {
		return s.withDead(ctx, desk.settings, func(d *deadDesk) error {
			err := body(desk, d)
			switch {
			case errors.Is(err, dead.ErrNoPlan), errors.Is(err, dead.ErrNothing):
				return cli.Exit(cli.NotFound, err)
			case errors.Is(err, dead.ErrEdit):
				return cli.Exit(cli.Usage, err)
			}
			return err
		})
	})
}
