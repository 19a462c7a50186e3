package worker_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/internal/fake"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/workertest"
)

// dialled is a world whose bank is a server.
type dialled struct {
	*world
	partner *bankclient.Partner
}

func (w *dialled) Partner() worker.Partner {
	return worker.Partner{Bank: w.partner, Gate: w.partner.Gate()}
}

// TestLease_SuspendedWhileDialling: the machine sleeps after the lease was looked at and before a byte of the request is written; its monotonic clock, by
// which a call ends, stands still meanwhile. Nothing may leave when it wakes up, whether the lease is over then or the job's not_after.
func TestLease_SuspendedWhileDialling(t *testing.T) {
	for name, row := range map[string]struct {
		lease, sleeps time.Duration
		change        func(*job.Job)
	}{
		"past the lease":     {time.Minute, 25 * time.Hour, func(*job.Job) {}},
		"past the not_after": {24 * time.Hour, 2 * time.Hour, func(j *job.Job) { j.NotAfter = time.Now().Add(time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			var slept atomic.Int64
			bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusInternalServerError)
			}))
			defer bank.Close()
			p, err := bankclient.New(bankclient.Config{
				ID: "fake", BaseURL: bank.URL, CredentialID: "2026-11", Token: func() string { return "x" },
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					slept.Store(int64(row.sleeps))
					return (&net.Dialer{}).DialContext(ctx, network, addr)
				},
			}, reference.New())
			if err != nil {
				t.Fatal(err)
			}
			w := &dialled{world: newWorld(), partner: p}
			w.lease, w.led = row.lease, fake.NewLedger(row.lease)
			key, payload := workertest.OrderWith(t, row.change)
			run := workertest.Start(t, w, nil, func(o *worker.Options) {
				clock := o.Clock
				o.Clock = func() time.Duration { return clock() + time.Duration(slept.Load()) }
			})
			deliver(t, run, payload)
			workertest.Eventually(t, time.Minute, "the call is on record", func() bool {
				o, ok := w.led.Look(key)
				return ok && len(o.Facts) > 0
			})
			stop(t, run)
			o, _ := w.led.Look(key)
			if f := o.Facts[0]; f.Verdict != bankclient.NotExecuted.String() || !strings.Contains(string(f.Evidence), "too late to begin") {
				t.Errorf("%s %s, want that nothing left", f.Verdict, f.Evidence)
			}
		})
	}
}
