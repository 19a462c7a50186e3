package ledger

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// OpenAltered is Open with a pool that a test may alter.
func OpenAltered(ctx context.Context, url string, opt Options, alter func(*pgxpool.Config)) (*Ledger, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	alter(cfg)
	return openPool(ctx, cfg, opt.withDefaults())
}

// Pool is the ledger's own, for tests that look at what it holds.
func (l *Ledger) Pool() *pgxpool.Pool { return l.pool }

// SetLimits is what goes first in every transaction.
const SetLimits = setLimits

// HotStatements are those that run once or more for every batch of operations.
func HotStatements() map[string]string {
	return map[string]string{"claim": claimWinners, "losers": claimLosers, "record": recordBatch, "attempts": commitAttempts, "due": claimDue,
		"parked": lookAtParked, "relay": unpublished, "accept": accept, "jobs": unpublishedJobs, "jobs of others": unpublishedJobsOf,
		"doubtful": recordDoubtful, "hand back": handBack}
}

// Elsewhere is the search for a transfer, with windows of a test's size.
func (l *Ledger) Elsewhere(ctx context.Context, id int64, transferID string, window int64) (bool, error) {
	return l.elsewhere(ctx, id, transferID, window)
}
