// Command paidonce authorizes withdrawals at partner banks, each at most once.
//
// One binary holds the processes that run in production and the commands of the people who run them. Standard output carries
// data only; the exit codes are listed in the README and in cmd/internal/cli.
package main

import (
	"context"
	"os"
	"strings"
)

// names gives the names of what stands in an environment.
func names(environment []string) []string {
	found := make([]string, 0, len(environment))
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		found = append(found, name)
	}
	return found
}

func main() {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	os.Exit(int(run(ctx, world{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, lookup: os.LookupEnv, names: names(os.Environ())})))
}
