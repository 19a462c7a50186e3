// Command pooler runs a worker behind pgbouncer in transaction mode (case C11): no statement may rely on the session that another statement
// ran in. Server connections are cut and the pooler is restarted on the way; then integration/proof judges. It fails where pgbouncer
// is not installed, and says how to install it.
//
//	go run ./integration/outage/pooler
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
)

func main() {
	if arena.RunChild(func(string, func(string)) (underfire.Around, error) { return underfire.Around{}, nil }) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pooler:", err)
		os.Exit(1)
	}
}
