package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger"
)

// told is a ledger that says what it was told to.
type told struct {
	waiting []ledger.Waiting
	pauses  []ledger.Pause
	err     error
}

func (t *told) Pauses(context.Context) ([]ledger.Pause, error) { return t.pauses, t.err }

func (t *told) Waiting(context.Context) ([]ledger.Waiting, error) { return t.waiting, t.err }

// TestWatch_NamesOperationsThatNobodySweeps: a retired partner with unfinished operations shows in metrics, log and readiness, and stops nothing.
func TestWatch_NamesOperationsThatNobodySweeps(t *testing.T) {
	var log strings.Builder
	registry := prometheus.NewRegistry()
	ready := NewReady(zerolog.Nop())
	ready.Judge(t.Context())
	l := &told{pauses: []ledger.Pause{{Scope: ledger.ScopePartner, Name: "northbank"}}, waiting: []ledger.Waiting{
		{Partner: "northbank", Unfinished: 9, Oldest: 59 * time.Minute},
		{Partner: "oldbank", Unfinished: 3, Parked: 1, Oldest: 61 * time.Minute},
	}}
	w, err := newWaitingWatch(l, &config.Config{Partners: map[string]*config.Partner{"northbank": {}}}, ready, registry, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	w.look(t.Context())
	w.look(t.Context())
	server := httptest.NewServer(HealthHandler(ready, registry))
	defer server.Close()
	ask := func(path string) (int, string) {
		response, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }() // read to its end
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if _, text := ask("/metrics"); !strings.Contains(text, `paidonce_unswept_operations{partner="oldbank"} 3`) ||
		!strings.Contains(text, `paidonce_paused{name="northbank",scope="partner"} 1`) || strings.Contains(text, `operations{partner="northbank"`) {
		t.Errorf("metrics:\n%s", text)
	}
	want := `{"ready":true,"reasons":[],"warnings":[` +
		`{"check":"oldest unfinished","reason":"an operation of partner oldbank has been unfinished for more than 1h0m0s"},` +
		`{"check":"swept by nobody","reason":"partner oldbank is not configured here, and has 3 unfinished operations"}]}` + "\n"
	if code, text := ask("/readyz"); code != http.StatusOK || text != want {
		t.Errorf("readiness: %d\n%s\nwant\n%s", code, text, want)
	}
	if n := strings.Count(log.String(), "oldbank"); n != 1 {
		t.Errorf("the log names the partner %d times, want once:\n%s", n, log.String())
	}
	l.err = errors.New("away")
	w.look(t.Context())
	if _, text := ask("/metrics"); !strings.Contains(text, `paidonce_unswept_operations{partner="oldbank"} 3`) {
		t.Errorf("while the ledger is away the last number stands:\n%s", text)
	}
	l.err, l.waiting, l.pauses = nil, l.waiting[:1], nil
	w.look(t.Context())
	if _, text := ask("/metrics"); strings.Contains(text, "oldbank") || strings.Contains(text, "paidonce_paused{") {
		t.Errorf("after the partner was configured or its operations ended:\n%s", text)
	}
	if _, text := ask("/readyz"); text != `{"ready":true,"reasons":[]}`+"\n" {
		t.Errorf("readiness: %s", text)
	}
}
