package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime reads CLOCK_BOOTTIME: monotonic, and unlike Go's own clock it runs on while the machine is suspended. A worker
// that slept in a suspended laptop or a paused guest must not believe that its lease is still young.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("CLOCK_BOOTTIME cannot be read: the kernel is older than 2.6.39")
	}
	return time.Duration(ts.Nano())
}
