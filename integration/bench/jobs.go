package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// made is one job, encoded.
type made struct {
	key     uuid.UUID
	route   string
	payload []byte
}

// makeJobs makes valid jobs of 400 bytes.
func makeJobs(n int, route string) ([]made, error) {
	jobs := make([]made, n)
	for i := range jobs {
		key := job.NewKey()
		payload, err := job.Encode(job.Job{
			Key: key, Source: source, Route: route, DebtorAccount: job.Sensitive(fmt.Sprintf("cust-%06d", rand.IntN(1_000_000))),
			Amount:      money.Amount{Minor: 100 + rand.Int64N(1_000_000), Currency: "GBP"},
			Beneficiary: job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"},
			Reference:   job.Sensitive(fmt.Sprintf("Withdrawal %06d", i%1_000_000)),
			Metadata:    map[string]string{"note": strings.Repeat("x", 120)},
		})
		if err != nil {
			return nil, fmt.Errorf("make a job: %w", err)
		}
		jobs[i] = made{key, route, payload}
	}
	return jobs, nil
}

func (m made) msg() *nats.Msg {
	return &nats.Msg{Subject: job.Subject(m.route, source), Data: m.payload,
		Header: nats.Header{jetstream.MsgIDHeader: {job.MsgID(source, m.key, m.payload)}}}
}

// publish publishes jobs and waits for every confirmation.
func (s *stage) publish(ctx context.Context, jobs []made) error {
	const window = 2000
	for start := 0; start < len(jobs); start += window {
		part := jobs[start:min(start+window, len(jobs))]
		futures := make([]jetstream.PubAckFuture, len(part))
		for i, m := range part {
			var err error
			if futures[i], err = s.js.PublishMsgAsync(m.msg(), jetstream.WithStallWait(10*time.Second)); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		for _, future := range futures {
			select {
			case <-future.Ok():
			case err := <-future.Err():
				return fmt.Errorf("publish: %w", err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// publishAt publishes jobs at a steady rate, whatever the worker does. It publishes what is due every half millisecond.
func (s *stage) publishAt(ctx context.Context, jobs []made, perSecond int) error {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	start, sent := time.Now(), 0
	for sent < len(jobs) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		due := min(len(jobs), int(time.Since(start).Seconds()*float64(perSecond)))
		for ; sent < due; sent++ {
			if _, err := s.js.PublishMsgAsync(jobs[sent].msg(), jetstream.WithStallWait(10*time.Second)); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
