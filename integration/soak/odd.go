package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
)

const (
	oddPartner = "oddbank"
	oddWindow  = 40 * time.Second
	// oddArrival is what delays a request at most: the network's delay, the bank's own (longestBankDelay), the look at the ledger, and a machine
	// that stands still for some seconds meanwhile.
	oddArrival    = 8 * time.Second
	oddVisibility = 2 * time.Second

	longestBankDelay = 1500 * time.Millisecond
)

// oddAdapter declares the odd bank: it speaks the reference API, and keeps less of it.
type oddAdapter struct{ bankclient.Adapter }

// Profile says how little may be relied on.
func (o oddAdapter) Profile() bankclient.Profile {
	p := o.Adapter.Profile()
	p.Adapter, p.Version = "odd", 1
	p.KeyWindow, p.SerialisesDuplicates = oddWindow, false
	p.LatestArrival, p.VisibilityBound = oddArrival, oddVisibility
	p.MinResendDelay = 500 * time.Millisecond
	p.Replay, p.InFlight = "409 with a link to the transfer", "executes both"
	p.Codes = slices.DeleteFunc(slices.Clone(p.Codes), func(c bankclient.CodeRule) bool { return c.Status == http.StatusConflict })
	p.Codes = append(p.Codes, bankclient.CodeRule{Status: http.StatusConflict, Code: "idempotent_creation_conflict", Means: bankclient.MeansReplayed})
	return p
}

// oddIdempotency is how the odd bank treats its keys.
func oddIdempotency() *banksim.Idempotency {
	idempotency := banksim.ReferenceIdempotency()
	idempotency.WindowMS = oddWindow.Milliseconds()
	idempotency.Replay, idempotency.InFlight = "conflict_link", "both_execute"
	return &idempotency
}

// promptAdapter declares the reference bank as it is here: what is known of the others' latest arrival is true of it too, and nobody need wait for a
// minute before a look-up that finds nothing says something.
type promptAdapter struct{ bankclient.Adapter }

// Profile says when certainty comes.
func (p promptAdapter) Profile() bankclient.Profile {
	is := p.Adapter.Profile()
	is.LatestArrival, is.VisibilityBound = oddArrival, oddVisibility
	return is
}

const deafPartner = "deafbank"

// deafAdapter declares the deaf bank: keys mean nothing to it, every request that reaches it executes; what it has done can be looked up.
type deafAdapter struct{ bankclient.Adapter }

// Profile says that nothing in doubt may be sent again.
func (d deafAdapter) Profile() bankclient.Profile {
	p := d.Adapter.Profile()
	p.Adapter, p.Version = "deaf", 1
	p.HonoursKeys, p.SerialisesDuplicates, p.KeyScope, p.KeyWindow = false, false, "", 0
	p.LatestArrival, p.VisibilityBound = oddArrival, oddVisibility
	p.Replay, p.InFlight, p.KeyReuse = "executes again", "executes both", "executes"
	return p
}

// deafIdempotency is how the deaf bank treats keys.
func deafIdempotency() *banksim.Idempotency {
	idempotency := banksim.ReferenceIdempotency()
	idempotency.Ignored = true
	return &idempotency
}

// honest takes from a hostility what would break the profiles of the odd and the deaf bank: a network that repeats a request.
func honest(p banksim.Profile) banksim.Profile {
	for name := range p.Weights {
		if strings.HasPrefix(name, "delivered_twice") {
			delete(p.Weights, name)
		}
	}
	return p
}

// prepare puts the adapters of the two, and a counter that survives its worker, into a child.
func prepare(detail string, say func(string)) (underfire.Around, error) {
	return underfire.Around{
		Adapter: func(partner string, a bankclient.Adapter) bankclient.Adapter {
			switch partner {
			case oddPartner:
				return oddAdapter{a}
			case deafPartner:
				return deafAdapter{a}
			}
			return promptAdapter{a}
		},
		Ledger:   func(l worker.Ledger) worker.Ledger { return counting{l, say} },
		Delivery: func(d worker.Delivery) worker.Delivery { say("delivery"); return d },
		Options: func(o worker.Options) worker.Options {
			o.RetryInitial, o.RetryMax = 300*time.Millisecond, 5*time.Second
			if detail == wrongClock {
				began := time.Now()
				o.Clock = func() time.Duration { // as after a suspend: two hours in one step, every five seconds
					return time.Since(began) + 2*time.Hour*time.Since(began).Truncate(5*time.Second)/(5*time.Second)
				}
			}
			return o
		},
	}, nil
}

// counting tells the parent what the ledger says, line by line: a killed worker's metrics are gone.
type counting struct {
	worker.Ledger
	say func(string)
}

// ClaimDue counts takeovers.
func (c counting) ClaimDue(ctx context.Context, partner string, limit int) ([]ledger.Work, error) {
	works, err := c.Ledger.ClaimDue(ctx, partner, limit)
	for i := range works {
		if works[i].State == ledger.StateClaimed {
			c.say("takeover")
		}
	}
	return works, err
}

// CommitAttempts counts stale claims.
func (c counting) CommitAttempts(ctx context.Context, resends []ledger.Resend) []ledger.AttemptResult {
	results := c.Ledger.CommitAttempts(ctx, resends)
	for i := range results {
		if results[i].Answer == ledger.AttemptFenced {
			c.say("fenced")
		}
	}
	return results
}

// Record counts stale claims.
func (c counting) Record(ctx context.Context, records []ledger.Record) []ledger.RecordResult {
	results := c.Ledger.Record(ctx, records)
	for i := range results {
		if a := results[i].Answer; a == ledger.Fenced || a == ledger.LateAuthorized || a == ledger.LateContradicted {
			c.say("fenced")
		}
	}
	return results
}
