package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	witnessEvery = 10 * time.Second
	witnessFirst = 3 * time.Second // a start waits no longer for the broker's word
	witnessed    = 16              // events
)

// forgetful is what the witness needs of the ledger.
type forgetful interface {
	Forgotten(ctx context.Context, events []ledger.Published) ([]ledger.Published, error)
	Pause(ctx context.Context, scope ledger.Scope, name, reason, by string) error
}

// witness holds the ledger against the newest events that the broker has of it. A disk's snapshot that was put back looks like the ledger itself, and
// has forgotten claims under which money moved; the events that it told since are still there. Then everything is paused: only a person can recover.
// Events are looked for again that were there at the last look, since workers that run on soon cover them with new ones.
type witness struct {
	events    func(ctx context.Context, most int) ([]queue.Told, error)
	ledger    forgetful
	log       zerolog.Logger
	forgotten prometheus.Gauge
	last      []ledger.Published
}

func newWitness(events func(context.Context, int) ([]queue.Told, error), l forgetful, registerer prometheus.Registerer, log zerolog.Logger) (*witness, error) {
	w := &witness{events: events, ledger: l, log: log, forgotten: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_forgotten_events",
		Help: "Newest published events that the ledger does not know: it was put back to an earlier moment. Alert at 1."})}
	return w, registerer.Register(w.forgotten)
}

// Run looks until ctx ends. Where broker or ledger cannot be read, nothing is known, and nothing is done.
func (w *witness) Run(ctx context.Context) error {
	tick := time.NewTicker(witnessEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.look(ctx)
		}
	}
}

// first looks before anything is claimed, if the broker answers soon.
func (w *witness) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, witnessFirst)
	defer cancel()
	w.look(ctx)
}

func (w *witness) look(ctx context.Context) {
	told, err := w.events(ctx, witnessed)
	if err != nil {
		w.log.Debug().Err(err).Msg("newest events not read")
	}
	events := make([]ledger.Published, 0, len(told)+len(w.last))
	for _, t := range told {
		events = append(events, ledger.Published{Ledger: t.Ledger, Key: t.Key, Type: t.Type, At: t.At})
	}
	newest := len(events)
	events = append(events, w.last...)
	if len(events) == 0 {
		return
	}
	forgotten, err := w.ledger.Forgotten(ctx, events)
	if err != nil {
		w.log.Debug().Err(err).Msg("newest events not looked for in the ledger")
		return
	}
	if newest > 0 {
		w.last = events[:newest:newest]
	}
	w.forgotten.Set(float64(len(forgotten)))
	if len(forgotten) == 0 {
		return
	}
	w.last = forgotten
	w.log.Error().Int("events", len(forgotten)).Stringer("key", forgotten[0].Key).Str("type", forgotten[0].Type).
		Msg("the ledger was put back to an earlier moment: what it has told is not there any more. Everything is paused: run `paidonce recover --force`, then resume")
	if err := w.ledger.Pause(ctx, ledger.ScopeAll, "", ledger.PausedViolation, ledger.ByWorker); err != nil {
		w.log.Error().Err(err).Msg("not paused: it is tried again")
	}
}
