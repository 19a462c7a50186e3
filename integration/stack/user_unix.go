//go:build unix

package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// identity is the user that Postgres runs as; zero = this process's own.
type identity struct {
	drop     bool
	uid, gid int
}

// postgresUser chooses the user: ourselves, unless we are root, whom Postgres refuses. Then the first of the person behind
// sudo, postgres, nobody and the ordinary accounts that can really run the binary.
func postgresUser(binDir string) (identity, error) {
	if os.Geteuid() != 0 {
		return identity{}, nil
	}
	var last error
	for _, candidate := range candidates() {
		cmd := exec.Command(filepath.Join(binDir, "postgres"), "--version")
		cmd.Dir = "/"
		candidate.apply(cmd)
		if last = cmd.Run(); last == nil {
			return candidate, nil
		}
	}
	return identity{}, fmt.Errorf("run postgres as an unprivileged user: no account can execute %s (%w); start as an ordinary user instead",
		filepath.Join(binDir, "postgres"), errors.Join(last))
}

func candidates() []identity {
	var found []identity
	add := func(uid, gid string) {
		u, errU := strconv.Atoi(uid)
		g, errG := strconv.Atoi(gid)
		if errU == nil && errG == nil && u > 0 {
			found = append(found, identity{drop: true, uid: u, gid: g})
		}
	}
	add(os.Getenv("SUDO_UID"), os.Getenv("SUDO_GID"))
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			add(u.Uid, u.Gid)
		}
	}
	accounts, _ := os.ReadFile("/etc/passwd") // absent in the smallest containers: then the numbers below remain
	for line := range strings.Lines(string(accounts)) {
		if field := strings.Split(line, ":"); len(field) > 3 {
			if uid, err := strconv.Atoi(field[2]); err == nil && uid >= 1000 {
				add(field[2], field[3])
			}
		}
	}
	add("65534", "65534")
	add("1000", "1000")
	return found
}

func (id identity) apply(cmd *exec.Cmd) {
	if !id.drop {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
}

func (id identity) own(path string) error {
	if !id.drop {
		return nil
	}
	return os.Lchown(path, id.uid, id.gid)
}

// temporary says whether a directory lies where temporary ones are made: package os, and package testing where GOTMPDIR is set.
func temporary(dir string) bool {
	for _, root := range []string{os.TempDir(), os.Getenv("GOTMPDIR")} {
		if root != "" && strings.HasPrefix(dir+"/", filepath.Clean(root)+"/") {
			return true
		}
	}
	return false
}

// reach makes dir reachable for the user: directories inside the temporary directory are opened for passing through, others
// are not ours to change.
func (id identity) reach(dir string) error {
	if !id.drop {
		return nil
	}
	for parent := filepath.Dir(dir); parent != filepath.Dir(parent); parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return fmt.Errorf("look at a parent of the data directory: %w", err)
		}
		mode := info.Mode()
		if owner, ok := info.Sys().(*syscall.Stat_t); mode&0o001 != 0 || (ok && int(owner.Uid) == id.uid && mode&0o100 != 0) {
			continue
		}
		if !temporary(parent) {
			return fmt.Errorf("the unprivileged user that runs postgres cannot pass through %s: choose another directory, or start as an ordinary user", parent)
		}
		if err := os.Chmod(parent, mode.Perm()|0o011); err != nil {
			return fmt.Errorf("open the way to the data directory: %w", err)
		}
	}
	return nil
}

// lock takes the exclusive lock of a directory; it is released when the file is closed or this process dies.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// OwnGroup keeps the terminal's Ctrl-C away from a child that we stop ourselves.
func OwnGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}
