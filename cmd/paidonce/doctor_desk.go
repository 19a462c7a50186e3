package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/ledger"
)

// desk tells what stands still, and whether anybody could change that.
func (d *doctor) desk(ctx context.Context, l *ledger.Ledger) {
	pauses, err := l.Pauses(ctx)
	if err != nil {
		return // the database's own findings say why
	}
	for _, p := range pauses {
		target := strings.TrimSpace(string(p.Scope) + " " + p.Name)
		d.judge(false, resultWarn, findingRow{Area: "ledger", Check: "paused: " + target, Wanted: "nothing paused", Found: fmt.Sprintf("%s, by %s since %s", p.Reason, p.By, cli.Time(p.At)),
			Advice: "find out why, then `paidonce resume " + target + " --reason ...`; see deploy/RUNBOOK.md"})
	}
	closures, err := l.Closures(ctx)
	if err != nil {
		return // an older database, or a role without the right: what is closed is told by the workers' logs as well
	}
	for _, c := range closures {
		d.judge(false, resultWarn, findingRow{Area: "ledger", Check: "closed: partner " + c.Partner, Wanted: "open", Found: closureWords(c) + " since " + cli.Time(c.Since),
			Advice: "call the partner: its answers come to nothing. The workers try again by themselves"})
	}
	if len(pauses)+len(closures) == 0 {
		d.judge(true, resultWarn, findingRow{Area: "ledger", Check: "paused", Found: "nothing"})
	}
}

func closureWords(c ledger.Closure) string {
	return fmt.Sprintf("breaker open at %d worker(s), which try again by themselves", c.Workers)
}
