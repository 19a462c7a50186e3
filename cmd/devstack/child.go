package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/integration/stack"
)

// childVariable makes this program one of its own children: the bank, the worker or the gateway.
const childVariable = "PAIDONCE_DEVSTACK_CHILD"

const (
	childBank    = "bank"
	childWorker  = "worker"
	childGateway = "gateway"
)

// runChild runs this process as a child if it was started as one, and says whether it did.
func runChild(ctx context.Context, args []string) (bool, error) {
	switch name := os.Getenv(childVariable); name {
	case "":
		return false, nil
	case childBank:
		return true, runBank(ctx, os.Stdin, os.Stdout)
	case childWorker:
		return true, runProduct(ctx, args, app.RunWorker)
	case childGateway:
		return true, runProduct(ctx, args, runGateway)
	default:
		return true, fmt.Errorf("%s names no child of devstack", childVariable)
	}
}

// child is a child process.
type child struct {
	process *stack.Process
	stdin   io.WriteCloser
	stdout  io.ReadCloser
}

// startChild executes this program again, as the named child. Everything it logs goes to log.
func startChild(name string, args []string, log io.Writer) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	cmd.Stderr = log
	stack.OwnGroup(cmd) // Ctrl-C is for us; children are told in their order
	c := &child{}
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	cmd.Stdout, c.stdout = writer, reader
	c.process, err = stack.StartProcess(cmd)
	if err = errors.Join(err, writer.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start the %s: %w", name, err), reader.Close())
	}
	return c, nil
}

// kill ends the child by SIGKILL.
func (c *child) kill() {
	c.process.Kill()
	c.close()
}

// stop asks the child to end, and kills it if it does not within the grace.
func (c *child) stop(grace time.Duration) {
	_ = c.stdin.Close()
	c.process.Signal(syscall.SIGTERM)
	select {
	case <-c.process.Done():
	case <-time.After(grace):
		c.process.Kill()
	}
	c.close()
}

func (c *child) close() {
	_ = c.stdin.Close()  // the other end is gone
	_ = c.stdout.Close() // only read from
}
