package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/workertest"
)

// newerProgram is a world whose worker puts every wish under a newer version of the fingerprint first, as a later program will. What it puts
// a second time goes through as it is.
type newerProgram struct {
	*world
	newerLedger
}

type newerLedger struct {
	worker.Ledger
	mu  *sync.Mutex
	put map[uuid.UUID]bool
}

func (p newerProgram) Ledger() worker.Ledger { return p.newerLedger }

// Claim implements worker.Ledger.
func (l newerLedger) Claim(ctx context.Context, wishes []ledger.Wish) []ledger.ClaimAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range wishes {
		if key := wishes[i].Key; !l.put[key] {
			wishes[i].Fingerprint = ledger.Fingerprint{Version: 2, Sum: [32]byte{1}}
			l.put[key] = true
		} else {
			delete(l.put, key)
		}
	}
	return l.Ledger.Claim(ctx, wishes)
}

// TestOlderFingerprintIsComparedUnderItsOwnVersion: what an older program has recorded is known to a newer one, and so is a conflict with it. A
// version that nobody here knows is left to whoever does.
func TestOlderFingerprintIsComparedUnderItsOwnVersion(t *testing.T) {
	virtually(t, func(t *testing.T, w *world) {
		finished, payload := workertest.Order(t)
		_, other := workertest.OrderWith(t, func(j *job.Job) { j.Key, j.Amount.Minor = finished, 4901 })
		open, recorded := workertest.Order(t)
		unknown, ahead := workertest.Order(t)
		p := startAndDeliver(t, w, payload)
		stop(t, p)
		add := func(key uuid.UUID, payload []byte, version int16) {
			j, err := job.Decode(workertest.SourceName, workertest.RouteName, payload)
			if err != nil {
				t.Fatal(err)
			}
			w.led.Add(ledger.Wish{Key: key, Fingerprint: ledger.Fingerprint{Version: version, Sum: j.Fingerprint().Sum}, Source: j.Source, Route: j.Route,
				Payload: payload, Intention: ledger.Intention{Partner: "fake"}}, 1e12)
		}
		add(open, recorded, 1)
		add(unknown, ahead, 9)
		newer := newerProgram{w, newerLedger{w.led, &sync.Mutex{}, map[uuid.UUID]bool{}}}
		for name, change := range map[string]func(*worker.Options){"allowed": func(*worker.Options) {}, "refused": atMostOnePound} {
			p = workertest.Start(t, newer, nil, change)
			for _, c := range []struct {
				payload []byte
				how     string
			}{{payload, "done"}, {other, "dead:key_reused"}, {recorded, "done"}, {ahead, "retry"}} {
				d := workertest.NewDelivery(c.payload)
				p.Deliver(d)
				if d.How() != c.how {
					t.Errorf("%s: settled %q (%s), want %q", name, d.How(), d.Detail, c.how)
				}
				clear(newer.put)
			}
			stop(t, p)
		}
		wantStrays(t, newer, map[string][]byte{"": payload, "key_reused": other}, ahead)
		workertest.CheckPromise(t, w, finished, open)
	})
}

// wantStrays judges jobs of a route that was retired, by the code of their fault, and one under a version that nobody here knows.
func wantStrays(t *testing.T, newer newerProgram, jobs map[string][]byte, unknown []byte) {
	t.Helper()
	p := workertest.Start(t, newer, nil, func(o *worker.Options) { clear(o.Routes); clear(o.Sources) })
	defer stop(t, p)
	judge := func(payload []byte, want string) {
		t.Helper()
		clear(newer.put)
		origin := job.Origin{Source: workertest.SourceName, Route: workertest.RouteName, PublishedAt: time.Now()}
		faults, err := p.Worker.JudgeStrays(t.Context(), []job.Origin{origin}, [][]byte{payload})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if faults[0] != nil {
			got = faults[0].Code
		}
		if got != want {
			t.Errorf("stray: %q, want %q", got, want)
		}
	}
	for want, payload := range jobs {
		judge(payload, want)
	}
	judge(unknown, "")
}
