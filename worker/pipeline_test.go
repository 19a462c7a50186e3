package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBatcherTakesWhatArrivedWhileTheLastCommitRan: no waiting at rest, growing batches under load, never above the most.
func TestBatcherTakesWhatArrivedWhileTheLastCommitRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		b := NewBatcher(256, func(_ context.Context, reqs []int) []int {
			mu.Lock()
			sizes = append(sizes, len(reqs))
			mu.Unlock()
			<-time.After(time.Second)
			squares := make([]int, len(reqs))
			for i, r := range reqs {
				squares[i] = r * r
			}
			return squares
		})
		b.Start(t.Context(), 1)
		began := time.Now()
		var callers sync.WaitGroup
		do := func(n int) {
			callers.Go(func() {
				if got, err := b.Do(t.Context(), n); err != nil || got != n*n {
					t.Errorf("Do(%d) = %d, %v", n, got, err)
				}
			})
		}
		do(1)
		synctest.Wait()
		for n := range 600 {
			do(n)
		}
		callers.Wait()
		b.Close()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("601 requests took %v, want 4 commits of 1 s", took)
		}
		if want := []int{1, 256, 256, 88}; len(sizes) != 4 || [4]int(sizes) != [4]int(want) {
			t.Errorf("batches of %v, want %v", sizes, want)
		}
	})
}

// recorded is a batcher whose commits take as long as took says, by the number of the batch, and what it committed when.
type recorded struct {
	mu    sync.Mutex
	began time.Time
	sizes []int
	at    []time.Duration
}

func (r *recorded) batcher(ctx context.Context, took func(n int) time.Duration) *Batcher[int, int] {
	r.began = time.Now()
	b := NewBatcher(256, func(_ context.Context, reqs []int) []int {
		r.mu.Lock()
		r.sizes, r.at = append(r.sizes, len(reqs)), append(r.at, time.Since(r.began))
		n := len(r.sizes)
		r.mu.Unlock()
		<-time.After(took(n))
		return make([]int, len(reqs))
	})
	b.Start(ctx, 2)
	return b
}

// hand hands in n requests and waits until they wait or are taken.
func hand(t *testing.T, callers *sync.WaitGroup, b *Batcher[int, int], n int) {
	for range n {
		callers.Go(func() {
			if _, err := b.Do(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
}

func (r *recorded) want(t *testing.T, sizes []int, at []time.Duration) {
	t.Helper()
	if !slices.Equal(r.sizes, sizes) || !slices.Equal(r.at, at) {
		t.Errorf("batches of %v at %v, want %v at %v", r.sizes, r.at, sizes, at)
	}
}

// TestBatcherWorksAloneOnceBatchesGrow: small batches leave side by side and at once. Beside a larger one nothing leaves, and its
// committer takes what came meanwhile, until little comes.
func TestBatcherWorksAloneOnceBatchesGrow(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var r recorded
		var callers sync.WaitGroup
		b := r.batcher(t.Context(), func(int) time.Duration { return 10 * ms })
		hand(t, &callers, b, 1)
		hand(t, &callers, b, 1) // side by side
		hand(t, &callers, b, 20)
		<-time.After(15 * ms)
		hand(t, &callers, b, 5) // beside the 20, which took the floor at 10
		<-time.After(25 * ms)   // it takes them at 20, and nothing waits at 30
		hand(t, &callers, b, 1)
		hand(t, &callers, b, 1) // side by side again
		callers.Wait()
		b.Close()
		r.want(t, []int{1, 1, 20, 5, 1, 1}, []time.Duration{0, 0, 10 * ms, 20 * ms, 40 * ms, 40 * ms})
	})
}

// TestBatcherGoesOnBesideASlowBatch: one that waits for a lock does not keep all others waiting.
func TestBatcherGoesOnBesideASlowBatch(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var r recorded
		var callers sync.WaitGroup
		b := r.batcher(t.Context(), func(n int) time.Duration {
			if n == 3 {
				return 2 * time.Second
			}
			return 10 * ms
		})
		hand(t, &callers, b, 1)
		hand(t, &callers, b, 1)
		hand(t, &callers, b, 20) // takes the floor at 10
		<-time.After(50 * ms)
		hand(t, &callers, b, 1)
		<-time.After(100 * ms)
		hand(t, &callers, b, 1)
		callers.Wait()
		b.Close()
		r.want(t, []int{1, 1, 20, 1, 1}, []time.Duration{0, 0, 10 * ms, 110 * ms, 150 * ms})
	})
}

// TestBatcherAnswersWhatWasHandedIn: neither the caller's context nor Close leaves a request without its answer.
func TestBatcherAnswersWhatWasHandedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatcher(8, func(_ context.Context, reqs []string) []string {
			<-time.After(time.Second)
			return reqs
		})
		b.Start(context.Background(), 2)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 40 {
			callers.Go(func() {
				if got, err := b.Do(ctx, "x"); got != "x" || err != nil {
					t.Errorf("Do = %q, %v", got, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		b.Close()
		callers.Wait()
		if _, err := b.Do(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("Do under an ended context: %v", err)
		}
		if _, err := b.Do(t.Context(), "x"); !errors.Is(err, errClosed) {
			t.Errorf("Do after Close: %v", err)
		}
	})
}

func BenchmarkBatcher(b *testing.B) {
	answers := make([]int, 256)
	batcher := NewBatcher(256, func(_ context.Context, reqs []int) []int { return answers[:len(reqs)] })
	batcher.Start(context.Background(), 2)
	defer batcher.Close()
	b.ReportAllocs()
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := batcher.Do(context.Background(), 1); err != nil {
				b.Error(err)
			}
		}
	})
}
