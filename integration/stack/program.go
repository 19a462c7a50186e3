package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Program is the main function of a program that measures: a child of itself if it was started as one, else run, until it is interrupted.
func Program(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	if RunChild() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that the end of the process does not do
	}
}

// Say tells whoever watches a long measurement how far it is.
func Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
