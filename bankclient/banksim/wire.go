package banksim

import (
	"bytes"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// span marks a raw JSON value inside the body of a request: what came in is echoed byte for byte.
type span struct{ from, to uint32 }

func (s span) in(body []byte) []byte { return body[s.from:s.to] }

func (s span) empty() bool { return s.to == s.from }

// fields are the members of a create request that the bank knows.
type fields struct {
	amount, currency, beneficiary, reference, endToEnd span
}

// scanner is a reusable strict JSON reader.
type scanner struct {
	buffer  *bytes.Buffer
	decoder *jsontext.Decoder
}

func newScanner() *scanner {
	buffer := new(bytes.Buffer)
	return &scanner{buffer: buffer, decoder: jsontext.NewDecoder(buffer)}
}

// scan finds the known members; the string names what is wrong, empty when nothing is.
func (s *scanner) scan(body []byte) (fields, string) {
	*s.buffer = *bytes.NewBuffer(body)
	s.decoder.Reset(s.buffer)
	var f fields
	if token, err := s.decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return f, "body is not a JSON object"
	}
	for s.decoder.PeekKind() != '}' {
		name, err := s.decoder.ReadToken()
		if err != nil {
			return f, "body is not valid JSON"
		}
		target := f.member(name.String())
		value, err := s.decoder.ReadValue()
		if err != nil {
			return f, "body is not valid JSON"
		}
		end := uint32(s.decoder.InputOffset())
		if target != nil {
			*target = span{from: end - uint32(len(value)), to: end}
		}
	}
	if _, err := s.decoder.ReadToken(); err != nil {
		return f, "body is not valid JSON"
	}
	if len(bytes.TrimSpace(body[s.decoder.InputOffset():])) > 0 {
		return f, "body has trailing data"
	}
	return f, f.problem(body)
}

func (f *fields) member(name string) *span {
	switch name {
	case "amount":
		return &f.amount
	case "currency":
		return &f.currency
	case "beneficiary":
		return &f.beneficiary
	case "reference":
		return &f.reference
	case "end_to_end_id":
		return &f.endToEnd
	}
	return nil
}

func (f *fields) problem(body []byte) string {
	switch {
	case !decimalString(f.amount.in(body)):
		return "amount is not a decimal string"
	case !currencyString(f.currency.in(body)):
		return "currency is not an ISO 4217 code"
	case f.beneficiary.empty() || body[f.beneficiary.from] != '{':
		return "beneficiary is not an object"
	case !f.reference.empty() && body[f.reference.from] != '"':
		return "reference is not a string"
	case f.endToEnd.empty() || body[f.endToEnd.from] != '"':
		return "end_to_end_id is not a string"
	}
	return ""
}

// decimalString accepts "49.00" and "500", in quotes, and nothing that is zero.
func decimalString(raw []byte) bool {
	if len(raw) < 3 || raw[0] != '"' {
		return false
	}
	digits, points, positive := 0, 0, false
	for _, c := range raw[1 : len(raw)-1] {
		switch {
		case c >= '0' && c <= '9':
			digits++
			positive = positive || c != '0'
		case c == '.' && digits > 0 && points == 0:
			points++
		default:
			return false
		}
	}
	return positive && raw[len(raw)-2] != '.'
}

func currencyString(raw []byte) bool {
	if len(raw) != 5 {
		return false
	}
	for _, c := range raw[1:4] {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return raw[0] == '"'
}

// view says how a transfer is shown; the zero value shows it as it is.
type view struct {
	status       string // instead of the current one
	amountAs     string // "float", "minor", or as it came
	otherAmount  bool
	echo         string // member whose value is shown wrong
	referenceMax int    // cut the reference to so many bytes, 0 = whole
}

// render appends the transfer's JSON object as seen at now.
func (t *transfer) render(to []byte, now time.Time, v view) []byte {
	status, code := t.stateAt(now)
	if v.status != "" {
		status = v.status
	}
	to = append(to, `{"id":"`...)
	to = t.appendID(to)
	to = append(to, `","status":"`...)
	to = append(to, status...)
	to = append(to, `","amount":`...)
	to = appendAmount(to, t.amount.in(t.body), v)
	to = append(to, `,"currency":`...)
	to = appendEcho(to, t.currency.in(t.body), v.echo == "currency", `"XTS"`)
	to = append(to, `,"beneficiary":`...)
	to = appendEcho(to, t.beneficiary.in(t.body), v.echo == "beneficiary", `{"name":"Somebody Else","iban":"DE89370400440532013000"}`)
	to = append(to, `,"reference":`...)
	to = appendReference(to, t.reference.in(t.body), v)
	to = append(to, `,"end_to_end_id":`...)
	to = appendEcho(to, t.endToEnd.in(t.body), v.echo == "end_to_end_id", `"AAAAAAAAAAAAAAAAAAAAAAAAAA"`)
	if code != "" {
		to = append(to, `,"reject_code":"`...)
		to = append(to, code...)
		to = append(to, '"')
	}
	to = append(to, `,"created_at":"`...)
	to = time.Unix(0, t.at).UTC().AppendFormat(to, time.RFC3339Nano)
	return append(to, `"}`...)
}

func appendEcho(to, raw []byte, wrong bool, other string) []byte {
	if wrong {
		return append(to, other...)
	}
	return append(to, raw...)
}

func appendAmount(to, raw []byte, v view) []byte {
	digits := raw[1 : len(raw)-1]
	if v.otherAmount || v.echo == "amount" {
		// A leading 9 is another amount in every currency, and never equal to the first.
		to = append(to, `"9`...)
		to = append(to, digits...)
		return append(to, '"')
	}
	switch v.amountAs {
	case "float":
		return append(to, digits...)
	case "minor":
		minor, err := strconv.ParseInt(string(bytes.ReplaceAll(digits, []byte("."), nil)), 10, 64)
		if err != nil {
			minor = 0
		}
		return strconv.AppendInt(to, minor, 10)
	}
	return append(to, raw...)
}

func appendReference(to, raw []byte, v view) []byte {
	switch {
	case len(raw) == 0:
		return append(to, `""`...)
	case v.echo == "reference":
		return append(to, `"another reference"`...)
	case v.referenceMax > 0 && len(raw)-2 > v.referenceMax:
		text, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return append(to, raw...)
		}
		runes := []rune(string(text))
		if len(runes) > v.referenceMax {
			runes = runes[:v.referenceMax]
		}
		quoted, err := jsontext.AppendQuote(to, string(runes))
		if err != nil {
			return append(to, raw...)
		}
		return quoted
	}
	return append(to, raw...)
}
