package reference

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/bankclient"
)

// Adapter is stateless; its zero value works.
type Adapter struct{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Profile declares the reference bank.
func (Adapter) Profile() bankclient.Profile {
	return bankclient.Profile{
		Adapter: "reference",
		Version: 1,

		Key:                  bankclient.Carrier{Header: "Idempotency-Key", MaxLength: 64, Charset: "0123456789abcdef-"},
		HonoursKeys:          true,
		KeyScope:             "credential",
		SerialisesDuplicates: true,
		KeyWindow:            24 * time.Hour,
		MinResendDelay:       time.Second,
		LatestArrival:        60 * time.Second,

		Replay:        "200, the transfer in its current state, Idempotent-Replayed: true",
		InFlight:      "409 request_in_progress with Retry-After",
		KeyReuse:      "422 idempotency_key_reused with the first transfer's id",
		AmountFormat:  "decimal_string",
		WebhookScheme: "standard_webhooks",

		Codes:              codes(),
		States:             states(),
		ReplayHeader:       "Idempotent-Replayed",
		RequestIDHeader:    "X-Request-Id",
		OwnSchemaIsRefusal: true,

		LookUp:           bankclient.LookUpByKey,
		LookUpConsistent: true,
		VisibilityBound:  5 * time.Second,

		Timeout:     20 * time.Second,
		MaxInFlight: 4096,
	}
}

func codes() []bankclient.CodeRule {
	stored := func(code string) bankclient.CodeRule {
		return bankclient.CodeRule{
			Status: http.StatusUnprocessableEntity, Code: code, Means: bankclient.MeansRejected, StoredUnderKey: true,
		}
	}
	return []bankclient.CodeRule{
		{Status: http.StatusConflict, Code: "request_in_progress", Means: bankclient.MeansInFlight},
		{Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused", Means: bankclient.MeansKeyReused},
		stored("account_closed"),
		stored("invalid_beneficiary"),
		stored("amount_not_allowed"),
		stored("compliance_rejected"),
		{
			Status: http.StatusUnprocessableEntity, Code: "insufficient_funds", Means: bankclient.MeansNotExecuted,
			Scope: bankclient.ScopePartner, Cause: bankclient.CauseOurFunds,
		},
		{
			Status: http.StatusUnauthorized, Code: "unauthorized", Means: bankclient.MeansNotExecuted,
			Scope: bankclient.ScopePartner,
		},
		{Status: http.StatusTooManyRequests, Code: "rate_limited", Means: bankclient.MeansNotExecuted},
		{Status: http.StatusServiceUnavailable, Code: "unavailable", Means: bankclient.MeansNotExecuted},
	}
}

func states() []bankclient.StateRule {
	return []bankclient.StateRule{
		{State: "accepted", Verdict: bankclient.Authorized},
		{State: "pending", Verdict: bankclient.Authorized},
		{State: "settled", Verdict: bankclient.Authorized, Settled: true},
		{State: "rejected", Verdict: bankclient.Rejected, StoredUnderKey: true},
	}
}

// Step names the only call that moves money.
func (Adapter) Step() string { return "create" }

// CreatePath is where transfers are created.
func (Adapter) CreatePath() string { return "/v1/transfers" }

// KeyPath is the look-up by partner key.
func (Adapter) KeyPath(pr bankclient.Prepared) string {
	return "/v1/transfers?idempotency_key=" + url.QueryEscape(pr.PartnerKey)
}

// IDPath is the look-up of one transfer.
func (Adapter) IDPath(transferID string) string { return "/v1/transfers/" + url.PathEscape(transferID) }

// ListPath is one page of the statement.
func (Adapter) ListPath(from, to time.Time, cursor string) string {
	query := url.Values{
		"created_from": {from.UTC().Format(time.RFC3339)},
		"created_to":   {to.UTC().Format(time.RFC3339)},
		"limit":        {"100"},
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return "/v1/transfers?" + query.Encode()
}

// transfer is the wire form of a transfer. Nil means absent.
type transfer struct {
	ID          string       `json:"id"`
	Status      string       `json:"status"`
	Amount      *string      `json:"amount"`
	Currency    *string      `json:"currency"`
	Beneficiary *beneficiary `json:"beneficiary"`
	Reference   *string      `json:"reference"`
	EndToEndID  *string      `json:"end_to_end_id"`
	PartnerKey  *string      `json:"idempotency_key"` // optional
	RejectCode  string       `json:"reject_code"`
	CreatedAt   string       `json:"created_at"`
}

type beneficiary struct {
	Name          string `json:"name,omitzero"`
	IBAN          string `json:"iban,omitzero"`
	BIC           string `json:"bic,omitzero"`
	SortCode      string `json:"sort_code,omitzero"`
	AccountNumber string `json:"account_number,omitzero"`
	RoutingNumber string `json:"routing_number,omitzero"`
	PixKey        string `json:"pix_key,omitzero"`
}

// answer is every shape of an answer at once, so that one pass reads it.
type answer struct {
	transfer
	Error *struct {
		Code       string `json:"code"`
		TransferID string `json:"transfer_id"`
	} `json:"error"`
}

// Read reads a transfer or an error. A body that claims to be both is neither.
func (Adapter) Read(r bankclient.Response) bankclient.Reading {
	var a answer
	if err := json.Unmarshal(r.Body, &a); err != nil {
		return bankclient.Reading{}
	}
	shown := a.ID != "" || a.Status != "" || a.EndToEndID != nil
	switch {
	case a.Error != nil && shown:
		return bankclient.Reading{}
	case a.Error != nil:
		return bankclient.Reading{HasError: true, Code: a.Error.Code, TransferID: a.Error.TransferID}
	case shown:
		return bankclient.Reading{HasTransfer: true, Transfer: a.seen()}
	default:
		return bankclient.Reading{}
	}
}

// ReadList reads one page. A page without a data member, or with null for it, is no page.
func (Adapter) ReadList(r bankclient.Response) (bankclient.Listing, bool) {
	var page struct {
		Data  []transfer `json:"data"`
		Next  *string    `json:"next_cursor"`
		Error any        `json:"error"`
	}
	if err := json.Unmarshal(r.Body, &page); err != nil || page.Data == nil || page.Error != nil {
		return bankclient.Listing{}, false
	}
	listing := bankclient.Listing{Transfers: make([]bankclient.Seen, 0, len(page.Data))}
	for i := range page.Data {
		listing.Transfers = append(listing.Transfers, page.Data[i].seen())
	}
	if page.Next != nil {
		listing.Next = *page.Next
	}
	return listing, true
}

func (t *transfer) seen() bankclient.Seen {
	seen := bankclient.Seen{
		ID: t.ID, State: t.Status, Amount: t.Amount, Currency: t.Currency, Reference: t.Reference,
		EndToEndID: t.EndToEndID, PartnerKey: t.PartnerKey, Code: t.RejectCode,
	}
	if t.Beneficiary != nil {
		told := bankclient.Beneficiary(*t.Beneficiary)
		seen.Beneficiary = &told
	}
	// A creation time is for people and statements; one that cannot be read decides nothing.
	seen.CreatedAt, _ = time.Parse(time.RFC3339, t.CreatedAt)
	return seen
}

// errRenderer marks a renderer that this program does not have.
var errRenderer = errors.New("renderer is not known to this version")
