package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/go-json-experiment/json"
)

// childVariable makes a re-executed program a server instead of itself.
const childVariable = "PAIDONCE_STACK_NATS"

// NATSProcess is a JetStream server as a child process: what a crash is tried on.
type NATSProcess struct {
	options NATSOptions
	dir     *Directory
	process *Process
	stdin   io.Closer // the child ends when this does
	url     string
}

// StartNATSProcess starts a JetStream server by executing this program again; it needs Main or RunChild at its start.
func StartNATSProcess(options NATSOptions) (*NATSProcess, error) {
	dir, err := OpenDirectory(options.Dir)
	if err != nil {
		return nil, err
	}
	if options.Port == 0 {
		if options.Port, err = FreePort(); err != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
	options.Dir = dir.path
	n := &NATSProcess{options: options, dir: dir}
	if err := n.start(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return n, nil
}

func (n *NATSProcess) start() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	options, err := json.Marshal(n.options)
	if err != nil {
		return fmt.Errorf("write the options of nats: %w", err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"="+string(options))
	cmd.Stderr = os.Stderr
	OwnGroup(cmd)
	if n.stdin, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	defer func() { _ = reader.Close() }() // only read from
	cmd.Stdout = writer
	n.process, err = StartProcess(cmd)
	if err = errors.Join(err, writer.Close()); err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start nats: it ended: %w", n.process.Wait())
	}
	n.url = strings.TrimSpace(line)
	return nil
}

// URL is where clients connect; it stays the same over restarts.
func (n *NATSProcess) URL() string { return n.url }

// PID is the server's process id.
func (n *NATSProcess) PID() int { return n.process.PID() }

// Kill ends the server by SIGKILL.
func (n *NATSProcess) Kill() {
	n.process.Kill()
	_ = n.stdin.Close() // the reading end is gone
}

// Restart starts the server again on the same store and port; a running one is killed first.
func (n *NATSProcess) Restart() error {
	n.Kill()
	return n.start()
}

// Shutdown ends the server in order and removes its directory if that was a temporary one.
func (n *NATSProcess) Shutdown() error {
	_ = n.stdin.Close() // fails only if Kill has closed it
	<-n.process.Done()
	return n.dir.Close()
}

// RunChild runs this process as a server if it was started as one, and says whether it did. A program that uses
// StartNATSProcess calls it first of all.
func RunChild() bool {
	text, ok := os.LookupEnv(childVariable)
	if !ok {
		return false
	}
	var options NATSOptions
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		fmt.Fprintln(os.Stderr, "read the options of nats:", err)
		os.Exit(2)
	}
	ns, err := runNATS(options, options.Dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(ns.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or dies
	ns.Shutdown()
	ns.WaitForShutdown()
	return true
}
