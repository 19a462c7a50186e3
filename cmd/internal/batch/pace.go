package batch

import (
	"context"
	"time"
)

// paces let rows pass at the rate of the run, and at the rate of each partner, over all goroutines.
type paces struct {
	run      *pace
	partners map[string]string // by route
	each     map[string]*pace  // by partner
}

func newPaces(partners map[string]string, opt EnqueueOptions) *paces {
	p := &paces{run: newPace(opt.Rate), partners: partners, each: map[string]*pace{}}
	for partner, rate := range opt.Rates {
		if rate > 0 {
			p.each[partner] = newPace(rate)
		}
	}
	return p
}

// wait gives the first items that may pass now: at most those of a second, so that a pause or a cancellation is heard.
func (p *paces) wait(ctx context.Context, items []item) ([]item, error) {
	slice := items[:p.run.most(len(items))]
	counts := map[*pace]int{p.run: len(slice)}
	if len(p.each) > 0 {
		counts = map[*pace]int{}
		for i := range slice {
			one := p.each[p.partners[slice[i].route]]
			if one != nil && counts[one] == one.most(len(slice)) {
				slice = slice[:i]
				break
			}
			if one != nil {
				counts[one]++
			}
		}
		counts[p.run] = len(slice)
	}
	for one, rows := range counts {
		if err := one.wait(ctx, rows); err != nil {
			return nil, err
		}
	}
	return slice, ctx.Err()
}

// pace lets a number of rows a second pass.
type pace struct {
	rate int
	next chan time.Time // the one that holds it decides when the next may pass
}

func newPace(rate int) *pace {
	p := &pace{rate: rate, next: make(chan time.Time, 1)}
	p.next <- time.Time{}
	return p
}

// most is how many of some rows pass at once.
func (p *pace) most(rows int) int {
	if p.rate <= 0 {
		return rows
	}
	return min(rows, p.rate)
}

func (p *pace) wait(ctx context.Context, rows int) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	at := <-p.next
	now := time.Now()
	if at.Before(now) {
		at = now
	}
	p.next <- at.Add(time.Duration(rows) * time.Second / time.Duration(p.rate))
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
