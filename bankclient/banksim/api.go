package banksim

import (
	"io"
	"math"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

const (
	transfersPath = "/v1/transfers"
	payoutsPath   = "/v1/payouts"

	routeTransfers = "transfers"
	routePayouts   = "payouts"

	maxBody   = 64 << 10
	maxKey    = 255
	pageLimit = 1000
)

// Handler is the reference API. Serve is the usual way to it; faults of the connection need Serve.
func (b *Bank) Handler() http.Handler { return http.HandlerFunc(b.serveHTTP) }

func (b *Bank) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.running.enter() {
		panic(http.ErrAbortHandler)
	}
	defer b.running.leave()
	defer served(r)
	path := r.URL.Path
	switch {
	case r.Method == http.MethodPost && path == transfersPath:
		b.create(w, r, routeTransfers)
	case r.Method == http.MethodPost && path == payoutsPath:
		b.create(w, r, routePayouts)
	case r.Method == http.MethodGet && path == transfersPath:
		query := r.URL.Query()
		if key := query.Get("idempotency_key"); key != "" {
			b.lookUp(w, r, key)
			return
		}
		b.list(w, r, query)
	case r.Method == http.MethodGet && strings.HasPrefix(path, transfersPath+"/"):
		b.get(w, r, path[len(transfersPath)+1:])
	case path == transfersPath || path == payoutsPath:
		b.answer(w, b.refusal(http.StatusMethodNotAllowed, "method_not_allowed", ""))
	default:
		b.answer(w, b.refusal(http.StatusNotFound, "not_found", ""))
	}
}

// authenticate tells which credential a request carries.
func (b *Bank) authenticate(r *http.Request) (credential uint64, ok bool) {
	const scheme = "Bearer "
	header := r.Header["Authorization"]
	if len(header) != 1 || len(header[0]) <= len(scheme) || !strings.EqualFold(header[0][:len(scheme)], scheme) {
		return 0, false
	}
	token := header[0][len(scheme):]
	tokens := b.settings.Load().tokens
	if len(tokens) == 0 {
		return hashText(offset64, token), true
	}
	name, known := tokens[token]
	return hashText(offset64, name), known
}

// readBody reads the whole body, or says that it is too large or broken.
func readBody(r *http.Request) ([]byte, bool) {
	if r.ContentLength > maxBody {
		return nil, false
	}
	if r.ContentLength >= 0 {
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, body)
		return body, err == nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	return body, err == nil && len(body) <= maxBody
}

// lookUp answers what was made under a partner key.
func (b *Bank) lookUp(w http.ResponseWriter, r *http.Request, key string) {
	number := b.oracle.arrive(b.store, key, kindLookUp, b.clock.now())
	p := b.plan(r, onLookUp, key, number.nth)
	defer func() { b.oracle.settle(b, key, number, p) }()
	b.read(w, r, p, func() *reply { return b.found(key, number.nth, p) })
}

// read runs a request that changes nothing.
func (b *Bank) read(w http.ResponseWriter, r *http.Request, p *plan, process func() *reply) {
	b.exchange(w, r, p, func(p *plan) *reply {
		if _, ok := b.authenticate(r); !ok {
			return b.refusal(http.StatusUnauthorized, "unauthorized", "")
		}
		if p.early != nil {
			return b.refusal(p.early.status, p.early.code, p.retryAfter)
		}
		return process()
	})
}

// found renders the transfers of a key that the bank shows by now.
func (b *Bank) found(key string, nth uint32, p *plan) *reply {
	body := append(b.buffer(), `{"data":[`...)
	now := b.clock.now()
	if !p.notFound && !(p.flaps && nth%2 == 0) {
		b.store.look(key, func(a *account) {
			for _, t := range a.transfers {
				if t.visibleAt > now.UnixNano() {
					continue
				}
				if body[len(body)-1] != '[' {
					body = append(body, ',')
				}
				body = t.render(body, now, p.view)
			}
		})
	}
	return &reply{status: http.StatusOK, body: append(body, `]}`...)}
}

// get answers one transfer by its id.
func (b *Bank) get(w http.ResponseWriter, r *http.Request, id string) {
	t := b.store.byID(id)
	key := ""
	if t != nil {
		key = t.key
	}
	number := b.oracle.arrive(b.store, key, kindGet, b.clock.now())
	p := b.plan(r, onGet, key, number.nth)
	defer func() { b.oracle.settle(b, key, number, p) }()
	b.read(w, r, p, func() *reply {
		now := b.clock.now()
		if t == nil || p.notFound || t.visibleAt > now.UnixNano() {
			return b.refusal(http.StatusNotFound, "not_found", "")
		}
		return &reply{status: http.StatusOK, body: t.render(b.buffer(), now, p.view)}
	})
}

// list is the statement: all transfers by time of creation, in pages.
func (b *Bank) list(w http.ResponseWriter, r *http.Request, query url.Values) {
	number := b.oracle.arrive(b.store, "", kindStatement, b.clock.now())
	p := b.plan(r, onStatement, "", number.nth)
	defer func() { b.oracle.settle(b, "", number, p) }()
	b.read(w, r, p, func() *reply { return b.listing(query, p) })
}

func (b *Bank) listing(query url.Values, p *plan) *reply {
	from, okFrom := queryTime(query.Get("created_from"), 0)
	to, okTo := queryTime(query.Get("created_to"), math.MaxInt64)
	limit, okLimit := queryNumber(query.Get("limit"), 100)
	start, okCursor := queryNumber(query.Get("cursor"), 0)
	if !okFrom || !okTo || !okLimit || !okCursor || limit == 0 {
		return b.refusal(http.StatusBadRequest, "invalid_request", "")
	}
	limit = min(limit, pageLimit)
	all := b.store.page(0)
	if first := sort.Search(len(all), func(i int) bool { return all[i] != nil && all[i].at >= from }); first > start {
		start = first
	}
	body, now, shown, next := append(b.buffer(), `{"data":[`...), b.clock.now(), 0, -1
	for i := start; i < len(all); i++ {
		t := all[i]
		if t == nil || t.at < from || t.visibleAt > now.UnixNano() {
			continue
		}
		if t.at >= to {
			break
		}
		if shown == limit {
			next = i
			break
		}
		if shown > 0 {
			body = append(body, ',')
		}
		body = t.render(body, now, p.view)
		shown++
	}
	body = append(body, `],"next_cursor":`...)
	if next < 0 {
		return &reply{status: http.StatusOK, body: append(body, `null}`...)}
	}
	body = append(body, '"')
	body = strconv.AppendInt(body, int64(next), 10)
	return &reply{status: http.StatusOK, body: append(body, `"}`...)}
}

func queryTime(text string, otherwise int64) (int64, bool) {
	if text == "" {
		return otherwise, true
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	switch { // nanoseconds of years outside of these do not fit
	case at.Year() > 2200:
		return math.MaxInt64, err == nil
	case at.Year() < 1900:
		return math.MinInt64, err == nil
	}
	return at.UnixNano(), err == nil
}

func queryNumber(text string, otherwise int) (int, bool) {
	if text == "" {
		return otherwise, true
	}
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}
