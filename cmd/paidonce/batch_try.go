package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/cli"
)

// triedRun is what a dry run of an act on a run prints: what the act would come to.
type triedRun struct {
	changeRow
	State   string `json:"state"` // of the run, as it is
	Hold    int    `json:"would_hold"`
	Back    int    `json:"would_come_back"`
	Enqueue int    `json:"would_enqueue"`
	Never   int    `json:"would_never_be_enqueued"`
	Cancel  int    `json:"would_be_cancelled"`
	Begun   int    `json:"begun_before"`
}

// triedOn begins what a dry run prints.
func triedOn(b batches, act string, run batch.Run) triedRun {
	return triedRun{changeRow: changeRow{Act: act, Target: run.RunKey, Outcome: "dry_run", By: b.by.Name}, State: string(run.State)}
}

func (s *session) showTried(row triedRun) error {
	s.say("dry run: nothing is changed")
	return cli.One(s.printer(), cli.Table[triedRun]{
		Columns: []string{"act", "target", "outcome", "by", "state", "needs", "would_hold", "would_come_back", "would_enqueue", "would_never_be_enqueued",
			"would_be_cancelled", "begun_before"},
		Cells: func(r triedRun) []string {
			cells := []string{r.Act, r.Target, r.Outcome, r.By, r.State, r.Needs}
			for _, n := range []int{r.Hold, r.Back, r.Enqueue, r.Never, r.Cancel, r.Begun} {
				cells = append(cells, fmt.Sprint(n))
			}
			return cells
		},
		Rows: []triedRun{row},
	})
}

// triedPause is what a pause would come to.
func triedPause(b batches, w batch.Walked) triedRun {
	row := triedOn(b, batch.ActPause, w.Run)
	row.Hold, row.Begun = w.Moved, w.Begun
	return row
}

// triedResume is what a resume would come to.
func triedResume(b batches, out batch.Submitted) triedRun {
	row := triedOn(b, batch.ActResume, out.Run)
	row.Back, row.Enqueue = out.Freed, out.Enqueues
	if out.Waits {
		row.Needs = "approval by another person"
	}
	return row
}

// triedCancel is what a cancellation would come to.
func triedCancel(b batches, e batch.Ended) triedRun {
	row := triedOn(b, batch.ActCancel, e.Run)
	row.Never, row.Cancel, row.Begun = e.Never, e.Cancelled, e.Left
	return row
}

// tryable gives a change its --dry-run.
func (c *change) tryable(command *cobra.Command) *change {
	command.Flags().BoolVar(&c.dryRun, "dry-run", false, "check everything by the same code, and change nothing")
	return c
}
