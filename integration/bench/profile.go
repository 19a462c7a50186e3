package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/pprof/profile"

	cost "github.com/paidonce/paidonce/integration/stack/usage"
)

// profileSeconds is how long profiles take: shorter than a drain of the default size, so that nothing idle is in them.
const profileSeconds = 4

// pprofSetting makes the worker serve profiles.
func (b *bench) pprofSetting() string {
	if b.o.profileDir == "" {
		return ""
	}
	return ", pprof: true"
}

// profile starts both profiles, and returns what waits for them. Without perf, or the right to use it, Postgres has none.
func (b *bench) profile(ctx context.Context, worker *child) (func() error, error) {
	if err := os.MkdirAll(b.o.profileDir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of profiles: %w", err)
	}
	perf := b.perf(ctx)
	done := make(chan error, 1)
	go func() { done <- b.fetchProfile(ctx, worker.URL) }()
	return func() error { return errors.Join(<-done, perf()) }, nil
}

// fetchProfile adds a profile of the worker to those of earlier rounds and writes their sum, without the path of the program: that file guides
// the compiler (deploy/worker.pgo).
func (b *bench) fetchProfile(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", url, profileSeconds), nil)
	if err != nil {
		return fmt.Errorf("profile the worker: %w", err)
	}
	response, err := plainClient().Do(request)
	if err != nil {
		return fmt.Errorf("profile the worker: %w", err)
	}
	data, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("profile the worker: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile the worker: status %d", response.StatusCode)
	}
	sampled, err := profile.ParseData(data)
	if err != nil {
		return fmt.Errorf("profile the worker: %w", err)
	}
	for _, m := range sampled.Mapping {
		m.File = ""
	}
	b.profiles = append(b.profiles, sampled)
	sum, err := profile.Merge(b.profiles)
	if err != nil {
		return fmt.Errorf("add the profiles of the worker: %w", err)
	}
	var text bytes.Buffer
	if err := sum.Write(&text); err != nil {
		return fmt.Errorf("write the profile of the worker: %w", err)
	}
	return os.WriteFile(filepath.Join(b.o.profileDir, "worker.pprof"), text.Bytes(), 0o644)
}

// perf samples the server's processes by its software clock, which guests have too, and leaves a report of functions.
func (b *bench) perf(ctx context.Context) (wait func() error) {
	data := filepath.Join(b.o.profileDir, "postgres.perf")
	record := exec.CommandContext(ctx, "perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-g", "-o", data, "-p", b.serverPIDs(), "--", "sleep", strconv.Itoa(profileSeconds))
	record.Cancel = func() error { return record.Process.Signal(syscall.SIGINT) }
	var said strings.Builder
	record.Stderr = &said
	if err := record.Start(); err != nil {
		b.say("no profile of postgres: %v", err)
		return func() error { return nil }
	}
	return func() error {
		if err := record.Wait(); err != nil {
			b.say("no profile of postgres: %v: %s", err, said.String())
			return nil
		}
		for name, args := range map[string][]string{
			"postgres-self.txt":  {"--no-children", "-g", "none", "--sort", "sym"},
			"postgres-below.txt": {"--children", "-g", "none", "--sort", "sym"},
		} {
			text, err := exec.CommandContext(ctx, "perf", append([]string{"report", "-i", data, "--stdio", "--percent-limit", "0.3"}, args...)...).Output()
			if err != nil {
				return fmt.Errorf("read the profile of postgres: %w", err)
			}
			if err := os.WriteFile(filepath.Join(b.o.profileDir, name), text, 0o644); err != nil {
				return fmt.Errorf("write the profile of postgres: %w", err)
			}
		}
		return nil
	}
}

// serverPIDs are the server and its processes now.
func (b *bench) serverPIDs() string {
	root := b.postgres.PID()
	pids := []string{strconv.Itoa(root)}
	processes, _ := os.ReadDir("/proc") // at worst the profile shows less
	for _, entry := range processes {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if _, parent, err := cost.Process(pid, false); err == nil && parent == root {
				pids = append(pids, entry.Name())
			}
		}
	}
	return strings.Join(pids, ",")
}
