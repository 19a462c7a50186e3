//go:build !linux

package worker

import "time"

// boottime is the portable fallback. It uses the wall clock, because Go's monotonic clock stands still during a suspend
// on some systems; a step of the wall clock can then only shorten or lengthen one lease's deadline, and the fence still
// guards every write.
func boottime() time.Duration { return time.Duration(time.Now().UnixNano()) }
