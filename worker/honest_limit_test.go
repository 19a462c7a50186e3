package worker_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/workertest"
)

// deafAndBlind is a partner to which keys mean nothing, and which cannot be asked.
func deafAndBlind(p *bankclient.Profile) {
	p.HonoursKeys, p.SerialisesDuplicates, p.KeyWindow = false, false, 0
	p.LookUp, p.LookUpConsistent, p.VisibilityBound = bankclient.LookUpNone, false, 0
}

// TestHonestLimit_DeafAndBlindPartnerGetsOneSend: what a partner that honours no key and cannot be asked has answered ambiguously is parked, all
// of it and nothing else, after one send each. What it refused before executing may be sent again.
func TestHonestLimit_DeafAndBlindPartnerGetsOneSend(t *testing.T) {
	groups := []struct {
		n      int
		faults []workertest.Fault
		want   ledger.State
		code   string
		sends  int
	}{
		{7, nil, ledger.StateAuthorized, "", 1},
		{5, []workertest.Fault{workertest.LostReply}, ledger.StateParked, "in_doubt_no_look_up", 1},
		{4, []workertest.Fault{workertest.Fails}, ledger.StateParked, "in_doubt_no_look_up", 1},
		{2, []workertest.Fault{workertest.LateBooking}, ledger.StateParked, "in_doubt_no_look_up", 1},
		{3, []workertest.Fault{workertest.Refused}, ledger.StateAuthorized, "", 2},
		{2, []workertest.Fault{workertest.Rejects}, ledger.StateRejected, "account_closed", 1},
		{1, []workertest.Fault{workertest.Refused, workertest.LostReply}, ledger.StateParked, "in_doubt_no_look_up", 2},
	}
	const wantParked = 12
	virtually(t, func(t *testing.T, w *world) {
		p := workertest.Start(t, w, nil)
		var keys []uuid.UUID
		payloads := map[uuid.UUID][]byte{}
		for _, g := range groups {
			for range g.n {
				key, payload := workertest.Order(t)
				w.Script(key, g.faults...)
				deliver(t, p, payload)
				keys, payloads[key] = append(keys, key), payload
			}
		}
		for _, key := range keys {
			workertest.AwaitEnd(t, w, key)
		}
		<-time.After(30 * time.Hour) // neither time nor a redelivery nor the sweep changes anything
		parked := 0
		for _, g := range groups {
			for range g.n {
				key := keys[0]
				keys = keys[1:]
				deliver(t, p, payloads[key])
				o, _ := w.Outcome(key)
				wantState(t, o, g.want, g.code)
				if sends, executions := len(w.Sent(key)), w.Executions(key); sends != g.sends || executions > 1 {
					t.Errorf("%v: %d sends, want %d; executed %d times", g.faults, sends, g.sends, executions)
				}
				if o.State == ledger.StateParked {
					parked++
				}
			}
		}
		stop(t, p)
		if parked != wantParked {
			t.Errorf("%d parked, want %d", parked, wantParked)
		}
	}, deafAndBlind)
}

// TestHonestLimit_LapsedWindowIsNeverSentTo: once half of the key's window is over, an operation in doubt is asked after, never sent again, also
// where the partner says that it knows nothing of it. Within that half it is sent again.
func TestHonestLimit_LapsedWindowIsNeverSentTo(t *testing.T) {
	for _, c := range []struct {
		name    string
		silent  int // look-ups without an answer, at about 5 s and 35 s, before one says "not found"
		state   ledger.State
		code    string
		sends   int
		lookUps int
	}{
		{"before half of it", 1, ledger.StateAuthorized, "", 2, 2},
		{"after", 2, ledger.StateParked, "in_doubt", 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				p := workertest.Start(t, w, nil)
				key, payload := workertest.Order(t)
				w.Script(key, workertest.Fails)
				w.bank.ScriptLookUps(key, make([]bankclient.Finding, c.silent)...)
				deliver(t, p, payload)
				wantState(t, workertest.AwaitEnd(t, w, key), c.state, c.code)
				<-time.After(50 * time.Hour) // parked: two daily look-ups, which find nothing
				deliver(t, p, payload)
				if sends, lookUps := len(w.Sent(key)), w.bank.LookUps(key); sends != c.sends || lookUps != c.lookUps {
					t.Errorf("%d sends and %d look-ups, want %d and %d", sends, lookUps, c.sends, c.lookUps)
				}
				stop(t, p)
			}, func(p *bankclient.Profile) { p.KeyWindow = 4 * time.Minute })
		})
	}
}
