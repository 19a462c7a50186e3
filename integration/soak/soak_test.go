package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/bankclient/reference"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/stack"
)

func TestSchedule_SameSeedSameFaults(t *testing.T) {
	const rare = 6 * time.Minute
	first, again, other := newSchedule(7, time.Hour, rare), newSchedule(7, time.Hour, rare), newSchedule(8, time.Hour, rare)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Error("the schedule is not that of its seed")
	}
	// The beginning of a longer run is a shorter one.
	if short := newSchedule(7, time.Minute, rare); !slices.Equal(short, first[:len(short)]) || len(short) < 20 {
		t.Errorf("a minute has %d faults of its own", len(short))
	}
}

func TestSchedule_EveryKindAndOneAtATime(t *testing.T) {
	seen := map[string]bool{}
	until := map[target]time.Duration{}
	failovers := 0
	for _, f := range newSchedule(1, 2*time.Hour, 6*time.Minute) {
		if f.at < until[f.target] {
			t.Errorf("%s is struck while it is struck", f)
		}
		until[f.target] = f.at + f.lasts
		if f.kind == "failover" {
			failovers++
		}
		seen[string(f.target)+" "+f.kind] = true
		if f.kind == "freeze" && f.lasts > 4*time.Second {
			t.Errorf("%s: longer than the odd profile declares", f)
		}
	}
	if failovers != 20 {
		t.Errorf("%d failovers in 2 hours, want one every 6 minutes", failovers)
	}
	for on, kinds := range arsenal() {
		for _, k := range kinds {
			if !seen[string(on)+" "+k.kind] {
				t.Errorf("%s never meets %s", on, k.kind)
			}
		}
	}
}

// TestOddProfile_IsValidAndTrue: what the odd adapter declares is what its bank does.
func TestOddProfile_IsValidAndTrue(t *testing.T) {
	p := oddAdapter{reference.New()}.Profile()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	bank := oddIdempotency()
	if p.KeyWindow != time.Duration(bank.WindowMS)*time.Millisecond || p.SerialisesDuplicates || bank.InFlight != "both_execute" {
		t.Errorf("%+v, %+v", p, bank)
	}
	if slowest := longestBankDelay + time.Second + 2*longestDelay; p.LatestArrival < slowest {
		t.Errorf("a request may arrive after %s, declared is %s", slowest, p.LatestArrival)
	}
	if p.VisibilityBound < longestBankDelay {
		t.Error("the bank hides for longer than declared")
	}
	deaf := deafAdapter{reference.New()}.Profile()
	if err := deaf.Validate(); err != nil {
		t.Fatal(err)
	}
	if deaf.HonoursKeys || !deafIdempotency().Ignored || !deaf.LookUpConsistent || deaf.LatestArrival != p.LatestArrival || deaf.VisibilityBound != p.VisibilityBound {
		t.Errorf("%+v, %+v", deaf, deafIdempotency())
	}
	if prompt := (promptAdapter{reference.New()}).Profile(); prompt.LatestArrival != p.LatestArrival || prompt.VisibilityBound != p.VisibilityBound {
		t.Errorf("the same network and the same delays, and %+v", prompt)
	}
	b := banksim.New(banksim.Options{})
	if weights := honest(b.Profile()).Weights; len(weights) == 0 || weights["delivered_twice"]+weights["delivered_twice_last"] != 0 {
		t.Error("requests reach the odd bank twice at the same time")
	}
}

// TestMain lets the children of soak be this test program.
func TestMain(m *testing.M) {
	if arena.RunChild(prepare) {
		os.Exit(0)
	}
	stack.Alone()
	os.Exit(m.Run())
}

var lastLine = regexp.MustCompile(`^soak: ops=\d+ deliveries=\d+ faults=\d+ takeovers=\d+ fenced=\d+ twice=0 lost=0 unproved=0\n$`)

// TestRun_AFewSecondsHold: with a failover among them, which no shorter run than some minutes has otherwise. What is in doubt after it takes the rest.
func TestRun_AFewSecondsHold(t *testing.T) {
	var out, log bytes.Buffer
	args := []string{"--minutes", "0.05", "--seed", "3", "--rate", "10", "--failovers", "4s", "--wrong-clocks=false"}
	if err := run(t.Context(), args, &out, &log); err != nil || !lastLine.MatchString(out.String()) {
		t.Errorf("%v\n%s\n%s", err, &log, &out)
	}
}

func TestRun_PrintsItsSchedule(t *testing.T) {
	var out, log bytes.Buffer
	if err := run(t.Context(), []string{"--schedule", "--minutes", "1", "--seed", "3"}, &out, &log); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != len(newSchedule(3, time.Minute, 6*time.Minute)) {
		t.Errorf("%d lines", lines)
	}
}

func TestResult_HoldsOnlyWithoutABreach(t *testing.T) {
	if !(result{ops: 1, fenced: 3}).held() {
		t.Error("a fenced write is no breach")
	}
	for _, r := range []result{{twice: 1}, {lost: 1}, {unproved: 1}} {
		if r.held() {
			t.Errorf("%s held", r)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {pflag.ErrHelp, 0}, {errNotHeld, 1}, {errors.New("x"), 1}, {fmt.Errorf("%w: x", errUsage), 2}, {context.Canceled, 130},
	} {
		if code := exitCode(test.err, new(bytes.Buffer)); code != test.code {
			t.Errorf("%v: %d, want %d", test.err, code, test.code)
		}
	}
}
