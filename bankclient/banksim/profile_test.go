package banksim

import (
	"fmt"
	"testing"
	"time"
)

func TestDelaysOfTheMixtureStayInTheirBounds(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		longest time.Duration
		lag     time.Duration
	}{
		"default":    {Options{Hostility: 0.25}, 3 * time.Second, 3 * time.Second},
		"scaled":     {Options{Hostility: 1, TimeScale: 0.1}, 300 * time.Millisecond, 300 * time.Millisecond},
		"stretched":  {Options{Hostility: 1, TimeScale: 50}, 3 * time.Second, 3 * time.Second},
		"very long":  {Options{Hostility: 1, MaxDelay: time.Hour}, 55 * time.Second, 4500 * time.Millisecond},
		"very short": {Options{Hostility: 1, MaxDelay: time.Millisecond}, time.Millisecond, time.Millisecond},
	} {
		b := New(c.options)
		p := b.settings.Load().profile
		lagged, longest := b.catalogue.index("lookup_lag"), time.Duration(0)
		for i := range 5_000 {
			first := true
			p.draw(0, onCreate, fmt.Sprint("key-", i), 0, func(index int, m measure) {
				if first {
					longest = max(longest, m.delay)
				}
				if m.delay <= 0 || m.delay > c.longest || (index == lagged && !first && m.delay > c.lag) {
					t.Errorf("%s: %s waits %v", name, b.catalogue.specs[index].name, m.delay)
				}
				first = false
			})
		}
		if longest < c.longest*9/10 {
			t.Errorf("%s: the longest delay is only %v", name, longest)
		}
	}
}

func TestStatementIsNeverHostile(t *testing.T) {
	b := New(Options{Hostility: 1})
	p := b.settings.Load().profile
	p.draw(0, onStatement, "", 0, func(index int, _ measure) { t.Errorf("the statement met %s", b.catalogue.specs[index].name) })
}
