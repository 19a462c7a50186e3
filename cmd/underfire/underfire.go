// Package underfire is the door through which the programs below integration run the worker that they attack: exactly what
// `paidonce worker` runs, in their own process, with something around its parts. No production program imports it.
package underfire

import (
	"context"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/worker/queue"
)

// Around is what stands between the parts of an attacked worker.
type Around = app.Around

// RunWorker runs the worker of a configuration file until ctx ends.
func RunWorker(ctx context.Context, file string, log zerolog.Logger, around Around) error {
	settings, err := load(file)
	if err != nil {
		return err
	}
	return app.RunWorkerWith(ctx, settings, log, around)
}

// Provision makes the streams and consumers of a configuration file, as `paidonce migrate up` does. seedFile has the provisioner's nkey seed,
// which takes the place of the worker's; "" = the broker asks for none.
func Provision(ctx context.Context, file, seedFile string) error {
	settings, err := load(file)
	if err != nil {
		return err
	}
	settings.NATS.NKeyFile = seedFile
	topology, err := app.Topology(settings)
	if err != nil {
		return err
	}
	nc, err := app.Connect(settings, queue.RoleProvisioner, "", zerolog.Nop())
	if err != nil {
		return err
	}
	defer nc.Close()
	return queue.Provision(ctx, nc, topology)
}

func load(file string) (*config.Config, error) {
	settings, err := config.Load(config.Input{File: file, Lookup: os.LookupEnv, Rules: app.Rules()})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return settings, nil
}
