package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

// memory is a ledger that knows some keys.
type memory struct {
	known  []uuid.UUID
	pauses []string
	away   bool
}

func (m *memory) Forgotten(_ context.Context, events []ledger.Published) ([]ledger.Published, error) {
	if m.away {
		return nil, errors.New("away")
	}
	return slices.DeleteFunc(slices.Clone(events), func(e ledger.Published) bool { return slices.Contains(m.known, e.Key) }), nil
}

func (m *memory) Pause(_ context.Context, scope ledger.Scope, name, reason, by string) error {
	m.pauses = append(m.pauses, string(scope)+name+" "+reason+" "+by)
	return nil
}

// TestWitness_PausesWhatWasPutBack: also when newer events have covered those that the ledger has forgotten, and as often as it finds so.
func TestWitness_PausesWhatWasPutBack(t *testing.T) {
	old, young, younger := uuid.New(), uuid.New(), uuid.New()
	stream := []uuid.UUID{old}
	var broker error
	m := &memory{known: []uuid.UUID{old, young, younger}}
	var log strings.Builder
	w, err := newWitness(func(context.Context, int) ([]queue.Told, error) {
		var told []queue.Told
		for _, key := range stream {
			told = append(told, queue.Told{Key: key, Type: "authorized", Ledger: "one"})
		}
		return told, broker
	}, m, prometheus.NewRegistry(), zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	look := func(what string, pauses int) {
		t.Helper()
		w.look(t.Context())
		if len(m.pauses) != pauses {
			t.Errorf("%s: pauses %q, want %d", what, m.pauses, pauses)
		}
	}
	look("all is known", 0)
	m.away = true
	look("nothing is known", 0)
	m.away, broker, stream = false, errors.New("away"), nil
	look("the broker is away", 0)
	m.known = []uuid.UUID{young, younger} // put back
	look("put back, and the broker is away", 1)
	broker, stream = nil, []uuid.UUID{young}
	look("put back, and the newest event is young", 2)
	stream = []uuid.UUID{younger}
	look("put back still, and covered by younger ones", 3)
	if m.pauses[0] != "all invariant_violation worker" || !strings.Contains(log.String(), "recover --force") || !strings.Contains(log.String(), old.String()) {
		t.Errorf("pauses %q, log %s", m.pauses, log.String())
	}
	m.known = []uuid.UUID{old, young, younger} // recovered
	look("recovered", 3)
	if warned := strings.Count(log.String(), "put back to an earlier moment would go unnoticed"); warned != 1 {
		t.Errorf("warned %d times that it cannot look, want once for the two times in a row:\n%s", warned, log.String())
	}
}
