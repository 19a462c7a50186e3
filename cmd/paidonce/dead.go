package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/worker/queue"
)

func (s *session) dead() *cobra.Command {
	return s.group("dead", "Look at dead letters: messages that could not become operations",
		"  paidonce dead list\n  paidonce dead show 17", s.deadList(), s.deadShow())
}

type deadRow struct {
	Sequence       uint64 `json:"sequence"`
	At             string `json:"at"`
	Reason         string `json:"reason"`
	Detail         string `json:"detail,omitempty"`
	Source         string `json:"source"`
	Route          string `json:"route"`
	Deliveries     int    `json:"deliveries"`
	StreamSequence uint64 `json:"stream_sequence"`
	FirstSeen      string `json:"first_seen,omitempty"`
	Bytes          int    `json:"bytes"`
	Payload        string `json:"payload,omitempty"` // only with --reveal
}

func deadRowOf(l queue.DeadLetter, reveal bool) deadRow {
	row := deadRow{
		Sequence: l.Sequence, At: cli.Time(l.At), Reason: string(l.Reason), Detail: l.Detail, Source: l.Source, Route: l.Route,
		Deliveries: l.Deliveries, StreamSequence: l.StreamSequence, FirstSeen: cli.Time(l.FirstSeen), Bytes: len(l.Payload),
	}
	if reveal {
		row.Payload = strings.ToValidUTF8(string(l.Payload), "\ufffd")
	}
	return row
}

func deadTable(rows ...deadRow) cli.Table[deadRow] {
	return cli.Table[deadRow]{
		Columns: []string{"sequence", "at", "reason", "detail", "source", "route", "deliveries", "stream_sequence", "first_seen", "bytes", "payload"},
		Cells: func(r deadRow) []string {
			return []string{fmt.Sprint(r.Sequence), r.At, r.Reason, r.Detail, r.Source, r.Route, fmt.Sprint(r.Deliveries),
				fmt.Sprint(r.StreamSequence), r.FirstSeen, fmt.Sprint(r.Bytes), r.Payload}
		},
		Rows: rows,
	}
}

// withDead runs body on the dead letters of the settings. Reading them consumes nothing.
func (s *session) withDead(ctx context.Context, body func(*queue.DeadLetters) error) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	nc, err := s.connect(ctx, c, queue.RoleOperator, "")
	if err != nil {
		return err
	}
	defer nc.Close()
	letters, err := queue.NewDeadLetters(nc)
	if err != nil {
		return err
	}
	return body(letters)
}

func (s *session) deadList() *cobra.Command {
	var filter queue.DeadFilter
	command := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters, the oldest first",
		Long:    "Lists dead letters where they are: nothing is consumed, and listing them twice shows the same.",
		Example: "  paidonce dead list\n  paidonce dead list --source wallet --from 18 --limit 50 -o json",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if filter.Limit < 1 {
				return cli.Exit(cli.Usage, errors.New("--limit must be at least 1"))
			}
			return s.withDead(ctx, func(letters *queue.DeadLetters) error { return s.listDead(ctx, letters, filter) })
		}),
	}
	flags := command.Flags()
	flags.StringVar(&filter.Source, "source", "", "only this source")
	flags.StringVar(&filter.Route, "route", "", "only this route")
	flags.Uint64Var(&filter.From, "from", 0, "from this sequence on")
	flags.IntVar(&filter.Limit, "limit", 100, "most letters to list")
	return command
}

func (s *session) listDead(ctx context.Context, letters *queue.DeadLetters, filter queue.DeadFilter) error {
	rows := []deadRow{}
	for letter, err := range letters.List(ctx, filter) {
		if err != nil {
			return err
		}
		rows = append(rows, deadRowOf(letter, false))
	}
	if len(rows) == filter.Limit {
		s.say("there may be more: --from %d", rows[len(rows)-1].Sequence+1)
	}
	table := deadTable(rows...)
	cells := table.Cells
	table.Columns = table.Columns[:len(table.Columns)-1] // the payload is for `dead show --reveal`
	table.Cells = func(r deadRow) []string { return cells(r)[:len(table.Columns)] }
	return cli.List(s.printer(), table)
}

func (s *session) deadShow() *cobra.Command {
	var reveal bool
	command := &cobra.Command{
		Use:     "show SEQUENCE",
		Short:   "Show one dead letter",
		Long:    "Shows one dead letter. Its payload may hold names and account numbers and is left out without --reveal.",
		Example: "  paidonce dead show 17\n  paidonce dead show 17 --reveal -o json",
		Args:    exactly(1, "one sequence, as `paidonce dead list` prints it"),
		RunE: s.do(func(ctx context.Context, args []string) error {
			sequence, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || sequence == 0 {
				return cli.Exit(cli.Usage, errors.New("a dead letter is named by its sequence, as `paidonce dead list` prints it"))
			}
			return s.withDead(ctx, func(letters *queue.DeadLetters) error {
				letter, err := letters.Show(ctx, sequence)
				if errors.Is(err, queue.ErrNoDeadLetter) {
					return cli.Exit(cli.NotFound, err)
				}
				if err != nil {
					return err
				}
				return cli.One(s.printer(), deadTable(deadRowOf(letter, reveal)))
			})
		}),
	}
	command.Flags().BoolVar(&reveal, "reveal", false, "show the payload, names and account numbers included")
	return command
}
