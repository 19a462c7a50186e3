package worker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger/money"
)

// Route maps a rail that jobs name to the partner that serves it.
type Route struct {
	Partner    string         // id of the partner; must be one of those given to New
	Currencies []string       // ISO 4217 codes the route carries; at least one
	MaxAmounts []money.Amount // the largest amount of one operation, at most one per currency; default none
}

// Source says what an upstream system may ask for.
type Source struct {
	Routes []string // the routes it may use; at least one
}

// Partner is one bank as the worker sees it.
type Partner struct {
	Bank    Bank
	Gate    Gate
	LookUps []time.Duration // spacing of the look-ups while in doubt; default 5s, 30s, 2m, 10m, 1h
	// DoubtLimits are the largest sums in doubt, by currency in minor units; above one the partner is paused. Default none.
	DoubtLimits map[string]int64
}

// Options of a Worker. Zero fields take their defaults; routes and sources have none.
type Options struct {
	// The policy. It is for what is new: a job that it refuses is a dead letter only if the ledger has never seen it, and an operation that it
	// refuses since is asked after, if it is in doubt, and not sent.
	Routes  map[string]Route  // by route name
	Sources map[string]Source // by source name

	Lease         time.Duration // how long a claim holds; must be the ledger's; default 60s
	AckWait       time.Duration // of the route's consumer, only checked here; default 30s
	Heartbeat     time.Duration // of deliveries in progress, only checked here; default AckWait / 3
	RecordMargin  time.Duration // what is left of the lease for recording after a call of full length; default 5s
	ShutdownGrace time.Duration // how long calls in flight may take to end after a stop; default 45s

	BatchSize   int           // most claims or records in one statement; default 256
	Committers  int           // batches under way at the same time, each for claims and for records; default 2
	SweepEvery  time.Duration // pause of a partner's sweep that found nothing due; default 1s
	SweepBatch  int           // most operations one sweep claims at once; default 256
	ParkedEvery time.Duration // between two looks for parked operations whose look-up is due; default 1m
	ParkedAgain time.Duration // between two look-ups of one parked operation; default 24h

	RetryInitial    time.Duration // first delay after "not executed", and of deliveries that found no ledger; default 2s
	RetryMax        time.Duration // longest of these delays, before jitter; default 5m
	RetryMultiplier float64       // growth of these delays; default 2
	Jitter          float64       // every delay grows by up to this share of itself, at random; 0.2 to 1; default 0.3

	NotFoundsNeeded  int // late "not found" answers that prove absence at a strongly consistent partner; default 2
	IdenticalReplays int // sends in doubt that end Unknown with the same code before the operation is parked; default 5
	PoisonClaims     int // consecutive claims without an observation before the operation is parked; default 3

	Clock      func() time.Duration  // monotonic clock that runs through suspend; default CLOCK_BOOTTIME
	Rand       func() float64        // in [0,1), for jitter; default math/rand/v2
	Logger     *zerolog.Logger       // one line per decision; default none
	Registerer prometheus.Registerer // where the metrics are registered; default none
}

// withDefaults fills what was left out.
func (o Options) withDefaults() Options {
	orDuration := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orDuration(&o.Lease, 60*time.Second)
	orDuration(&o.AckWait, 30*time.Second)
	orDuration(&o.Heartbeat, o.AckWait/3)
	orDuration(&o.RecordMargin, 5*time.Second)
	orDuration(&o.ShutdownGrace, 45*time.Second)
	orInt(&o.BatchSize, 256)
	orInt(&o.Committers, 2)
	orDuration(&o.SweepEvery, time.Second)
	orInt(&o.SweepBatch, 256)
	orDuration(&o.ParkedEvery, time.Minute)
	orDuration(&o.ParkedAgain, 24*time.Hour)
	orDuration(&o.RetryInitial, 2*time.Second)
	orDuration(&o.RetryMax, 5*time.Minute)
	orInt(&o.NotFoundsNeeded, 2)
	orInt(&o.IdenticalReplays, 5)
	orInt(&o.PoisonClaims, 3)
	if o.RetryMultiplier == 0 {
		o.RetryMultiplier = 2
	}
	if o.Jitter == 0 {
		o.Jitter = 0.3
	}
	return o
}

// Timings are the durations that the rules of the package's doc tie to each other.
type Timings struct {
	Lease, AckWait, Heartbeat, RecordMargin, ShutdownGrace time.Duration
	PartnerTimeouts                                        map[string]time.Duration // by partner id
}

// Check tells every violation of the timing rules in one error, or nil.
func (t Timings) Check() error {
	var wrong []error
	rule := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	rule(t.RecordMargin > 0, "record margin (%v) must be positive", t.RecordMargin)
	rule(t.Heartbeat > 0, "heartbeat (%v) must be positive", t.Heartbeat)
	rule(t.AckWait < t.Lease, "ack wait (%v) must be shorter than the lease (%v)", t.AckWait, t.Lease)
	rule(t.Heartbeat < t.AckWait/2, "heartbeat (%v) must be shorter than half of the ack wait (%v)", t.Heartbeat, t.AckWait)
	for _, id := range sortedKeys(t.PartnerTimeouts) {
		timeout := t.PartnerTimeouts[id]
		rule(timeout > 0, "partner %s: timeout (%v) must be positive", id, timeout)
		rule(t.Lease > timeout+t.RecordMargin,
			"partner %s: lease (%v) must be longer than its timeout and the record margin (%v + %v)", id, t.Lease, timeout, t.RecordMargin)
		rule(t.ShutdownGrace > timeout+t.RecordMargin,
			"partner %s: shutdown grace (%v) must be longer than its timeout and the record margin (%v + %v)",
			id, t.ShutdownGrace, timeout, t.RecordMargin)
	}
	return errors.Join(wrong...)
}

// Check tells everything that is wrong with the options for these partners in one error, or nil. Defaults apply.
func (o Options) Check(partners []Partner) error {
	o = o.withDefaults()
	timings := Timings{Lease: o.Lease, AckWait: o.AckWait, Heartbeat: o.Heartbeat, RecordMargin: o.RecordMargin,
		ShutdownGrace: o.ShutdownGrace, PartnerTimeouts: map[string]time.Duration{}}
	var wrong []error
	for i, p := range partners {
		if p.Bank == nil || p.Gate == nil {
			wrong = append(wrong, fmt.Errorf("partner %d needs both a bank and a gate", i))
			continue
		}
		id := p.Bank.ID()
		if _, twice := timings.PartnerTimeouts[id]; twice {
			wrong = append(wrong, fmt.Errorf("partner %s is given twice", id))
		}
		timings.PartnerTimeouts[id] = p.Bank.Timeout()
		if slices.ContainsFunc(p.LookUps, func(d time.Duration) bool { return d <= 0 }) {
			wrong = append(wrong, fmt.Errorf("partner %s: every look-up delay must be positive", id))
		}
	}
	wrong = append(wrong, timings.Check(), o.checkPolicy(timings.PartnerTimeouts), o.checkNumbers())
	return errors.Join(wrong...)
}

func (o Options) checkPolicy(partners map[string]time.Duration) error {
	var wrong []error
	for _, name := range sortedKeys(o.Routes) {
		route := o.Routes[name]
		if _, known := partners[route.Partner]; !known {
			wrong = append(wrong, fmt.Errorf("route %s: partner %q is not configured", name, route.Partner))
		}
		if len(route.Currencies) == 0 {
			wrong = append(wrong, fmt.Errorf("route %s: needs at least one currency", name))
		}
		limited := map[string]bool{}
		for _, limit := range route.MaxAmounts {
			if limit.Minor <= 0 || limited[limit.Currency] || !slices.Contains(route.Currencies, limit.Currency) {
				wrong = append(wrong, fmt.Errorf("route %s: max amount in %q must be positive, once, and in a currency of the route",
					name, limit.Currency))
			}
			limited[limit.Currency] = true
		}
	}
	for _, name := range sortedKeys(o.Sources) {
		if len(o.Sources[name].Routes) == 0 {
			wrong = append(wrong, fmt.Errorf("source %s: needs at least one route", name))
		}
		for _, route := range o.Sources[name].Routes {
			if _, known := o.Routes[route]; !known {
				wrong = append(wrong, fmt.Errorf("source %s: route %q is not configured", name, route))
			}
		}
	}
	return errors.Join(wrong...)
}

func (o Options) checkNumbers() error {
	var low []string
	atLeastOne := map[string]int{"batch size": o.BatchSize, "committers": o.Committers, "sweep batch": o.SweepBatch,
		"not-founds needed": o.NotFoundsNeeded, "identical replays": o.IdenticalReplays, "poison claims": o.PoisonClaims}
	for _, name := range sortedKeys(atLeastOne) {
		if atLeastOne[name] < 1 {
			low = append(low, name)
		}
	}
	var wrong []error
	if len(low) > 0 {
		wrong = append(wrong, fmt.Errorf("%s must be at least 1", strings.Join(low, ", ")))
	}
	positive := map[string]time.Duration{"sweep every": o.SweepEvery, "parked every": o.ParkedEvery, "parked again": o.ParkedAgain,
		"retry initial": o.RetryInitial}
	for _, name := range sortedKeys(positive) {
		if positive[name] <= 0 {
			wrong = append(wrong, fmt.Errorf("%s (%v) must be positive", name, positive[name]))
		}
	}
	if o.RetryMax < o.RetryInitial {
		wrong = append(wrong, fmt.Errorf("retry max (%v) must not be shorter than retry initial (%v)", o.RetryMax, o.RetryInitial))
	}
	if o.RetryMultiplier < 1 {
		wrong = append(wrong, fmt.Errorf("retry multiplier (%v) must be at least 1", o.RetryMultiplier))
	}
	if o.Jitter < 0.2 || o.Jitter > 1 {
		wrong = append(wrong, fmt.Errorf("jitter (%v) must be between 0.2 and 1", o.Jitter))
	}
	return errors.Join(wrong...)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
