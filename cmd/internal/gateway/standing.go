package gateway

import (
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/paidonce/paidonce/ledger"
)

const (
	soon  = time.Second      // when an operation at work may be finished
	later = 30 * time.Second // when one that is held may be
	much  = 5 * time.Minute  // when one that needs a person may be
)

// withdrawal is an operation as its source sees it. Equal requests get equal answers, so nothing of one request is in it.
type withdrawal struct {
	Key        string `json:"key"`
	Route      string `json:"route"`
	State      string `json:"state"`
	InDoubt    bool   `json:"in_doubt"`
	HeldReason string `json:"held_reason,omitempty"`
	Amount     string `json:"amount"`
	Currency   string `json:"currency"`
	Partner    string `json:"partner,omitempty"`
	TransferID string `json:"transfer_id,omitempty"`
	Code       string `json:"code,omitempty"`
	Settlement string `json:"settlement,omitempty"`
	CreatedAt  string `json:"created_at"`
	OutcomeAt  string `json:"outcome_at,omitempty"`
}

func withdrawalOf(s *ledger.Standing) withdrawal {
	w := withdrawal{
		Key: s.Key.String(), Route: s.Route, State: string(s.State), InDoubt: s.InDoubt, HeldReason: s.HeldReason, Amount: s.Amount.Decimal(),
		Currency: s.Amount.Currency, Partner: s.Partner, TransferID: s.TransferID, Code: s.Code, Settlement: s.Settlement,
		CreatedAt: s.CreatedAt.UTC().Format(time.RFC3339Nano),
	}
	if !s.OutcomeAt.IsZero() {
		w.OutcomeAt = s.OutcomeAt.UTC().Format(time.RFC3339Nano)
	}
	return w
}

func location(s *ledger.Standing) string { return "/v1/withdrawals/" + s.Key.String() }

// stands answers with where an operation stands.
func (q *request) stands(status int, s *ledger.Standing) {
	q.w.Header().Set("Location", location(s))
	if !s.State.Finished() {
		q.retryAfter(patience(s))
	}
	q.answer(status, "application/json", withdrawalOf(s))
}

// patience is when it is worth asking again.
func patience(s *ledger.Standing) time.Duration {
	switch {
	case s.State == ledger.StateParked:
		return much
	case s.HeldReason != "":
		return later
	}
	return soon
}

// away answers for a ledger that could not be asked, or has not answered. Nothing of it is stored: the same request may be repeated.
func (q *request) away(err error) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && len(pg.Code) == 5 && (pg.Code[:2] == "22" || pg.Code[:2] == "23") {
		q.g.opts.Log.Error().Str("request_id", q.id).Str("sqlstate", pg.Code).Str("constraint", pg.ConstraintName).Msg("the ledger refuses an order")
		q.refuse(problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "the withdrawal cannot be recorded; nothing was accepted"})
		return
	}
	q.g.opts.Log.Warn().Str("request_id", q.id).Err(err).Msg("the ledger did not answer")
	q.retryAfter(2 * time.Second)
	q.refuse(problem{Status: http.StatusServiceUnavailable, Code: "try_again", Detail: "the ledger is away; " + q.repeat()})
}
