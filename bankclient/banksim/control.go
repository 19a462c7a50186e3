package banksim

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ControlHandler is the control API. It changes and reveals everything; it belongs on its own address.
func (b *Bank) ControlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oracle/summary", func(w http.ResponseWriter, r *http.Request) { respond(w, http.StatusOK, b.Summary()) })
	mux.HandleFunc("GET /oracle", b.serveOracle)
	mux.HandleFunc("GET /statement", b.serveStatement)
	return mux
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, v) // the reader may be gone
	_, _ = w.Write([]byte("\n"))
}

// serveOracle answers the history of one key, or streams those of all as NDJSON.
func (b *Bank) serveOracle(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	if key == "" {
		key = r.URL.Query().Get("end_to_end_id")
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
