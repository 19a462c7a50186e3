package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/sizing"
)

// unfinished looks at what the sweep has to drive: whose nobody sweeps, and how old the oldest is.
func (d *doctor) unfinished(ctx context.Context) {
	l, err := app.OpenLedger(ctx, d.config)
	if err != nil {
		return // the schema's row says so
	}
	defer l.Close()
	waiting, err := l.Waiting(ctx)
	if err != nil {
		d.judge(false, resultWarn, findingRow{Area: "ledger", Check: "unfinished operations", Found: err.Error(), Advice: "mend the rows above first"})
		return
	}
	oldest := time.Duration(0)
	for _, w := range waiting {
		oldest = max(oldest, w.Oldest)
		if d.config.Partners[w.Partner] == nil {
			d.judge(false, resultWarn, findingRow{
				Area: "ledger", Check: "swept by nobody", Wanted: "partner " + w.Partner + " configured",
				Found:  fmt.Sprintf("%d unfinished operations, %d of them parked", w.Unfinished, w.Parked),
				Advice: "configure the partner in some worker until they are finished: nobody looks them up or sends them, " + w.Partner + " has no sweep",
			})
		}
	}
	d.judge(oldest <= d.oldest, resultWarn, findingRow{
		Area: "ledger", Check: "oldest unfinished", Wanted: "at most " + d.oldest.String(), Found: oldest.Round(time.Second).String(),
		Advice: "look with `paidonce ops list --state open,claimed`: a paused or dead partner, or no worker",
	})
	d.desk(ctx, l)
}

// sizeWords explains the words of --size.
func sizeWords() string {
	var lines []string
	for _, word := range sizing.Words() {
		lines = append(lines, fmt.Sprintf("  %-13s %s", word[0], word[1]))
	}
	return strings.Join(lines, "\n")
}

// size prints what a load needs.
func (s *session) size(words []string) error {
	demand, err := sizing.Parse(words)
	if err != nil {
		return cli.Exit(cli.Usage, fmt.Errorf("--size: %w", err))
	}
	c, err := s.load()
	if err != nil {
		return err
	}
	machine := sizing.Machine{}
	if files, known := openFiles(); known {
		machine.OpenFiles = files
	}
	lines := sizing.Lines(demand, c, machine)
	err = cli.List(s.printer(), cli.Table[sizing.Line]{
		Columns: []string{"area", "what", "needed", "configured", "result", "why"},
		Cells: func(l sizing.Line) []string {
			return []string{l.Area, l.What, l.Needed, l.Configured, l.Result, l.Why}
		},
		Rows: lines,
	})
	advice := map[string]bool{}
	for _, l := range lines {
		if l.Advice != "" {
			advice[l.Area+", "+l.What+": "+l.Advice] = true
		}
	}
	for _, one := range slices.Sorted(maps.Keys(advice)) {
		s.say("warning: %s", one)
	}
	return err
}
