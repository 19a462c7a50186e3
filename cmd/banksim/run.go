package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2

	// stopGrace is longer than any delay of the random hostility, so that held answers still go out.
	stopGrace = 5 * time.Second
)

type flags struct {
	listen, control string
	state           string
	options         banksim.Options
}

func parse(args []string, out io.Writer) (flags, error) {
	var f flags
	set := pflag.NewFlagSet("banksim", pflag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&f.listen, "listen", "127.0.0.1:9099", "address of the reference API")
	set.StringVar(&f.control, "control", "127.0.0.1:9098", "address of the control API")
	set.Uint64Var(&f.options.Seed, "seed", 1, "seed of the fault schedule")
	set.BoolVar(&f.options.Calm, "calm", false, "no random hostility; faults set through the control API still work")
	set.Float64Var(&f.options.Hostility, "hostility", 0.25, "share of requests that meet a fault")
	set.DurationVar(&f.options.Latency, "latency", 0, "how long the bank works on every create")
	set.DurationVar(&f.options.MaxDelay, "max-delay", 3*time.Second, "bound of every delay of the random hostility")
	set.Float64Var(&f.options.TimeScale, "time-scale", 1, "factor of every delay of the random hostility")
	set.StringVar(&f.state, "state", "", "append-only file from which a restarted simulator remembers (default none)")
	set.Usage = func() {
		_, _ = fmt.Fprintf(out, "banksim is a simulated, hostile bank for tests. NEVER FOR PRODUCTION.\n\nUsage:\n  banksim [flags]\n\nExample:\n  banksim --seed 7 --hostility 0.5\n\nFlags:\n%s", set.FlagUsages())
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, errors.New("banksim takes no arguments")
	}
	f.options.Calm = f.options.Calm || f.options.Hostility == 0 // in Options, 0 asks for the default
	return f, f.options.Validate()
}

func run(ctx context.Context, args []string, out io.Writer) int {
	f, err := parse(args, out)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintln(out, "banksim:", err)
		return exitUsage
	}
	if err := serve(ctx, f, out); err != nil {
		_, _ = fmt.Fprintln(out, "banksim:", err)
		return exitFailure
	}
	return exitOK
}

func serve(ctx context.Context, f flags, out io.Writer) error {
	bank := banksim.New(f.options)
	if f.state != "" {
		if err := bank.Remember(f.state); err != nil {
			return err
		}
	}
	api, err := net.Listen("tcp", f.listen)
	if err != nil {
		return errors.Join(err, bank.Close())
	}
	control, err := net.Listen("tcp", f.control)
	if err != nil {
		return errors.Join(err, api.Close(), bank.Close())
	}
	banner(out, f, api.Addr(), control.Addr())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return served(bank.Serve(api)) })
	group.Go(func() error { return served(bank.ServeControl(control)) })
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		return bank.Shutdown(grace)
	})
	return group.Wait()
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func banner(out io.Writer, f flags, api, control net.Addr) {
	mood := fmt.Sprintf("hostile (seed %d, share %g)", f.options.Seed, f.options.Hostility)
	if f.options.Calm {
		mood = "calm"
	}
	_, _ = fmt.Fprintf(out, "banksim: SIMULATED BANK, NOT FOR PRODUCTION: it moves no money, and it lies on purpose\n"+
		"banksim: %s; reference API on http://%s, control API on http://%s (GET /faults)\n", mood, api, control)
}
