package gateway

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// submit is POST /v1/withdrawals, as openapi.json describes it.
func (q *request) submit() {
	key, given, ok := q.readKey()
	if !ok {
		return
	}
	if !given {
		if !q.g.opts.Sources[q.source].MakeKeys {
			q.refuse(problem{Status: http.StatusBadRequest, Code: "key_missing",
				Detail: "the header Idempotency-Key is needed: a UUID made once for this withdrawal and stored with it"})
			return
		}
		key = job.NewKey()
		q.g.metrics.keyless(q.source) // whatever comes of it: under "require" it would be refused
	}
	q.key = key
	order, j, fault := q.readOrder(key)
	if fault != nil && (!order.Refused || !given) { // a key that was made just now is surely not on record
		q.refuseFault(fault)
		return
	}
	if order.Key == uuid.Nil {
		return // answered
	}
	if !given { // before it may be recorded: whatever is answered from now on, the caller has the key to repeat it with
		q.made = true
		q.w.Header().Set(headerKey, key.String())
	}
	a, err := q.accept(order, j)
	if err != nil {
		q.away(err)
		return
	}
	switch a.Answer {
	case ledger.Accepted:
		q.g.opts.Accepted()
		q.first(&a.Standing)
	case ledger.AcceptedBefore:
		q.again(&a.Standing)
	case ledger.AcceptConflict:
		q.refuse(problem{Status: http.StatusUnprocessableEntity, Code: "key_reused",
			Detail: "this key belongs to another withdrawal; nothing was accepted. A new withdrawal needs a new key"})
	case ledger.AcceptRefused:
		q.refuseFault(fault)
	case ledger.AcceptOtherVersion:
		q.retryAfter(later)
		q.refuse(problem{Status: http.StatusServiceUnavailable, Code: "newer_version", Detail: "a newer gateway can answer this; " + q.repeat()})
	default:
		panic("an order was answered with neither an answer nor an error")
	}
}

// accept puts an order to the ledger. What is on record under another version of the fingerprint is compared under that one, if this program
// knows it.
func (q *request) accept(order ledger.Order, j job.Job) (ledger.Acceptance, error) {
	a, err := q.g.intake.Do(q.r.Context(), order)
	if err == nil && a.Answer == ledger.AcceptOtherVersion {
		if stored, known := j.FingerprintAs(a.Version); known {
			order.Fingerprint = stored
			a, err = q.g.intake.Do(q.r.Context(), order)
		}
	}
	return a, errors.Join(err, a.Err)
}

// first answers the request that the operation was recorded for.
func (q *request) first(s *ledger.Standing) {
	now, finished := q.wait(s)
	if finished {
		q.stands(outcomeStatus(&now), &now)
		return
	}
	q.stands(http.StatusAccepted, &now)
}

// again answers a request for an operation that was on record.
func (q *request) again(s *ledger.Standing) {
	q.w.Header().Set(headerReplayed, "true")
	if s.State.Finished() {
		q.stands(http.StatusOK, s)
		return
	}
	wants := preferredWait(q.r.Header.Values("Prefer")) > 0
	now, finished := q.wait(s)
	switch {
	case finished:
		q.stands(outcomeStatus(&now), &now) // as the first request is answered
	case wants:
		q.retryAfter(patience(s))
		q.refuse(problem{Status: http.StatusConflict, Code: "request_in_progress", Detail: "the wait ended before there was an outcome", State: string(now.State)})
	default:
		q.stands(http.StatusAccepted, s)
	}
}

func outcomeStatus(s *ledger.Standing) int {
	if s.State == ledger.StateAuthorized {
		return http.StatusCreated
	}
	return http.StatusOK
}

// wait waits as the caller prefers and says where the operation stands then, and whether that is an outcome.
func (q *request) wait(s *ledger.Standing) (ledger.Standing, bool) {
	d := preferredWait(q.r.Header.Values("Prefer"))
	if d == 0 {
		return *s, false
	}
	q.w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(d/time.Second)))
	q.leaveSlot()
	ctx, cancel := context.WithTimeout(q.r.Context(), d)
	defer cancel()
	now, known := q.g.waiters.wait(ctx, s.Key)
	if !known {
		now = *s
	}
	return now, now.State.Finished()
}

// preferredWait reads wait=N of RFC 7240; 0 = none. What cannot be read is no preference.
func preferredWait(headers []string) time.Duration {
	for _, header := range headers {
		for one := range strings.SplitSeq(header, ",") {
			one, _, _ = strings.Cut(one, ";")
			name, value, _ := strings.Cut(one, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0
			}
			return min(time.Duration(n)*time.Second, mostWait)
		}
	}
	return 0
}

// readKey reads the header, as a bare UUID or as the quoted string of the IETF draft. It answers what is wrong.
func (q *request) readKey() (key uuid.UUID, given, ok bool) {
	values := q.r.Header.Values(headerKey)
	if len(values) == 0 {
		return uuid.Nil, false, true
	}
	text := values[0]
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	key, err := job.ParseKey(text)
	switch {
	case len(values) > 1:
		q.refuse(problem{Status: http.StatusBadRequest, Code: job.CodeKeyForm, Detail: "the header Idempotency-Key stands more than once"})
	case errors.Is(err, job.ErrKeyReserved):
		q.refuse(problem{Status: http.StatusBadRequest, Code: job.CodeKeyReserved, Detail: "the nil and the max UUID are no keys"})
	case err != nil:
		q.refuse(problem{Status: http.StatusBadRequest, Code: job.CodeKeyForm, Detail: "the header Idempotency-Key must be a UUID in its 36 character form"})
	default:
		return key, true, true
	}
	return uuid.Nil, true, false
}

// readOrder reads the body. An order without a key means that the request was answered, or is to be answered with the fault. An order beside a
// fault is refused by the policy of today: the ledger is asked all the same, for what was allowed when it came first.
func (q *request) readOrder(key uuid.UUID) (ledger.Order, job.Job, *job.Fault) {
	if kind := q.r.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			q.refuse(problem{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Detail: "the body must be application/json"})
			return ledger.Order{}, job.Job{}, nil
		}
	}
	body, err := readBody(q.w, q.r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return ledger.Order{}, job.Job{}, &job.Fault{Reason: job.ReasonTooLarge, Code: job.CodeTooLarge, Detail: "more than 65536 bytes"}
	case err != nil:
		q.refuse(problem{Status: http.StatusBadRequest, Code: "body_unreadable", Detail: "the body ended early; nothing was accepted"})
		return ledger.Order{}, job.Job{}, nil
	}
	j, err := job.DecodeRequest(q.source, key, body)
	if err != nil {
		return ledger.Order{}, job.Job{}, asFault(err)
	}
	fault := q.g.opts.Allowed(&j)
	payload, err := job.Encode(j)
	if err != nil {
		return ledger.Order{}, job.Job{}, asFault(err)
	}
	return ledger.Order{
		Key: key, Fingerprint: j.Fingerprint(), Source: j.Source, Route: j.Route, Partner: q.g.opts.Partners[j.Route],
		DebtorAccount: j.DebtorAccount.Reveal(), Amount: j.Amount, NotBefore: j.NotBefore, NotAfter: j.NotAfter, Payload: payload,
		TraceParent: traceParent(q.r.Header.Get("traceparent")), Grace: q.g.opts.Grace, Refused: fault != nil,
	}, j, fault
}

// readBody reads at most what a job may have, into one allocation where the caller has said how much comes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	in := http.MaxBytesReader(w, r.Body, job.MaxBytes)
	if r.ContentLength < 0 || r.ContentLength > job.MaxBytes {
		return io.ReadAll(in)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(in, body)
	return body, err
}

func asFault(err error) *job.Fault {
	var fault *job.Fault
	if !errors.As(err, &fault) {
		panic("the decoder returned an error that is no fault")
	}
	return fault
}

func (q *request) refuseFault(fault *job.Fault) {
	status := http.StatusUnprocessableEntity
	switch fault.Reason {
	case job.ReasonUndecodable:
		status = http.StatusBadRequest
	case job.ReasonTooLarge:
		status = http.StatusRequestEntityTooLarge
	}
	q.refuse(problem{Status: status, Code: fault.Code, Path: fault.Path, Detail: fault.Detail})
}

// traceParent takes over a header of the W3C's version 00, and nothing else.
func traceParent(text string) string {
	if len(text) != 55 || text[:3] != "00-" || text[35] != '-' || text[52] != '-' {
		return ""
	}
	for i := 3; i < len(text); i++ {
		if c := text[i]; i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return text
}
