package stack

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// FindPostgres finds the directory with Postgres's server binaries. hint (or else PAIDONCE_PG_BIN) is taken at its word: if it
// does not hold them, that is an error. Without one: PATH, pg_config, the usual folders of the system (newest first), and at
// last a download into the user's cache, where the network allows.
func FindPostgres(hint string) (binDir string, err error) {
	hint = cmp.Or(hint, os.Getenv("PAIDONCE_PG_BIN"))
	if hint != "" {
		for _, dir := range []string{hint, filepath.Join(hint, "bin")} {
			if holdsServer(dir) {
				return filepath.Abs(dir)
			}
		}
		return "", fmt.Errorf("find postgres and initdb in %s, as told", hint)
	}
	for _, dir := range slices.Concat(fromPath(), fromPgConfig(), usualFolders("/")) {
		if holdsServer(dir) {
			return dir, nil
		}
	}
	dir, err := fetchPostgres()
	if err != nil {
		return "", fmt.Errorf("find postgres (server binaries): none in PATH or the usual folders, and the download did not work (%w). %s, or name its folder by PAIDONCE_PG_BIN",
			err, installLine(runtime.GOOS))
	}
	return dir, nil
}

func holdsServer(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func fromPath() []string {
	path, err := exec.LookPath("postgres")
	if err != nil {
		return nil
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return []string{filepath.Dir(resolved), filepath.Dir(path)}
	}
	return []string{filepath.Dir(path)}
}

func fromPgConfig() []string {
	out, err := exec.Command("pg_config", "--bindir").Output()
	if err != nil {
		return nil
	}
	return []string{strings.TrimSpace(string(out))}
}

// usualFolders lists where packages put the server below root, the newest version first.
func usualFolders(root string) []string {
	var dirs []string
	for _, pattern := range []string{
		"usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
		"usr/pgsql-*/bin",                                        // Red Hat family, packages of postgresql.org
		"usr/lib/postgresql*/bin",                                // SUSE
		"usr/libexec/postgresql*",                                // Alpine
		"opt/homebrew/opt/postgresql@*/bin",                      // Homebrew, Apple silicon
		"usr/local/opt/postgresql@*/bin",                         // Homebrew, Intel
		"home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",         // Homebrew, Linux
		"Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
		"usr/local/pgsql/bin",                                    // built from source
	} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are constant and well formed
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// versionIn is the major version that a folder's path names; the last number counts.
func versionIn(path string) int {
	numbers := regexp.MustCompile(`[0-9]+`).FindAllString(path, -1)
	if len(numbers) == 0 {
		return 0
	}
	version, err := strconv.Atoi(numbers[len(numbers)-1])
	if err != nil {
		return 0
	}
	return version
}

func installLine(system string) string {
	switch system {
	case "darwin":
		return "Install it: brew install postgresql@18"
	case "windows":
		return "Install it: winget install PostgreSQL.PostgreSQL.18"
	case "linux":
		return "Install it: apt-get install postgresql (Debian, Ubuntu), dnf install postgresql-server (Red Hat, Fedora), apk add postgresql (Alpine)"
	}
	return "Install PostgreSQL's server"
}

var errNoCache = errors.New("no folder to keep it in")
