package ledger

import (
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
)

// State is where an operation stands. The zero value is no state at all.
type State string

// The states of I4. Authorized, rejected and cancelled are outcomes: they are written once.
const (
	StateOpen       State = "open"
	StateClaimed    State = "claimed"
	StateAuthorized State = "authorized"
	StateRejected   State = "rejected"
	StateCancelled  State = "cancelled"
	StateParked     State = "parked"
)

// Fingerprint identifies what a job asks for; see worker/job for how it is made.
type Fingerprint struct {
	Version int16
	Sum     [32]byte
}

// Intention is one attempt to call a partner, as it is committed before the first byte leaves.
type Intention struct {
	Partner    string
	Credential string // the credential's id, never the secret
	Endpoint   string // method and URL
	Renderer   int16
	BodySHA256 [32]byte // of the exact request body
	PartnerKey string
	EndToEndID string
}

// Wish is one delivery's wish to advance its operation at once: the operation as the job describes it, and the attempt
// that follows if the wish is granted.
type Wish struct {
	Key           uuid.UUID
	Fingerprint   Fingerprint
	Source        string
	Route         string
	DebtorAccount string
	Amount        money.Amount
	NotBefore     time.Time // zero = none
	NotAfter      time.Time // zero = none
	Payload       []byte    // the job's bytes as they arrived
	TraceParent   string
	PublishedAt   time.Time // when the broker stored the message
	Intention     Intention // of a refused wish only the partner counts: whom to ask; "" = nobody
	// Refused says that the policy of today does not allow the job. It is judged as every other, but nothing new is claimed for it.
	Refused bool
}

// Answer is what the ledger says to a wish.
type Answer uint8

// The answers to a claim. NoAnswer comes with an error only.
const (
	NoAnswer     Answer = iota
	Claimed             // the caller holds the operation and its attempt is committed
	Finished            // an outcome is recorded
	Parked              // waits for a person
	Busy                // somebody holds it, or held it: the sweep owns what lapsed
	Scheduled           // the next attempt time is ahead (or not_before is, or not_after has passed: the sweep decides)
	Held                // open, not to be started; with its reason
	Conflict            // the key belongs to another fingerprint
	OtherVersion        // the stored fingerprint has another version than the wish's: compare under that one, or leave it to whoever knows it
	NotOnRecord         // to a refused wish only: there is no operation, and none was made
)

// Claim is the right to advance one operation, and what every later write presents.
type Claim struct {
	OperationID int64
	Key         uuid.UUID
	Token       uuid.UUID
	Fence       int32
}

// ClaimAnswer answers one Wish. Err is set when it could not be found out; then nothing else is.
type ClaimAnswer struct {
	Answer Answer
	Claim  Claim
	// InDoubt is set on a Claimed operation that may have been sent before (a claim lost in a failover would look
	// fresh): nothing may be sent before it was looked up. No attempt was committed for it. With NotOnRecord it says the same of a job
	// that nobody can be asked about.
	InDoubt    bool
	State      State  // of the operation as found
	HeldReason string // with Held
	Version    int16  // with OtherVersion: of the stored fingerprint
	Now        time.Time
	Err        error
}

// FactKind says where an observation came from.
type FactKind string

// The kinds of observation.
const (
	FactVerdict FactKind = "verdict" // of one call, under one attempt
	FactLookUp  FactKind = "look_up"
	FactWebhook FactKind = "webhook"
	FactLate    FactKind = "late" // evidence that arrived under a stale claim
	FactNote    FactKind = "note" // why an operation was parked, held, scheduled, cancelled
)

// Fact is one observation: append-only, addressed by key and claim token.
type Fact struct {
	Kind          FactKind
	Verdict       string // a bankclient verdict's name, "not_found" or "no_answer" for a look-up, "" for a note
	Authoritative bool   // a Rejected that the partner stored under the key
	TransferID    string
	Code          string
	Evidence      []byte // JSON object without secrets, names or account numbers; nil = {}
	// AskedAt is when a look-up was asked, by the database clock and no later than true; it is what At comes to. An answer that was kept for
	// a minute before it was recorded says nothing of that minute. Zero: when it is recorded.
	AskedAt time.Time

	// Set by the ledger when it reads.
	Fence int32
	Token uuid.UUID // of the claim; names the attempt that was made under it, as a fence may not: it can be issued again after a failover
	At    time.Time // database clock
}

// Attempt is one committed intention as the ledger reads it back.
type Attempt struct {
	Intention
	Fence int32
	Token uuid.UUID
	At    time.Time // database clock
}

// Work is one operation that the sweep claimed (or, for a parked one, merely looks at), with all that the next step depends on.
type Work struct {
	Claim       Claim
	State       State // before the claim: open, claimed (a lapsed lease was taken over) or parked (not claimed)
	Source      string
	Route       string
	Payload     []byte
	Fingerprint Fingerprint // of the job that the operation is; the payload must have it
	TraceParent string
	Pinned      string // partner pinned by the first attempt; "" = none yet
	PartnerKey  string // "" = none yet
	Epoch       int16
	InDoubt     bool
	Paused      bool // a pause covers it: it may be asked after, not sent
	// Stopped is why nothing more is sent for it: its batch run was cancelled while it was under way or in doubt. "" = it may be sent.
	Stopped string
	// FirstSentAt is the time of the earliest attempt under the current partner key; zero = never. Where it is earlier than every attempt
	// on record, somebody may have sent before them, under a claim that was lost in a failover.
	FirstSentAt      time.Time
	UnobservedClaims int16     // consecutive claims that ended without an observation, this one not counted
	Attempts         []Attempt // oldest first
	Facts            []Fact    // oldest first
	CreatedAt        time.Time
	Now              time.Time // database clock at the claim
}

// Record is what one claim came to. Next says where the operation goes; the zero value is refused.
type Record struct {
	Claim      Claim
	Facts      []Fact
	Next       State // open, authorized, rejected, cancelled or parked
	InDoubt    bool
	TransferID string        // needed with authorized
	Code       string        // reason: of a rejection, cancellation, parking or hold
	Held       bool          // with open: not to be started until resumed; Code says why
	DueIn      time.Duration // with open: until the next attempt; with parked: until the next look-up
	RaiseEpoch bool          // with open, not in doubt: the partner stored a rejection whose cause was ours to cure
	PartnerKey string        // under which the partner was asked or sent to: kept where no attempt is on record, as after a failover
}

// RecordAnswer says what became of one Record.
type RecordAnswer uint8

// The answers to a Record.
const (
	NotRecorded      RecordAnswer = iota // with an error only
	Recorded                             // under token and fence
	Fenced                               // the claim was stale: no state changed, the evidence was kept
	LateAuthorized                       // the claim was stale, the evidence was Authorized, and it decided the outcome
	LateContradicted                     // the claim was stale, the evidence was Authorized, and the outcome says otherwise
	Stray                                // there is no such operation (its claim was lost in a failover): the evidence was kept, the ledger does not own the job
)

// RecordResult answers one Record.
type RecordResult struct {
	Answer RecordAnswer
	State  State
	Err    error
}
