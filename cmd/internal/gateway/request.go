package gateway

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotent-Replayed"
	headerID       = "X-Request-Id"
)

// request is one request on its way to its one answer.
type request struct {
	g      *Gateway
	w      http.ResponseWriter
	r      *http.Request
	path   string // the pattern, not what was asked: that may hold anything
	id     string
	began  time.Time
	source string
	key    uuid.UUID
	made   bool   // the key was made here, and the answer's header names it
	code   string // of the problem it was answered with
	status int    // 0 = not answered yet
	holds  bool   // a slot
}

// problem is an answer by RFC 9457. Nothing of the request's body is ever in it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
	Path   string `json:"path,omitempty"`  // JSON pointer into the request's body
	State  string `json:"state,omitempty"` // of the caller's own operation
}

// around is plain for what needs a source and a slot.
func (g *Gateway) around(path string, serve func(*request)) http.Handler {
	return g.plain(path, func(q *request) {
		source, ok := g.opts.Tokens.Source(bearer(q.r.Header.Get("Authorization")))
		if !ok {
			q.w.Header().Set("WWW-Authenticate", `Bearer realm="paidonce"`)
			q.refuse(problem{Status: http.StatusUnauthorized, Code: "unauthorized", Detail: "a bearer token of a source is needed"})
			return
		}
		q.source = source
		if !q.takeSlot() {
			q.retryAfter(time.Second)
			q.refuse(problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: "too many requests are in work; repeat it with the same key"})
			return
		}
		defer q.leaveSlot()
		serve(q)
	})
}

// plain gives a request an id and a line in the access log, and answers for whoever panics.
func (g *Gateway) plain(path string, serve func(*request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{g: g, w: w, r: r, path: path, began: time.Now(), id: requestID(r.Header.Get(headerID))}
		w.Header().Set(headerID, q.id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		defer q.done()
		serve(q)
	})
}

func (q *request) done() {
	if failure := recover(); failure != nil {
		// Not the value: it may hold something of the request.
		q.g.opts.Log.Error().Str("request_id", q.id).Str("type", fmt.Sprintf("%T", failure)).Bytes("stack", debug.Stack()).Msg("request panicked")
		if q.status == 0 {
			q.refuse(problem{Status: http.StatusInternalServerError, Code: "internal", Detail: q.repeat()})
		}
	}
	took := time.Since(q.began)
	q.g.metrics.answered(q.path, q.status, q.code, took)
	line := q.g.opts.Log.Info()
	if q.status >= http.StatusInternalServerError {
		line = q.g.opts.Log.Warn()
	}
	if line == nil {
		return
	}
	line.Str("request_id", q.id).Str("method", method(q.r.Method)).Str("path", q.path).Int("status", q.status).Dur("ms", took)
	if q.source != "" {
		line.Str("source", q.source)
	}
	if q.key != uuid.Nil {
		line.Stringer("key", q.key)
	}
	if q.code != "" {
		line.Str("code", q.code)
	}
	line.Msg("request")
}

// method is what may be logged of a method: it is text of the caller.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

func (q *request) takeSlot() bool {
	select {
	case q.g.slots <- struct{}{}:
		q.holds = true
		return true
	default:
		return false
	}
}

// leaveSlot is safe to call twice: a request that waits leaves early.
func (q *request) leaveSlot() {
	if q.holds {
		q.holds = false
		<-q.g.slots
	}
}

// answer writes the one answer.
func (q *request) answer(status int, kind string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic("an answer is plain text and numbers: " + err.Error())
	}
	q.status = status
	q.w.Header().Set("Content-Type", kind)
	q.w.WriteHeader(status)
	_, _ = q.w.Write(append(text, '\n')) // a caller who left asks again, with the same key
}

func (q *request) refuse(p problem) {
	p.Type, p.Title = "urn:paidonce:problem:"+p.Code, http.StatusText(p.Status)
	q.code = p.Code
	q.answer(p.Status, "application/problem+json", p)
}

// repeat says how the request is repeated without becoming a second withdrawal.
func (q *request) repeat() string {
	if q.made {
		return "it may have been accepted: repeat it with the key in this answer's header Idempotency-Key"
	}
	return "repeat it with the same key"
}

func (q *request) retryAfter(d time.Duration) {
	q.w.Header().Set("Retry-After", fmt.Sprint(int(max(d, time.Second)/time.Second)))
}

// bearer takes the token out of an Authorization header; "" = there is none.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// requestID takes over the caller's id where it is plain, and makes one where it is not.
func requestID(given string) string {
	if given == "" || len(given) > 64 {
		return uuid.NewString()
	}
	for i := range len(given) {
		c := given[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return uuid.NewString()
		}
	}
	return given
}
