package banksim

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const maxControlBody = 1 << 20

// ControlHandler is the control API. It changes and reveals everything; it belongs on its own address.
func (b *Bank) ControlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", serveHelp)
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.Faults()) })
	mux.HandleFunc("GET /faults/active", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.ActiveFaults()) })
	mux.HandleFunc("POST /faults", b.servePostFault)
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) { conclude(w, b.ClearFaults()) })
	mux.HandleFunc("DELETE /faults/{id}", b.serveClearFault)
	mux.HandleFunc("GET /profile", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.Profile()) })
	mux.HandleFunc("POST /profile", func(w http.ResponseWriter, r *http.Request) { edit(w, r, b.Profile, b.SetProfile) })
	mux.HandleFunc("GET /schedule", b.serveSchedule)
	mux.HandleFunc("GET /idempotency", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.Idempotency()) })
	mux.HandleFunc("POST /idempotency", func(w http.ResponseWriter, r *http.Request) { edit(w, r, b.Idempotency, b.SetIdempotency) })
	mux.HandleFunc("GET /settings", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.readSettings()) })
	mux.HandleFunc("POST /settings", func(w http.ResponseWriter, r *http.Request) { edit(w, r, b.readSettings, b.writeSettings) })
	mux.HandleFunc("GET /clock", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, clockAnswer{b.Now()}) })
	mux.HandleFunc("POST /clock", b.serveAdvance)
	mux.HandleFunc("POST /transfers/{id}", b.servePostTransfer)
	mux.HandleFunc("DELETE /keys/{key}", b.serveForget)
	mux.HandleFunc("GET /oracle", b.serveOracle)
	mux.HandleFunc("GET /oracle/summary", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.Summary()) })
	mux.HandleFunc("GET /oracle/violations", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, b.Violations()) })
	mux.HandleFunc("GET /statement", b.serveStatement)
	return mux
}

func serveHelp(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "banksim control API. SIMULATED BANK, NOT FOR PRODUCTION.\n\n"+
		"GET  /faults                 all faults by name\n"+
		"GET  /faults/active          those set\n"+
		"POST /faults                 set one: {\"name\":..,\"on\":..,\"key\":..,\"skip\":..,\"next\":..,\"probability\":..,\"delay_ms\":..,\"status\":..,\"value\":..,\"retry_after\":..,\"executes\":..}\n"+
		"DELETE /faults[/{id}]        clear all, or one\n"+
		"GET|POST /profile            the random hostility\n"+
		"GET  /schedule?key=&n=&on=   what it holds for the first requests of a key\n"+
		"GET|POST /idempotency        how keys are treated\n"+
		"DELETE /keys/{key}           forget what is stored under a key\n"+
		"GET|POST /settings           latency_ms, content_guard_ms, tokens\n"+
		"GET|POST /clock              {\"advance_ms\":..}\n"+
		"POST /transfers/{id}         {\"status\":..,\"code\":..}\n"+
		"GET  /oracle[?key=|?end_to_end_id=]   one history, or all as NDJSON\n"+
		"GET  /oracle/summary, /oracle/violations\n"+
		"GET  /statement              every transfer as NDJSON\n")
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, v, json.Deterministic(true)) // the reader may be gone
	_, _ = io.WriteString(w, "\n")
}

type problem struct {
	Error string `json:"error"`
}

func conclude(w http.ResponseWriter, err error) {
	if err != nil {
		respond(w, http.StatusBadRequest, problem{Error: err.Error()})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func readControl(w http.ResponseWriter, r *http.Request, into any) error {
	return json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxControlBody), into, json.RejectUnknownMembers(true))
}

// edit overlays the posted members on what is in force, applies the result and answers what is in force then.
func edit[T any](w http.ResponseWriter, r *http.Request, read func() T, apply func(T) error) {
	next := read()
	err := readControl(w, r, &next)
	if err == nil {
		err = apply(next)
	}
	if err != nil {
		conclude(w, err)
		return
	}
	respond(w, http.StatusOK, read())
}

type faultNumber struct {
	ID int `json:"id"`
}

func (b *Bank) servePostFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	err := readControl(w, r, &f)
	if err != nil {
		conclude(w, err)
		return
	}
	id, err := b.SetFault(f)
	if err != nil {
		conclude(w, err)
		return
	}
	respond(w, http.StatusCreated, faultNumber{ID: id})
}

func (b *Bank) serveClearFault(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		conclude(w, errors.New("the number of a fault is a decimal number"))
		return
	}
	conclude(w, b.ClearFault(id))
}

type scheduleAnswer struct {
	Key    string     `json:"key"`
	Faults [][]string `json:"faults"`
}

func (b *Bank) serveSchedule(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	n, ok := queryNumber(query.Get("n"), 10)
	if !ok || n > 10_000 {
		conclude(w, errors.New("n is not a number up to 10000"))
		return
	}
	key := query.Get("key")
	respond(w, http.StatusOK, scheduleAnswer{Key: key, Faults: b.Schedule(key, n, query.Get("on") == "look_up")})
}

// controlSettings are the plain settings; tokens go in and never come out.
type controlSettings struct {
	LatencyMS      int64             `json:"latency_ms"`
	ContentGuardMS int64             `json:"content_guard_ms"`
	Tokens         map[string]string `json:"tokens,omitzero"`
	Credentials    []string          `json:"credentials,omitzero"`
}

func (b *Bank) readSettings() controlSettings {
	s := b.settings.Load()
	out := controlSettings{LatencyMS: s.latency.Milliseconds(), ContentGuardMS: s.guardWindow.Milliseconds()}
	out.Credentials = slices.Sorted(maps.Values(s.tokens))
	return out
}

func (b *Bank) writeSettings(c controlSettings) error {
	if c.LatencyMS < 0 || c.ContentGuardMS < 0 {
		return errors.New("latency_ms and content_guard_ms cannot be negative")
	}
	return b.change(func(s *settings) error {
		s.latency = time.Duration(c.LatencyMS) * time.Millisecond
		s.guardWindow = time.Duration(c.ContentGuardMS) * time.Millisecond
		if c.Tokens != nil {
			s.tokens = c.Tokens
		}
		return nil
	})
}

type clockAnswer struct {
	Now time.Time `json:"now"`
}

func (b *Bank) serveAdvance(w http.ResponseWriter, r *http.Request) {
	var move struct {
		AdvanceMS int64 `json:"advance_ms"`
	}
	if err := readControl(w, r, &move); err != nil {
		conclude(w, err)
		return
	}
	if move.AdvanceMS < 0 {
		conclude(w, errors.New("the clock of the bank never goes back"))
		return
	}
	b.Advance(time.Duration(move.AdvanceMS) * time.Millisecond)
	respond(w, http.StatusOK, clockAnswer{b.Now()})
}

// SetTransfer gives a transfer another state, as a later event at the bank would.
func (b *Bank) SetTransfer(id, status, code string) error {
	t := b.store.byID(id)
	if t == nil {
		return fmt.Errorf("no transfer has the id %q", id)
	}
	for _, text := range []string{status, code} {
		for _, c := range text {
			if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
				return errors.New("status and code are made of letters, digits and underscores")
			}
		}
	}
	t.setState(status, code)
	b.journal.state(t, status, code)
	if b.options.OnTransfer != nil {
		b.options.OnTransfer(t.export(b.clock.now()))
	}
	return nil
}

func (b *Bank) servePostTransfer(w http.ResponseWriter, r *http.Request) {
	var to struct {
		Status string `json:"status"`
		Code   string `json:"code"`
	}
	if err := readControl(w, r, &to); err != nil {
		conclude(w, err)
		return
	}
	conclude(w, b.SetTransfer(r.PathValue("id"), to.Status, to.Code))
}

// Forget drops what is stored under a key in every scope: the record is lost, a leaked lock is open.
// What was executed stays in the oracle.
func (b *Bank) Forget(key string) {
	b.store.look(key, func(a *account) { a.records = nil })
	b.journal.forget(key)
}

func (b *Bank) serveForget(w http.ResponseWriter, r *http.Request) {
	b.Forget(r.PathValue("key"))
	w.WriteHeader(http.StatusNoContent)
}

// serveOracle answers the history of one key, or streams those of all as NDJSON.
func (b *Bank) serveOracle(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key := query.Get("key")
	if key == "" {
		key = query.Get("end_to_end_id")
	}
	if key != "" {
		h, found := b.History(key)
		if !found {
			h = History{Key: key, Requests: []Request{}, Transfers: []Transfer{}}
		}
		respond(w, http.StatusOK, h)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder := jsontext.NewEncoder(w)
	b.Histories(func(h History) bool { return json.MarshalEncode(encoder, h) == nil })
}

func (b *Bank) serveStatement(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder := jsontext.NewEncoder(w)
	b.Statement(func(t Transfer) bool { return json.MarshalEncode(encoder, t) == nil })
}
