package stack

import (
	"os/exec"
	"syscall"
)

// tieToParent has the kernel signal the child when the thread that started it ends. Postgres is asked to shut down at once
// (immediate), because a killed postmaster would leave its backends to notice by themselves; all others are killed.
func tieToParent(cmd *exec.Cmd, immediate bool) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig != 0 {
		return
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if immediate {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	}
}
