//go:build unix

package stack

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// reserve keeps a port for this process among all that use FreePort: a port that was found free is taken only when its server starts, and
// tests of several packages look for ports at the same time. The lock ends with the process; a folder that cannot be used reserves nothing.
func reserve(port int) bool {
	dir := filepath.Join(os.TempDir(), "paidonce-ports")
	if err := os.Mkdir(dir, 0o777); err == nil {
		_ = os.Chmod(dir, 0o777) // for every user of this machine; without it the others reserve nothing
	}
	lock, err := openLock(filepath.Join(dir, strconv.Itoa(port)))
	if err != nil {
		return true
	}
	if err := syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = syscall.Close(lock)
		return false
	}
	return true // lock stays open on purpose
}
