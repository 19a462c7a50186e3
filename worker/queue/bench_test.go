package queue

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// benchRig is a server process of its own with b.N jobs in it.
func benchRig(b *testing.B) *rig {
	b.Helper()
	c := startChild(b)
	r := newRigAt(b, c.url, TopologyOptions{})
	for left := b.N; left > 0; left -= 5000 {
		r.enqueue(min(left, 5000))
	}
	b.ResetTimer()
	return r
}

// BenchmarkConsume takes and acknowledges jobs: by Consumer, and by the client's own Consume, which is the faster of its ways but has a
// buffer. The ratio of the two is what the slots cost.
func BenchmarkConsume(b *testing.B) {
	for _, pullers := range []int{1, 2, 4} {
		b.Run("Consumer/pullers="+string(rune('0'+pullers)), func(b *testing.B) {
			r := benchRig(b)
			var n atomic.Int64
			all := make(chan struct{})
			r.run(newSlots(1024), func(_ context.Context, d *Delivery) {
				d.Done()
				if n.Add(1) == int64(b.N) {
					close(all)
				}
			}, ConsumerOptions{Pullers: pullers})
			<-all
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
	b.Run("Client", func(b *testing.B) {
		r := benchRig(b)
		js, err := jetstream.New(r.sub)
		if err != nil {
			b.Fatal(err)
		}
		c, err := js.Consumer(ctxOf(b), StreamJobs, ConsumerName(testRoute))
		if err != nil {
			b.Fatal(err)
		}
		var n atomic.Int64
		all := make(chan struct{})
		running, err := c.Consume(func(msg jetstream.Msg) {
			_ = msg.Ack()
			if n.Add(1) == int64(b.N) {
				close(all)
			}
		}, jetstream.PullMaxMessages(256))
		if err != nil {
			b.Fatal(err)
		}
		<-all
		b.StopTimer()
		running.Stop()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	})
}

// BenchmarkPublishMany publishes jobs and waits for each confirmation, on a server that writes each to disk.
func BenchmarkPublishMany(b *testing.B) {
	c := startChild(b)
	r := newRigAt(b, c.url, TopologyOptions{})
	ms := messages(b.N)
	b.ResetTimer()
	for start := 0; start < b.N; start += 5000 {
		for _, result := range r.publish.PublishMany(ctxOf(b), ms[start:min(start+5000, b.N)]) {
			if result.Err != nil {
				b.Fatal(result.Err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
