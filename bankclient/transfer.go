package bankclient

import (
	"fmt"
	"io"
)

// Beneficiary is who is paid, as the partner is told. It prints masked.
type Beneficiary struct {
	Name          string
	IBAN          string
	BIC           string
	SortCode      string
	AccountNumber string
	RoutingNumber string
	PixKey        string
}

// Transfer is what the partner is told. It prints masked.
type Transfer struct {
	Amount      string // decimal, exactly the digits of the currency: "49.00", "500", "18.600"
	AmountMinor int64
	Currency    string
	Beneficiary Beneficiary
	Reference   string
}

// Prepared is one call, ready to be sent as often as the protocol allows: the same bytes every time. It prints masked.
type Prepared struct {
	PartnerID    string
	CredentialID string
	Endpoint     string // method and URL
	Renderer     int16
	Body         []byte
	BodySHA256   [32]byte
	PartnerKey   string
	EndToEndID   string
	Transfer     Transfer
	Trace        Trace // what earlier answers named; only look-ups use it
	// InTime is asked right before the first byte of a send leaves, since a process may be stopped, or its machine suspended, while it dials; false:
	// not a byte leaves. It may be called by another goroutine. nil = always. Where requests share a connection (HTTP/2) it is asked when
	// there is one, and its no proves nothing.
	InTime func() bool
}

// Trace is where an ambiguous answer said that the transfer is to be found.
type Trace struct {
	TransferID string
	Location   string // path
}

// Format masks under every verb.
func (Beneficiary) Format(s fmt.State, _ rune) { mask(s, "beneficiary masked") }

// String masks.
func (Beneficiary) String() string { return "beneficiary masked" }

// MarshalJSON masks: only adapters tell a partner who is paid.
func (Beneficiary) MarshalJSON() ([]byte, error) { return []byte(`"masked"`), nil }

// Format masks under every verb.
func (Transfer) Format(s fmt.State, _ rune) { mask(s, "transfer masked") }

// String masks.
func (Transfer) String() string { return "transfer masked" }

// MarshalJSON masks.
func (Transfer) MarshalJSON() ([]byte, error) { return []byte(`"masked"`), nil }

// Format masks under every verb, and names the partner key.
func (p Prepared) Format(s fmt.State, _ rune) { mask(s, p.String()) }

// String masks all but the partner and the partner key.
func (p Prepared) String() string {
	return "call to " + p.PartnerID + " with partner key " + p.PartnerKey
}

// MarshalJSON masks.
func (Prepared) MarshalJSON() ([]byte, error) { return []byte(`"masked"`), nil }

func mask(w io.Writer, text string) {
	_, _ = io.WriteString(w, text) // a formatter has nowhere to report to
}
