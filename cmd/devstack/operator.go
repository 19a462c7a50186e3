package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/paidonce/paidonce/cmd/internal/operate"
	"github.com/paidonce/paidonce/ledger"
)

// operator does what a person would have to do on the way: when the bank says that our own float is empty, the worker pauses
// the partner until somebody has filled it up. It cures nothing else: what was paused for any other reason stays paused, and
// the run does not hold. It goes through the desk, under the token of the one who asks for changes.
type operator struct {
	ledger *ledger.Ledger
	desk   *operate.Service
	by     operate.Operator
	close  func()
}

func openOperator(ctx context.Context, s *services) (*operator, error) {
	l, err := ledger.Open(ctx, s.urls.Desk, ledger.Options{MaxConns: 2})
	if err != nil {
		return nil, fmt.Errorf("open the ledger as operator: %w", err)
	}
	desk, closeDesk, err := openDesk(ctx, s.urls.Desk)
	if err != nil {
		l.Close()
		return nil, err
	}
	op := &operator{ledger: l, desk: desk, close: func() { closeDesk(); l.Close() }}
	token, err := os.ReadFile(filepath.Join(s.dir, asks+".token")) //nolint:gosec // a file of our own folder
	if err == nil {
		op.by, err = desk.Identify(ctx, string(token))
	}
	if err != nil {
		op.close()
		return nil, fmt.Errorf("identify the operator: %w", err)
	}
	return op, nil
}

// attend resumes what an empty float has paused, and says whether it did.
func (op *operator) attend(ctx context.Context) (bool, error) {
	pauses, err := op.ledger.Pauses(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range pauses {
		if p.Scope != ledger.ScopePartner || p.Reason != ledger.PausedOurFunds {
			continue
		}
		const reason = "float filled up"
		_, err := op.desk.Do(ctx, operate.Request{By: op.by, Reason: reason, Act: op.desk.Resume(p.Scope, p.Name, reason)})
		if err != nil && !errors.Is(err, ledger.ErrNotPaused) {
			return false, err
		}
		return true, nil
	}
	return false, nil
}
