package banksim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// The random hostility stays true to the profile that the reference API declares.
	visibilityBound = 4500 * time.Millisecond // declared 5 s
	latestArrival   = 55 * time.Second        // declared 60 s

	shortestDelay = 5 * time.Millisecond
)

// weighted is one fault of the random hostility with its cumulated weight.
type weighted struct {
	index int
	upTo  float64
	spec  *spec
}

// profile is the random hostility: which share of requests meets a fault, and which one.
type profile struct {
	share     float64
	maxDelay  time.Duration
	timeScale float64
	creates   []weighted
	reads     []weighted
}

// Profile is the random hostility as the control API reads and writes it.
type Profile struct {
	Hostility  float64 `json:"hostility"`
	MaxDelayMS int64   `json:"max_delay_ms"`
	TimeScale  float64 `json:"time_scale"`
	// Weights by fault name, on creates and on look-ups; a fault that is not named does not come up.
	Weights     map[string]float64 `json:"weights"`
	ReadWeights map[string]float64 `json:"read_weights"`
}

func (c *catalogue) defaultProfile(o Options) Profile {
	p := Profile{
		Hostility: o.Hostility, MaxDelayMS: o.MaxDelay.Milliseconds(), TimeScale: o.TimeScale,
		Weights: map[string]float64{}, ReadWeights: map[string]float64{},
	}
	for _, s := range c.specs {
		if slices.Contains(o.Never, s.name) {
			continue
		}
		if s.weight > 0 {
			p.Weights[s.name] = s.weight
		}
		if s.readWeight > 0 {
			p.ReadWeights[s.name] = s.readWeight
		}
	}
	return p
}

// known refuses names that no fault has.
func (c *catalogue) known(names []string) error {
	for _, name := range names {
		if c.index(name) < 0 {
			return fmt.Errorf("no fault is called %q", name)
		}
	}
	return nil
}

// resolve checks a profile and prepares it for drawing.
func (c *catalogue) resolve(p Profile) (profile, error) {
	var problems []error
	if p.Hostility < 0 || p.Hostility > 1 {
		problems = append(problems, errors.New("hostility is not between 0 and 1"))
	}
	if p.MaxDelayMS < 0 || p.TimeScale < 0 {
		problems = append(problems, errors.New("max_delay_ms and time_scale cannot be negative"))
	}
	creates, err := c.cumulate(p.Weights, onCreate)
	problems = append(problems, err)
	reads, err := c.cumulate(p.ReadWeights, onLookUp)
	problems = append(problems, err)
	return profile{
		share: p.Hostility, maxDelay: time.Duration(p.MaxDelayMS) * time.Millisecond, timeScale: p.TimeScale,
		creates: creates, reads: reads,
	}, errors.Join(problems...)
}

func (c *catalogue) cumulate(weights map[string]float64, on target) ([]weighted, error) {
	var list []weighted
	var problems []error
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		index := c.index(name)
		switch {
		case index < 0 || c.specs[index].on&on == 0:
			problems = append(problems, fmt.Errorf("fault %q cannot be weighted for %s", name, on.names()[0]))
		case weights[name] < 0:
			problems = append(problems, fmt.Errorf("weight of %q is negative", name))
		case weights[name] > 0:
			sum += weights[name]
			list = append(list, weighted{index: index, upTo: sum, spec: &c.specs[index]})
		}
	}
	return list, errors.Join(problems...)
}

func (p *profile) export(c *catalogue) Profile {
	out := Profile{
		Hostility: p.share, MaxDelayMS: p.maxDelay.Milliseconds(), TimeScale: p.timeScale,
		Weights: map[string]float64{}, ReadWeights: map[string]float64{},
	}
	for list, weights := range map[*[]weighted]map[string]float64{&p.creates: out.Weights, &p.reads: out.ReadWeights} {
		before := 0.0
		for _, w := range *list {
			weights[c.specs[w.index].name] = w.upTo - before
			before = w.upTo
		}
	}
	return out
}

// draw decides by seed, key and number alone, so that the schedule of a key does not depend on what else goes on.
func (p *profile) draw(seed uint64, on target, key string, nth uint32, apply func(index int, m measure)) {
	list := p.creates
	salt := uint64(onCreate)
	switch on {
	case onCreate:
	case onLookUp, onGet:
		list, salt = p.reads, uint64(onLookUp)
	default: // the statement is what a run is judged by
		return
	}
	if len(list) == 0 || chance(seed, salt, key, nth) >= p.share {
		return
	}
	at := chance(seed, salt|1<<8, key, nth) * list[len(list)-1].upTo
	i, _ := slices.BinarySearchFunc(list, at, func(w weighted, at float64) int {
		if w.upTo <= at {
			return -1
		}
		return 1
	})
	chosen := list[min(i, len(list)-1)]
	m := chosen.spec.measure(Fault{})
	m.delay = p.delay(chance(seed, salt|2<<8, key, nth))
	if chance(seed, salt|3<<8, key, nth) < 0.5 {
		m.retryAfter = "date+1"
	}
	if chosen.spec.name == faultReject {
		codes := listedRejections()
		m.value = codes[int(chance(seed, salt|4<<8, key, nth)*float64(len(codes)))]
	}
	apply(chosen.index, m)
	if on == onCreate && chance(seed, salt|5<<8, key, nth) < 0.5 {
		p.lag(chance(seed, salt|6<<8, key, nth), apply)
	}
}

// lag hides what the request makes from look-ups for a while, within the bound.
func (p *profile) lag(u float64, apply func(index int, m measure)) {
	for _, w := range p.creates {
		if w.spec.name == faultLookUpLag {
			apply(w.index, measure{delay: min(p.delay(u), visibilityBound)})
		}
	}
}

// delay favours short ones: half of all are below an eighth of the longest.
func (p *profile) delay(u float64) time.Duration {
	longest := min(time.Duration(float64(p.maxDelay)*p.timeScale), p.maxDelay, latestArrival)
	return max(time.Duration(float64(longest)*u*u*u), min(shortestDelay, longest))
}

// chance is a number in [0, 1) that depends on its arguments alone.
func chance(seed, salt uint64, key string, nth uint32) float64 {
	h := hashText(hashWord(hashWord(offset64, seed), salt), key)
	return float64(mix(hashWord(h, uint64(nth)))>>11) / (1 << 53)
}

// Profile tells the random hostility in force.
func (b *Bank) Profile() Profile {
	p := b.settings.Load().profile
	return p.export(b.catalogue)
}

// SetProfile replaces the random hostility from the next request on.
func (b *Bank) SetProfile(p Profile) error {
	resolved, err := b.catalogue.resolve(p)
	if err != nil {
		return err
	}
	return b.change(func(s *settings) error { s.profile = resolved; return nil })
}

// Schedule lists the faults that the random hostility holds for the first n requests of a key: creates, or look-ups.
func (b *Bank) Schedule(key string, n int, lookUps bool) [][]string {
	on := onCreate
	if lookUps {
		on = onLookUp
	}
	p := b.settings.Load().profile
	schedule := make([][]string, 0, n)
	for i := range n {
		var bits uint64
		p.draw(b.options.Seed, on, key, uint32(i), func(index int, _ measure) { bits |= 1 << index })
		schedule = append(schedule, b.catalogue.names(bits))
	}
	return schedule
}
