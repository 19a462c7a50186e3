package bankclient

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// LookUpKind says how a partner can be asked what it did.
type LookUpKind uint8

// The kinds of look-up.
const (
	LookUpNone LookUpKind = iota
	LookUpByKey
	LookUpByReference
	LookUpByListing
)

// String gives the kind's name.
func (k LookUpKind) String() string {
	switch k {
	case LookUpByKey:
		return "by_key"
	case LookUpByReference:
		return "by_reference"
	case LookUpByListing:
		return "by_listing"
	default:
		return "none"
	}
}

// Meaning says what a listed code proves.
type Meaning uint8

// The meanings. MeansNothing is the zero value and judged Unknown.
const (
	MeansNothing     Meaning = iota
	MeansRejected            // refused for good
	MeansKeyReused           // the partner key is known with other content
	MeansInFlight            // the partner key is being worked on
	MeansReplayed            // the transfer exists already: a look-up decides
	MeansNotExecuted         // refused before execution, nothing stored
)

// String gives the meaning's name.
func (m Meaning) String() string {
	switch m {
	case MeansRejected:
		return "rejected"
	case MeansKeyReused:
		return "key_reused"
	case MeansInFlight:
		return "in_flight"
	case MeansReplayed:
		return "replayed"
	case MeansNotExecuted:
		return "not_executed"
	default:
		return "nothing"
	}
}

// CodeRule lists one code of the partner under one status. Unlisted means Unknown.
type CodeRule struct {
	Status         int
	Code           string
	Means          Meaning
	StoredUnderKey bool  // a rejection that every later call with the same partner key gets again
	Scope          Scope // of a MeansNotExecuted
	Cause          Cause // whose it is to cure
}

// StateRule lists one state of the partner's transfers. Unlisted means Unknown.
type StateRule struct {
	State          string
	Verdict        Verdict // Authorized, Rejected or InFlight
	Settled        bool
	StoredUnderKey bool // a Rejected that every later call with the same partner key gets again
}

// Carrier says how the partner key travels.
type Carrier struct {
	Header    string // name of the header; "" = in the body, where the adapter renders it
	MaxLength int    // 0 = no limit known
	Charset   string // every character that the partner accepts; "" = all
}

// Profile is what an adapter declares of its partner. The promise of the protocol is as strong as this is true.
type Profile struct {
	Adapter string
	Version int // rises with every change of the profile

	// The partner key.
	Key                  Carrier
	HonoursKeys          bool
	KeyScope             string // over what the partner keeps keys apart: "credential", "route", "region", ...
	SerialisesDuplicates bool   // a second call while the first is running does not execute too
	KeyWindow            time.Duration
	MinResendDelay       time.Duration
	LatestArrival        time.Duration // no request that we sent is executed later than this

	// What answers look like, in words, for people and `paidonce partners`.
	Replay        string
	InFlight      string
	KeyReuse      string
	AmountFormat  string // "decimal_string", "minor_units", ...
	WebhookScheme string // "" = none

	// What answers mean.
	Codes              []CodeRule
	States             []StateRule
	AcceptedIsDurable  bool   // 202 with an id is a promise
	ReplayHeader       string // header that marks a replay; "" = none
	RequestIDHeader    string // header with the partner's id of the request; "" = none
	OwnSchemaIsRefusal bool   // 401, 403, 405, 406, 413, 414, 415, 431 in the partner's own error schema precede execution

	// The look-up.
	LookUp           LookUpKind
	LookUpConsistent bool // strongly consistent after VisibilityBound
	VisibilityBound  time.Duration

	// Limits; configuration may lower them.
	Timeout       time.Duration
	MaxInFlight   int
	RateLimit     float64 // per second; 0 = none
	MaxReference  int     // characters of the reference that come back unchanged; 0 = no limit known
	AllowsHTTP2   bool
	ResponseLimit int64 // bytes of a response body; default 256 KiB
}

// Validate reports everything that is wrong with the profile at once.
func (p Profile) Validate() error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if p.Adapter == "" || p.Version < 1 {
		bad("adapter and version are needed")
	}
	if p.HonoursKeys && p.KeyWindow <= 0 {
		bad("honours keys, but has no key window")
	}
	if !p.HonoursKeys && p.SerialisesDuplicates {
		bad("serialises duplicates, but does not honour keys")
	}
	if p.KeyWindow < 0 || p.MinResendDelay < 0 || p.LatestArrival < 0 || p.VisibilityBound < 0 {
		bad("negative duration")
	}
	if p.LookUpConsistent && (p.LookUp == LookUpNone || p.VisibilityBound == 0 || p.LatestArrival == 0) {
		bad("a consistent look-up needs its kind, its visibility bound and the latest arrival")
	}
	if p.LookUp == LookUpByListing {
		bad("look-up by listing is not built yet: operations in doubt would wait for nothing; declare none, and they go to a person")
	}
	if p.Key.Header != "" && !token(p.Key.Header) {
		bad("key header is no header name")
	}
	if p.Key.MaxLength < 0 || p.ResponseLimit < 0 || p.RateLimit < 0 || p.MaxReference < 0 {
		bad("negative limit")
	}
	if p.Timeout <= 0 || p.MaxInFlight <= 0 {
		bad("timeout and max in flight are needed")
	}
	all = append(all, p.validateCodes()...)
	all = append(all, p.validateStates()...)
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("profile of adapter %q: %w", p.Adapter, err)
	}
	return nil
}

func (p Profile) validateCodes() (all []error) {
	type place struct {
		status int
		code   string
	}
	seen := map[place]bool{}
	for _, r := range p.Codes {
		at := place{r.Status, r.Code}
		switch {
		case r.Code == "" || identifier(r.Code, maxCode) != r.Code:
			all = append(all, fmt.Errorf("code %d %q is no code", r.Status, r.Code))
		case seen[at]:
			all = append(all, fmt.Errorf("code %d %q is listed twice", r.Status, r.Code))
		case !mayMean(r.Status, r.Means, r.Cause):
			all = append(all, fmt.Errorf("code %d %q may not mean %s", r.Status, r.Code, r.Means))
		case r.StoredUnderKey && r.Means != MeansRejected:
			all = append(all, fmt.Errorf("code %d %q is stored under the key, but is no rejection", r.Status, r.Code))
		}
		seen[at] = true
	}
	return all
}

func (p Profile) validateStates() (all []error) {
	seen := map[string]bool{}
	for _, r := range p.States {
		switch {
		case r.State == "" || identifier(r.State, maxCode) != r.State:
			all = append(all, fmt.Errorf("state %q is no state", r.State))
		case seen[r.State]:
			all = append(all, fmt.Errorf("state %q is listed twice", r.State))
		case r.Verdict != Authorized && r.Verdict != Rejected && r.Verdict != InFlight:
			all = append(all, fmt.Errorf("state %q may not mean %s", r.State, r.Verdict))
		case r.Settled && r.Verdict != Authorized, r.StoredUnderKey && r.Verdict != Rejected:
			all = append(all, fmt.Errorf("state %q contradicts itself", r.State))
		}
		seen[r.State] = true
	}
	return all
}

// mayMean says which meanings the verdict table leaves to a listed code. A profile may tighten a row, never loosen it.
func mayMean(status int, m Meaning, cause Cause) bool {
	switch status {
	case http.StatusBadRequest, http.StatusPaymentRequired, http.StatusNotFound, http.StatusUnprocessableEntity:
		// Not executed is left to a refusal for lack of our funds or limits, which is ours and not the customer's.
		return m == MeansRejected || m == MeansKeyReused || m == MeansInFlight || m == MeansReplayed ||
			m == MeansNotExecuted && cause != CauseNone
	case http.StatusUnauthorized, http.StatusForbidden:
		return m == MeansNotExecuted || m == MeansRejected
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge:
		return m == MeansNotExecuted
	case http.StatusConflict:
		return m == MeansInFlight || m == MeansKeyReused || m == MeansReplayed
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return m == MeansNotExecuted || m == MeansInFlight
	default:
		return false
	}
}

func (p *Profile) code(status int, code string) (CodeRule, bool) {
	for i := range p.Codes {
		if r := &p.Codes[i]; r.Status == status && r.Code == code {
			return *r, true
		}
	}
	return CodeRule{}, false
}

// causeOf says whose a listed code is to cure, under whatever status it is listed.
func (p *Profile) causeOf(code string) Cause {
	for i := range p.Codes {
		if r := &p.Codes[i]; r.Code == code {
			return r.Cause
		}
	}
	return CauseNone
}

func (p *Profile) state(state string) (StateRule, bool) {
	for i := range p.States {
		if r := &p.States[i]; r.State == state {
			return *r, true
		}
	}
	return StateRule{}, false
}

// token says whether text is a header name (RFC 9110, 5.6.2).
func token(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' && c != '!' && c != '~' {
			return false
		}
	}
	return text != ""
}
