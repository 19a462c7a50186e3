package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
)

const (
	waitingEvery = 30 * time.Second
	oldestWarned = time.Hour // an operation that nobody parked and that is unfinished for longer is worth a look
)

// waitingLedger is what the watch needs of the ledger.
type waitingLedger interface {
	Waiting(ctx context.Context) ([]ledger.Waiting, error)
	Pauses(ctx context.Context) ([]ledger.Pause, error)
}

// waitingWatch tells what is paused, and looks for unfinished operations that nobody drives: those of a partner that this process is not configured for have no sweep
// here. Whether another process has one it cannot know, so it warns and does not make the process unready.
type waitingWatch struct {
	ledger  waitingLedger
	config  *config.Config
	ready   *Ready
	log     zerolog.Logger
	unswept *prometheus.GaugeVec
	paused  *prometheus.GaugeVec
	warned  map[string]bool
}

func newWaitingWatch(l waitingLedger, c *config.Config, ready *Ready, registerer prometheus.Registerer, log zerolog.Logger) (*waitingWatch, error) {
	w := &waitingWatch{ledger: l, config: c, ready: ready, log: log, warned: map[string]bool{},
		unswept: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "paidonce_unswept_operations",
			Help: "Unfinished operations of a partner that this process is not configured for: no sweep of it drives them."}, []string{"partner"}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "paidonce_paused", Help: "1 for everything that is paused."}, []string{"scope", "name"})}
	return w, errors.Join(registerer.Register(w.unswept), registerer.Register(w.paused))
}

// Run looks until ctx ends. While the ledger cannot be read, the last numbers stand; readiness says that it is away.
func (w *waitingWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(waitingEvery)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *waitingWatch) look(ctx context.Context) {
	if pauses, err := w.ledger.Pauses(ctx); err == nil { // else the next read says so too
		w.paused.Reset()
		for _, p := range pauses {
			w.paused.WithLabelValues(string(p.Scope), p.Name).Set(1)
		}
	}
	waiting, err := w.ledger.Waiting(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Debug().Err(err).Msg("what waits could not be counted")
		}
		return
	}
	w.unswept.Reset()
	warnings := []Reason{}
	for _, one := range waiting {
		if one.Oldest > oldestWarned {
			warnings = append(warnings, Reason{"oldest unfinished", fmt.Sprintf("an operation of partner %s has been unfinished for more than %s", one.Partner, oldestWarned)})
		}
		if w.config.Partners[one.Partner] != nil {
			delete(w.warned, one.Partner)
			continue
		}
		w.unswept.WithLabelValues(one.Partner).Set(float64(one.Unfinished))
		warnings = append(warnings, Reason{"swept by nobody", fmt.Sprintf("partner %s is not configured here, and has %d unfinished operations", one.Partner, one.Unfinished)})
		if !w.warned[one.Partner] {
			w.warned[one.Partner] = true
			w.log.Warn().Str("partner", one.Partner).Int64("unfinished", one.Unfinished).Msg("partner is not configured in this process, and has unfinished operations")
		}
	}
	w.ready.Warn(warnings)
}
