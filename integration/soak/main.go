package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/paidonce/paidonce/integration/arena"
)

func main() {
	if arena.RunChild(prepare) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}
