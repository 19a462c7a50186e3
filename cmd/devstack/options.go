package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
)

// options are what the command line says.
type options struct {
	once  bool
	jobs  int
	kills int
	seed  uint64
	calm  bool
	dir   string
	pgBin string
	ports ports
	wait  time.Duration
}

// ports are fixed ports for those who want them; 0 = any free one.
type ports struct {
	postgres, nats, health, gateway, bank, control int
}

var errUsage = errors.New("usage")

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := pflag.NewFlagSet("devstack", pflag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.once, "once", false, "exit after the proof, with 0 only if it held")
	flags.IntVar(&o.jobs, "jobs", 1000, "operation keys to publish; repeated, conflicting and malformed messages come on top")
	flags.IntVar(&o.kills, "kills", 2, "how often the worker is killed by SIGKILL on the way")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the mix, of the kills and of the bank's faults")
	flags.BoolVar(&o.calm, "calm", false, "a bank without faults")
	flags.StringVar(&o.dir, "dir", "", "where everything is kept, and found again by the next run (default: a temporary directory, removed at the end)")
	flags.StringVar(&o.pgBin, "pg-bin", "", "folder of Postgres's server binaries (default: PAIDONCE_PG_BIN, PATH, the usual folders, a download)")
	flags.IntVar(&o.ports.postgres, "postgres-port", 0, "port of Postgres (default: a free one)")
	flags.IntVar(&o.ports.nats, "nats-port", 0, "port of NATS (default: a free one)")
	flags.IntVar(&o.ports.health, "health-port", 0, "port of the worker's health and metrics (default: a free one)")
	flags.IntVar(&o.ports.gateway, "gateway-port", 0, "port of the HTTP API (default: a free one)")
	flags.IntVar(&o.ports.bank, "bank-port", 0, "port of the bank (default: a free one)")
	flags.IntVar(&o.ports.control, "control-port", 0, "port of the bank's control API (default: a free one)")
	flags.DurationVar(&o.wait, "wait", 0, "longest wait for the end (default: 3 minutes and 20 ms for each job)")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(out, "devstack runs Postgres, JetStream, a hostile bank, a worker and a gateway here, and tries to have something paid twice.\n\n"+
			"Usage:\n  devstack [flags]\n\nExamples:\n  go run ./cmd/devstack --once\n  go run ./cmd/devstack --once --jobs 20000 --kills 50 --seed 7\n  go run ./cmd/devstack --dir .devstack\n\nFlags:\n%s",
			flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%w: devstack takes no arguments", errUsage)
	case o.jobs < 1 || o.jobs > 1_000_000:
		return o, fmt.Errorf("%w: --jobs must be between 1 and 1000000", errUsage)
	case o.kills < 0:
		return o, fmt.Errorf("%w: --kills must not be negative", errUsage)
	}
	if o.wait == 0 {
		o.wait = 3*time.Minute + time.Duration(o.jobs)*20*time.Millisecond
	}
	return o, nil
}
