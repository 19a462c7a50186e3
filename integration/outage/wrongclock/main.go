// Command wrongclock runs workers whose whole process believes that it is hours earlier or later: with them the libraries, TLS and whatever
// else asks for the time. No kernel gives one process another wall clock, so the workers are built with a package time of their own, in which
// Now adds what an environment variable says. That builds everything that imports it anew (a minute or two, once).
//
//	go run ./integration/outage/wrongclock
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "wrongclock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "wrongclock-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays does no harm
	overlay, err := writeOverlay(ctx, dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-tags", "wrongclock", "-count", "1", "-v", "-run", "TestClock_", "./integration/outage")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the tests: %w", err)
	}
	return nil
}

// writeOverlay writes another time.go, and where it belongs.
func writeOverlay(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("read the standard library: %w", err)
	}
	changed, err := wrong(string(text))
	if err != nil {
		return "", err
	}
	names, err := json.Marshal(map[string]map[string]string{"Replace": {original: filepath.Join(dir, "time.go")}})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	for path, content := range map[string]string{filepath.Join(dir, "time.go"): changed, overlay: string(names)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
	}
	return overlay, nil
}

// wrong makes Now add so many seconds as the environment says. The monotonic clock, and with it every timer, stays as it is.
func wrong(text string) (string, error) {
	for _, change := range [][2]string{
		{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += wrongSeconds\n"},
		{"\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"syscall\"\n"},
	} {
		if strings.Count(text, change[0]) != 1 {
			return "", fmt.Errorf("change the standard library: this version of Go has no %q in time.go", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return text + `
var wrongSeconds = func() (by int64) {
	text, _ := syscall.Getenv("PAIDONCE_TEST_WRONG_SECONDS")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			by = by*10 + int64(c-'0')
		}
	}
	return sign * by
}()
`, nil
}
