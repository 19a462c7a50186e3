package worker_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/internal/fake"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/workertest"
)

func TestNotBeforeIsWaitedFor(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		begin := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		key, payload := workertest.OrderWith(t, func(j *job.Job) { j.NotBefore = begin })
		p := startAndDeliver(t, w, payload)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, p)
		if at := w.Sent(key)[0].At; at.Before(begin) {
			t.Errorf("sent %v too early", begin.Sub(at))
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestNotBeforeIsWaitedFor_WhateverMakesItDue: a resume brings back what was held, and a person may ask for the next step at once. Neither is
// leave to send before the time, and being asked often makes no poison of it.
func TestNotBeforeIsWaitedFor_WhateverMakesItDue(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		begin := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		key, payload := workertest.OrderWith(t, func(j *job.Job) { j.NotBefore = begin })
		p := startAndDeliver(t, w, payload)
		for range 5 {
			w.led.Edit(key, func(op *fake.Operation) { op.DueAt = time.Now() })
			workertest.Eventually(t, time.Minute, "it was looked at", func() bool {
				op, _ := w.led.Look(key)
				return op.State == ledger.StateOpen && op.DueAt.After(begin.Add(-time.Second))
			})
		}
		if sent := w.Sent(key); len(sent) != 0 {
			t.Fatalf("sent %v too early", begin.Sub(sent[0].At))
		}
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, p)
		if at := w.Sent(key)[0].At; at.Before(begin) {
			t.Errorf("sent %v too early", begin.Sub(at))
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestNotAfterInDoubtIsLookedUpAndParked: after not_after nothing is sent; what was booked is found, the rest is parked.
func TestNotAfterInDoubtIsLookedUpAndParked(t *testing.T) {
	for _, c := range []struct {
		fault workertest.Fault
		state ledger.State
		code  string
	}{{workertest.Fails, ledger.StateParked, "absent_not_resendable"}, {workertest.LostReply, ledger.StateAuthorized, ""}} {
		t.Run(string(c.fault), func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.OrderWith(t, func(j *job.Job) { j.NotAfter = time.Now().Add(3 * time.Second).UTC().Truncate(time.Second) })
				w.Script(key, c.fault)
				p := startAndDeliver(t, w, payload)
				wantState(t, workertest.AwaitEnd(t, w, key), c.state, c.code)
				stop(t, p)
				wantRequests(t, w, key, 1)
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestNotAfterPassesBetweenRefusalAndRetry: not in doubt, so it is cancelled.
func TestNotAfterPassesBetweenRefusalAndRetry(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.OrderWith(t, func(j *job.Job) { j.NotAfter = time.Now().Add(2 * time.Second).UTC().Truncate(time.Second) })
		w.Script(key, workertest.RateLimited)
		p := startAndDeliver(t, w, payload)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateCancelled, "expired")
		stop(t, p)
		workertest.CheckPromise(t, w, key)
	})
}

// TestPoisonParksWithoutSend: three workers die holding it, the fourth parks it.
func TestPoisonParksWithoutSend(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		var dead []*workertest.Process
		for i, point := range []string{"after claim", "after claim_due", "after claim_due"} {
			faults := at(point, func() error { return workertest.ErrKilled })
			p := workertest.Start(t, w, faults)
			dead = append(dead, p)
			if i == 0 {
				p.Deliver(workertest.NewDelivery(payload))
			}
			workertest.Eventually(t, w.Patience(), "claimed again", func() bool {
				op, _ := w.led.Look(key)
				return op.Fence == int32(i+1)
			})
			p.Kill()
		}
		w.client.Refuses = func(uuid.UUID) bool {
			t.Error("a poison was prepared once more")
			return true
		}
		last := workertest.Start(t, w, nil)
		o := workertest.AwaitEnd(t, w, key)
		wantState(t, o, ledger.StateParked, "poison")
		if op, _ := w.led.Look(key); len(op.Facts) != 1 || op.Facts[0].Kind != ledger.FactNote || op.Facts[0].Code != "poison" {
			t.Errorf("parked with the facts %+v, want one note that says why", op.Facts)
		}
		if !o.InDoubt {
			t.Error("an attempt without an observation was parked as if nothing had been sent")
		}
		stop(t, last)
		for _, p := range dead {
			p.Bury()
		}
		wantRequests(t, w, key, 0)
		workertest.CheckPromise(t, w, key)
	})
}

func TestLocalCheckRefusesAndParks(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.client.Refuses = func(uuid.UUID) bool { return true }
		p := startAndDeliver(t, w, payload)
		o, _ := w.Outcome(key)
		wantState(t, o, ledger.StateParked, "local_check")
		if o.InDoubt || len(w.Sent(key)) != 0 {
			t.Errorf("in doubt %v, %d requests; want neither", o.InDoubt, len(w.Sent(key)))
		}
		stop(t, p)
		workertest.CheckPromise(t, w, key)
	})
}

// TestInvariant7_AnotherJobsPayloadIsNotSent: what is on record must be the job that the operation was made for, whoever wrote it there.
func TestInvariant7_AnotherJobsPayloadIsNotSent(t *testing.T) {
	for name, change := range map[string]func(*job.Job){
		"another amount": func(j *job.Job) { j.Amount.Minor = 20_000_000 },
		"another key":    func(j *job.Job) { j.Key = job.NewKey() },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				var order job.Job
				key, payload := workertest.OrderWith(t, func(j *job.Job) {
					j.NotBefore = time.Now().Add(time.Hour)
					order = *j
				})
				p := startAndDeliver(t, w, payload)
				change(&order)
				other, err := job.Encode(order)
				if err != nil {
					t.Fatal(err)
				}
				w.led.Edit(key, func(op *fake.Operation) { op.Wish.Payload = other })
				wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateParked, "payload_differs")
				stop(t, p)
				wantRequests(t, w, key, 0)
				wantRequests(t, w, order.Key, 0)
			})
		})
	}
}

// TestParkedIsLookedUpDaily: what is found there decides, and nothing is sent for it.
func TestParkedIsLookedUpDaily(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{BookAfter: 50 * time.Hour, After: time.Hour})
		w.client.Credential = "2026-11"
		p := startAndDeliver(t, w, payload, lazily)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateParked, "in_doubt")
		parkedAfter := w.bank.LookUps(key)
		workertest.Eventually(t, 4*24*time.Hour, "authorized", func() bool {
			o, _ := w.Outcome(key)
			return o.State == ledger.StateAuthorized
		})
		stop(t, p)
		if n := w.bank.LookUps(key) - parkedAfter; n < 2 || n > 4 {
			t.Errorf("%d look-ups while parked for some two days, want one a day", n)
		}
		if got := w.led.AskedUnder(key); got != w.Sent(key)[0].PartnerKey {
			t.Errorf("looked up under partner key %q, the bank saw %q", got, w.Sent(key)[0].PartnerKey)
		}
		wantRequests(t, w, key, 1)
		workertest.CheckPromise(t, w, key)
	}, func(p *bankclient.Profile) { p.SerialisesDuplicates, p.LookUpConsistent = false, false })
}

// TestLostClaimIsLookedUpFirst: a job published before a failover may have been sent under a claim that is lost.
func TestLostClaimIsLookedUpFirst(t *testing.T) {
	for _, booked := range []bool{true, false} {
		virtually(t, func(t *testing.T, w *world) {
			key, payload := workertest.Order(t)
			d := w.publishedBeforeARecovery(t, key, payload, booked)
			already := len(w.Sent(key))
			recovered := time.Now()
			p := workertest.Start(t, w, nil)
			p.Deliver(d)
			if n := len(w.Sent(key)); n != already || w.bank.LookUps(key) != 1 {
				t.Errorf("%d sends and %d look-ups at first, want 0 and 1", n-already, w.bank.LookUps(key))
			}
			wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
			stop(t, p)
			if got := w.led.AskedUnder(key); got == "" || got != w.Sent(key)[0].PartnerKey {
				t.Errorf("recorded under partner key %q, the bank saw %q", got, w.Sent(key)[0].PartnerKey)
			}
			if !booked {
				// Lease 60 s, latest arrival 60 s, visibility 5 s.
				if at := w.Sent(key)[0].At; at.Before(recovered.Add(125 * time.Second)) {
					t.Errorf("sent %v after the recovery, before absence could be proved", at.Sub(recovered))
				}
			}
			workertest.CheckPromise(t, w, key)
		})
	}
}

// TestLookUpFollowsWhatAnAnswerNamed: a 201 with nothing but a Location says where the transfer is.
func TestLookUpFollowsWhatAnAnswerNamed(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{Say: &bankclient.Result{Evidence: bankclient.Evidence{Status: 201, Location: "/v1/transfers/tr_1"}}})
		p := startAndDeliver(t, w, payload)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, p)
		if trace := w.bank.Trace(key); trace != (bankclient.Trace{Location: "/v1/transfers/tr_1"}) {
			t.Errorf("the look-up was told to follow %+v", trace)
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestLeaseIsCountedOnAClockThatRunsThroughSuspend: after a suspend between claim and send nothing is sent.
func TestLeaseIsCountedOnAClockThatRunsThroughSuspend(t *testing.T) {
	const open, claimed, authorized = ledger.StateOpen, ledger.StateClaimed, ledger.StateAuthorized
	for _, c := range []struct {
		suspended     time.Duration
		history       []ledger.State // begins so
		verdict, code string         // of the first claim
	}{ // lease 60 s, timeout 20 s, margin 5 s
		{34 * time.Second, []ledger.State{open, claimed, authorized}, "authorized", ""},
		{36 * time.Second, []ledger.State{open, claimed, open}, "not_executed", "not_started"},
	} {
		virtually(t, func(t *testing.T, w *world) {
			key, payload := workertest.Order(t)
			var slept atomic.Int64
			var once sync.Once
			p := workertest.Start(t, w, at("after claim", func() error {
				once.Do(func() { slept.Store(int64(c.suspended)) })
				return nil
			}), func(o *worker.Options) {
				clock := o.Clock
				o.Clock = func() time.Duration { return clock() + time.Duration(slept.Load()) }
			})
			deliver(t, p, payload)
			wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
			stop(t, p)
			wantRequests(t, w, key, 1)
			if n := w.bank.LookUps(key); n != 0 {
				t.Errorf("%d look-ups of what was never in doubt", n)
			}
			o, _ := w.led.Look(key) // a sweep that began before the suspend may take it too, and hand it back too
			if len(o.History) < len(c.history) || !slices.Equal(o.History[:len(c.history)], c.history) || o.Facts[0].Verdict != c.verdict || o.Facts[0].Code != c.code {
				t.Errorf("after a suspend of %v: %v, of the first claim %s %q, want %v, %s %q",
					c.suspended, o.History, o.Facts[0].Verdict, o.Facts[0].Code, c.history, c.verdict, c.code)
			}
			workertest.CheckPromise(t, w, key)
		})
	}
}

// TestStopBetweenClaimAndSendHandsBack: due at once for another worker, and not in doubt.
func TestStopBetweenClaimAndSendHandsBack(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		var first *workertest.Process
		ready := make(chan struct{})
		first = workertest.Start(t, w, at("after claim", func() error {
			<-ready
			first.Signal()
			<-time.After(time.Second)
			return nil
		}))
		close(ready)
		deliver(t, first, payload)
		if err := first.Wait(); err != nil {
			t.Errorf("stop: %v", err)
		}
		op, _ := w.led.Look(key)
		if op.State != ledger.StateOpen || op.InDoubt || op.DueAt.After(time.Now()) || len(w.Sent(key)) != 0 {
			t.Errorf("handed back as %s, in doubt %v, due in %v, after %d requests", op.State, op.InDoubt, time.Until(op.DueAt), len(w.Sent(key)))
		}
		second := workertest.Start(t, w, nil)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, second)
		workertest.CheckPromise(t, w, key)
	})
}

// TestOurLimitStoredUnderTheKeyRaisesTheEpoch: the customer is not refused; the next key is tried once a person resumed.
func TestOurLimitStoredUnderTheKeyRaisesTheEpoch(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{NoBooking: true, Store: true, Say: &bankclient.Result{Verdict: bankclient.Rejected, Authoritative: true,
			Cause: bankclient.CauseOurLimits, Code: "daily_limit"}})
		p := startAndDeliver(t, w, payload)
		op, _ := w.led.Look(key)
		if op.State != ledger.StateOpen || op.Epoch != 1 || op.InDoubt || w.led.Pauses()["partner/fake"] != "our_limits" {
			t.Errorf("state %s, epoch %d, in doubt %v, pauses %v", op.State, op.Epoch, op.InDoubt, w.led.Pauses())
		}
		<-time.After(time.Hour)
		if n := len(w.Sent(key)); n != 1 {
			t.Errorf("a paused partner saw %d requests, want 1", n)
		}
		w.Resume()
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, p)
		sent := w.Sent(key)
		if len(sent) != 2 || sent[0].PartnerKey == sent[1].PartnerKey || w.Executions(key) != 1 {
			t.Errorf("%d requests, %d executions; want 2 under different keys and 1", len(sent), w.Executions(key))
		}
	})
}

func TestMismatchPausesThePartner(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.Script(key, workertest.Disagrees)
		p := startAndDeliver(t, w, payload, lazily)
		o, _ := w.Outcome(key)
		wantState(t, o, ledger.StateParked, "mismatch")
		if w.led.Pauses()["partner/fake"] != "mismatch" {
			t.Errorf("pauses %v, want the partner's", w.led.Pauses())
		}
		<-time.After(3 * 24 * time.Hour) // the daily look-up finds a transfer; beside a mismatch it decides nothing
		o, _ = w.Outcome(key)
		wantState(t, o, ledger.StateParked, "mismatch")
		if w.bank.LookUps(key) == 0 {
			t.Error("a parked operation was not looked up")
		}
		stop(t, p)
		workertest.CheckPromise(t, w, key)
	})
}

// TestDeadLetters: each with its reason, and nothing in the ledger.
func TestDeadLetters(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		p := workertest.Start(t, w, nil, func(o *worker.Options) {
			o.Routes["usd-wire"] = worker.Route{Partner: "fake", Currencies: []string{"USD"}}
		})
		_, good := workertest.Order(t)
		_, large := workertest.OrderWith(t, func(j *job.Job) { j.Amount.Minor = 25000001 })
		_, euro := workertest.OrderWith(t, func(j *job.Job) { j.Amount.Currency = "EUR" })
		for _, c := range []struct {
			name    string
			payload []byte
			origin  func(*job.Origin)
			how     string
			detail  string
		}{
			{"route", good, func(o *job.Origin) { o.Route = "nowhere" }, "dead:unknown_route", "unknown_route"},
			{"source", good, func(o *job.Origin) { o.Source = "stranger" }, "dead:invalid", "route_not_allowed"},
			{"route of others", good, func(o *job.Origin) { o.Route = "usd-wire" }, "dead:invalid", "route_not_allowed"},
			{"currency", euro, func(*job.Origin) {}, "dead:invalid", "currency_not_on_route"},
			{"amount", large, func(*job.Origin) {}, "dead:invalid", "amount_over_limit"},
			{"bytes", []byte(`{"v":1}x`), func(*job.Origin) {}, "dead:undecodable", ""},
			{"empty", nil, func(*job.Origin) {}, "dead:undecodable", ""},
		} {
			d := workertest.NewDelivery(c.payload)
			d.SetOrigin(c.origin)
			p.Deliver(d)
			if d.How() != c.how || !strings.Contains(d.Detail, c.detail) || len(d.Settled) != 1 {
				t.Errorf("%s: settled %v (%s), want %s (%s)", c.name, d.Settled, d.Detail, c.how, c.detail)
			}
		}
		stop(t, p)
	})
}

// TestVerdictsReachTheBreaker: every call and look-up is reported to the partner's gate.
func TestVerdictsReachTheBreaker(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.Script(key, workertest.RateLimited)
		p := startAndDeliver(t, w, payload)
		workertest.AwaitEnd(t, w, key)
		stop(t, p)
		reported := w.gates[0].Reported
		if len(reported) != 2 || reported[0].Scope != bankclient.ScopePartner || reported[1].Verdict != bankclient.Authorized {
			t.Errorf("the gate was told %+v, want a failure of the partner, then authorized", reported)
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestGraceRunsOut: what is then in flight is cut and in doubt, and found by the next worker.
func TestGraceRunsOut(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.client.Overruns = true
		w.bank.Script(key, fake.Act{After: time.Hour})
		p := workertest.Start(t, w, nil)
		d := workertest.NewDelivery(payload)
		go p.Deliver(d)
		synctest.Wait()
		began := time.Now()
		if err := p.Stop(); err == nil {
			t.Error("a worker that was cut ended without an error")
		}
		if took := time.Since(began); took != 45*time.Second {
			t.Errorf("it ended after %v, want the grace of 45 s", took)
		}
		second := workertest.Start(t, w, nil)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, second)
		workertest.CheckPromise(t, w, key)
	})
}

// TestNotAfterPassesBetweenClaimAndSend: nothing left us, so it is cancelled.
func TestNotAfterPassesBetweenClaimAndSend(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.OrderWith(t, func(j *job.Job) { j.NotAfter = time.Now().Add(3 * time.Second).UTC().Truncate(time.Second) })
		p := workertest.Start(t, w, at("after claim", func() error {
			<-time.After(5 * time.Second)
			return nil
		}))
		deliver(t, p, payload)
		o, _ := w.Outcome(key)
		wantState(t, o, ledger.StateCancelled, "expired")
		stop(t, p)
		wantRequests(t, w, key, 0)
		workertest.CheckPromise(t, w, key)
	})
}

// TestRejectionWithoutACodeIsRecorded: the ledger wants a reason for every rejection.
func TestRejectionWithoutACodeIsRecorded(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.Rejected}})
		p := startAndDeliver(t, w, payload)
		o, _ := w.Outcome(key)
		wantState(t, o, ledger.StateRejected, "rejected")
		stop(t, p)
		workertest.CheckPromise(t, w, key)
	})
}

// TestC7_RecordIsTriedAgainUnderItsClaim: what the partner said is not lost with one failed write, and is not asked again.
func TestC7_RecordIsTriedAgainUnderItsClaim(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		failures := 2
		p := workertest.Start(t, w, at("before record", func() error {
			if failures == 0 {
				return nil
			}
			failures--
			return errors.New("serialization failure")
		}))
		deliver(t, p, payload)
		o, _ := w.Outcome(key)
		wantState(t, o, ledger.StateAuthorized, "")
		stop(t, p)
		if o.Attempts != 1 || len(w.Sent(key)) != 1 || w.bank.LookUps(key) != 0 {
			t.Errorf("%d attempts, %d requests, %d look-ups; want 1, 1, 0", o.Attempts, len(w.Sent(key)), w.bank.LookUps(key))
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestOurFundsAsARejectionIsNotTheCustomers: not stored, so the same key serves once a person resumed.
func TestOurFundsAsARejectionIsNotTheCustomers(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.Rejected, Cause: bankclient.CauseOurFunds,
			Code: "insufficient_funds"}})
		p := startAndDeliver(t, w, payload)
		op, _ := w.led.Look(key)
		if op.State != ledger.StateOpen || op.Epoch != 0 || op.InDoubt || w.led.Pauses()["partner/fake"] != "our_funds" {
			t.Errorf("state %s, epoch %d, in doubt %v, pauses %v", op.State, op.Epoch, op.InDoubt, w.led.Pauses())
		}
		w.Resume()
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, p)
		workertest.CheckPromise(t, w, key)
	})
}

// TestSweepStartsWhatTheGatewayRecorded: E8, the message never came. What the policy forbids is parked, not sent.
func TestSweepStartsWhatTheGatewayRecorded(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		record := func(change func(*job.Job)) uuid.UUID {
			key, payload := workertest.OrderWith(t, change)
			w.led.Add(ledger.Wish{Key: key, Source: workertest.SourceName, Route: workertest.RouteName, Payload: payload,
				Intention: ledger.Intention{Partner: "fake"}}, 10*time.Second)
			return key
		}
		good, large := record(func(*job.Job) {}), record(func(j *job.Job) { j.Amount.Minor = 25000001 })
		p := workertest.Start(t, w, nil)
		wantState(t, workertest.AwaitEnd(t, w, good), ledger.StateAuthorized, "")
		wantState(t, workertest.AwaitEnd(t, w, large), ledger.StateParked, "amount_over_limit")
		stop(t, p)
		if n := len(w.Sent(large)); n != 0 {
			t.Errorf("the bank saw %d requests above the limit", n)
		}
		workertest.CheckPromise(t, w, good, large)
	})
}

// TestSweepHoldsASlotForEveryCall: never more calls at the same time than the gate has slots.
func TestSweepHoldsASlotForEveryCall(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		w.slots = 2
		var keys []uuid.UUID
		for range 7 {
			key, payload := workertest.Order(t)
			keys = append(keys, key)
			w.led.Add(ledger.Wish{Key: key, Source: workertest.SourceName, Route: workertest.RouteName, Payload: payload,
				Intention: ledger.Intention{Partner: "fake"}}, 0)
			w.Script(key, workertest.SlowAnswer)
		}
		var mu sync.Mutex
		now, most := 0, 0
		p := workertest.Start(t, w, &workertest.Faults{At: func(point string) error {
			mu.Lock()
			defer mu.Unlock()
			switch point {
			case "before send":
				now++
				most = max(most, now)
			case "after send":
				now--
			}
			return nil
		}})
		for _, key := range keys {
			wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		}
		stop(t, p)
		if most != 2 {
			t.Errorf("up to %d calls at the same time, want 2", most)
		}
		workertest.CheckPromise(t, w, keys...)
	})
}

// TestUnreadablePayloadParksAndKeepsTheDoubt: a later version cannot read it; a person can.
func TestUnreadablePayloadParksAndKeepsTheDoubt(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.Script(key, workertest.Fails)
		p := startAndDeliver(t, w, payload)
		w.led.Edit(key, func(op *fake.Operation) { op.Wish.Payload = []byte("{}") })
		o := workertest.AwaitEnd(t, w, key)
		stop(t, p)
		if o.State != ledger.StateParked || !o.InDoubt {
			t.Errorf("operation is %s, in doubt %v; want parked and in doubt", o, o.InDoubt)
		}
		workertest.CheckPromise(t, w, key)
	})
}
