package app

import (
	"context"
	"slices"

	"github.com/paidonce/paidonce/cmd/internal/batch"
	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// OpenBatch gives the batch runs of a ledger, and what closes their connections.
func OpenBatch(ctx context.Context, c *config.Config, l *ledger.Ledger, desk *operate.Service) (*batch.Service, func(), error) {
	pool, err := openDeskPool(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	opt := batch.Options{Partners: partnersByRoute(c), OverlapWindow: c.Batch.OverlapWindow}
	if opt.OverlapWindow == 0 {
		opt.OverlapWindow = -1 // said so, in the settings
	}
	return batch.New(l, pool, desk, opt), pool.Close, nil
}

// BatchRoutes is the policy of the routes for rows of a source, as the worker judges jobs. A route that the source may not use is none to it.
// nil = the settings name no routes, so that nothing can be judged.
func BatchRoutes(c *config.Config, source string) func(string) (file.Policy, bool) {
	if len(c.Routes) == 0 {
		return nil
	}
	policies := map[string]file.Policy{}
	for name, route := range c.Routes {
		if s, named := c.Sources[source]; len(c.Sources) > 0 && (!named || !slices.Contains(s.Routes, name)) {
			continue
		}
		policy := file.Policy{Currencies: route.Currencies}
		for _, limit := range maxAmounts(route) {
			if policy.MaxMinor == nil {
				policy.MaxMinor = map[string]int64{}
			}
			policy.MaxMinor[limit.Currency] = limit.Minor
		}
		policies[name] = policy
	}
	return func(route string) (file.Policy, bool) {
		policy, known := policies[route]
		return policy, known
	}
}

// BatchRates are the rates at which runs are enqueued, unless somebody says otherwise: those of the partners.
func BatchRates(c *config.Config) map[string]int {
	rates := map[string]int{}
	for id, p := range c.Partners {
		rates[id] = p.RateLimit
	}
	return rates
}

// BatchRate is the rate at which held rows of a run come back: that of the partner of its route, or, where every row names its own, the least of
// those of its routes. 0 = none has one.
func BatchRate(c *config.Config, routes []string) int {
	least := 0
	for name, r := range c.Routes {
		if p := c.Partners[r.Partner]; p != nil && p.RateLimit > 0 && slices.Contains(routes, name) && (least == 0 || p.RateLimit < least) {
			least = p.RateLimit
		}
	}
	return least
}
