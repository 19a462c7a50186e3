package crash

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// buildOther builds this package as it was in another commit: what it re-executes as a worker is the worker of that version. A clone without
// that history cannot, and says so. "" builds nothing.
func buildOther(t *testing.T, commit string) string {
	t.Helper()
	if commit == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
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
