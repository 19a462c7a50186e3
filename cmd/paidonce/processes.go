package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/cli"
)

func (s *session) worker() *cobra.Command {
	return &cobra.Command{
		Use:   "worker",
		Short: "Run consumer, sweep and event relay",
		Long: "Runs until SIGTERM or SIGINT, then finishes and records the calls in flight, within worker.shutdown_grace. A second signal\n" +
			"ends it at once; what was in flight is then in doubt, and the next worker asks the partner before it sends again.",
		Example: "  paidonce worker --config /etc/paidonce/paidonce.yaml\n" +
			"  paidonce worker --set worker.in_flight=256 --set health.listen=0.0.0.0:9470",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error { return s.runWorker(ctx) }),
	}
}

func (s *session) runWorker(ctx context.Context) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	return app.RunWorker(ctx, c, s.log(c))
}

// runProcesses is `run --with`, which puts several processes into one.
func (s *session) runProcesses() *cobra.Command {
	var with []string
	exist := []string{"worker", "gateway"}
	command := &cobra.Command{
		Use:     "run --with NAMES",
		Short:   "Run several processes in one",
		Example: "  paidonce run --with worker,gateway",
		Args:    noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error {
			if len(with) == 0 {
				return cli.Exit(cli.Usage, errors.New("run needs --with; there is: "+strings.Join(exist, ", ")))
			}
			for _, name := range with {
				if !slices.Contains(exist, name) {
					return cli.Exit(cli.Usage, fmt.Errorf("--with %s: there is no such process; there is: %s", name, strings.Join(exist, ", ")))
				}
			}
			switch {
			case !slices.Contains(with, "gateway"):
				return s.runWorker(ctx)
			case !slices.Contains(with, "worker"):
				return s.runGateway(ctx)
			}
			return s.runBoth(ctx)
		}),
	}
	command.Flags().StringSliceVar(&with, "with", nil, "processes, comma separated: "+strings.Join(exist, ", "))
	return command
}
