package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// target is what a fault strikes. A target has one fault at a time.
type target string

// The targets.
const (
	worker0   target = "worker 0"
	worker1   target = "worker 1"
	database  target = "postgres"
	broker    target = "nats"
	toLedger  target = "network to postgres"
	toBroker  target = "network to nats"
	toBank    target = "network to the reference bank"
	toOddBank target = "network to the odd bank"
	toDeaf    target = "network to the deaf bank"
)

// fault is one entry of the schedule.
type fault struct {
	at     time.Duration
	target target
	kind   string
	lasts  time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%7.2fs  %-30s %-11s %.2fs", f.at.Seconds(), f.target, f.kind, f.lasts.Seconds())
}

// one draws one of several by the time of a fault, which the seed has drawn.
func one[T any](f fault, of []T) T { return of[int(f.at/time.Microsecond)%len(of)] }

// kindOf is one way to strike a target.
type kindOf struct {
	kind    string
	longest time.Duration
	weight  int
}

// longestFreeze keeps within what the odd profile declares: lease, latest arrival and visibility cover a request that was sent by a worker
// that had been frozen between its last look at the clock and the first byte.
const longestFreeze = 4 * time.Second

// longestBehind is for how long a standby falls behind before it is promoted: what is committed meanwhile is lost.
const longestBehind = 3 * time.Second

// failoverTakes is what making a standby and recovering the ledger take besides.
const failoverTakes = 8 * time.Second

// wrongClock puts a worker in the place of one that was killed whose clock is wrong by hours and jumps, until it is killed in its turn.
const wrongClock = "wrong_clock"

// longestDelay of a chunk on the network.
const longestDelay = 300 * time.Millisecond

func arsenal() map[target][]kindOf {
	worker := []kindOf{{"kill", 1500 * time.Millisecond, 4}, {"freeze", longestFreeze, 3}, {"stop", time.Second, 1}}
	network := []kindOf{{"cut", 0, 3}, {"delay", 4 * time.Second, 3}, {"halve", 500 * time.Millisecond, 2}, {"black_hole", 3 * time.Second, 2},
		{"deaf", 2 * time.Second, 2}, {"refuse", 2 * time.Second, 1}}
	repeats := append([]kindOf{{"duplicate", 2 * time.Second, 2}}, network...)
	return map[target][]kindOf{
		worker0: worker, worker1: append([]kindOf{{wrongClock, time.Second, 1}}, worker...), // one keeps the right time
		database: {{"terminate", 0, 4}, {"crash", time.Second, 2}, {"read_only", 2 * time.Second, 1}, {"disk_full", 1500 * time.Millisecond, 2}},
		broker:   {{"kill", 1500 * time.Millisecond, 2}, {"stream_full", 2 * time.Second, 1}},
		toLedger: repeats, toBroker: repeats, toBank: repeats, toOddBank: network, toDeaf: network,
	}
}

// order of the targets, with how often each is struck.
func targets() []struct {
	target target
	weight int
} {
	return []struct {
		target target
		weight int
	}{{worker0, 4}, {worker1, 4}, {database, 3}, {broker, 2}, {toLedger, 2}, {toBroker, 2}, {toBank, 2}, {toOddBank, 2}, {toDeaf, 2}}
}

// meanGap is the mean time between two faults.
const meanGap = 900 * time.Millisecond

// newSchedule draws the faults of a run: the same seed, length and distance of failovers, the same schedule. Each so long a time (0 = never) has one
// failover, somewhere in its third quarter, so that short runs have none: a minute after it everything new is in doubt, and little else is tried.
func newSchedule(seed uint64, length, failovers time.Duration) []fault {
	all := drawSchedule(seed, length)
	random := rand.New(rand.NewPCG(seed, 4))
	for from := time.Duration(0); failovers > 0; from += failovers {
		f := fault{at: from + failovers/2 + time.Duration(random.Float64()*float64(failovers/4)), target: database, kind: "failover",
			lasts: time.Duration(random.Float64() * float64(longestBehind))}
		if f.at >= length {
			break
		}
		all = slices.DeleteFunc(all, func(other fault) bool { // the database has one fault at a time
			return other.target == database && other.at < f.at+f.lasts+failoverTakes && f.at < other.at+other.lasts+time.Second
		})
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return all
}

func drawSchedule(seed uint64, length time.Duration) []fault {
	random := rand.New(rand.NewPCG(seed, 3))
	weapons := arsenal()
	busy := map[target]time.Duration{}
	var all []fault
	for at := time.Second; ; {
		at += min(time.Duration(random.ExpFloat64()*float64(meanGap)), 5*meanGap)
		if at >= length {
			return all
		}
		struck := pick(random, targets(), func(i int) int { return targets()[i].weight }).target
		weapon := pick(random, weapons[struck], func(i int) int { return weapons[struck][i].weight })
		lasts := time.Duration(random.Float64() * float64(weapon.longest))
		if busy[struck] > at {
			continue
		}
		busy[struck] = at + lasts + time.Second // a second to recover, or it would never work
		all = append(all, fault{at: at, target: struck, kind: weapon.kind, lasts: lasts})
	}
}

// pick draws one of all by weight.
func pick[T any](random *rand.Rand, all []T, weight func(int) int) T {
	sum := 0
	for i := range all {
		sum += weight(i)
	}
	n := random.IntN(sum)
	for i := range all {
		if n -= weight(i); n < 0 {
			return all[i]
		}
	}
	panic("weights sum to what was drawn from")
}
