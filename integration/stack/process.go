package stack

import (
	"os"
	"os/exec"
	"runtime"
)

// Process is a child process that ends with this one.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done
}

// StartProcess starts cmd so that it is killed when this process dies (on Linux; elsewhere the child has to notice by itself).
//
// The kernel ties a child to the thread that started it, not to the process. So one thread, owned by the goroutine that
// also waits for the child, does both.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	tieToParent(cmd, false)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) run(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, after the child did
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	close(p.done)
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child's end and says how it ended, as exec.Cmd.Wait does.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal; to a child that has ended it does nothing.
func (p *Process) Signal(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig) // the only error is that the child has ended
}

// Kill ends the child by SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	p.Signal(os.Kill)
	<-p.done
}
