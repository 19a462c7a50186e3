package bankclient

import (
	"context"
	"net/http"
	"time"
)

type health uint8

const (
	healthUnsaid health = iota
	healthGood
	healthBad
)

func healthOf(Result) health { return healthUnsaid }

func newTransport(Config, Profile) *http.Transport { return &http.Transport{} }

// Send makes exactly one exchange.
func (p *Partner) Send(ctx context.Context, pr Prepared) Result { return Result{} }

// LookUp asks the partner what it did for a partner key, in one exchange.
func (p *Partner) LookUp(ctx context.Context, pr Prepared) Finding { return Finding{} }

// LookUpID asks for one transfer by its id, in one exchange.
func (p *Partner) LookUpID(ctx context.Context, pr Prepared, transferID string) Finding {
	return Finding{}
}

// Statement reads one page of the partner's own list.
func (p *Partner) Statement(ctx context.Context, from, to time.Time, cursor string) (Listing, error) {
	return Listing{}, nil
}
