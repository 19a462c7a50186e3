package app

import (
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/config"
)

// TestBatchRate: the slowest partner that the run's own routes lead to, and no other, says how fast held rows come back.
func TestBatchRate(t *testing.T) {
	c := &config.Config{
		Partners: map[string]*config.Partner{"fast": {RateLimit: 500}, "slow": {RateLimit: 20}, "free": {}},
		Routes:   map[string]*config.Route{"gbp": {Partner: "fast"}, "eur": {Partner: "slow"}, "usd": {Partner: "free"}, "old": {Partner: "gone"}},
	}
	for _, row := range []struct {
		routes []string
		want   int
	}{
		{[]string{"gbp"}, 500}, {[]string{"gbp", "eur"}, 20}, {[]string{"gbp", "usd"}, 500}, {[]string{"usd"}, 0}, {[]string{"old", "none"}, 0}, {nil, 0},
	} {
		if got := BatchRate(c, row.routes); got != row.want {
			t.Errorf("%v: %d, want %d", row.routes, got, row.want)
		}
	}
}
