// Command eventload measures how events get out of the outbox, on this machine, with everything durable: a private Postgres with fsync on and a
// JetStream server that syncs every write, each in its own process, and `paidonce worker`, whose event relay is what is measured.
//
//	go run ./integration/eventload
//	go run ./integration/eventload --backlog 0 --operations 100000   # only the second part, shorter
//
// First the catch-up after an outage of the broker: the outbox fills while no relay runs, then a worker starts on an empty stream, and every
// event must come out once, under its own id, in the order of its key. Then the outbox's size while many operations pass through it, with
// autovacuum as the migrations set it: what is published is deleted, and the table must not grow with the number of operations.
//
// The outbox is filled by SQL, with the rows that the ledger writes: the worker's own speed is not what is measured here.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/integration/stack"
)

func main() { stack.Program("eventload", run) }

// options are what the command line says.
type options struct {
	backlog    int
	operations int
	ahead      int
	held       bool
}

func run(ctx context.Context, args []string, _ io.Writer) (err error) {
	var o options
	flags := pflag.NewFlagSet("eventload", pflag.ContinueOnError)
	flags.IntVar(&o.backlog, "backlog", 200_000, "events that wait when the broker comes back; 0 = leave that part out")
	flags.IntVar(&o.operations, "operations", 1_000_000, "operations, of two events each, that pass through the outbox; 0 = leave that part out")
	flags.IntVar(&o.ahead, "ahead", 20_000, "events that may wait at most while they pass")
	flags.BoolVar(&o.held, "held-snapshot", false, "hold a snapshot open during the catch-up, as a backup does: nothing that was deleted can be cleaned up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = l.close(err) }()
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("load of the machine before: %s", load)
	if o.backlog > 0 {
		if err := l.catchUp(ctx, o.backlog/2, o.held); err != nil {
			return fmt.Errorf("catch up: %w", err)
		}
	}
	if o.operations > 0 {
		if err := l.pass(ctx, o.operations, o.ahead); err != nil {
			return fmt.Errorf("pass through: %w", err)
		}
	}
	load, _ = os.ReadFile("/proc/loadavg")
	fmt.Printf("load of the machine after: %s", load)
	return nil
}
