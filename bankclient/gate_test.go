package bankclient_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

var (
	good    = bankclient.Result{Verdict: authorized, Evidence: bankclient.Evidence{Status: 201}}
	timeout = bankclient.Result{Verdict: unknown, Evidence: bankclient.Evidence{Error: "deadline exceeded"}}
	refused = bankclient.Result{Verdict: notExecuted, Evidence: bankclient.Evidence{Error: "connection refused"}}
	no401   = bankclient.Result{Verdict: notExecuted, Scope: partner, Evidence: bankclient.Evidence{Status: 401}}
	left    = bankclient.Result{Verdict: unknown, Evidence: bankclient.Evidence{Error: "canceled"}}
	says422 = bankclient.Result{Verdict: rejected, Evidence: bankclient.Evidence{Status: 422}}
)

func gate(t *testing.T, change func(*bankclient.Config)) *bankclient.Gate {
	t.Helper()
	cfg := config("http://127.0.0.1:1")
	change(&cfg)
	return open(t, cfg, reference.New()).Gate()
}

func report(g *bankclient.Gate, times int, r bankclient.Result) {
	for range times {
		g.Report(r)
	}
}

func TestGateSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(*bankclient.Config) {})
		if n, err := g.Acquire(t.Context(), 256); n != 8 || err != nil {
			t.Fatalf("%d slots, %v", n, err)
		}
		if n := g.TryAcquire(1); n != 0 {
			t.Fatalf("%d slots beyond the limit", n)
		}
		got := make(chan int)
		go func() {
			n, _ := g.Acquire(context.Background(), 256)
			got <- n
		}()
		synctest.Wait()
		g.Release(3)
		if n := <-got; n != 3 {
			t.Fatalf("the waiter got %d slots, want 3", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, err := g.Acquire(ctx, 1); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d slots, %v", n, err)
		}
		g.Release(8)
		if n := g.TryAcquire(100); n != 8 {
			t.Fatalf("%d slots free, want 8", n)
		}
		defer func() {
			if recover() == nil {
				t.Error("more released than acquired")
			}
		}()
		g.Release(9)
	})
}

func TestGateOpensOnPartnerFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(*bankclient.Config) {})
		report(g, 4, no401)
		report(g, 1, good)
		report(g, 4, no401)
		report(g, 100, left) // says nothing of the partner
		if g.Open() {
			t.Fatal("open after four in a row")
		}
		report(g, 1, no401)
		if !g.Open() {
			t.Fatal("closed after five in a row")
		}
		if n := g.TryAcquire(1); n != 0 {
			t.Fatalf("%d slots while open", n)
		}
	})
}

func TestGateOpensOnTheShareOfFailures(t *testing.T) {
	for name, row := range map[string]struct {
		good, bad int
		bads      bankclient.Result
		open      bool
	}{
		"too few":           {0, 19, timeout, false},
		"half":              {10, 10, timeout, false},
		"most":              {8, 12, timeout, true},
		"all refused":       {0, 20, refused, true},
		"rejections":        {0, 100, says422, false},
		"our own leaving":   {0, 100, left, false},
		"500 from a proxy":  {0, 20, bankclient.Result{Evidence: bankclient.Evidence{Status: 502}}, true},
		"unlisted refusals": {0, 100, bankclient.Result{Evidence: bankclient.Evidence{Status: 400}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := gate(t, func(*bankclient.Config) {})
			report(g, row.good, good)
			report(g, row.bad, row.bads)
			if g.Open() != row.open {
				t.Errorf("%s: open %t", name, g.Open())
			}
		})
	}
}

func TestGateForgetsOldFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(*bankclient.Config) {})
		for range 10 {
			report(g, 4, timeout)
			time.Sleep(3 * time.Second) // virtual
		}
		if g.Open() {
			t.Fatal("4 failures per 3 s are below the minimum of calls per 10 s")
		}
	})
}

// Acquire waits while the breaker is open, wakes by itself, admits few probes, and closes again after good ones.
func TestGateProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(*bankclient.Config) {})
		report(g, 5, no401)
		start := time.Now()
		n, err := g.Acquire(t.Context(), 256)
		if err != nil || n != 2 {
			t.Fatalf("%d slots, %v; want the 2 probes", n, err)
		}
		if waited := time.Since(start); waited < 5*time.Second || waited > 5010*time.Millisecond {
			t.Fatalf("waited %s", waited)
		}
		if g.TryAcquire(1) != 0 {
			t.Fatal("more slots than probes")
		}
		got := make(chan int)
		go func() {
			n, _ := g.Acquire(context.Background(), 256)
			got <- n
		}()
		synctest.Wait()
		report(g, 2, good)
		if n := <-got; n != 6 {
			t.Fatalf("%d slots after closing, want 6", n)
		}
	})
}

// Two idle pulls hold both probes, and ask for the next one as soon as they have returned theirs: the sweep gets one all the same.
func TestGateProbesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(*bankclient.Config) {})
		report(g, 5, no401)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		hold := func(d time.Duration) (times int) {
			for ctx.Err() == nil {
				n, err := g.Acquire(ctx, 1)
				if err != nil {
					break
				}
				times++
				time.Sleep(d) // virtual
				g.Release(n)
			}
			return times
		}
		var pulls sync.WaitGroup
		defer pulls.Wait()
		for range 2 {
			pulls.Go(func() { hold(time.Second) })
		}
		time.Sleep(10 * time.Second) // virtual
		if n := hold(10 * time.Millisecond); n < 20 {
			t.Errorf("the third got a probe %d times in 50 s, want one nearly each second", n)
		}
	})
}

func TestGateOpensAgainWhenAProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(*bankclient.Config) {})
		report(g, 5, no401)
		for range 3 {
			n, err := g.Acquire(t.Context(), 1)
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
			report(g, 1, left) // a probe that we gave up ourselves wears nothing out
			report(g, 1, timeout)
			g.Release(1)
			if !g.Open() {
				t.Fatal("closed after a failed probe")
			}
		}
	})
}

// Waiting for an open breaker ends with the context, and is not polling: in virtual time a poller would never let time pass.
func TestGateAcquireEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(c *bankclient.Config) { c.Breaker.OpenFor = time.Hour })
		report(g, 5, no401)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := g.Acquire(ctx, 1); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(n, err)
		}
	})
}

// A breaker is one partner's own.
func TestP7_BreakersAreIndependent(t *testing.T) {
	a, b := gate(t, func(*bankclient.Config) {}), gate(t, func(*bankclient.Config) {})
	report(a, 100, refused)
	if !a.Open() || b.Open() || b.TryAcquire(100) != 8 {
		t.Fatal("partner B pays for partner A")
	}
}

func TestGateRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, func(c *bankclient.Config) { c.RateLimit, c.RateBurst = 10, 5 })
		start := time.Now()
		for range 25 {
			if err := g.Take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 1990*time.Millisecond || took > 2010*time.Millisecond {
			t.Fatalf("25 calls at 10/s after a burst of 5 took %s, want 2s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if g.Take(ctx) == nil || gate(t, func(*bankclient.Config) {}).Take(ctx) == nil {
			t.Fatal("a token for a context that has ended")
		}
	})
}

func TestGateUnderLoad(t *testing.T) {
	g := gate(t, func(c *bankclient.Config) {
		c.Breaker = bankclient.Breaker{OpenFor: time.Millisecond, Window: 20 * time.Millisecond}
	})
	done := make(chan int)
	for worker := range 8 {
		go func() {
			taken := 0
			for i := range 100 {
				n, err := g.Acquire(context.Background(), 1+i%3)
				if err != nil {
					break
				}
				taken++
				if (worker+i)%3 == 0 {
					g.Report(good)
				} else {
					g.Report(no401)
				}
				g.Release(n)
			}
			done <- taken
		}()
	}
	for range 8 {
		if n := <-done; n != 100 {
			t.Fatalf("a worker got slots %d times, want 100", n)
		}
	}
}
