package app

import (
	"os"
	"runtime/debug"

	"github.com/paidonce/paidonce/cmd/internal/config"
)

const (
	gcPercent     = 400
	memoryAtRest  = 96 << 20
	memoryPerCall = 48 << 10
)

// setMemory lets the garbage of a few calls stand, as long as memory stays within what the calls in flight may take. Each collection
// reads the stacks of all calls in flight, so that at the runtime's own pace, which only looks at the heap, a worker with many calls and
// a small heap spends a sixth of its time on it. Whoever sets GOGC or GOMEMLIMIT is not contradicted.
func setMemory(c *config.Config) {
	if os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	calls := 0
	for _, p := range c.Partners {
		calls += p.MaxInFlight
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryAtRest + int64(calls)*memoryPerCall)
}
