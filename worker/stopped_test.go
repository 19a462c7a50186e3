package worker_test

import (
	"testing"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/internal/fake"
	"github.com/paidonce/paidonce/worker/workertest"
)

// TestStopped_NothingMoreIsSent: a run that is cancelled while its rows are under way or in doubt. What was booked is found, what was surely not
// executed ends, and what is not found waits for a person.
func TestStopped_NothingMoreIsSent(t *testing.T) {
	for _, c := range []struct {
		fault workertest.Fault
		state ledger.State
		code  string
	}{
		{workertest.LostReply, ledger.StateAuthorized, ""},
		{workertest.RateLimited, ledger.StateCancelled, "run_cancelled"},
		{workertest.Fails, ledger.StateParked, "run_cancelled"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.Order(t)
				w.Script(key, c.fault)
				p := workertest.Start(t, w, at("after claim", func() error {
					w.led.Edit(key, func(op *fake.Operation) { op.Stopped = "run_cancelled" }) // too late for the call that is under way
					return nil
				}))
				deliver(t, p, payload)
				wantState(t, workertest.AwaitEnd(t, w, key), c.state, c.code)
				stop(t, p)
				wantRequests(t, w, key, 1)
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestStopped_LostClaim: a run that is cancelled after a recovery which put its rows in doubt.
func TestStopped_LostClaim(t *testing.T) {
	for booked, want := range map[bool]ledger.State{true: ledger.StateAuthorized, false: ledger.StateParked} {
		virtually(t, func(t *testing.T, w *world) {
			key, payload := workertest.Order(t)
			d := w.publishedBeforeARecovery(t, key, payload, booked)
			already := len(w.Sent(key))
			p := workertest.Start(t, w, at("after claim", func() error {
				w.led.Edit(key, func(op *fake.Operation) { op.Stopped = "run_cancelled" })
				return nil
			}))
			p.Deliver(d)
			code := map[bool]string{false: "run_cancelled"}[booked]
			wantState(t, workertest.AwaitEnd(t, w, key), want, code)
			stop(t, p)
			wantRequests(t, w, key, already)
			workertest.CheckPromise(t, w, key)
		})
	}
}

// TestStopped_BetweenTheSweepsClaimAndItsAttempt: the sweep may wait for its turn at the partner with a claim that knows of no stop.
func TestStopped_BetweenTheSweepsClaimAndItsAttempt(t *testing.T) {
	for _, c := range []struct {
		fault workertest.Fault
		state ledger.State
	}{
		{workertest.RateLimited, ledger.StateCancelled},
		{workertest.Fails, ledger.StateParked},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.Order(t)
				w.Script(key, c.fault)
				p := workertest.Start(t, w, at("before commit_attempts", func() error {
					w.led.Edit(key, func(op *fake.Operation) { op.Stopped = "run_cancelled" })
					return nil
				}))
				deliver(t, p, payload)
				wantState(t, workertest.AwaitEnd(t, w, key), c.state, "run_cancelled")
				stop(t, p)
				wantRequests(t, w, key, 1)
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestStopped_WithoutAWord: an attempt that the ledger refuses as stopped, whatever it says of it, is not sent.
func TestStopped_WithoutAWord(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.Script(key, workertest.Fails)
		p := workertest.Start(t, w, at("before commit_attempts", func() error {
			w.led.Edit(key, func(op *fake.Operation) { op.StoppedDumb = true })
			return nil
		}))
		deliver(t, p, payload)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateParked, "in_doubt")
		stop(t, p)
		wantRequests(t, w, key, 1)
	})
}
