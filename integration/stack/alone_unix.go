//go:build unix

package stack

import (
	"os"
	"path/filepath"
	"syscall"
)

// Alone waits until no other program that has called it runs, and keeps the others waiting until this one ends. Packages that kill and freeze
// processes against the clock call it before their tests: beside each other each of them would see what the other one does to the machine.
func Alone() {
	file, err := openLock(filepath.Join(os.TempDir(), "paidonce-alone"))
	if err != nil {
		return // such a folder keeps nobody waiting
	}
	for syscall.Flock(file, syscall.LOCK_EX) == syscall.EINTR { //nolint:errorlint // syscall gives the number itself
		continue
	}
	// The file stays open on purpose.
}

// openLock opens a file to be locked, of whichever user it is, and makes it if it is missing.
func openLock(path string) (int, error) {
	file, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		file, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_CREAT, 0o644)
	}
	return file, err
}
