package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/ledger"
)

// operator does what a person would have to do on the way: when the bank says that our own float is empty, the worker pauses
// the partner until somebody has filled it up. It cures nothing else: what was paused for any other reason stays paused, and
// the run does not hold.
type operator struct {
	ledger *ledger.Ledger
}

func openOperator(ctx context.Context, s *services) (*operator, error) {
	l, err := ledger.Open(ctx, s.urls.Owner, ledger.Options{})
	if err != nil {
		return nil, fmt.Errorf("open the ledger as operator: %w", err)
	}
	return &operator{ledger: l}, nil
}

func (op *operator) close() { op.ledger.Close() }

// attend resumes what an empty float has paused, and says whether it did.
func (op *operator) attend(ctx context.Context) (bool, error) {
	pauses, err := op.ledger.Pauses(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range pauses {
		if p.Scope != ledger.ScopePartner || p.Reason != "our_funds" {
			continue
		}
		err := op.ledger.Resume(ctx, p.Scope, p.Name, "float filled up", "devstack")
		if err != nil && !errors.Is(err, ledger.ErrNotPaused) {
			return false, err
		}
		return true, nil
	}
	return false, nil
}
