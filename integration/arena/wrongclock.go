package arena

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// wrongVariable says by how many seconds the clock of a process is wrong that was built with the overlay.
const wrongVariable = "PAIDONCE_TEST_WRONG_SECONDS"

// WrongBy is the environment of such a process.
func WrongBy(d time.Duration) string {
	return wrongVariable + "=" + strconv.Itoa(int(d/time.Second))
}

// BuildWrongClock builds a command whose process believes that it is another time, as the environment says: no kernel gives one process another
// wall clock. That builds everything that imports package time anew (a minute or two, once).
func BuildWrongClock(ctx context.Context, dir, command string) (program string, err error) {
	overlay, err := WrongClockOverlay(ctx, dir)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "wrongclock.exe") // the ending is of no use on some systems, and does no harm
	if out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, command).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s with another clock: %w: %s", command, err, out)
	}
	return program, nil
}

// WrongClockOverlay writes another time.go into a folder, and a file for `go build -overlay` that says where it belongs.
func WrongClockOverlay(ctx context.Context, dir string) (string, error) {
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
	text, _ := syscall.Getenv("` + wrongVariable + `")
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
