package job

import (
	"errors"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
)

// checkWhole checks what needs several members, or their absence.
func (r *reader) checkWhole() *Fault {
	for f := fieldVersion; f <= fieldBeneficiary; f++ {
		switch {
		case r.seen.has(f):
		case f == fieldKey:
			return refuse(CodeKeyMissing, f.path(), "the job has no key")
		default:
			return refuse(CodeMissing, f.path(), "the contract requires it")
		}
	}
	amount, err := money.Parse(r.decimal, r.job.Amount.Currency)
	if err != nil {
		return refuseAmount(err)
	}
	r.job.Amount = amount
	if fault := checkForm(r); fault != nil {
		return fault
	}
	if !r.job.NotAfter.IsZero() && !r.job.NotBefore.IsZero() && !r.job.NotAfter.After(r.job.NotBefore) {
		return refuse(CodeWindowEmpty, fieldNotAfter.path(), "must be later than not_before")
	}
	return nil
}

func refuseAmount(err error) *Fault {
	path := fieldAmount.path()
	switch {
	case errors.Is(err, money.ErrDigits):
		return refuse(CodeAmountDigits, path, "must have exactly the digits of its currency")
	case errors.Is(err, money.ErrZero):
		return refuse(CodeAmountZero, path, "must be above zero")
	case errors.Is(err, money.ErrOverflow):
		return refuse(CodeAmountRange, path, "does not fit 64 bits of minor units")
	default:
		return refuse(CodeAmountForm, path, "must be a plain decimal: no sign, exponent, separator, space or leading zero")
	}
}

func checkKey(text string) (uuid.UUID, *Fault) {
	key, err := ParseKey(text)
	switch {
	case err == nil:
		return key, nil
	case errors.Is(err, ErrKeyReserved):
		return key, refuse(CodeKeyReserved, fieldKey.path(), "must not be the nil or the max UUID")
	default:
		return key, refuse(CodeKeyForm, fieldKey.path(), "must be a UUID in its 36 character form")
	}
}

func checkCurrency(text string) (string, *Fault) {
	if len(text) != 3 || !only(text, upper) {
		return "", refuse(CodeCurrencyForm, fieldCurrency.path(), "must be three upper-case letters")
	}
	if _, ok := money.Digits(text); !ok {
		return "", refuse(CodeCurrencyUnknown, fieldCurrency.path(), "must be an ISO 4217 currency with minor digits")
	}
	return text, nil
}

// checkTime reads an RFC 3339 time in the years 2000 to 9999 with at most nine digits of a second. More digits would be
// dropped without a word, and the first year is the zero value here: "none".
func checkTime(f field, text string) (time.Time, *Fault) {
	const detail = "must be an RFC 3339 time with upper-case T and Z and at most 9 digits of a second"
	if !timeShape(text) {
		return time.Time{}, refuse(CodeTimeForm, f.path(), detail)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, refuse(CodeTimeForm, f.path(), detail) // without its error, which quotes the text
	}
	at = at.UTC()
	if at.Year() < 2000 || at.Year() > 9999 {
		return time.Time{}, refuse(CodeTimeRange, f.path(), "must be in the years 2000 to 9999, as UTC")
	}
	return at, nil
}

// timeShape keeps to the letter of RFC 3339. Both time.Parse and UnmarshalText take a comma for the point, an offset of 24
// hours, and any number of digits of a second.
func timeShape(text string) bool {
	const shape = "0000-00-00T00:00:00"
	if len(text) <= len(shape) || !hasShape(text[:len(shape)], shape) {
		return false
	}
	rest := text[len(shape):]
	if rest[0] == '.' {
		digits := 1
		for digits < len(rest) && digit(rest[digits]) {
			digits++
		}
		if digits == 1 || digits > 10 {
			return false
		}
		rest = rest[digits:]
	}
	return rest == "Z" || (hasShape(rest, "+00:00") || hasShape(rest, "-00:00")) && rest[1:3] < "24" && rest[4:6] < "60"
}

// hasShape compares byte by byte; a 0 in the shape is any digit.
func hasShape(text, shape string) bool {
	if len(text) != len(shape) {
		return false
	}
	for i := range len(text) {
		if text[i] != shape[i] && (shape[i] != '0' || !digit(text[i])) {
			return false
		}
	}
	return true
}

// checkText checks free text that people read: bounded, without control characters, without spaces at its ends.
func checkText(f field, text string, limit int) (Sensitive, *Fault) {
	path := f.path()
	if text == "" {
		return "", refuse(CodeTextEmpty, path, "must not be empty")
	}
	if fault := checkCharacters(path, text, limit); fault != nil {
		return "", fault
	}
	first, _ := utf8.DecodeRuneInString(text)
	last, _ := utf8.DecodeLastRuneInString(text)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return "", refuse(CodeTextSpace, path, "must not begin or end with a space")
	}
	return Sensitive(text), nil
}

// checkCharacters checks length and characters of any text.
func checkCharacters(path, text string, limit int) *Fault {
	if len(text) > limit && utf8.RuneCountInString(text) > limit {
		return refuse(CodeTextTooLong, path, "is longer than "+strconv.Itoa(limit)+" characters")
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f {
			return checkRunes(path, text) // the slow way is for the few texts that need it
		}
	}
	return nil
}

func checkRunes(path, text string) *Fault {
	for _, c := range text {
		if c == 0 {
			return refuse(CodeNULByte, path, "contains an escaped NUL")
		}
		if isControl(c) {
			return refuse(CodeControlCharacter, path, "contains a control character, a line separator or a change of direction")
		}
	}
	return nil
}

// isControl is true for control characters, and for what acts like one on a screen or in a file: line and paragraph
// separators, changes of writing direction (a name would read backwards to the person who approves it), the byte order mark.
func isControl(c rune) bool {
	switch {
	case c < 0x20, c >= 0x7f && c <= 0x9f,
		c == 0x2028, c == 0x2029,
		c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069,
		c == 0xfeff:
		return true
	}
	return false
}

func validMetadataName(name string) bool {
	if name == "" || len(name) > MaxMetadataName || !digit(name[0]) && !letter(name[0]) {
		return false
	}
	return only(name, func(c byte) bool { return digit(c) || letter(c) || c == '_' || c == '-' || c == '.' })
}

func only(text string, allowed func(byte) bool) bool {
	for i := range len(text) {
		if !allowed(text[i]) {
			return false
		}
	}
	return true
}

func digit(c byte) bool        { return c >= '0' && c <= '9' }
func upper(c byte) bool        { return c >= 'A' && c <= 'Z' }
func letter(c byte) bool       { return upper(c) || c >= 'a' && c <= 'z' }
func ascii(c byte) bool        { return c < 0x80 }
func upperOrDigit(c byte) bool { return upper(c) || digit(c) }
