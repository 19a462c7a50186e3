// Command wrongclock runs workers whose whole process believes that it is hours earlier or later: with them the libraries, TLS and whatever
// else asks for the time. No kernel gives one process another wall clock, so the workers are built with a package time of their own, in which
// Now adds what an environment variable says. That builds everything that imports it anew (a minute or two, once).
//
//	go run ./integration/outage/wrongclock
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/paidonce/paidonce/integration/arena"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "wrongclock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "wrongclock-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays does no harm
	overlay, err := arena.WrongClockOverlay(ctx, dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-tags", "wrongclock", "-count", "1", "-v", "-run", "TestClock_", "./integration/outage")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the tests: %w", err)
	}
	return nil
}
