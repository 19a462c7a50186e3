//go:build !linux

package stack

import "os/exec"

// tieToParent does nothing where the kernel has no such tie: children that re-execute this program end when their standard
// input does, Postgres when Stop is called.
func tieToParent(*exec.Cmd, bool) {}
