package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

// childVariable makes this program one of its own children.
const childVariable = "PAIDONCE_BENCH_CHILD"

// childSettings are what a child is told on its standard input, in one line.
type childSettings struct {
	DatabaseURL string `json:"database_url"`
	NATSURL     string `json:"nats_url"`
	BankURL     string `json:"bank_url"`
	Consumer    string `json:"consumer"`
	LatencyMS   int64  `json:"latency_ms"`
	Jobs        int    `json:"jobs"`
	InFlight    int    `json:"in_flight"`
	Batched     bool   `json:"batched"`
}

// childReady is what a child answers on its standard output once it works.
type childReady struct {
	URL        string `json:"url,omitempty"`
	ControlURL string `json:"control_url,omitempty"`
}

// role is what a child does: it calls ready once it works, and works until ctx ends.
type role func(ctx context.Context, s childSettings, ready func(childReady) error) error

func roles(name string) role {
	switch name {
	case "bank":
		return runBank
	case nameNaive, nameNaiveBatch:
		return runNaive
	case nameRiver:
		return runRiver
	case nameDBOS:
		return runDBOS
	case limitConsume:
		return runLimitConsume
	case limitExchange:
		return runLimitExchange
	case limitLedger:
		return runLimitLedger
	}
	return nil
}

// runChild runs this process as a child if it was started as one, and says whether it did. It ends when its standard input does.
func runChild(ctx context.Context) (bool, error) {
	name, ok := os.LookupEnv(childVariable)
	if !ok {
		return false, nil
	}
	do := roles(name)
	if do == nil {
		return true, fmt.Errorf("%s names no child: %q", childVariable, name)
	}
	reader := bufio.NewReader(os.Stdin)
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return true, fmt.Errorf("read settings: %w", err)
	}
	var s childSettings
	if err := json.Unmarshal(line, &s); err != nil {
		return true, fmt.Errorf("read settings: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // owned by the process: a read of standard input cannot be interrupted
		_, _ = io.Copy(io.Discard, reader)
		cancel()
	}()
	err = do(ctx, s, func(r childReady) error {
		text, err := json.Marshal(r)
		if err == nil {
			_, err = fmt.Printf("%s\n", text)
		}
		return err
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return true, err
}

// child is a child process.
type child struct {
	*stack.Process
	childReady
	stdin io.Closer
}

// startChild executes this program again in a role, and returns when it works.
func startChild(name string, s childSettings) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	settings, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write settings of %s: %w", name, err)
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+name), os.Stderr
	stack.OwnGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = reader.Close() }() // only read from
	cmd.Stdout = writer
	process, err := stack.StartProcess(cmd)
	if err = errors.Join(err, writer.Close()); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{Process: process, stdin: stdin}
	if _, err = fmt.Fprintf(stdin, "%s\n", settings); err == nil {
		var line []byte
		if line, err = bufio.NewReader(reader).ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &c.childReady)
		}
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// stop asks the child to end, and kills it if it does not.
func (c *child) stop() {
	c.Signal(syscall.SIGCONT)
	if c.stdin != nil {
		_ = c.stdin.Close() // the other end may be gone
	}
	c.Signal(syscall.SIGTERM)
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		c.Kill()
	}
}

func (c *child) alive() error {
	select {
	case <-c.Done():
		return fmt.Errorf("the worker ended by itself: %w", c.Wait())
	default:
		return nil
	}
}

// openPool opens the ledger's database for a contender that writes to it by itself.
func openPool(ctx context.Context, s childSettings, conns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, config)
}

// jobsOf is the queue for whoever takes its jobs without paidonce.
func jobsOf(ctx context.Context, nc *nats.Conn) (jetstream.Consumer, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return js.Consumer(ctx, queue.StreamJobs, queue.ConsumerName(route))
}
