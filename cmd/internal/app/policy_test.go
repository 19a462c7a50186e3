package app

import (
	"maps"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/cmd/internal/operate/dead"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// TestPolicyOfTheDesk: a correction is judged, and a letter classed, by the settings as a worker judges a job; also of a source that is gone from them.
func TestPolicyOfTheDesk(t *testing.T) {
	c := &config.Config{
		Routes:  map[string]*config.Route{"gbp-fps": {Currencies: []string{"GBP", "EUR"}, MaxAmount: "250.00"}, "usd-wire": {Currencies: []string{"USD"}}},
		Sources: map[string]*config.Source{"wallet": {Routes: []string{"gbp-fps"}}},
	}
	judge := allowed(c)
	for _, one := range []struct{ source, route, amount, currency, code string }{
		{"wallet", "gbp-fps", "250.00", "GBP", ""}, {"wallet", "gbp-fps", "250.01", "EUR", "amount_over_limit"}, {"wallet", "gbp-fps", "1.00", "USD", "currency_not_on_route"},
		{"wallet", "usd-wire", "1.00", "USD", "route_not_allowed"}, {"wallet", "gone", "1.00", "GBP", "route_not_allowed"}, {"gone", "gbp-fps", "1.00", "GBP", "route_not_allowed"},
	} {
		amount, err := money.Parse(one.amount, one.currency)
		if err != nil {
			t.Fatal(err)
		}
		code := ""
		if fault := judge(&job.Job{Source: one.source, Route: one.route, Amount: amount}); fault != nil {
			code = fault.Code
		}
		if code != one.code {
			t.Errorf("%+v: %q", one, code)
		}
	}
	p := policy(c)
	if len(p.Routes) != 2 || !maps.Equal(p.Routes["gbp-fps"], map[string]int64{"GBP": 25000, "EUR": 25000}) || !maps.Equal(p.Routes["usd-wire"], map[string]int64{"USD": dead.NoLimit}) ||
		len(p.Sources) != 1 || len(p.Sources["wallet"]) != 1 {
		t.Errorf("%+v", p)
	}
	if p := policy(&config.Config{}); p != nil {
		t.Errorf("a desk without the settings of a worker knows %+v", p)
	}
}
