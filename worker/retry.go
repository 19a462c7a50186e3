package worker

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// schedule says how long to wait. It decides nothing else: what is done after the wait is Next's to say, from what is on
// record then.
type schedule struct {
	initial, longest time.Duration
	multiplier       float64
	jitter           float64
	lookUps          []time.Duration
}

func newSchedule(o Options, lookUps []time.Duration) schedule {
	return schedule{initial: o.RetryInitial, longest: o.RetryMax, multiplier: o.RetryMultiplier, jitter: o.Jitter, lookUps: lookUps}
}

// retry is the delay after the n-th try (0 = the first) that moved nothing. The back-off library is used as a pure
// sequence: no randomisation (it would also shorten delays), no elapsed time (it would give up).
func (s schedule) retry(n int) time.Duration {
	b := backoff.ExponentialBackOff{InitialInterval: s.initial, RandomizationFactor: 0, Multiplier: s.multiplier,
		MaxInterval: s.longest, MaxElapsedTime: 0, Stop: backoff.Stop, Clock: backoff.SystemClock}
	b.Reset()
	delay := b.NextBackOff()
	for range min(n, 64) {
		delay = b.NextBackOff()
	}
	return delay
}

// lookUp is the delay before the look-up that follows n earlier ones; the last delay repeats.
func (s schedule) lookUp(n int) time.Duration { return s.lookUps[min(n, len(s.lookUps)-1)] }

// spread makes a delay longer by a random share of it, never shorter: what was told to thousands at once does not come
// back at once, and never earlier than the partner asked. r is in [0,1).
func (s schedule) spread(delay time.Duration, r float64) time.Duration {
	return delay + time.Duration(float64(delay)*s.jitter*r)
}
