package worker

import (
	"context"
	"errors"
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
