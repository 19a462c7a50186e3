package banksim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Fault asks for one named deviation. GET /faults lists the names; a zero field takes the default of the name.
type Fault struct {
	Name string `json:"name"`
	// On says which requests meet it: create, look_up, get, statement or any. Default create where the fault fits there.
	On string `json:"on,omitzero"`
	// Key limits it to one partner key. Default all.
	Key string `json:"key,omitzero"`
	// Skip lets so many matching requests pass first.
	Skip int `json:"skip,omitzero"`
	// Next ends the fault after so many requests. Default 0: until it is cleared.
	Next int `json:"next,omitzero"`
	// Probability from 0 to 1, drawn from the seed, the key and the number of its request. Default 0: always.
	Probability float64 `json:"probability,omitzero"`
	// DelayMS is the delay of faults that have one.
	DelayMS int64 `json:"delay_ms,omitzero"`
	// Status is the HTTP status of faults that answer one.
	Status int `json:"status,omitzero"`
	// Value is the text that the sentence of the fault speaks of.
	Value string `json:"value,omitzero"`
	// RetryAfter is sent as it is; "none" leaves it out, "date+N" sends a date N seconds ahead. Default "1".
	RetryAfter string `json:"retry_after,omitzero"`
	// Executes says whether the bank processes the request although its answer is spoilt.
	Executes *bool `json:"executes,omitzero"`
}

type target uint8

const (
	onCreate target = 1 << iota
	onLookUp
	onGet
	onStatement
	onConnection

	onReads = onLookUp | onGet | onStatement
	onAny   = onCreate | onReads
)

func targetNamed(name string) (target, bool) {
	switch name {
	case "create":
		return onCreate, true
	case "look_up":
		return onLookUp, true
	case "get":
		return onGet, true
	case "statement":
		return onStatement, true
	case "any":
		return onAny, true
	case "connection":
		return onConnection, true
	}
	return 0, false
}

func (t target) names() []string {
	names := []string{}
	for _, name := range []string{"create", "look_up", "get", "statement", "connection"} {
		if one, _ := targetNamed(name); t&one != 0 {
			names = append(names, name)
		}
	}
	return names
}

// spec is one entry of the catalogue.
type spec struct {
	name     string
	on       target
	sentence string

	delay    time.Duration
	status   int
	value    string
	executes bool

	reusedOnly bool // meets only requests on a connection that has served one before

	// Weights in the random hostility; 0 keeps it out. Only faults that are true to the reference profile have one.
	weight, readWeight float64

	apply func(p *plan, m measure)
}

// measure is a fault with all defaults filled in.
type measure struct {
	delay      time.Duration
	status     int
	value      string
	retryAfter string
	executes   bool
}

func (s *spec) measure(f Fault) measure {
	m := measure{delay: s.delay, status: s.status, value: s.value, retryAfter: "1", executes: s.executes}
	if f.DelayMS > 0 {
		m.delay = time.Duration(f.DelayMS) * time.Millisecond
	}
	if f.Status > 0 {
		m.status = f.Status
	}
	if f.Value != "" {
		m.value = f.Value
	}
	switch f.RetryAfter {
	case "":
	case "none":
		m.retryAfter = ""
	default:
		m.retryAfter = f.RetryAfter
	}
	if f.Executes != nil {
		m.executes = *f.Executes
	}
	return m
}

// catalogue is the fixed list of all faults. Its order is the order of the bits in entry.faults.
type catalogue struct {
	specs []spec
}

func newCatalogue() *catalogue {
	c := &catalogue{specs: slices.Concat(connectionFaults(), transportFaults(), answerFaults(), businessFaults(), keyFaults(), lookUpFaults())}
	if len(c.specs) > 64 {
		panic("banksim: entry.faults has room for 64 faults")
	}
	return c
}

func (c *catalogue) index(name string) int {
	return slices.IndexFunc(c.specs, func(s spec) bool { return s.name == name })
}

func (c *catalogue) names(bits uint64) []string {
	names := []string{}
	for i := range c.specs {
		if bits>>i&1 != 0 {
			names = append(names, c.specs[i].name)
		}
	}
	return names
}

func (c *catalogue) bits(names []string) uint64 {
	var bits uint64
	for _, name := range names {
		if i := c.index(name); i >= 0 {
			bits |= 1 << i
		}
	}
	return bits
}

// validate finds the catalogue entry and the requests it is meant for.
func (c *catalogue) validate(f Fault) (index int, on target, err error) {
	index = c.index(f.Name)
	if index < 0 {
		return 0, 0, fmt.Errorf("fault %q is not in the catalogue", f.Name)
	}
	s := &c.specs[index]
	on = s.on & onCreate
	if on == 0 {
		on = s.on
	}
	var problems []error
	if f.On != "" {
		asked, known := targetNamed(f.On)
		on = asked & s.on
		if !known || on == 0 {
			problems = append(problems, fmt.Errorf("on %q does not fit; the fault meets: %s", f.On, strings.Join(s.on.names(), ", ")))
		}
	}
	if f.Skip < 0 || f.Next < 0 || f.DelayMS < 0 {
		problems = append(problems, errors.New("skip, next and delay_ms cannot be negative"))
	}
	if f.Probability < 0 || f.Probability > 1 {
		problems = append(problems, errors.New("probability is not between 0 and 1"))
	}
	if f.Status != 0 && (f.Status < 100 || f.Status > 599) {
		problems = append(problems, errors.New("status is not between 100 and 599"))
	}
	if strings.ContainsAny(f.RetryAfter, "\r\n") {
		problems = append(problems, errors.New("retry_after cannot hold a line break"))
	}
	if s.on&onCreate != 0 { // shapes are named in value: try it on
		reference := ReferenceIdempotency()
		trial := plan{idempotency: &reference}
		s.apply(&trial, s.measure(f))
		problems = append(problems, trial.idempotency.validate())
	}
	return index, on, errors.Join(problems...)
}

// FaultInfo describes one fault of the catalogue.
type FaultInfo struct {
	Name     string   `json:"name"`
	On       []string `json:"on"`
	Sentence string   `json:"sentence"`
	// Weight and ReadWeight are its default shares of the random hostility, on creates and on look-ups.
	Weight     float64 `json:"weight"`
	ReadWeight float64 `json:"read_weight"`
}

// Faults is the catalogue.
func (b *Bank) Faults() []FaultInfo {
	infos := make([]FaultInfo, 0, len(b.catalogue.specs))
	for _, s := range b.catalogue.specs {
		infos = append(infos, FaultInfo{Name: s.name, On: s.on.names(), Sentence: s.sentence, Weight: s.weight, ReadWeight: s.readWeight})
	}
	return infos
}
