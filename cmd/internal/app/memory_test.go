package app

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/config"
)

func TestSetMemory_LeavesWhatTheEnvironmentSays(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) })
	c := &config.Config{Partners: map[string]*config.Partner{"north": {MaxInFlight: 1024}, "south": {MaxInFlight: 1024}}}

	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv("GOGC", "")
		t.Setenv("GOMEMLIMIT", "")
		t.Setenv(name, "50")
		setMemory(c)
		if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
			t.Errorf("%s is set, and the limit became %d", name, got)
		}
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	setMemory(c)
	if got := debug.SetMemoryLimit(-1); got != 201_326_592 { // 96 MiB and 2048 x 48 KiB
		t.Errorf("limit %d", got)
	}
	if got := debug.SetGCPercent(100); got != 400 {
		t.Errorf("percent %d", got)
	}
}
