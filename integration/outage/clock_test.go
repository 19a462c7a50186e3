//go:build wrongclock

package outage

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// startWrong starts a worker whose process is so much ahead of everybody else, and waits until it has said what time it believes it is.
func (r *rig) startWrong(t *testing.T, by time.Duration) *arena.Worker {
	t.Helper()
	said := make(chan string, 1)
	w, err := arena.StartWorker(arena.Order{Config: r.config, Detail: tellTime, Env: []string{arena.WrongBy(by)}},
		r.log, func(line string) { said <- line })
	check(t, err)
	t.Cleanup(w.Kill)
	seconds, err := strconv.ParseInt(await(t, "the worker says the time", said), 10, 64)
	check(t, err)
	if off := time.Unix(seconds, 0).Sub(time.Now()) - by; off < -time.Minute || off > time.Minute {
		t.Fatalf("the worker's clock is %s off, want %s: the test proves nothing", off+by, by)
	}
	return w
}

// timed publishes one job with its bounds.
func (r *rig) timed(t *testing.T, notBefore, notAfter time.Time) job.Job {
	t.Helper()
	key := job.NewKey()
	j := job.Job{Key: key, Source: source, Route: route, DebtorAccount: "cust-1", Amount: money.Amount{Minor: 4900, Currency: "GBP"},
		Beneficiary: job.Beneficiary{Name: "A N Example", SortCode: "200000", AccountNumber: "55779911"},
		Reference:   job.Sensitive("T" + strings.ToUpper(key.String()[26:36])), NotBefore: notBefore, NotAfter: notAfter}
	receipt, err := r.publisher.Enqueue(t.Context(), j)
	check(t, err)
	r.all.Keys = append(r.all.Keys, proof.Published{Key: key, Reference: j.Reference.Reveal(), Good: []uint64{receipt.Sequence},
		Expired: !notAfter.IsZero() && notAfter.Before(time.Now())})
	return j
}

// TestClock_WrongForTheWholeProcess: one worker is five hours ahead, one seven hours behind, and one of them is killed on the way. Bounds in time
// are those of the database, whatever the workers believe; so are the times that are recorded and published.
func TestClock_WrongForTheWholeProcess(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	for _, name := range []string{"rate_limited", "unavailable", "error_after_commit", "late_commit"} {
		_, err := r.bank.SetFault(banksim.Fault{Name: name, Next: 5, DelayMS: 1300})
		check(t, err)
	}
	person, err := ledger.Open(t.Context(), r.urls.Owner, ledger.Options{MaxConns: 2})
	check(t, err)
	defer person.Close()
	for turn, by := range []time.Duration{5 * time.Hour, -7 * time.Hour} {
		t.Logf("the first worker is %s off", by)
		first := r.startWrong(t, by)
		now := time.Now().UTC()
		expired := r.timed(t, time.Time{}, now.Add(-2*time.Second))      // the one behind believes that there are hours left
		soon := r.timed(t, now.Add(4*time.Second), time.Time{})          // the one ahead believes that it is overdue
		open := r.timed(t, now.Add(-time.Hour), now.Add(90*time.Minute)) // the one ahead believes that it is too late
		later := r.timed(t, now.Add(3*time.Hour), now.Add(4*time.Hour))  // nobody may send it today
		at := len(r.all.Keys) - 1
		r.load(t, 40)
		awhile(2 * time.Second)
		r.startWrong(t, -by)
		first.Kill()
		for j, want := range map[*job.Job]string{&expired: "cancelled", &soon: "authorized", &open: "authorized", &later: "open"} {
			state := ""
			eventually(t, patience, "a job is "+want, func(context.Context) (bool, error) {
				state = r.text(t, "SELECT coalesce(max(state::text), '') FROM operations WHERE key = '"+j.Key.String()+"'")
				return state == want, fmt.Errorf("it is %q", state)
			})
		}
		for j, sends := range map[*job.Job]bool{&expired: false, &soon: true, &open: true, &later: false} {
			history, _ := r.bank.History(bankclient.PartnerKey(j.Key, partner, "create", 0).String())
			if (len(history.Requests) > 0) != sends {
				t.Errorf("turn %d: %d requests, sends %v", turn, len(history.Requests), sends)
			}
			for _, request := range history.Requests {
				if request.At.Before(j.NotBefore) {
					t.Errorf("turn %d: sent %s before its time", turn, j.NotBefore.Sub(request.At))
				}
			}
		}
		r.execute(t, "UPDATE due SET due_at = now() WHERE operation_id = (SELECT id FROM operations WHERE key = '"+later.Key.String()+"')")
		awhile(time.Second) // it is looked at, and left alone
		if n := r.count(t, "SELECT count(*) FROM operations o JOIN attempts a ON a.operation_id = o.id WHERE o.key = '"+later.Key.String()+"'"); n != 0 {
			t.Errorf("turn %d: %d attempts hours before the time", turn, n)
		}
		cancelled, _, err := person.CancelIfOpen(t.Context(), later.Key, source, "test")
		if check(t, err); !cancelled {
			t.Errorf("turn %d: what was never sent cannot be cancelled", turn)
		}
		r.all.Keys[at].Expired = true // for the proof it is the same: cancelled, and never sent
	}
	r.prove(t)
	if n := r.count(t, `SELECT count(*) FROM operations WHERE outcome_at NOT BETWEEN created_at AND now() OR created_at < now() - interval '10 min'`); n != 0 {
		t.Errorf("%d operations have a worker's time", n)
	}
	r.eventTimes(t)
}

func (r *rig) text(t *testing.T, query string) string {
	t.Helper()
	conn := r.dial(t)
	defer func() { _ = conn.Close(context.Background()) }()
	var text string
	check(t, conn.QueryRow(t.Context(), query).Scan(&text))
	return text
}

// eventTimes looks at when events say that they happened.
func (r *rig) eventTimes(t *testing.T) {
	t.Helper()
	stream, err := r.jetstream(t).Stream(t.Context(), "WITHDRAWAL_EVENTS")
	check(t, err)
	state := stream.CachedInfo().State
	for sequence := state.FirstSeq; sequence <= state.LastSeq; sequence++ {
		msg, err := stream.GetMsg(t.Context(), sequence)
		check(t, err)
		var event struct {
			OccurredAt time.Time `json:"occurred_at"`
		}
		check(t, json.Unmarshal(msg.Data, &event))
		if age := time.Since(event.OccurredAt); age < -time.Minute || age > 10*time.Minute {
			t.Errorf("event %d says that it happened %s ago", sequence, age)
		}
	}
	if state.Msgs < 80 {
		t.Errorf("%d events", state.Msgs)
	}
}
