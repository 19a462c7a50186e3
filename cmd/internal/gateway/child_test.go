package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// childEnv makes this program a gateway: "<configuration file>|<gateway or both>|<step at which it kills itself>|<how often it passes first>".
const childEnv = "PAIDONCE_TEST_GATEWAY"

// The steps between a request and its published job, at each of which a gateway is killed.
const (
	beforeCommit  = "before commit"  // the order was read, nothing is recorded
	beforeAnswer  = "before answer"  // recorded, and the caller does not know
	beforePublish = "before publish" // the relay has read the job
	beforeMark    = "before mark"    // the broker has confirmed it, and the database does not know
	afterMark     = "after mark"
	never         = "never"
)

// runChild runs this process as a gateway if it was started as one.
func runChild() bool {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		return false
	}
	parts := strings.Split(text, "|")
	var pass int64
	if _, err := fmt.Sscan(parts[3], &pass); err != nil {
		panic(err)
	}
	k := &killer{step: parts[2]}
	k.left.Store(pass)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runGateway(ctx, parts[0], parts[1], k.options()); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
	return true
}

func runGateway(ctx context.Context, file, what string, opts app.GatewayOptions) error {
	c, err := config.Load(config.Input{File: file, Rules: app.Rules()})
	if err != nil {
		return err
	}
	log := zerolog.New(zerolog.SyncWriter(os.Stderr)).Level(zerolog.ErrorLevel)
	switch what {
	case "both":
		return app.RunBoth(ctx, c, log, opts)
	case "worker":
		c.Health.Listen = "" // the gateway has it
		return app.RunWorker(ctx, c, log)
	}
	return app.RunGateway(ctx, c, log, opts)
}

// killer ends the process by SIGKILL at a step.
type killer struct {
	step string
	left atomic.Int64 // how often the step is passed first
}

func (k *killer) at(step string) {
	if step == k.step && k.left.Add(-1) < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it arrives
	}
}

func (k *killer) options() app.GatewayOptions {
	return app.GatewayOptions{
		Patience: 100 * time.Millisecond,
		Intake:   func(i gateway.Intake) gateway.Intake { return deadlyIntake{i, k} },
		Store:    func(s queue.JobStore) queue.JobStore { return deadlyStore{s, k} },
	}
}

type deadlyIntake struct {
	gateway.Intake
	k *killer
}

func (d deadlyIntake) Do(ctx context.Context, o ledger.Order) (ledger.Acceptance, error) {
	d.k.at(beforeCommit)
	a, err := d.Intake.Do(ctx, o)
	d.k.at(beforeAnswer)
	return a, err
}

type deadlyStore struct {
	queue.JobStore
	k *killer
}

func (d deadlyStore) Stored(ctx context.Context, most int) ([]queue.StoredJob, error) {
	jobs, err := d.JobStore.Stored(ctx, most)
	if len(jobs) > 0 {
		d.k.at(beforePublish)
	}
	return jobs, err
}

func (d deadlyStore) MarkPublished(ctx context.Context, refs []int64) error {
	d.k.at(beforeMark)
	err := d.JobStore.MarkPublished(ctx, refs)
	d.k.at(afterMark)
	return err
}

// child is a gateway in a process of its own.
type child struct {
	cmd   *exec.Cmd
	ended chan error
	over  chan struct{}
}

func (c *child) lives() bool {
	select {
	case <-c.over:
		return false
	default:
		return true
	}
}

func startGatewayProcess(t *testing.T, file, what, step string, pass int) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%s|%d", childEnv, file, what, step, pass))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, ended: make(chan error, 1), over: make(chan struct{})}
	go func() { c.ended <- cmd.Wait(); close(c.over) }()
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// wasKilled waits for the end of a gateway that kills itself.
func (c *child) wasKilled(t *testing.T) {
	t.Helper()
	select {
	case err := <-c.ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the gateway ended with %v, want SIGKILL", err)
		}
	case <-time.After(2 * time.Minute): // a bound on hanging, not on speed
		t.Fatal("the gateway was not killed: the test proves nothing")
	}
}

// stop ends a gateway in order.
func (c *child) stop(t *testing.T) {
	t.Helper()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-c.ended:
		if err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Error("the gateway does not end")
	}
}
