package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// serverWithin bounds what is begun with a server: whatever happens meanwhile, it is ended.
const serverWithin = time.Minute

// persist tries until it succeeds or the time is over: a server that has just come back, or is being killed by another fault, may not answer yet.
func persist(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverWithin)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *attacker) strikeDatabase(ctx context.Context, f fault) error {
	w, lasting := a.world, context.WithoutCancel(ctx) // what is begun is ended
	switch f.kind {
	case "terminate":
		return w.execute(lasting, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'paidonce_worker'")
	case "read_only":
		if err := w.readOnly(lasting, "on"); err != nil {
			return err
		}
		pause(ctx, f.lasts)
		return w.readOnly(lasting, "off")
	case "disk_full":
		return w.fillDisk(ctx, one(f, written()), f.lasts)
	case "failover":
		return a.failOver(ctx, f)
	}
	w.postgres.Kill()
	pause(ctx, f.lasts)
	return w.postgres.Restart(lasting)
}

// readOnly turns all transactions that begin from now on into read-only ones, or back.
func (w *world) readOnly(ctx context.Context, to string) error {
	return errors.Join(w.execute(ctx, "ALTER SYSTEM SET default_transaction_read_only = "+to), w.execute(ctx, "SELECT pg_reload_conf()"))
}

// written lists the tables that workers write to.
func written() []string {
	return []string{"operations", "attempts", "observations", "due", "outbox", "entries"}
}

const noSpace = `CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`

// fillDisk has a table answer as a full disk does.
func (w *world) fillDisk(ctx context.Context, table string, lasts time.Duration) error {
	err := w.execute(context.WithoutCancel(ctx), "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON "+table+" FOR EACH STATEMENT EXECUTE FUNCTION no_space()")
	if err != nil {
		return err
	}
	pause(ctx, lasts)
	return persist(ctx, func(ctx context.Context) error { return w.execute(ctx, "DROP TRIGGER IF EXISTS full_disk ON "+table) })
}

// failOver makes a standby, lets it fall behind, and promotes it: claims, attempts and outcomes that the old server had acknowledged are gone, and so
// are operations whose jobs the broker will not deliver again by itself. Then it does what the runbook says.
func (a *attacker) failOver(ctx context.Context, f fault) error {
	w, began := a.world, time.Now()
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverWithin)
	defer cancel()
	dir := filepath.Join(w.held.Path(), "standby-"+strconv.FormatInt(f.at.Milliseconds(), 10))
	standby, err := w.postgres.Standby(lasting, dir, postgresSettings())
	if err != nil {
		return err
	}
	if err := standby.Unfollow(lasting); err != nil {
		return errors.Join(err, standby.Stop())
	}
	pause(ctx, f.lasts)
	old := w.postgres
	old.Kill()
	for _, b := range w.banks {
		b.LoseSight()
	}
	a.moved.Store(true)
	if err := standby.Promote(lasting); err != nil {
		return errors.Join(err, standby.Stop())
	}
	w.postgres = standby
	address := "127.0.0.1:" + strconv.Itoa(standby.Port())
	for _, p := range []target{toLedger, ownToLedger} {
		w.proxies[p].Lead(address)
		w.proxies[p].Cut()
	}
	err = persist(ctx, func(ctx context.Context) error {
		_, err := w.person.Recover(ctx, ledger.Loss{}, "failover", "soak")
		return err
	})
	redo := time.Since(began) + redeliverBefore
	return errors.Join(err, persist(ctx, func(ctx context.Context) error { return w.rewind(ctx, redo) }), old.Stop())
}

// redeliverBefore covers jobs that had waited in the queue before they became operations which are lost.
const redeliverBefore = 2 * time.Minute

func (w *world) rewind(ctx context.Context, redo time.Duration) error {
	nc, err := queue.Connect(w.nats.URL(), queue.ConnectOptions{Role: queue.RoleOperator, NKeySeedFile: w.roles.Operator, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = queue.Rewind(ctx, nc, redo)
	return err
}

func (a *attacker) strikeBroker(ctx context.Context, f fault) error {
	if f.kind == "stream_full" {
		return a.world.fillStream(ctx, one(f, []string{queue.StreamJobs, queue.StreamEvents, queue.StreamDead}), f.lasts)
	}
	a.world.nats.Kill()
	pause(ctx, f.lasts)
	return a.world.nats.Restart()
}

// fillStream leaves a stream no room for anything more.
func (w *world) fillStream(ctx context.Context, name string, lasts time.Duration) error {
	nc, err := nats.Connect(w.witness, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to nats: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	resize := func(full bool) error {
		return persist(ctx, func(ctx context.Context) error {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			config := stream.CachedInfo().Config
			config.MaxBytes = -1
			if full {
				config.MaxBytes = max(1, int64(stream.CachedInfo().State.Bytes))
			}
			_, err = js.UpdateStream(ctx, config)
			return err
		})
	}
	if err := resize(true); err != nil {
		return err
	}
	pause(ctx, lasts)
	return resize(false)
}

func postgresSettings() map[string]string {
	return map[string]string{"synchronous_commit": "on", "full_page_writes": "on", "autovacuum_naptime": "5s"}
}

// start of the server that the ledger lives on at first.
func startServer(ctx context.Context, dir string) (*stack.Postgres, error) {
	return stack.StartPostgres(ctx, stack.PostgresOptions{Dir: filepath.Join(dir, "postgres"), Settings: postgresSettings()})
}
