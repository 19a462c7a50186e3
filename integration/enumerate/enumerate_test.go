package enumerate

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/bankclient"
)

// never is longer than any run.
const never = 1e4 * time.Hour

// tally is what one tree came to.
type tally struct {
	leaves, parked int
	mustPark       int               // by what is on record, at a partner that honours no keys
	last           string            // the trail of the last leaf
	failed         map[string]string // what failed first, by what it was
	met            map[string]int    // in how many leaves each move was made, whoever made it
	sequence       map[string]string
}

// explore walks a scenario's whole tree, or until the first failing leaf.
func explore(t *testing.T, sc *scenario, m mutant, gen *Gen, all bool) tally {
	t.Helper()
	sum := tally{failed: map[string]string{}, sequence: map[string]string{}, met: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		h := &host{sc: sc, mutant: m, start: time.Now()}
		defer h.end()
		for gen.Next() {
			w := h.run(gen)
			sum.leaves++
			sum.meet(w.log)
			if r := w.row(); r != nil && r.state == "parked" {
				sum.parked++
			}
			if w.truth.mustPark {
				sum.mustPark++
			}
			if gen.only {
				sum.last = w.trail()
			}
			for _, f := range w.truth.faults {
				if _, known := sum.failed[f]; !known {
					sum.failed[f], sum.sequence[f] = w.trail(), gen.String()
				}
			}
			if len(sum.failed) > 0 && !all || len(sum.failed) > 5 {
				return
			}
			h.sweepUp()
		}
	})
	return sum
}

// meet counts what happened in a leaf, whichever process it happened to; of ends, also after which step.
func (sum *tally) meet(log []string) {
	before := ""
	for _, what := range log {
		what = strings.TrimPrefix(strings.TrimPrefix(what, "A "), "B ")
		if what == "is killed" || what == "is stopped" {
			what += " after " + before
		}
		sum.met[what]++
		before, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimSuffix(what, " not reached"), ", reply lost"), ":")
	}
}

// sweepUp buries what is not as a fresh process would be: one with calls under way, and one whose ticks the next run would meet at another moment.
func (h *host) sweepUp() {
	ticks := h.sc.renews || h.sc.parkedEvery < never
	for _, p := range h.procs {
		if p != nil && (ticks || !p.idle()) {
			p.kill()
		}
	}
}

func (h *host) end() {
	for _, p := range h.procs {
		if p != nil {
			p.kill()
		}
	}
}

func reference() bankclient.Profile {
	return bankclient.Profile{Adapter: "model", Version: 1, HonoursKeys: true, SerialisesDuplicates: true, KeyWindow: 30 * time.Minute,
		LatestArrival: time.Minute, VisibilityBound: 5 * time.Second, LookUp: bankclient.LookUpByKey, LookUpConsistent: true}
}

// scenarios are the small worlds: what the partner promises, and how much goes wrong.
func scenarios() []scenario {
	like := func(change func(*bankclient.Profile)) bankclient.Profile {
		p := reference()
		change(&p)
		return p
	}
	blind := func(p *bankclient.Profile) {
		p.LookUp, p.LookUpConsistent, p.VisibilityBound = bankclient.LookUpNone, false, 0
	}
	deaf := func(p *bankclient.Profile) { p.HonoursKeys, p.SerialisesDuplicates, p.KeyWindow = false, false, 0 }
	all := []scenario{
		{name: "reference", profile: reference(), places: []int{0}, steps: 15},
		{name: "two_deliveries", profile: reference(), places: []int{0, 1}, steps: 12},
		{name: "two_deliveries_one_worker", profile: reference(), places: []int{0, 0}, steps: 11},
		{name: "no_look_up", profile: like(func(p *bankclient.Profile) { blind(p); p.MinResendDelay = 10 * time.Second }), places: []int{0}, steps: 14},
		{name: "keys_not_honoured", profile: like(deaf), places: []int{0}, steps: 14},
		{name: "keys_ignored_no_look_up", profile: like(func(p *bankclient.Profile) { blind(p); deaf(p) }), places: []int{0}, steps: 15},
		{name: "duplicates_not_serialised", profile: like(func(p *bankclient.Profile) { p.SerialisesDuplicates = false }), places: []int{0}, steps: 15},
		{name: "look_up_not_consistent", profile: like(func(p *bankclient.Profile) { p.LookUpConsistent = false }), places: []int{0}, steps: 14},
		{name: "neither_serialised_nor_consistent", profile: like(func(p *bankclient.Profile) { p.SerialisesDuplicates, p.LookUpConsistent = false, false }),
			places: []int{0}, steps: 13},
		{name: "poison", profile: reference(), places: []int{0}, steps: 13, faults: 3, acts: []act{books}, calmLedger: true},
		{name: "short_window", profile: like(func(p *bankclient.Profile) { p.KeyWindow = 4 * time.Minute }), places: []int{0}, steps: 14},
		{name: "short_window_no_look_up", profile: like(func(p *bankclient.Profile) { blind(p); p.KeyWindow = 4 * time.Minute }), places: []int{0}, steps: 14},
		{name: "expires", profile: reference(), places: []int{0}, steps: 13, notAfter: 30 * time.Second},
		{name: "run_cancelled", profile: reference(), places: []int{0}, steps: 11, stops: true},
		{name: "leases_renewed", profile: reference(), places: []int{0}, steps: 12, renews: true, timeout: 30 * time.Second},
		{name: "failover", profile: reference(), places: []int{0}, steps: 14, failover: true, calmLedger: true},
		{name: "failover_two_deliveries", profile: reference(), places: []int{0, 1}, steps: 11, failover: true, calmLedger: true},
		{name: "failover_lost_replies", profile: reference(), places: []int{0}, steps: 11, failover: true},
		{name: "parked_is_watched", profile: like(func(p *bankclient.Profile) { deaf(p); p.LookUpConsistent = false }), places: []int{0}, steps: 13, parkedEvery: 40 * time.Second},
	}
	for i := range all {
		all[i].faults = cmp.Or(all[i].faults, 2)
		all[i].lookUps = []time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute, 5 * time.Minute}
		if all[i].parkedEvery == 0 {
			all[i].parkedEvery = never
		}
	}
	return all
}

// bounds are how far a run of the test goes: by default as far as fits in a minute of two cores.
type bounds struct {
	faults, steps  int
	only, sequence string // one leaf of one scenario
}

// readBounds reads PAIDONCE_ENUMERATE, "faults=3,steps=4,leaf=reference:0.1.2".
func readBounds(t *testing.T) bounds {
	t.Helper()
	b := bounds{faults: 2}
	if raced {
		b.faults = 1
	}
	for field := range strings.FieldsFuncSeq(os.Getenv("PAIDONCE_ENUMERATE"), func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(value)
		switch {
		case name == "faults" && err == nil:
			b.faults = n
		case name == "steps" && err == nil:
			b.steps = n
		case name == "leaf":
			b.only, b.sequence, _ = strings.Cut(value, ":")
		default:
			t.Fatalf("PAIDONCE_ENUMERATE: %q is none of faults=N, steps=N, leaf=scenario:sequence", field)
		}
	}
	return b
}

func (b bounds) String() string { return fmt.Sprintf("faults=%d,steps=%d", b.faults, b.steps) }

// TestEveryInterleaving walks the trees of all scenarios and prints how many leaves they have.
func TestEveryInterleaving(t *testing.T) {
	b := readBounds(t)
	var mu sync.Mutex
	var leaves, parked, walked int
	met := map[string]int{}
	began := time.Now()
	t.Run("scenario", func(t *testing.T) {
		for _, sc := range scenarios() {
			if b.only != "" && b.only != sc.name {
				continue
			}
			sc.faults, sc.steps = sc.faults+b.faults-2, sc.steps+b.steps
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				gen := &Gen{}
				if b.only != "" {
					var err error
					if gen, err = Replay(b.sequence); err != nil {
						t.Fatal(err)
					}
				}
				sum := explore(t, &sc, mutant{}, gen, true)
				sum.report(t, &sc, b)
				mu.Lock()
				defer mu.Unlock()
				leaves, parked, walked = leaves+sum.leaves, parked+sum.parked, walked+1
				for what, n := range sum.met {
					met[what] += n
				}
			})
		}
	})
	if b == (bounds{faults: 2}) && walked == len(scenarios()) {
		for _, what := range missing(met) {
			t.Errorf("in no leaf: %s", what)
		}
	}
	t.Logf("%d leaves (%v), %d parked, in %v", leaves, b, parked, time.Since(began).Round(time.Second))
}

// missing lists what every step of a worker must have met in some leaf, and did not.
func missing(met map[string]int) []string {
	var never []string
	want := func(what string) {
		if met[what] == 0 {
			never = append(never, what)
		}
	}
	for _, step := range []string{"claim", "claim_due", "attempt", "record", "renew", "look_at_parked", "append", "pause"} {
		want(step)
		want(step + ", reply lost")
		want(step + " not reached")
	}
	for _, step := range []string{"claim", "claim_due", "attempt", "send", "record", "renew", "look_up", "look_at_parked", "pause", "settle"} {
		want("is killed after " + step) // of an append nothing is left to be done
		want("is stopped after " + step)
	}
	want("send takes long")
	want("look_up takes long")
	want("send: too late to begin")
	want("its run is cancelled")
	want("a standby without the last write is promoted")
	return never
}

func (sum *tally) report(t *testing.T, sc *scenario, b bounds) {
	t.Helper()
	t.Logf("%d leaves, %d parked", sum.leaves, sum.parked)
	if b.only != "" {
		t.Log(sum.last)
	}
	for what, trail := range sum.failed {
		t.Errorf("%s\n%s  replay: PAIDONCE_ENUMERATE=%v,leaf=%s:%s go test ./integration/enumerate -run TestEveryInterleaving -v",
			what, trail, b, sc.name, sum.sequence[what])
	}
	if !sc.profile.HonoursKeys && sum.parked != sum.mustPark {
		t.Errorf("%d operations are parked, by what is on record it must be %d", sum.parked, sum.mustPark)
	}
}

// TestEveryBreakageFailsALeaf: the oracle sees what it is there to see.
func TestEveryBreakageFailsALeaf(t *testing.T) {
	worlds := map[string]scenario{}
	for _, sc := range scenarios() {
		worlds[sc.name] = sc
	}
	found, tried := 0, 0
	for i, m := range mutants() {
		if raced && i%5 != 0 { // all of them are tried where a run costs a tenth
			continue
		}
		tried++
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			sc, known := worlds[m.in]
			if !known {
				t.Fatalf("no scenario %q", m.in)
			}
			sum := explore(t, &sc, m, &Gen{}, false)
			if len(sum.failed) == 0 {
				t.Fatalf("%d leaves of %s held while %s", sum.leaves, m.in, m.name)
			}
			found++
			for what := range sum.failed {
				t.Logf("leaf %d of %s: %s", sum.leaves, m.in, what)
			}
		})
	}
	t.Logf("%d of %d breakages found", found, tried)
}
