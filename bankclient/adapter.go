package bankclient

import (
	"fmt"
	"net/http"
	"time"
)

// Adapter speaks one partner's dialect. It renders and reads; it never judges and never calls. Adapters are stateless and
// safe for concurrent use.
type Adapter interface {
	Profile() Profile

	// Step names the call that moves money, one input of the partner key.
	Step() string
	// Renderer is the version that new operations get.
	Renderer() int16
	// Render makes the exact request body; equal input gives equal bytes, in every later version of the program too.
	Render(renderer int16, in Rendering) ([]byte, error)
	// CreatePath is the path, below the base URL, that the body is POSTed to.
	CreatePath() string
	// Read reads an answer to the call that moves money, or to a look-up of one transfer. Body is one JSON document
	// by its content type only; a body that is not in the partner's shape gives the zero Reading.
	Read(Response) Reading

	// KeyPath is path and query of the look-up by key, IDPath of one transfer, ListPath of one page of the statement.
	KeyPath(pr Prepared) string
	IDPath(transferID string) string
	ListPath(from, to time.Time, cursor string) string
	// ReadList reads an answer to KeyPath or ListPath; false if it is not in the partner's shape.
	ReadList(Response) (Listing, bool)
}

// Rendering is what a renderer may use, and nothing else: the body must not depend on time, host or attempt.
type Rendering struct {
	PartnerKey string
	EndToEndID string
	Transfer   Transfer
}

// Response is a complete answer with a JSON content type. Adapters keep no part of Body.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Reading is what one answer says, in our words. The zero value says nothing.
type Reading struct {
	HasError   bool   // the body is in the partner's own error schema
	Code       string // of the error
	TransferID string // named beside an error
	Location   string // link to the transfer, named in the body

	HasTransfer bool // the body is shaped like a transfer
	Transfer    Seen
}

// Seen is a transfer as the partner tells it. Nil means that the member was absent. It prints masked.
type Seen struct {
	ID          string
	State       string
	Amount      *string // in the form of Transfer.Amount
	Currency    *string
	Beneficiary *Beneficiary
	Reference   *string
	EndToEndID  *string
	PartnerKey  *string // optional: few partners echo it
	Code        string  // of a rejected transfer
	CreatedAt   time.Time
}

// Format masks under every verb.
func (Seen) Format(s fmt.State, _ rune) { mask(s, "transfer masked") }

// String masks.
func (Seen) String() string { return "transfer masked" }

// MarshalJSON masks.
func (Seen) MarshalJSON() ([]byte, error) { return []byte(`"masked"`), nil }

// Listing is one page of transfers.
type Listing struct {
	Transfers []Seen
	Next      string // cursor of the next page; "" = this was the last
}
