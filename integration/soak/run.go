package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/integration/proof"
)

var (
	errUsage   = errors.New("usage")
	errNotHeld = errors.New("it did not hold")
)

// options are what the command line says.
type options struct {
	minutes  float64
	seed     uint64
	rate     int
	schedule bool
	settle   time.Duration
	log      string

	failovers   time.Duration
	wrongClocks bool
}

func (o options) length() time.Duration { return time.Duration(o.minutes * float64(time.Minute)) }

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := pflag.NewFlagSet("soak", pflag.ContinueOnError)
	flags.SetOutput(out)
	flags.Float64Var(&o.minutes, "minutes", 1, "how long jobs come and faults strike; coming to rest takes up to a minute more")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the schedule of faults, the mix of jobs and the banks' hostility")
	flags.IntVar(&o.rate, "rate", 20, "operation keys per second")
	flags.BoolVar(&o.schedule, "schedule", false, "print the schedule of faults, and do nothing")
	flags.DurationVar(&o.settle, "settle", 3*time.Minute, "longest wait for the end")
	flags.StringVar(&o.log, "log", "", "file for a copy of the workers' log (default: none is kept)")
	flags.DurationVar(&o.failovers, "failovers", 6*time.Minute, "one failover to a standby each so long; 0 = none")
	flags.BoolVar(&o.wrongClocks, "wrong-clocks", true, "build workers whose wall clock is wrong (a minute or two, once); without, only their monotonic clock is")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(out, "soak attacks paidonce with random faults of all kinds, and proves that nothing was paid twice and nothing lost.\n\n"+
			"Usage:\n  soak [flags]\n\nExamples:\n  go run ./integration/soak --minutes 30 --seed 7\n\nFlags:\n%s", flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 || o.minutes <= 0 || o.rate < 1 || o.failovers < 0 {
		return o, fmt.Errorf("%w: --minutes and --rate must be positive, --failovers is not negative, and there are no arguments", errUsage)
	}
	return o, nil
}

// exitCode says how a run ended.
func exitCode(err error, out io.Writer) int {
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(out, "soak: interrupted")
		return 130
	}
	_, _ = fmt.Fprintln(out, "soak:", err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// result is the last line.
type result struct {
	ops, twice, lost, unproved            int
	deliveries, faults, takeovers, fenced int64
}

func (r result) String() string {
	return fmt.Sprintf("soak: ops=%d deliveries=%d faults=%d takeovers=%d fenced=%d twice=%d lost=%d unproved=%d",
		r.ops, r.deliveries, r.faults, r.takeovers, r.fenced, r.twice, r.lost, r.unproved)
}

func (r result) held() bool { return r.twice == 0 && r.lost == 0 && r.unproved == 0 }

// run does everything. The last line goes to out, everything else to log.
func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	o, err := parseOptions(args, log)
	if err != nil {
		return err
	}
	schedule := newSchedule(o.seed, o.length(), o.failovers)
	if o.schedule {
		for _, f := range schedule {
			_, _ = fmt.Fprintln(out, f)
		}
		return nil
	}
	say := newProgress(log)
	o.wrongClocks = o.wrongClocks && slices.ContainsFunc(schedule, func(f fault) bool { return f.kind == wrongClock })
	w, err := startWorld(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	say.line("ready: %d faults in %s, seed %d", len(schedule), o.length(), o.seed)
	r, err := soak(ctx, o, w, schedule, say)
	if err != nil || !r.held() {
		say.line("replay: go run ./integration/soak --minutes %g --rate %d --seed %d --failovers %s --wrong-clocks=%t", o.minutes, o.rate, o.seed, o.failovers, o.wrongClocks)
	}
	if o.log != "" {
		err = errors.Join(err, keep(w.log.Name(), o.log))
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, r)
	if !r.held() {
		return errNotHeld
	}
	return nil
}

func keep(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("keep the workers' log: %w", err)
	}
	return os.WriteFile(to, text, 0o600)
}

// soak loads and attacks, lets everything come to rest, and judges.
func soak(ctx context.Context, o options, w *world, schedule []fault, say *progress) (result, error) {
	var heard counters
	a := newAttacker(w, say)
	for i := range a.slots {
		a.slots[i] = &slot{config: w.config, log: w.log, hear: heard.hear, wrong: w.wrong}
		if err := a.slots[i].start(); err != nil {
			return result{}, err
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	background := newBackground(running, w, a, &heard, say)
	loaded := make(chan loadResult, 1)
	go func() { loaded <- load(running, o, w, say) }() // ends with running, and is waited for below
	a.attack(ctx, schedule)
	l := <-loaded
	if err := errors.Join(l.err, ctx.Err()); err != nil {
		stop()
		background.Wait()
		return result{}, errors.Join(err, a.end())
	}
	say.line("everything is published, %d faults have struck; let it come to rest", a.struck.Load())
	witnesses, err := rest(ctx, o, w, say)
	stop()
	background.Wait()
	if err != nil {
		return result{}, errors.Join(err, a.end())
	}
	defer witnesses.Close()
	r, err := judge(ctx, witnesses, l.all, a, say)
	r.deliveries, r.faults, r.takeovers, r.fenced = heard.deliveries.Load(), a.struck.Load(), heard.takeovers.Load(), heard.fenced.Load()
	return r, errors.Join(err, a.end())
}

// end kills what runs: the judgement has been made, or cannot be.
func (a *attacker) end() error {
	for _, s := range a.slots {
		if s != nil && s.worker != nil {
			s.worker.Thaw()
			s.worker.Kill()
		}
	}
	return nil
}

// judge asks everybody, and tells every breach.
func judge(ctx context.Context, witnesses *proof.Witnesses, all proof.Publication, a *attacker, say *progress) (result, error) {
	ev, err := witnesses.Collect(ctx, all)
	if err != nil {
		return result{}, err
	}
	all.Moved = a.moved.Load()
	j := proof.Judge(all, ev)
	say.line("%s", j)
	for _, violation := range j.Violations {
		say.line("BREACH: %s", violation)
	}
	if len(j.Unfinished) > 0 {
		lines, err := witnesses.LeftOver(ctx, 20)
		if err != nil {
			return result{}, err
		}
		say.line("%d operations are not finished:\n  %s", len(j.Unfinished), strings.Join(lines, "\n  "))
	}
	problems := a.found()
	return result{ops: j.Keys, twice: j.Twice, lost: j.Lost, unproved: len(j.Violations) + len(j.Unfinished) + len(problems)}, nil
}
