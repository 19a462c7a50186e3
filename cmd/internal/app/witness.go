package app

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	witnessEvery = 10 * time.Second
	witnessRetry = time.Second     // until it was told once
	witnessFirst = 3 * time.Second // a start waits no longer for the broker's word
	witnessed    = 20              // reads, which reach back a million events
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
	read      prometheus.Gauge
	told      bool // once, at least
	warned    bool
	last      []ledger.Published
}

func newWitness(events func(context.Context, int) ([]queue.Told, error), l forgetful, registerer prometheus.Registerer, log zerolog.Logger) (*witness, error) {
	w := &witness{events: events, ledger: l, log: log, forgotten: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_forgotten_events",
		Help: "Newest published events that the ledger does not know: it was put back to an earlier moment. Alert at 1."}),
		read: prometheus.NewGauge(prometheus.GaugeOpts{Name: "paidonce_witness_read",
			Help: "1 when the ledger was held against the newest events of the stream at the last try, else 0."})}
	return w, errors.Join(registerer.Register(w.forgotten), registerer.Register(w.read))
}

// Run looks until ctx ends. Where broker or ledger cannot be read, nothing is known, and nothing is done.
func (w *witness) Run(ctx context.Context) error {
	for {
		every := witnessEvery
		if !w.told {
			every = witnessRetry
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
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
	told, away := w.events(ctx, witnessed)
	events := make([]ledger.Published, 0, len(told)+len(w.last))
	for _, t := range told {
		events = append(events, ledger.Published{Ledger: t.Ledger, Key: t.Key, Type: t.Type, At: t.At})
	}
	newest := events[:len(events):len(events)]
	forgotten, err := w.ledger.Forgotten(ctx, append(newest, w.last...))
	if err = errors.Join(away, err); err != nil {
		w.read.Set(0)
		if ctx.Err() == nil && !w.warned { // a start that waits no longer is no news
			w.warned = true
			w.log.Warn().Err(err).Msg("the ledger is not held against its newest events: one that was put back to an earlier moment would go unnoticed")
		}
	} else {
		w.read.Set(1)
		w.told, w.warned = true, false
	}
	w.forgotten.Set(float64(len(forgotten)))
	if len(forgotten) == 0 {
		if len(newest) > 0 && err == nil {
			w.last = newest
		}
		return
	}
	w.last = forgotten
	w.log.Error().Int("events", len(forgotten)).Stringer("key", forgotten[0].Key).Str("type", forgotten[0].Type).
		Msg("the ledger was put back to an earlier moment: what it has told is not there any more. Everything is paused: run `paidonce recover --force`, then resume")
	if err := w.ledger.Pause(ctx, ledger.ScopeAll, "", ledger.PausedViolation, ledger.ByWorker); err != nil {
		w.log.Error().Err(err).Msg("not paused: it is tried again")
	}
}
