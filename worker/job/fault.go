package job

// Reason is the reason code of a dead letter. The zero value is no reason.
type Reason string

// The reasons of the contract. Decode itself gives the first three and ReasonTooLarge, and ReasonUnknownRoute only for a
// route that is no possible name; the others are found out later, by those who know configuration, ledger and queue.
const (
	ReasonUndecodable  Reason = "undecodable" // the bytes are not one strict JSON object: nobody can say what they ask for
	ReasonInvalid      Reason = "invalid"     // they are, but they ask for nothing that may be paid
	ReasonKeyMissing   Reason = "key_missing"
	ReasonTooLarge     Reason = "too_large"
	ReasonUnknownRoute Reason = "unknown_route"
	ReasonKeyReused    Reason = "key_reused"
	ReasonPoison       Reason = "poison"
)

// The codes of a Fault: one for each kind of fault.
const (
	// Of the bytes.
	CodeTooLarge        = "too_large"
	CodeEmpty           = "empty"
	CodeBOM             = "bom"
	CodeInvalidUTF8     = "invalid_utf8" // raw bytes, or a \u escape that is half of a surrogate pair
	CodeNULByte         = "nul_byte"     // raw, or as \u0000 in a string
	CodeSyntax          = "syntax"
	CodeTruncated       = "truncated"
	CodeTrailingData    = "trailing_data"
	CodeNotAnObject     = "not_an_object"
	CodeDuplicateName   = "duplicate_name"
	CodeCaseVariantName = "case_variant_name"

	// Of any member.
	CodeUnknownName      = "unknown_name"
	CodeNullValue        = "null_value"
	CodeWrongType        = "wrong_type"
	CodeMissing          = "missing"
	CodeTextEmpty        = "text_empty"
	CodeTextTooLong      = "text_too_long"
	CodeTextSpace        = "text_space" // begins or ends with a space
	CodeControlCharacter = "control_character"

	// Of one member.
	CodeVersionUnknown   = "version_unknown"
	CodeKeyMissing       = "key_missing"
	CodeKeyForm          = "key_form"
	CodeKeyReserved      = "key_reserved" // nil or max
	CodeCurrencyForm     = "currency_form"
	CodeCurrencyUnknown  = "currency_unknown"
	CodeAmountForm       = "amount_form"
	CodeAmountDigits     = "amount_digits"
	CodeAmountZero       = "amount_zero"
	CodeAmountRange      = "amount_range"
	CodeBeneficiaryForm  = "beneficiary_form" // not exactly one of the four forms
	CodeIBANForm         = "iban_form"
	CodeIBANCountry      = "iban_country"
	CodeIBANLength       = "iban_length"
	CodeIBANCheckDigits  = "iban_check_digits"
	CodeBICForm          = "bic_form"
	CodeSortCodeForm     = "sort_code_form"
	CodeAccountForm      = "account_number_form"
	CodeRoutingForm      = "routing_number_form"
	CodeRoutingCheck     = "routing_number_check_digit"
	CodePixKeyForm       = "pix_key_form"
	CodePixKeyCheck      = "pix_key_check_digits"
	CodeTimeForm         = "time_form"
	CodeTimeRange        = "time_range"
	CodeWindowEmpty      = "window_empty" // not_after is not after not_before
	CodeMetadataTooMany  = "metadata_too_many"
	CodeMetadataName     = "metadata_name"
	CodeSourceName       = "source_name"
	CodeRouteName        = "route_name"
	CodeNotRoundTripping = "not_round_tripping" // Encode only: the job holds something the contract cannot carry
)

// Fault is why a payload is no job. It names the place and never what was found there: no value of the payload is in any
// of its fields, and a member name only if it is one of the contract or has nothing but lower-case letters and underscores.
type Fault struct {
	Reason Reason
	Code   string // one of the codes above
	Path   string // JSON pointer (RFC 6901); "" is the whole document
	Detail string // for people, constant text and limits only
}

// Error says reason, code, place and detail.
func (f *Fault) Error() string {
	place := f.Path
	if place == "" {
		place = "the document"
	}
	text := "job " + string(f.Reason) + ": " + f.Code + " at " + place
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

func refuse(code, path, detail string) *Fault {
	return &Fault{Reason: reasonOf(code), Code: code, Path: path, Detail: detail}
}

func reasonOf(code string) Reason {
	switch code {
	case CodeTooLarge:
		return ReasonTooLarge
	case CodeKeyMissing:
		return ReasonKeyMissing
	case CodeRouteName:
		return ReasonUnknownRoute
	case CodeEmpty, CodeBOM, CodeInvalidUTF8, CodeNULByte, CodeSyntax, CodeTruncated, CodeTrailingData, CodeNotAnObject,
		CodeDuplicateName, CodeCaseVariantName:
		return ReasonUndecodable
	default:
		return ReasonInvalid
	}
}
