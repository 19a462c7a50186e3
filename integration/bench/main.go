package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/integration/stack"
)

func main() { stack.Program("bench", run) }

// options are the flags.
type options struct {
	rounds, jobs, warmup int
	contenders           []string
	parts                []string
	workers              []int
	syncAlways           bool
	inFlight             int
	seconds              int
	jsonFile             string
	profileDir           string
	pgBin                string
	against              string
}

// The parts of a run.
const (
	partDrain     = "drain"     // throughput, CPU, WAL and commits of every contender; P1, P2
	partLimit     = "limit"     // the computed limit
	partLatency   = "latency"   // enqueue to record at 500/s and 5,000/s; P3
	partSlow      = "slow"      // banks that take 50 ms and 500 ms; P5
	partIsolation = "isolation" // one of two partners times out; P7
)

func parse(args []string) (options, error) {
	var o options
	set := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	set.IntVar(&o.rounds, "rounds", 3, "interleaved rounds; figures are medians over them")
	set.IntVar(&o.jobs, "jobs", 60000, "jobs of paidonce in one round; slower contenders get a share of them, so that all run about equally long")
	set.IntVar(&o.warmup, "warmup", 3000, "jobs before each measurement")
	set.StringSliceVar(&o.contenders, "contenders", []string{namePaidonce, nameNaive, nameRiver, nameDBOS}, "who takes part; also: "+nameNaiveBatch)
	set.StringSliceVar(&o.parts, "parts", []string{partDrain, partLimit, partLatency, partSlow, partIsolation}, "what is measured")
	set.IntSliceVar(&o.workers, "workers", []int{1, 2, 4}, "worker processes of the part scale, which is measured only when it is named")
	set.BoolVar(&o.syncAlways, "sync-always", false, "NATS syncs every write, as in production; default is its own default, every two minutes")
	set.IntVar(&o.inFlight, "in-flight", 1024, "calls in flight of paidonce at a bank without latency")
	set.IntVar(&o.seconds, "seconds", 10, "length of each latency measurement")
	set.StringVar(&o.jsonFile, "json", "", "also write every measurement to this file, one JSON object per line")
	set.StringVar(&o.profileDir, "profile", "", "write CPU profiles of paidonce's drain to this directory: pprof of the worker (cp it to deploy/worker.pgo), perf of Postgres")
	set.StringVar(&o.against, "against", "", "another build of the worker, which takes part too: what a change brought is the difference within one run")
	set.StringVar(&o.pgBin, "pg-bin", "", "server binaries of Postgres; default: found")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	for _, name := range o.contenders {
		if !slices.Contains([]string{namePaidonce, nameNaive, nameNaiveBatch, nameRiver, nameDBOS}, name) {
			return o, fmt.Errorf("contender %q is not known", name)
		}
	}
	if slices.ContainsFunc(o.workers, func(n int) bool { return n < 1 }) {
		return o, errors.New("there must be at least one worker")
	}
	if o.rounds < 1 || o.jobs < 100 || o.warmup < 1 || o.seconds < 1 || o.inFlight < 1 || set.NArg() > 0 {
		return o, errors.New("rounds, warmup, seconds and in-flight must be positive, jobs at least 100, and there are no arguments")
	}
	if o.against != "" {
		o.contenders = append(o.contenders, nameAgainst)
	}
	return o, nil
}

// run runs this process as a child if it was started as one, else the whole benchmark.
func run(ctx context.Context, args []string, out io.Writer) error {
	if ran, err := runChild(ctx); ran {
		return err
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	r, err := newReport(o)
	if err != nil {
		return err
	}
	b, err := openBench(ctx, o, stack.Say)
	if err == nil {
		err = errors.Join(b.measure(ctx, r), b.close())
	}
	if err = errors.Join(err, r.close()); err != nil {
		return err
	}
	r.print(out)
	return nil
}

// measure runs the rounds. Within a round everybody has a turn, so that the drift of the machine meets all alike.
func (b *bench) measure(ctx context.Context, r *report) error {
	var drains, rest []func() error
	if b.has(partDrain) {
		for _, name := range b.o.contenders {
			drains = append(drains, func() error { return b.drainRound(ctx, r, name) })
		}
	}
	if b.has(partLimit) {
		drains = append(drains, func() error { return b.limitRound(ctx, r) })
	}
	if b.has(partLatency) {
		rest = append(rest, func() error { return b.latencyRound(ctx, r) })
	}
	if b.has(partSlow) {
		rest = append(rest, func() error { return b.slowRound(ctx, r) })
	}
	if b.has(partIsolation) {
		rest = append(rest, func() error { return b.isolationRound(ctx, r) })
	}
	if b.has(partScale) {
		rest = append(rest, func() error { return b.scaleRound(ctx, r) })
	}
	for round := range b.o.rounds {
		for i := range drains {
			// Another one begins each round: whoever comes after a heavy writer inherits its dirty pages.
			if err := drains[(i+round)%len(drains)](); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		for _, part := range rest {
			if err := part(); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		b.say("round %d of %d: %s", round+1, b.o.rounds, strings.TrimPrefix(r.last(), "bench: "))
	}
	return nil
}

func (b *bench) has(part string) bool { return slices.Contains(b.o.parts, part) }
