// Package usage reads what processes cost, from /proc: a figure that hardly depends on what else the machine does, as time on the clock does.
package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, which Linux fixes for everything it shows to programs.
const ticksPerSecond = 100

// Process reads what a process used of the processor, and with ended also what its children did that have ended.
func Process(pid int, ended bool) (used time.Duration, parent int, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("read processor time: %w", err)
	}
	// The name, in parentheses, may hold anything; what follows it is fields 3 and up.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64) // the kernel writes numbers
		return n
	}
	ticks := number(14) + number(15)
	if ended {
		ticks += number(16) + number(17)
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, int(number(4)), nil
}

// Tree is that of a process, its children, and those of its children that have ended.
func Tree(root int) (time.Duration, error) {
	sum, _, err := Process(root, true)
	if err != nil {
		return 0, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, entry := range processes {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if used, parent, err := Process(pid, false); err == nil && parent == root {
			sum += used
		}
	}
	return sum, nil
}
