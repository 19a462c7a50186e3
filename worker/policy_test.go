package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/workertest"
)

// atMostOnePound is a policy that refuses every job of these tests.
func atMostOnePound(o *worker.Options) {
	route := o.Routes[workertest.RouteName]
	route.MaxAmounts = []money.Amount{{Minor: 100, Currency: "GBP"}}
	o.Routes[workertest.RouteName] = route
}

// TestPolicyTightenedAfterTheOutcome: the job of a finished operation comes again, and is no dead letter, whatever the policy says today.
func TestPolicyTightenedAfterTheOutcome(t *testing.T) {
	for name, tighten := range map[string]func(*worker.Options){
		"amount": atMostOnePound,
		"currency": func(o *worker.Options) {
			o.Routes[workertest.RouteName] = worker.Route{Partner: "fake", Currencies: []string{"EUR"}}
		},
		"route of the source": func(o *worker.Options) {
			o.Routes["eur-sepa"] = worker.Route{Partner: "fake", Currencies: []string{"EUR"}}
			o.Sources[workertest.SourceName] = worker.Source{Routes: []string{"eur-sepa"}}
		},
		"source": func(o *worker.Options) { delete(o.Sources, workertest.SourceName) },
		"route": func(o *worker.Options) {
			delete(o.Routes, workertest.RouteName)
			delete(o.Sources, workertest.SourceName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.Order(t)
				_, other := workertest.OrderWith(t, func(j *job.Job) { j.Key, j.Amount.Minor = key, 4901 })
				_, fresh := workertest.Order(t)
				p := startAndDeliver(t, w, payload)
				stop(t, p)
				p = startAndDeliver(t, w, payload, tighten)
				for payload, how := range map[string]string{string(other): "dead:key_reused", string(fresh): "dead:invalid"} {
					if name == "route" && how == "dead:invalid" {
						how = "dead:unknown_route"
					}
					d := workertest.NewDelivery([]byte(payload))
					p.Deliver(d)
					if d.How() != how {
						t.Errorf("settled %q, want %q", d.How(), how)
					}
				}
				stop(t, p)
				o, _ := w.Outcome(key)
				wantState(t, o, ledger.StateAuthorized, "")
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestPolicyIsNotJudgedWithoutTheLedger: while it cannot be asked, a refused job waits like every other.
func TestPolicyIsNotJudgedWithoutTheLedger(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		_, payload := workertest.Order(t)
		p := workertest.Start(t, w, at("before claim", func() error { return errors.New("away") }), atMostOnePound)
		d := workertest.NewDelivery(payload)
		p.Deliver(d)
		if d.How() != "retry" || d.Delay == 0 {
			t.Errorf("settled %q after %v, want a retry with a delay", d.How(), d.Delay)
		}
		stop(t, p)
	})
}

// TestRefusedJobOlderThanARecoveryIsLookedUp: it may have been sent under a lost claim, so it becomes an operation in doubt, and is never sent.
func TestRefusedJobOlderThanARecoveryIsLookedUp(t *testing.T) {
	for _, booked := range []bool{true, false} {
		virtually(t, func(t *testing.T, w *world) {
			key, payload := workertest.Order(t)
			d := w.publishedBeforeARecovery(t, key, payload, booked)
			already := len(w.Sent(key))
			p := workertest.Start(t, w, nil, atMostOnePound)
			p.Deliver(d)
			if d.How() != "done" {
				t.Errorf("settled %q, want done", d.How())
			}
			o := workertest.AwaitEnd(t, w, key)
			if booked {
				wantState(t, o, ledger.StateAuthorized, "")
			} else {
				wantState(t, o, ledger.StateParked, "amount_over_limit")
			}
			stop(t, p)
			if n := len(w.Sent(key)); n != already || w.bank.LookUps(key) == 0 {
				t.Errorf("%d sends and %d look-ups, want none and some", n-already, w.bank.LookUps(key))
			}
			workertest.CheckPromise(t, w, key)
		})
	}
}

// TestUnknownRouteOlderThanARecoveryIsNoSilentDeadLetter: nobody can be asked, so a person is told to.
func TestUnknownRouteOlderThanARecoveryIsNoSilentDeadLetter(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		d := workertest.NewDelivery(payload)
		d.SetOrigin(func(o *job.Origin) { o.Route = "nowhere" })
		<-time.After(time.Minute)
		w.led.DoubtBefore = time.Now()
		p := workertest.Start(t, w, nil)
		p.Deliver(d)
		if d.How() != "dead:unknown_route" || !strings.Contains(d.Detail, "may have been sent: ask the partner") {
			t.Errorf("settled %q (%s), want a dead letter that says what to do", d.How(), d.Detail)
		}
		stop(t, p)
		if _, known := w.led.Look(key); known {
			t.Error("an operation was recorded that no partner can be asked about")
		}
	})
}

// TestPolicyTightenedBeforeTheOutcome: what is in doubt is looked up as ever, and nothing more is sent.
func TestPolicyTightenedBeforeTheOutcome(t *testing.T) {
	for _, c := range []struct {
		fault workertest.Fault
		state ledger.State
		code  string
	}{
		{workertest.LostReply, ledger.StateAuthorized, ""},
		{workertest.Fails, ledger.StateParked, "amount_over_limit"},
		{workertest.RateLimited, ledger.StateParked, "amount_over_limit"}, // moved nothing: it has not been sent
		{workertest.Rejects, ledger.StateRejected, "account_closed"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.Order(t)
				w.Script(key, c.fault)
				p := startAndDeliver(t, w, payload)
				stop(t, p)
				p = startAndDeliver(t, w, payload, atMostOnePound)
				o := workertest.AwaitEnd(t, w, key)
				wantState(t, o, c.state, c.code)
				if c.fault == workertest.Fails && !o.InDoubt {
					t.Error("an attempt that was not cleared was parked as if nothing had been sent")
				}
				stop(t, p)
				wantRequests(t, w, key, 1)
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestPolicyStopsBeforeTheFirstSend: recorded by the gateway, refused since.
func TestPolicyStopsBeforeTheFirstSend(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		j, err := job.Decode(workertest.SourceName, workertest.RouteName, payload)
		if err != nil {
			t.Fatal(err)
		}
		w.led.Add(ledger.Wish{Key: key, Fingerprint: j.Fingerprint(), Source: j.Source, Route: j.Route, Payload: payload,
			Intention: ledger.Intention{Partner: "fake"}}, 10*time.Second)
		p := workertest.Start(t, w, nil, atMostOnePound)
		deliver(t, p, payload) // its own message: the ledger owns it, and the sweep judges it
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateParked, "amount_over_limit")
		stop(t, p)
		wantRequests(t, w, key, 0)
	})
}

// TestStraysAreJudgedByTheLedger: a route that was retired leaves jobs behind; those whose operations are on record are no dead letters.
func TestStraysAreJudgedByTheLedger(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		_, other := workertest.OrderWith(t, func(j *job.Job) { j.Key, j.Amount.Minor = key, 4901 })
		lost, old := workertest.Order(t)
		_, fresh := workertest.Order(t)
		before := time.Now()
		p := startAndDeliver(t, w, payload)
		stop(t, p)
		<-time.After(time.Minute)
		w.led.DoubtBefore = time.Now()
		p = workertest.Start(t, w, nil, func(o *worker.Options) { clear(o.Routes); clear(o.Sources) })
		at := func(published time.Time) job.Origin {
			return job.Origin{Source: workertest.SourceName, Route: workertest.RouteName, PublishedAt: published}
		}
		now := time.Now().Add(time.Second)
		faults, err := p.Worker.JudgeStrays(t.Context(), []job.Origin{at(before), at(now), at(before), at(now), at(now)},
			[][]byte{payload, other, old, fresh, []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"", "key_reused: the key belongs to another job", "unknown_route: no consumer covers the subject; it is older than the last " +
			"recovery of the ledger and may have been sent: ask the partner before it is replayed", "unknown_route: no consumer covers the subject",
			"unknown_route: no consumer covers the subject"}
		for i, fault := range faults {
			said := ""
			if fault != nil {
				said = string(fault.Reason) + ": " + fault.Detail
			}
			if said != want[i] {
				t.Errorf("job %d: %q, want %q", i, said, want[i])
			}
		}
		stop(t, p)
		if _, known := w.led.Look(lost); known {
			t.Error("an operation was made of a stray job")
		}
	})
}
