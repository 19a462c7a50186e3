package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// everyRow writes all rows of an operation at once: for frameworks whose own record of the job stands for claim and attempt until then.
const everyRow = `
WITH operation AS (
  INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, fence, claim_token,
         first_sent_at, partner, credential, partner_key, transfer_id, outcome_at, settlement)
  VALUES ($1, $2, 1, sha256($3), $4, 'wallet', 'gbp-fps', $5, 'authorized', 1, $6, now(), 'northbank', 'bench', $7, $8, now(), 'pending') RETURNING id
), payload AS (
  INSERT INTO payloads (operation_id, published_at, body) SELECT id, $9, $3 FROM operation
), attempt AS (
  INSERT INTO attempts (operation_id, fence, renderer, claim_token, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
  SELECT id, 1, 1, $6, sha256($10), 'northbank', 'bench', 'POST /v1/transfers', $7, $7 FROM operation
), observation AS (
  INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, transfer_id, evidence)
  SELECT id, $6, 0, 1, 'verdict', 'authorized', $8, '{"phase":"complete","status":201}' FROM operation
), entry AS (
  INSERT INTO entries (operation_id, event, amount_minor, currency, account)
  SELECT id, 'authorized', side.sign * $2, $4, side.account
    FROM operation, (VALUES (-1, 'customer:wallet/' || $5::text), (1, 'transit:northbank')) AS side(sign, account)
)
INSERT INTO outbox (operation_id, fence, type) SELECT id, 1, 'authorized' FROM operation`

// everyArg are its parameters.
func (o *order) everyArg(payload, body []byte, transferID string, publishedAt time.Time) []any {
	return []any{o.Key, o.minor(), payload, o.Currency, o.DebtorAccount, uuid.Must(uuid.NewV7()), o.Key.String(), transferID, publishedAt, body}
}

// withdrawal is River's job.
type withdrawal struct {
	Payload json.RawMessage `json:"payload"`
}

func (withdrawal) Kind() string { return "withdrawal" }

type riverWorker struct {
	river.WorkerDefaults[withdrawal]
	pool   *pgxpool.Pool
	caller caller
}

// Work makes the call, and completes the job in the transaction that writes the rows.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[withdrawal]) error {
	var o order
	if err := json.Unmarshal(job.Args.Payload, &o); err != nil {
		return err
	}
	body, err := o.body()
	if err != nil {
		return err
	}
	transferID, err := w.caller.call(ctx, o.Key.String(), body)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, everyRow, o.everyArg(job.Args.Payload, body, transferID, job.CreatedAt)...); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// runRiver is River's worker. It polls as often as helps: more often finds fewer jobs at a time and costs more than it brings.
func runRiver(ctx context.Context, s childSettings, ready func(childReady) error) error {
	pool, err := openPool(ctx, s, 20)
	if err != nil {
		return err
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{pool: pool, caller: newCaller(s.BankURL, s.InFlight)})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: s.InFlight, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond}},
		Workers: workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := ready(childReady{}); err != nil {
		return err
	}
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.Stop(grace)
}

func prepareRiver(ctx context.Context, s *stage) (err error) {
	if s.pool, err = pgxpool.New(ctx, s.urls.Owner); err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(s.pool), nil)
	if err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate River: %w", err)
	}
	if s.river, err = river.NewClient(riverpgxv5.New(s.pool), &river.Config{}); err != nil {
		return fmt.Errorf("open River: %w", err)
	}
	return nil
}

// startPeer starts a worker that keeps its jobs in the database, as the owner of its own tables.
func startPeer(name string) func(context.Context, *stage, int) (*child, error) {
	return func(_ context.Context, s *stage, inFlight int) (*child, error) {
		return startChild(name, childSettings{DatabaseURL: s.urls.Owner, BankURL: s.bank.URL, InFlight: inFlight})
	}
}

func enqueueRiver(ctx context.Context, s *stage, jobs []made) error {
	const batch = 2000
	for start := 0; start < len(jobs); start += batch {
		var params []river.InsertManyParams
		for _, m := range jobs[start:min(start+batch, len(jobs))] {
			params = append(params, river.InsertManyParams{Args: withdrawal{Payload: m.payload}})
		}
		n, err := s.river.InsertManyFast(ctx, params)
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		if n != len(params) {
			return errors.New("enqueue: River took fewer jobs than it was given")
		}
	}
	return nil
}
