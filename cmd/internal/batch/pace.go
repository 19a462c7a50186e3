package batch

import (
	"context"

	"golang.org/x/time/rate"
)

// paces let rows pass at the rate of the run, and at the rate of each partner, over all goroutines.
type paces struct {
	run      *pace
	partners map[string]string // by route
	each     map[string]*pace  // by partner
}

func newPaces(partners map[string]string, opt EnqueueOptions) *paces {
	p := &paces{run: newPace(opt.Rate), partners: partners, each: map[string]*pace{}}
	for partner, rows := range opt.Rates {
		if rows > 0 {
			p.each[partner] = newPace(rows)
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

// pace lets a number of rows a second pass, those of one second at once.
type pace struct {
	rate  int // 0 = as many as come
	limit *rate.Limiter
}

func newPace(rows int) *pace {
	return &pace{rate: rows, limit: rate.NewLimiter(rate.Limit(rows), rows)}
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
	err := p.limit.WaitN(ctx, rows)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
