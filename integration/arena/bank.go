package arena

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/integration/stack/bank"
)

// Bank is a simulated bank inside this process that checks I2 on every request.
type Bank struct {
	*bank.Bank
	pool    *pgxpool.Pool
	arrived atomic.Pointer[func(partnerKey string)]
	blind   atomic.Pointer[time.Time] // until then, an attempt that is not seen may have been lost
}

// NeedAPerson names the faults that a worker answers by pausing the partner until a person resumes it: for banks of runs in which nobody does.
func NeedAPerson() []string { return []string{"insufficient_funds"} }

// StartBank opens a bank. ledgerURL is of a role that may read attempts.
func StartBank(ctx context.Context, ledgerURL string, options banksim.Options) (*Bank, error) {
	pool, err := pgxpool.New(ctx, ledgerURL)
	if err != nil {
		return nil, errors.New("open the ledger for the bank's check: the URL is not valid")
	}
	b := &Bank{pool: pool}
	options.Tokens = map[string]string{Token: CredentialID}
	options.BeforeExecute = b.check
	if b.Bank, err = bank.Start(options); err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

// OnArrival calls f when a create has arrived, before anything is done with it.
func (b *Bank) OnArrival(f func(partnerKey string)) { b.arrived.Store(&f) }

// checkWait bounds how long the bank tries to see an attempt while the ledger is away; what it cannot see then, it does not judge.
const checkWait = time.Second

func (b *Bank) check(partnerKey string) error {
	if f := b.arrived.Load(); f != nil {
		(*f)(partnerKey)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkWait)
	defer cancel()
	for {
		err := proof.AttemptCommitted(ctx, b.pool, partnerKey)
		if until := b.blind.Load(); errors.Is(err, proof.ErrNoAttempt) && until != nil && time.Now().Before(*until) {
			return nil
		}
		if err == nil || errors.Is(err, proof.ErrNoAttempt) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // the ledger is away
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// afterFailover is how long after a failover requests arrive whose attempts were committed before it: those of a worker that was frozen in between too.
const afterFailover = 20 * time.Second

// LoseSight tells it that the ledger is about to lose its last records: of requests that arrive soon after, it cannot say that they had no attempt.
func (b *Bank) LoseSight() {
	until := time.Now().Add(afterFailover)
	b.blind.Store(&until)
}

// Stop ends it.
func (b *Bank) Stop() error {
	err := b.Bank.Stop()
	b.pool.Close()
	if err != nil {
		return fmt.Errorf("stop the bank: %w", err)
	}
	return nil
}
