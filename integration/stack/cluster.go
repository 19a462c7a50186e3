package stack

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	dataName     = "data"
	passwordName = "password"
)

// makeCluster fills dir with data/ (a new database cluster that belongs to id) and password (of its superuser). initdb takes
// a second and more; so its result is kept in the user's cache, per server version, and copied.
func makeCluster(ctx context.Context, binDir, dir string, id identity) error {
	template, err := clusterTemplate(ctx, binDir, id)
	if err != nil {
		return err
	}
	if template == "" {
		return initdb(ctx, binDir, dir, id)
	}
	if err := copyFile(filepath.Join(template, passwordName), filepath.Join(dir, passwordName)); err != nil {
		return fmt.Errorf("copy the cluster template: %w", err)
	}
	if err := copyTree(filepath.Join(template, dataName), filepath.Join(dir, dataName), id); err != nil {
		return fmt.Errorf("copy the cluster template: %w", err)
	}
	return nil
}

// clusterTemplate is the cached template's folder, made if missing; "" if this user has no cache.
func clusterTemplate(ctx context.Context, binDir string, id identity) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil
	}
	version, err := exec.CommandContext(ctx, filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask postgres for its version: %w", err)
	}
	name := sha256.Sum256([]byte(binDir + "\n" + string(version)))
	template := filepath.Join(cache, "paidonce", "cluster-"+hex.EncodeToString(name[:8]))
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	if err := os.MkdirAll(filepath.Dir(template), 0o700); err != nil {
		return "", nil // a read-only home: do without
	}
	scratch, err := OpenDirectory("")
	if err != nil {
		return "", err
	}
	err = initdb(ctx, binDir, scratch.path, id)
	if err == nil {
		err = keepTemplate(scratch.path, template)
	}
	return template, errors.Join(err, scratch.Close())
}

// keepTemplate copies what initdb made beside its final place and renames it there, so that nobody sees half of it.
func keepTemplate(from, template string) error {
	half, err := os.MkdirTemp(filepath.Dir(template), "half-")
	if err != nil {
		return fmt.Errorf("keep the cluster template: %w", err)
	}
	defer func() { _ = os.RemoveAll(half) }() // gone already, if renamed
	if err := copyFile(filepath.Join(from, passwordName), filepath.Join(half, passwordName)); err != nil {
		return fmt.Errorf("keep the cluster template: %w", err)
	}
	if err := copyTree(filepath.Join(from, dataName), filepath.Join(half, dataName), identity{}); err != nil {
		return fmt.Errorf("keep the cluster template: %w", err)
	}
	if err := os.Rename(half, template); err != nil {
		if _, missing := os.Stat(template); missing != nil { // otherwise another process was quicker
			return fmt.Errorf("keep the cluster template: %w", err)
		}
	}
	return nil
}

// initdb makes a new cluster. Its superuser has a random password: on a machine with several users, loopback alone would let
// each of them become superuser, and by that run programs as ours.
func initdb(ctx context.Context, binDir, dir string, id identity) error {
	password := filepath.Join(dir, passwordName)
	if err := os.WriteFile(password, []byte(rand.Text()), 0o600); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	data := filepath.Join(dir, dataName)
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	for _, path := range []string{password, data} {
		if err := id.own(path); err != nil {
			return fmt.Errorf("give the data directory to postgres: %w", err)
		}
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return fmt.Errorf("open the way to the data directory: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "initdb"), "--pgdata="+data, "--username=postgres", "--pwfile="+password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env = dir, postgresEnvironment()
	id.apply(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(string(out), 5))
	}
	return nil
}

// postgresEnvironment keeps the caller's PG* variables and locale out of the server.
func postgresEnvironment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") && name != "LANG" && name != "TZ" && name != "HOME" {
			env = append(env, entry)
		}
	}
	return env
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
