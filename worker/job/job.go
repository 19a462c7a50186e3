package job

import (
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
)

// MaxBytes is the greatest size of a payload.
const MaxBytes = 64 << 10

// Limits of free text, in Unicode code points, and of metadata.
const (
	MaxAccount         = 128 // debtor_account
	MaxName            = 140 // as in ISO 20022
	MaxReference       = 140
	MaxMetadata        = 32 // members
	MaxMetadataName    = 64
	MaxMetadataValue   = 500
	maxUSAccountNumber = 17 // as in an ACH entry
)

// Job asks for an operation to be worked. It has no state. Source and Route come from the authenticated subject or token,
// never from the payload.
type Job struct {
	Key           uuid.UUID
	Source        string
	Route         string
	DebtorAccount Sensitive
	Amount        money.Amount
	Beneficiary   Beneficiary
	Reference     Sensitive // "" = none
	NotBefore     time.Time // UTC; zero = none; nothing is sent before it
	NotAfter      time.Time // UTC; zero = none; nothing is sent after it
	Metadata      map[string]string
}

// Beneficiary is who is paid: Name, and the fields of exactly one form: IBAN (and perhaps BIC); SortCode and
// AccountNumber; RoutingNumber and AccountNumber; PixKey.
type Beneficiary struct {
	Name          Sensitive
	IBAN          Sensitive
	BIC           Sensitive
	SortCode      Sensitive
	AccountNumber Sensitive
	RoutingNumber Sensitive
	PixKey        Sensitive
}

// Origin is where one delivery of a job comes from.
type Origin struct {
	Source      string
	Route       string
	Sequence    uint64    // in the stream
	PublishedAt time.Time // when the broker stored the job first: a replay is as old as its job
	Deliveries  int       // the broker's count: it includes deliveries that no client received, and is never our number of attempts
	TraceParent string
}

// Format is masked under every verb. Without it, fmt would print a pointer to a beneficiary inside of another struct, under
// a verb that does not fit pointers, without asking the fields.
func (Beneficiary) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// Format prints what may be logged of a job, under every verb: metadata belongs to the source and may name people.
func (j Job) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "job "+j.Key.String()+" of "+j.Source+" for "+j.Route+": "+j.Amount.String())
}

// MarshalJSON writes the same text as Format does. The payload is written by Encode, on purpose and by no accident of a log.
func (j Job) MarshalJSON() ([]byte, error) {
	return jsontext.AppendQuote(nil, fmt.Sprint(j))
}
