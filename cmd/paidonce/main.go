// Command paidonce authorizes withdrawals at partner banks, each at most once.
//
// One binary holds the processes that run in production and the commands of the people who run them. Standard output carries
// data only; the exit codes are listed in the README and in cmd/internal/cli.
package main

import (
	"context"
	"os"
)

func main() {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	os.Exit(int(run(ctx, world{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, lookup: os.LookupEnv})))
}
