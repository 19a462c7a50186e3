package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/internal/fake"
	"github.com/paidonce/paidonce/worker/workertest"
)

// deliver hands in a job once and wants it done.
func deliver(t *testing.T, p *workertest.Process, payload []byte) {
	t.Helper()
	d := workertest.NewDelivery(payload)
	p.Deliver(d)
	if how := d.How(); how != "done" {
		t.Fatalf("delivery settled %q (%s), want done", how, d.Detail)
	}
	if len(d.Settled) != 1 {
		t.Errorf("delivery settled %d times: %v", len(d.Settled), d.Settled)
	}
}

// startAndDeliver starts a worker and hands it the job, which it is to be done with.
func startAndDeliver(t *testing.T, w workertest.World, payload []byte, change ...func(*worker.Options)) *workertest.Process {
	t.Helper()
	p := workertest.Start(t, w, nil, change...)
	deliver(t, p, payload)
	return p
}

// at acts where a worker passes the point.
func at(point string, act func() error) *workertest.Faults {
	return &workertest.Faults{At: func(passed string) error {
		if passed == point {
			return act()
		}
		return nil
	}}
}

func stop(t *testing.T, p *workertest.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// lazily sweeps seldom, for tests that last days.
func lazily(o *worker.Options) { o.SweepEvery, o.ParkedEvery = time.Minute, 10*time.Minute }

func wantState(t *testing.T, o workertest.Outcome, state ledger.State, code string) {
	t.Helper()
	if o.State != state || o.Code != code {
		t.Errorf("operation is %s (%s), want %s (%s)", o.State, o.Code, state, code)
	}
}

func wantRequests(t *testing.T, w workertest.World, key uuid.UUID, want int) {
	t.Helper()
	if n := len(w.Sent(key)); n != want {
		t.Errorf("the bank saw %d requests, want %d", n, want)
	}
}

// TestB3_RotatedCredentialOrHostNeverSendsAgainInDoubt: the partner key stays, and other terms forbid the second send.
func TestB3_RotatedCredentialOrHostNeverSendsAgainInDoubt(t *testing.T) {
	for name, rotate := range map[string]func(*fake.Client){
		"credential": func(c *fake.Client) { c.Credential = "2026-12" },
		"host":       func(c *fake.Client) { c.Host = "other.example" },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.Order(t)
				w.Script(key, workertest.Fails)
				first := startAndDeliver(t, w, payload)
				stop(t, first)
				rotate(&w.client)
				second := workertest.Start(t, w, nil, lazily)
				wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateParked, "in_doubt")
				stop(t, second)
				wantRequests(t, w, key, 1)
				if n := w.bank.LookUps(key); n < 10 {
					t.Errorf("%d look-ups, want them to go on until half of the window", n)
				}
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestB5_NewerBuildSendsTheOldBytesOrNothing: a newer renderer is not used for an operation that names an older one, and a
// build that renders the old version otherwise sends nothing.
func TestB5_NewerBuildSendsTheOldBytesOrNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault workertest.Fault
		build func(*fake.Client)
		state ledger.State
		code  string
		sent  int
	}{
		{"newer renderer", workertest.Fails, func(c *fake.Client) { c.Renderer = 2 }, ledger.StateAuthorized, "", 2},
		{"changed old renderer, in doubt", workertest.Fails, func(c *fake.Client) { c.Renders = func(int16) string { return "new" } },
			ledger.StateParked, "absent_not_resendable", 1},
		{"changed old renderer, not in doubt", workertest.RateLimited, func(c *fake.Client) { c.Renders = func(int16) string { return "new" } },
			ledger.StateParked, "request_changed", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				key, payload := workertest.Order(t)
				w.Script(key, c.fault)
				first := startAndDeliver(t, w, payload)
				stop(t, first)
				c.build(&w.client)
				second := workertest.Start(t, w, nil)
				o := workertest.AwaitEnd(t, w, key)
				wantState(t, o, c.state, c.code)
				stop(t, second)
				sent := w.bank.Requests(key)
				if len(sent) != c.sent {
					t.Errorf("the bank saw %d requests, want %d", len(sent), c.sent)
				}
				for _, r := range sent {
					if r.BodySHA256 != sent[0].BodySHA256 {
						t.Error("the bank saw other bytes")
					}
				}
				workertest.CheckPromise(t, w, key)
			})
		})
	}
}

// TestB18_ReplyLostRetryAnsweredDuplicate: the first look-up sees nothing yet, the retry is told "duplicate", and the next
// look-up gives the first transfer's id.
func TestB18_ReplyLostRetryAnsweredDuplicate(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.Script(key, workertest.LostReply, workertest.DuplicateSaid)
		w.bank.ScriptLookUps(key, bankclient.Finding{Answer: bankclient.NotFound})
		p := startAndDeliver(t, w, payload)
		o := workertest.AwaitEnd(t, w, key)
		stop(t, p)
		wantState(t, o, ledger.StateAuthorized, "")
		if o.TransferID != "tr_1" || len(w.Sent(key)) != 2 {
			t.Errorf("authorized as %q after %d requests, want tr_1 after 2", o.TransferID, len(w.Sent(key)))
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestB19_InUseFor40Seconds: the bank works on the first request for 40 s and says "in use" to others meanwhile.
func TestB19_InUseFor40Seconds(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{BookAfter: 40 * time.Second, After: time.Hour}, act(workertest.InUse), act(workertest.InUse))
		p := startAndDeliver(t, w, payload)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		stop(t, p)
		workertest.CheckPromise(t, w, key)
	})
}

// TestB23_StoredFailureParksAfterFiveReplays counts the sends.
func TestB23_StoredFailureParksAfterFiveReplays(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.Script(key, slices.Repeat([]workertest.Fault{workertest.StoredFailure}, 20)...)
		p := startAndDeliver(t, w, payload)
		o := workertest.AwaitEnd(t, w, key)
		stop(t, p)
		wantState(t, o, ledger.StateParked, "identical_replays")
		if n := len(w.Sent(key)); n != 5 || !o.InDoubt {
			t.Errorf("%d sends, in doubt %v; want 5, and still in doubt", n, o.InDoubt)
		}
		if last := o.Facts[len(o.Facts)-1]; last.Kind != ledger.FactLookUp {
			t.Errorf("the last observation before parking is a %s, want a look-up", last.Kind)
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestC1_LatencyThreeTimesTheLease: the claim is renewed, nobody takes over, one request.
func TestC1_LatencyThreeTimesTheLease(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.client.Overruns = true
		w.bank.Script(key, fake.Act{After: 3 * time.Minute})
		faults := &workertest.Faults{}
		first, second := workertest.Start(t, w, faults), workertest.Start(t, w, nil)
		deliver(t, first, payload)
		<-time.After(5 * time.Minute) // what is over is not renewed
		stop(t, first)
		stop(t, second)
		o, _ := w.Outcome(key)
		wantState(t, o, ledger.StateAuthorized, "")
		if n := len(w.Sent(key)); n != 1 || o.Attempts != 1 {
			t.Errorf("%d requests, %d attempts, want 1 and 1", n, o.Attempts)
		}
		// Renewed about every third of a lease of 60 s, in 180 s.
		renewals := len(slices.DeleteFunc(faults.Points(), func(p string) bool { return p != "before renew" }))
		if renewals < 6 || renewals > 9 {
			t.Errorf("%d renewals, want 6 to 9", renewals)
		}
		if n := w.bank.LookUps(key); n != 0 {
			t.Errorf("%d look-ups by somebody who took over", n)
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestC3_FrozenPastItsLease: another worker finishes; the frozen one changes nothing, its evidence is kept.
func TestC3_FrozenPastItsLease(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		thaw := make(chan struct{})
		first := workertest.Start(t, w, &workertest.Faults{At: func(point string) error {
			if point == "after send" || point == "before renew" || point == "sweep" {
				<-thaw
			}
			return nil
		}})
		d := workertest.NewDelivery(payload)
		handled := make(chan struct{})
		go func() { defer close(handled); first.Deliver(d) }()
		second := workertest.Start(t, w, nil)
		wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
		before, _ := w.led.Look(key)
		close(thaw)
		<-handled
		after, _ := w.led.Look(key)
		if how := d.How(); how != "done" {
			t.Errorf("the frozen worker settled %q, want done", how)
		}
		if after.Fence != before.Fence || after.TransferID != before.TransferID || !slices.Equal(after.History, before.History) {
			t.Errorf("the frozen worker changed the operation: %v, then %v", before.History, after.History)
		}
		if last := after.Facts[len(after.Facts)-1]; last.Kind != ledger.FactLate || last.Verdict != "authorized" {
			t.Errorf("its evidence was not kept: last fact %s %s", last.Kind, last.Verdict)
		}
		stop(t, first)
		stop(t, second)
		wantRequests(t, w, key, 1)
		workertest.CheckPromise(t, w, key)
	})
}

// TestC10_BankDownForAnHour: no operation fails, none is cancelled, and all are paid once when it is back.
func TestC10_BankDownForAnHour(t *testing.T) {
	for name, down := range map[string]fake.Act{
		"refuses":    act(workertest.Refused),
		"black hole": {NoBooking: true, After: 2 * time.Hour, Say: &bankclient.Result{}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				w.bank.Down(&down)
				p := workertest.Start(t, w, nil)
				var keys []uuid.UUID
				for range 10 {
					key, payload := workertest.Order(t)
					keys = append(keys, key)
					deliver(t, p, payload)
				}
				<-time.After(time.Hour)
				w.bank.Down(nil)
				for _, key := range keys {
					wantState(t, workertest.AwaitEnd(t, w, key), ledger.StateAuthorized, "")
					op, _ := w.led.Look(key)
					if slices.Contains(op.History, ledger.StateRejected) || slices.Contains(op.History, ledger.StateCancelled) {
						t.Errorf("history %v", op.History)
					}
				}
				stop(t, p)
				workertest.CheckPromise(t, w, keys...)
			})
		})
	}
}

// TestG9_RetryAfterHalfAnHourIsAScheduledAttempt.
func TestG9_RetryAfterHalfAnHourIsAScheduledAttempt(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		key, payload := workertest.Order(t)
		w.bank.Script(key, fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.NotExecuted, RetryAfter: 1800 * time.Second}})
		p := startAndDeliver(t, w, payload)
		workertest.AwaitEnd(t, w, key)
		stop(t, p)
		sent := w.Sent(key)
		if len(sent) != 2 {
			t.Fatalf("%d requests, want 2", len(sent))
		}
		if gap := sent[1].At.Sub(sent[0].At); gap < 1800*time.Second || gap > 2400*time.Second {
			t.Errorf("sent again after %v, want 1800 s to 2400 s", gap)
		}
		workertest.CheckPromise(t, w, key)
	})
}

// TestG11_ReturnIsSpread: 200 operations told "60 s" come back over at least 12 s, and none of them early.
func TestG11_ReturnIsSpread(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		p := workertest.Start(t, w, nil, func(o *worker.Options) { o.SweepEvery = 50 * time.Millisecond })
		var keys []uuid.UUID
		for range 200 {
			key, payload := workertest.Order(t)
			w.bank.Script(key, fake.Act{NoBooking: true, Say: &bankclient.Result{Verdict: bankclient.NotExecuted, RetryAfter: time.Minute}})
			keys = append(keys, key)
			deliver(t, p, payload)
		}
		var gaps []time.Duration
		for _, key := range keys {
			workertest.AwaitEnd(t, w, key)
			sent := w.Sent(key)
			gaps = append(gaps, sent[1].At.Sub(sent[0].At))
		}
		stop(t, p)
		slices.Sort(gaps)
		if gaps[0] < time.Minute || gaps[199]-gaps[0] < 12*time.Second {
			t.Errorf("they came back %v to %v later, want 60 s at least and a spread of 12 s", gaps[0], gaps[199])
		}
		if spread := gaps[150] - gaps[50]; spread < 6*time.Second {
			t.Errorf("the middle half came back within %v, want it spread", spread)
		}
		workertest.CheckPromise(t, w, keys...)
	})
}
