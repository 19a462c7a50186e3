package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"
)

const (
	dbosApp      = "bench"
	dbosQueue    = "withdrawals"
	dbosWorkflow = "withdrawal"
	dbosVersion  = "1"
)

// dbosJob is the input of the workflow.
type dbosJob struct {
	Payload    json.RawMessage `json:"payload"`
	EnqueuedAt time.Time       `json:"enqueued_at"`
}

// dbosWorker has its workflow: the call is a step, the rows are a transaction on the pool that DBOS itself uses, so that their commit
// and DBOS's own are one.
type dbosWorker struct {
	caller caller
	source *dbos.DataSource
}

func (w *dbosWorker) withdraw(ctx dbos.Context, job dbosJob) (string, error) {
	var o order
	if err := json.Unmarshal(job.Payload, &o); err != nil {
		return "", err
	}
	body, err := o.body()
	if err != nil {
		return "", err
	}
	transferID, err := dbos.RunAsStep(ctx, func(ctx context.Context) (string, error) { return w.caller.call(ctx, o.Key.String(), body) })
	if err != nil {
		return "", err
	}
	return dbos.RunAsTransaction(ctx, w.source, func(ctx context.Context, tx dbos.Tx) (string, error) {
		_, err := tx.Exec(ctx, everyRow, o.everyArg(job.Payload, body, transferID, job.EnqueuedAt)...)
		return transferID, err
	})
}

func runDBOS(ctx context.Context, s childSettings, ready func(childReady) error) error {
	pool, err := openPool(ctx, s, 20)
	if err != nil {
		return err
	}
	defer pool.Close()
	app, err := dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{AppName: dbosApp, SystemDBPool: pool, ApplicationVersion: dbosVersion,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	w := &dbosWorker{caller: newCaller(s.BankURL, s.InFlight)}
	if w.source, err = dbos.NewDataSource(app, pool); err != nil {
		return err
	}
	dbos.RegisterWorkflow(app, w.withdraw, dbos.WithWorkflowName(dbosWorkflow))
	if err := dbos.Launch(app); err != nil {
		return err
	}
	if _, err := dbos.RegisterQueue(app, dbosQueue, dbos.WithWorkerConcurrency(s.InFlight), dbos.WithQueueBasePollingInterval(20*time.Millisecond)); err != nil {
		return err
	}
	if err := ready(childReady{}); err != nil {
		return err
	}
	<-ctx.Done()
	return dbos.Shutdown(app, 10*time.Second)
}

// prepareDBOS makes nothing: the worker migrates, and clients only check.
func prepareDBOS(context.Context, *stage) error { return nil }

func startDBOS(ctx context.Context, s *stage, inFlight int) (*child, error) {
	c, err := startPeer(nameDBOS)(ctx, s, inFlight)
	if err != nil {
		return nil, err
	}
	s.dbos, err = dbos.NewClient(ctx, dbos.ClientConfig{DatabaseURL: s.urls.Owner, AppName: dbosApp, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("open DBOS: %w", err)
	}
	return c, nil
}

func enqueueDBOS(ctx context.Context, s *stage, jobs []made) error {
	if s.dbos == nil {
		return errors.New("enqueue: DBOS is not open")
	}
	var group errgroup.Group
	group.SetLimit(8)
	for _, m := range jobs {
		group.Go(func() error {
			_, err := dbos.Enqueue[string](s.dbos, dbosQueue, dbosWorkflow, dbosJob{Payload: m.payload, EnqueuedAt: time.Now()},
				dbos.WithEnqueueWorkflowID(m.key.String()), dbos.WithEnqueueApplicationVersion(dbosVersion))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return ctx.Err()
}
