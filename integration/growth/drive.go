package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

const (
	batchSize  = 256
	drivers    = 2 // connections that claim and record
	relayEvery = 50 * time.Millisecond
	relayAtOne = 512 // events of one step of the relay
)

// driven is what the hot path did.
type driven struct {
	operations int
	took       time.Duration
	batches    []time.Duration // claim and record of one batch, sorted
}

func (d driven) quantile(q float64) float64 {
	if len(d.batches) == 0 {
		return 0
	}
	return float64(d.batches[int(q*float64(len(d.batches)-1))].Microseconds()) / 1000
}

// drive claims and records full batches at a rate, and relays their events, for so long.
func drive(ctx context.Context, l *ledger.Ledger, kind string, perSecond int, length time.Duration) (driven, error) {
	var d driven
	var lock sync.Mutex
	var taken atomic.Int64
	relaying, stop := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() { relayed <- relay(relaying, l) }()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range drivers {
		group.Go(func() error {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for time.Since(began) < length {
				if due := int64(time.Since(began).Seconds() * float64(perSecond)); taken.Add(batchSize) > due {
					taken.Add(-batchSize)
					select {
					case <-tick.C:
					case <-ctx.Done():
						return ctx.Err()
					}
					continue
				}
				wishes := makeWishes(kind)
				start := time.Now()
				if err := claimAndRecord(ctx, l, wishes); err != nil {
					return err
				}
				lock.Lock()
				d.batches, d.operations = append(d.batches, time.Since(start)), d.operations+batchSize
				lock.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	d.took = time.Since(began)
	stop()
	if relayErr := <-relayed; err == nil {
		err = relayErr
	}
	slices.Sort(d.batches)
	return d, err
}

// relay takes events from the outbox as the worker's relay does, and publishes them nowhere. At the end it empties it.
func relay(ctx context.Context, l *ledger.Ledger) error {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		work := context.WithoutCancel(ctx)
		events, err := l.Unpublished(work, relayAtOne)
		if err != nil {
			return err
		}
		refs := make([]int64, len(events))
		for i := range events {
			refs[i] = events[i].Ref
		}
		if len(refs) > 0 {
			if err := l.MarkPublished(work, refs); err != nil {
				return err
			}
		}
		if len(refs) == relayAtOne {
			continue
		}
		if ctx.Err() != nil && len(refs) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// makeWishes makes a batch of jobs of 400 bytes.
func makeWishes(kind string) []ledger.Wish {
	payload := []byte(`{"v":1,` + strings.Repeat("x", 393))
	wishes := make([]ledger.Wish, batchSize)
	for i := range wishes {
		key := uuid.New()
		if kind == keysV7 {
			key = uuid.Must(uuid.NewV7())
		}
		wishes[i] = ledger.Wish{
			Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: [32]byte(append(key[:], key[:]...))}, Source: "wallet", Route: "gbp-fps",
			DebtorAccount: fmt.Sprintf("cust-%06d", rand.IntN(1_000_000)), Amount: money.Amount{Minor: 100 + rand.Int64N(1_000_000), Currency: "GBP"},
			Payload: payload, PublishedAt: time.Now(),
			Intention: ledger.Intention{Partner: "northbank", Credential: "growth", Endpoint: "POST http://127.0.0.1:12345/v1/transfers", Renderer: 1,
				PartnerKey: uuid.NewString(), EndToEndID: strings.ToUpper(strings.ReplaceAll(uuid.NewString(), "-", "")[:26])},
		}
	}
	return wishes
}

func claimAndRecord(ctx context.Context, l *ledger.Ledger, wishes []ledger.Wish) error {
	answers := l.Claim(ctx, wishes)
	records := make([]ledger.Record, len(answers))
	for i, a := range answers {
		if a.Answer != ledger.Claimed {
			return fmt.Errorf("a fresh operation was not claimed, but %s: %w", a.Answer, a.Err)
		}
		transferID := "tr_" + strconv.FormatInt(a.Claim.OperationID, 10)
		records[i] = ledger.Authorize(a.Claim, transferID, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "authorized", TransferID: transferID,
			Evidence: []byte(`{"phase":"complete","status":201,"request_id":"req_0123456789abcdef","transfer_id":"` + transferID + `","body_bytes":310,"elapsed_ms":1}`)})
	}
	for _, result := range l.Record(ctx, records) {
		if result.Answer != ledger.Recorded {
			return fmt.Errorf("a claim was not recorded, but %s: %w", result.Answer, result.Err)
		}
	}
	return nil
}
