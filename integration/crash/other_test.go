package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// buildOther builds this package as it was in another commit: what it re-executes as a worker is the worker of that version. A clone without
// that history cannot, and says so. "" builds nothing; so does "auto" where there is no other version, and then the stand-in runs.
func buildOther(t *testing.T, commit string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if commit == "auto" {
		var err error
		if commit, err = pickOther(ctx); err != nil {
			t.Fatal(err)
		}
		said := "beside runs the worker of " + commit
		if commit == "" {
			said = "left out: the history of this clone has no other version of the worker that accepts this schema; its stand-in runs beside"
		}
		fmt.Println(said) // also where nobody asked for -v
	}
	if commit == "" {
		return ""
	}
	dir := t.TempDir()
	archive, program := filepath.Join(dir, "version.tar"), filepath.Join(dir, "crash.test")
	for _, step := range []struct {
		in   string
		args []string
	}{
		{filepath.Join("..", ".."), []string{"git", "archive", "--output", archive, commit}},
		{dir, []string{"tar", "-xf", archive}},
		{dir, []string{"go", "test", "-c", "-o", program, "./integration/crash"}},
	} {
		cmd := exec.CommandContext(ctx, step.args[0], step.args[1:]...) //nolint:gosec // a test's own arguments
		cmd.Dir = step.in
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the worker of %s: %v: %v\n%s", commit, step.args, err, out)
		}
	}
	return program
}

// How a program says for which schema it was written, and a schema which programs it bears.
const (
	saysVersion = `Current +int64 += ([0-9]+)`
	saysReach   = `SET oldest_program = ([0-9]+)`
)

// workers is what a worker is made of.
func workers() []string {
	return []string{"bankclient", "ledger", "worker", "cmd/internal/app", ":(exclude)*_test.go", ":(exclude)bankclient/banksim", ":(exclude)worker/workertest", ":(exclude)worker/internal/fake"}
}

// pickOther finds the newest commit of this clone's history whose worker differs from HEAD's and accepts HEAD's schema; "" = there is none.
func pickOther(ctx context.Context) (string, error) {
	commits, err := git(ctx, "rev-list", "--max-count=300", "--first-parent", "--skip=1", "HEAD")
	if err != nil {
		return "", err
	}
	reach, err := reach()
	if err != nil {
		return "", err
	}
	for commit := range strings.FieldsSeq(commits) {
		_, err := git(ctx, append([]string{"diff", "--quiet", commit, "HEAD", "--"}, workers()...)...)
		var exit *exec.ExitError
		switch {
		case err == nil:
			continue
		case !errors.As(err, &exit) || exit.ExitCode() != 1: // 1 = they differ
			return "", err
		}
		version, err := git(ctx, "show", commit+":migrations/migrations.go")
		if err != nil {
			return "", nil // older than the migrations
		}
		if written := greatest(regexp.MustCompile(saysVersion), version); written >= reach {
			return commit, nil
		}
		return "", nil // those before it are no newer
	}
	return "", nil
}

// reach is the least schema that a program must have been written for to run on HEAD's.
func reach() (int, error) {
	files, err := filepath.Glob(filepath.Join("..", "..", "migrations", "*.sql"))
	if err != nil {
		return 0, err
	}
	least := 7 // it is the schema that says so from here on
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		least = max(least, greatest(regexp.MustCompile(saysReach), string(text)))
	}
	return least, nil
}

// greatest is the greatest number that a pattern finds in a text.
func greatest(pattern *regexp.Regexp, text string) (most int) {
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(found[1]); err == nil {
			most = max(most, n)
		}
	}
	return most
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // a test's own arguments
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), err
}
