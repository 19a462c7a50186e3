package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// order is a job as a worker without our care would read it.
type order struct {
	Key           uuid.UUID      `json:"key"`
	DebtorAccount string         `json:"debtor_account"`
	Amount        string         `json:"amount"`
	Currency      string         `json:"currency"`
	Beneficiary   map[string]any `json:"beneficiary"`
	Reference     string         `json:"reference"`
}

// minor reads an amount with two digits.
func (o *order) minor() (n int64) {
	for _, c := range o.Amount {
		if c != '.' {
			n = n*10 + int64(c-'0')
		}
	}
	return n
}

// caller makes the exchange with the bank as net/http is usually used, with a pool as large as what is in flight.
type caller struct {
	client *http.Client
	url    string
}

func newCaller(bankURL string, inFlight int) caller {
	return caller{url: bankURL + "/v1/transfers", client: &http.Client{
		Transport: &http.Transport{MaxIdleConns: inFlight, MaxIdleConnsPerHost: inFlight, MaxConnsPerHost: inFlight, DisableCompression: true},
	}}
}

// body is what the bank is sent.
func (o *order) body() ([]byte, error) {
	return json.Marshal(map[string]any{"amount": o.Amount, "currency": o.Currency, "beneficiary": o.Beneficiary, "reference": o.Reference,
		"end_to_end_id": o.Key.String()[:8] + "-" + o.Key.String()[9:13] + o.Key.String()[24:]})
}

// call sends once and wants 201.
func (c caller) call(ctx context.Context, key string, body []byte) (transferID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer bench")
	request.Header.Set("Idempotency-Key", key)
	response, err := c.client.Do(request)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("bank: status %d: %s", response.StatusCode, answer)
	}
	var transfer struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer, &transfer); err != nil || transfer.ID == "" {
		return "", fmt.Errorf("bank: answer without an id")
	}
	return transfer.ID, nil
}

// The statements of the naive worker, one row each. Its fingerprint is a hash that nobody checks.
const (
	naiveOperation = `INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, in_doubt,
		unobserved, fence, claim_token, lease_until, first_sent_at, partner, credential, partner_key)
		VALUES ($1, $2, 1, sha256($3), $4, 'wallet', 'gbp-fps', $5, 'claimed', true, 1, 1, $6, now() + interval '60 s', now(), 'northbank', 'bench', $7)
		ON CONFLICT (key) DO NOTHING RETURNING id`
	naivePayload = `INSERT INTO payloads (operation_id, published_at, body) VALUES ($1, $2, $3)`
	naiveAttempt = `INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
		VALUES ($1, 1, 1, $2, sha256($3), 'northbank', 'bench', 'POST /v1/transfers', $4, $4)`
	naiveOutcome = `UPDATE operations SET state = 'authorized', in_doubt = false, unobserved = 0, lease_until = NULL, transfer_id = $3, outcome_at = now(),
		settlement = 'pending' WHERE id = $1 AND claim_token = $2 AND fence = 1 AND state = 'claimed'`
	naiveObservation = `INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, transfer_id, evidence)
		VALUES ($1, $2, 0, 1, 'verdict', 'authorized', $3, '{"phase":"complete","status":201}')`
	naiveEntries = `INSERT INTO entries (operation_id, event, amount_minor, currency, account)
		VALUES ($1, 'authorized', -$2::int8, $3, 'customer:wallet/' || $4), ($1, 'authorized', $2, $3, 'transit:northbank')`
	naiveOutbox = `INSERT INTO outbox (operation_id, fence, type) VALUES ($1, 1, 'authorized')`
)

// naive is the worker that everybody writes first.
type naive struct {
	pool    *pgxpool.Pool
	caller  caller
	batched bool
}

func runNaive(ctx context.Context, s childSettings, ready func(childReady) error) error {
	pool, err := openPool(ctx, s, 16)
	if err != nil {
		return err
	}
	defer pool.Close()
	w := &naive{pool: pool, caller: newCaller(s.BankURL, s.InFlight), batched: s.Batched}
	nc, err := nats.Connect(s.NATSURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	consumer, err := jobsOf(ctx, nc)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, s.InFlight)
	var working sync.WaitGroup
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			if err := w.work(ctx, msg); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "naive:", err)
				_ = msg.Nak() // it comes again
			}
		})
	}, jetstream.PullMaxMessages(256))
	if err != nil {
		return err
	}
	if err := ready(childReady{}); err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Closed()
	working.Wait()
	return nil
}

func (w *naive) work(ctx context.Context, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(msg.Data(), &o); err != nil {
		return err
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	token := uuid.Must(uuid.NewV7())
	id, fresh, err := w.claim(ctx, &o, token, body, msg.Data(), meta.Timestamp)
	if err != nil || !fresh {
		return errors.Join(err, msg.Ack())
	}
	transferID, err := w.caller.call(ctx, o.Key.String(), body)
	if err != nil {
		return err
	}
	if err := w.record(ctx, &o, id, token, transferID); err != nil {
		return err
	}
	return msg.Ack()
}

func (w *naive) claim(ctx context.Context, o *order, token uuid.UUID, body, payload []byte, publishedAt time.Time) (id int64, fresh bool, err error) {
	err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		key := o.Key.String()
		err := tx.QueryRow(ctx, naiveOperation, o.Key, o.minor(), payload, o.Currency, o.DebtorAccount, token, key).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		fresh = true
		return w.execute(ctx, tx, statement{naivePayload, []any{id, publishedAt, payload}}, statement{naiveAttempt, []any{id, token, body, key}})
	})
	return id, fresh, err
}

func (w *naive) record(ctx context.Context, o *order, id int64, token uuid.UUID, transferID string) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		return w.execute(ctx, tx, statement{naiveOutcome, []any{id, token, transferID}}, statement{naiveObservation, []any{id, token, transferID}},
			statement{naiveEntries, []any{id, o.minor(), o.Currency, o.DebtorAccount}}, statement{naiveOutbox, []any{id}})
	})
}

type statement struct {
	sql  string
	args []any
}

func (w *naive) execute(ctx context.Context, tx pgx.Tx, statements ...statement) error {
	if w.batched {
		batch := &pgx.Batch{}
		for _, s := range statements {
			batch.Queue(s.sql, s.args...)
		}
		return tx.SendBatch(ctx, batch).Close()
	}
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return err
		}
	}
	return nil
}
