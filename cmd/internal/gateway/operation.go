package gateway

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/job"
)

// codeCancelled is why an operation was cancelled that its source did not want any more.
const codeCancelled = "cancelled_by_source"

// read is GET /v1/withdrawals/{key}.
func (q *request) read() {
	if !q.readPath() {
		return
	}
	found, err := q.g.ledger.Standings(q.r.Context(), []uuid.UUID{q.key})
	switch {
	case err != nil:
		q.away(err)
	case len(found) == 0 || found[0].Source != q.source:
		q.unknown()
	default:
		q.stands(http.StatusOK, &found[0])
	}
}

// cancel is POST /v1/withdrawals/{key}/cancel. Cancelling what is cancelled is no error.
func (q *request) cancel() {
	if !q.readPath() {
		return
	}
	cancelled, s, err := q.g.ledger.CancelIfOpen(q.r.Context(), q.key, q.source, codeCancelled)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		q.unknown()
	case err != nil:
		q.away(err)
	case cancelled:
		q.g.Tell(q.key)
		q.stands(http.StatusOK, &s)
	case s.State == ledger.StateCancelled:
		q.w.Header().Set(headerReplayed, "true")
		q.stands(http.StatusOK, &s)
	default:
		q.refuse(problem{Status: http.StatusConflict, Code: "not_cancellable", State: string(s.State),
			Detail: "only a withdrawal that is open and not in doubt can be cancelled"})
	}
}

// readPath reads the key of the path. What is no key is no operation either.
func (q *request) readPath() bool {
	key, err := job.ParseKey(q.r.PathValue("key"))
	if err != nil {
		q.unknown()
		return false
	}
	q.key = key
	return true
}

func (q *request) unknown() {
	q.refuse(problem{Status: http.StatusNotFound, Code: "not_found", Detail: "this source has no withdrawal under this key"})
}
