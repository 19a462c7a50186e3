package banksim

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// rule is a fault that was set by hand.
type rule struct {
	id    int
	index int // in the catalogue
	on    target
	fault Fault

	reusedOnly bool
	skip, left atomic.Int64
}

// meets decides, and counts, whether this request gets the fault.
func (r *rule) meets(seed uint64, key string, nth uint32, req *http.Request) bool {
	if r.reusedOnly && !reused(req) {
		return false
	}
	if r.fault.Probability > 0 && chance(seed, uint64(r.id)<<8|1, key, nth) >= r.fault.Probability {
		return false
	}
	if r.fault.Skip > 0 && r.skip.Add(-1) >= 0 {
		return false
	}
	return r.fault.Next == 0 || r.left.Add(-1) >= 0
}

// ruleSet is an immutable set of rules, split so that requests see only those that may concern them.
type ruleSet struct {
	all     []*rule
	byKey   map[string][]*rule
	general []*rule
}

func (s *ruleSet) each(on target, key string, visit func(*rule)) {
	for _, list := range [2][]*rule{s.byKey[key], s.general} {
		for _, r := range list {
			if r.on&on != 0 {
				visit(r)
			}
		}
	}
}

// rules holds what was set by hand; requests read the set without a lock.
type rules struct {
	mu   sync.Mutex
	last int
	set  atomic.Pointer[ruleSet]
}

func (s *rules) replace(all []*rule) {
	if len(all) == 0 {
		s.set.Store(nil)
		return
	}
	next := &ruleSet{all: all, byKey: make(map[string][]*rule)}
	for _, r := range all {
		if r.fault.Key == "" {
			next.general = append(next.general, r)
		} else {
			next.byKey[r.fault.Key] = append(next.byKey[r.fault.Key], r)
		}
	}
	s.set.Store(next)
}

func (s *rules) list() []*rule {
	if set := s.set.Load(); set != nil {
		return set.all
	}
	return nil
}

// ActiveFault is a fault that was set and not cleared.
type ActiveFault struct {
	ID    int   `json:"id"`
	Fault Fault `json:"fault"`
	// Left is how many requests it will still meet; -1 when it does not count.
	Left int64 `json:"left"`
}

// SetFault sets a fault and returns its number.
func (b *Bank) SetFault(f Fault) (int, error) {
	index, on, err := b.catalogue.validate(f)
	if err != nil {
		return 0, err
	}
	b.rules.mu.Lock()
	defer b.rules.mu.Unlock()
	b.rules.last++
	r := &rule{id: b.rules.last, index: index, on: on, fault: f, reusedOnly: b.catalogue.specs[index].reusedOnly}
	r.left.Store(int64(f.Next))
	r.skip.Store(int64(f.Skip))
	live := slices.DeleteFunc(slices.Clone(b.rules.list()), (*rule).spent)
	b.rules.replace(append(live, r))
	if f.Name == faultRefuse { // after the rule stands, so that a listener which comes just now sees one or the other
		err = b.refuseConnections(b.catalogue.specs[index].measure(f).delay)
	}
	return r.id, err
}

// refusing tells whether the sockets are to be closed.
func (b *Bank) refusing() bool {
	return slices.ContainsFunc(b.rules.list(), func(r *rule) bool { return r.fault.Name == faultRefuse })
}

func (r *rule) spent() bool { return r.fault.Next > 0 && r.left.Load() <= 0 }

// ActiveFaults lists the faults set and not yet spent.
func (b *Bank) ActiveFaults() []ActiveFault {
	active := []ActiveFault{}
	for _, r := range b.rules.list() {
		if r.spent() {
			continue
		}
		left := int64(-1)
		if r.fault.Next > 0 {
			left = r.left.Load()
		}
		active = append(active, ActiveFault{ID: r.id, Fault: r.fault, Left: left})
	}
	return active
}

// ClearFaults removes every fault set by hand.
func (b *Bank) ClearFaults() error { return b.clearFaults(func(*rule) bool { return true }) }

// ClearFault removes the fault with that number.
func (b *Bank) ClearFault(id int) error {
	return b.clearFaults(func(r *rule) bool { return r.id == id })
}

func (b *Bank) clearFaults(match func(*rule) bool) error {
	b.rules.mu.Lock()
	defer b.rules.mu.Unlock()
	refusing := false
	rest := slices.DeleteFunc(slices.Clone(b.rules.list()), match)
	for _, r := range rest {
		refusing = refusing || r.fault.Name == faultRefuse
	}
	b.rules.replace(rest)
	if refusing {
		return nil
	}
	return b.acceptConnections()
}

// connectionFault takes the next fault that concerns a connection and carries one of the names.
func (b *Bank) connectionFault(names ...string) (string, measure, bool) {
	set := b.rules.set.Load()
	if set == nil {
		return "", measure{}, false
	}
	for _, r := range set.general {
		if r.on == onConnection && slices.Contains(names, r.fault.Name) && r.meets(b.options.Seed, "", 0, nil) {
			return r.fault.Name, b.catalogue.specs[r.index].measure(r.fault), true
		}
	}
	return "", measure{}, false
}
