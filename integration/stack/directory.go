package stack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	dirPrefix = "paidonce-stack-"
	lockName  = "lock"
)

// Directory is a private directory, locked by the process that uses it.
type Directory struct {
	path      string
	temporary bool
	lock      *os.File
}

// OpenDirectory locks path, or a new temporary directory if path is "". Temporary directories of processes that were killed are
// removed on the way.
func OpenDirectory(path string) (*Directory, error) {
	d := &Directory{path: path}
	if path == "" {
		removeAbandoned()
		made, err := os.MkdirTemp("", dirPrefix)
		if err != nil {
			return nil, fmt.Errorf("make a private directory: %w", err)
		}
		d.path, d.temporary = made, true
	}
	absolute, err := filepath.Abs(d.path)
	if err != nil {
		return nil, fmt.Errorf("find the private directory: %w", err)
	}
	d.path = absolute
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
	}
	if d.lock, err = lock(filepath.Join(d.path, lockName)); err != nil {
		return nil, fmt.Errorf("lock %s (another process may be using it): %w", d.path, err)
	}
	return d, nil
}

// Path is the directory's absolute path.
func (d *Directory) Path() string { return d.path }

// Close releases the directory, and removes it if it is a temporary one.
func (d *Directory) Close() error {
	err := d.lock.Close()
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.path))
	}
	return err
}

// removeAbandoned removes the temporary directories of processes that were killed: nobody holds their lock. A directory is
// given a minute to be locked by whoever has just made it. Best effort: what cannot be removed stays.
func removeAbandoned() {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*")) // the pattern is constant and well formed
	for _, path := range found {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		held, err := lock(filepath.Join(path, lockName))
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = held.Close()
	}
}

// copyTree copies a directory that holds plain files only, keeping modes, and gives the copy to id.
func copyTree(from, to string, id identity) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return id.own(target)
		}
		if err := copyFile(path, target); err != nil {
			return err
		}
		return id.own(target)
	})
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read from
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// FreePort finds a free port below the range from which systems take the ports of outgoing connections, so that nobody
// takes it while the server that owns it is being restarted. No other process is given the same one.
func FreePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("release a probed port: %w", err)
		}
		if reserve(port) {
			return port, nil
		}
	}
	return 0, errors.New("find a free port between 20000 and 32000")
}
