package arena

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/stack"
)

// childVariable makes a re-executed program a worker instead of itself.
const childVariable = "PAIDONCE_ARENA_WORKER"

// Order is what a child is told.
type Order struct {
	Config string `json:"config"`          // file
	Detail string `json:"detail,omitzero"` // for the program's own Prepare

	Program string   `json:"-"` // to execute; default: this one
	Env     []string `json:"-"` // of the child besides
}

// Prepare makes what stands around the parts of a child's worker. say writes a line that the parent hears even when the child is killed right
// after it.
type Prepare func(detail string, say func(line string)) (underfire.Around, error)

// RunChild runs this process as a worker, or as a server of stack, if it was started as one, and says whether it did.
func RunChild(prepare Prepare) bool {
	if stack.RunChild() {
		return true
	}
	text, ok := os.LookupEnv(childVariable)
	if !ok {
		return false
	}
	if err := runWorker(text, prepare); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	return true
}

func runWorker(text string, prepare Prepare) error {
	var order Order
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // owned by the process: a read of standard input cannot be interrupted
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var mu sync.Mutex
	around, err := prepare(order.Detail, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = os.Stdout.WriteString(line + "\n") // one write, no buffer: a SIGKILL after it takes nothing back
	})
	if err != nil {
		return err
	}
	return underfire.RunWorker(ctx, order.Config, zerolog.New(os.Stderr).With().Timestamp().Logger(), around)
}

// Worker is a worker's process as its parent sees it.
type Worker struct {
	process *stack.Process
	stdin   io.WriteCloser
	stdout  *os.File
	hearing sync.WaitGroup
}

// StartWorker executes this program again as a worker, or another one that knows the same orders. hear gets each line that it says; it is called from one goroutine.
func StartWorker(order Order, log io.Writer, hear func(line string)) (*Worker, error) {
	if order.Program == "" {
		this, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		order.Program = this
	}
	text, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("write the order: %w", err)
	}
	cmd := exec.Command(order.Program)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text), "GOMAXPROCS=2")
	cmd.Env = append(cmd.Env, order.Env...)
	cmd.Stderr = log
	stack.OwnGroup(cmd)
	w := &Worker{}
	if w.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	cmd.Stdout, w.stdout = writer, reader
	w.process, err = stack.StartProcess(cmd)
	if err = errors.Join(err, writer.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start a worker: %w", err), reader.Close())
	}
	w.hearing.Go(func() {
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			hear(lines.Text())
		}
	})
	return w, nil
}

// Done is closed when the worker has ended.
func (w *Worker) Done() <-chan struct{} { return w.process.Done() }

// Kill ends it by SIGKILL.
func (w *Worker) Kill() {
	w.process.Kill()
	w.end()
}

// Freeze stops it where it is (SIGSTOP) until Thaw.
func (w *Worker) Freeze() { w.process.Signal(syscall.SIGSTOP) }

// Thaw lets it go on (SIGCONT).
func (w *Worker) Thaw() { w.process.Signal(syscall.SIGCONT) }

// Terminate asks it to stop (SIGTERM) and does not wait.
func (w *Worker) Terminate() { w.process.Signal(syscall.SIGTERM) }

// Wait waits for its end and says how it ended.
func (w *Worker) Wait() error {
	err := w.process.Wait()
	w.end()
	return err
}

// Stop asks it to stop and kills it when the grace is over; then, and when it ended otherwise than in order, that is an error.
func (w *Worker) Stop(grace time.Duration) error {
	w.Thaw()
	w.Terminate()
	select {
	case <-w.process.Done():
		return w.Wait()
	case <-time.After(grace):
		w.Kill()
		return fmt.Errorf("the worker was still there after %s", grace)
	}
}

// Killed says whether an error of Wait means SIGKILL.
func Killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (w *Worker) end() {
	_ = w.stdin.Close() // the other end is gone
	w.hearing.Wait()
	_ = w.stdout.Close() // only read from
}
