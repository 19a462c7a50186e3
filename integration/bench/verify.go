package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/paidonce/paidonce/worker/queue"
)

// verify holds the bank's book, the ledger and the events against each other. secondCalls counts requests beyond one per key.
func (s *stage) verify(ctx context.Context, want int, relayed bool) (secondCalls int64, err error) {
	var wrong []error
	same := func(what string, got, want int) {
		if got != want {
			wrong = append(wrong, fmt.Errorf("%s: %d instead of %d", what, got, want))
		}
	}
	said, err := s.bank.summary(ctx)
	if err != nil {
		return 0, err
	}
	same("executions at the bank", int(said.Executions), want)
	same("keys executed twice", int(said.KeysTwice), 0)
	for _, count := range []struct {
		what, sql string
		want      int
	}{
		{"authorized operations", "SELECT count(*) FROM operations WHERE state = 'authorized' AND NOT in_doubt", want},
		{"operations", "SELECT count(*) FROM operations", want},
		{"payloads", "SELECT count(*) FROM payloads", want},
		{"attempts", "SELECT count(*) FROM attempts", want},
		{"observations", "SELECT count(*) FROM observations WHERE verdict = 'authorized'", want},
		{"entries", "SELECT count(*) FROM entries", 2 * want},
		{"unbalanced operations", "SELECT count(*) FROM (SELECT FROM entries GROUP BY operation_id HAVING sum(amount_minor) <> 0) AS u", 0},
	} {
		var got int
		if err := s.admin.QueryRow(ctx, count.sql).Scan(&got); err != nil {
			return 0, fmt.Errorf("count %s: %w", count.what, err)
		}
		same(count.what, got, count.want)
	}
	events, err := s.events(ctx, relayed)
	if err != nil {
		return 0, err
	}
	same("events", events, want)
	disagreeing, err := s.disagreeing(ctx)
	if err != nil {
		return 0, err
	}
	same("transfers that bank and ledger tell differently", disagreeing, 0)
	if len(wrong) > 0 {
		return 0, fmt.Errorf("the run is not sound: %w", errors.Join(wrong...))
	}
	return said.Creates - said.Keys, nil
}

// events counts those that were published; where nobody publishes, those that wait.
func (s *stage) events(ctx context.Context, relayed bool) (n int, err error) {
	if !relayed {
		err = s.admin.QueryRow(ctx, "SELECT count(*) FROM outbox WHERE type = 'authorized'").Scan(&n)
		return n, err
	}
	stream, err := s.js.Stream(ctx, queue.StreamEvents)
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

// disagreeing compares the transfer of every key.
func (s *stage) disagreeing(ctx context.Context) (n int, err error) {
	book, err := s.bank.book(ctx)
	if err != nil {
		return 0, err
	}
	rows, err := s.admin.Query(ctx, "SELECT partner_key, transfer_id FROM operations WHERE partner = $1", partnerID)
	if err != nil {
		return 0, fmt.Errorf("read operations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key, transferID *string
		if err := rows.Scan(&key, &transferID); err != nil {
			return 0, fmt.Errorf("read operations: %w", err)
		}
		if key == nil || transferID == nil || book[*key] != *transferID {
			n++
		}
		if key != nil {
			delete(book, *key)
		}
	}
	return n + len(book), rows.Err()
}
