package bankclient

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Evidence is what is kept of one call. It holds no secret, no name, no account number and no text that the partner wrote
// freely: what comes from the partner is cut to identifiers of printable ASCII, errors are words of our own.
type Evidence struct {
	Phase       string
	Status      int    // 0 = none arrived
	Why         string // the row of the verdict table that decided, in a few words of ours
	Error       string // of the transport, in a few words of ours
	ContentType string // media type only
	Location    string // path only
	RequestID   string
	TransferID  string
	TransferIDs []string // set when one partner key found several transfers
	Code        string
	State       string   // the transfer's state as the partner names it
	Differs     []string // members whose echo disagrees; never their values
	Replayed    bool
	Reused      bool // the connection had carried a request before
	BodyBytes   int
	ElapsedMS   int64
}

// JSON renders the evidence as one JSON object, absent members left out.
func (e Evidence) JSON() []byte {
	b := make([]byte, 0, 256)
	b = append(b, `{"phase":`...)
	b = appendText(b, e.Phase)
	b = appendNumber(b, "status", int64(e.Status))
	for _, m := range [...]struct{ name, text string }{
		{"why", e.Why},
		{"error", e.Error},
		{"content_type", e.ContentType},
		{"location", e.Location},
		{"request_id", e.RequestID},
		{"transfer_id", e.TransferID},
		{"code", e.Code},
		{"state", e.State},
	} {
		if m.text != "" {
			b = appendText(appendName(b, m.name), m.text)
		}
	}
	b = appendList(b, "transfer_ids", e.TransferIDs)
	b = appendList(b, "differs", e.Differs)
	if e.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	if e.Reused {
		b = append(b, `,"reused":true`...)
	}
	b = appendNumber(b, "body_bytes", int64(e.BodyBytes))
	b = append(b, `,"elapsed_ms":`...)
	b = strconv.AppendInt(b, e.ElapsedMS, 10)
	return append(b, '}')
}

func appendName(b []byte, name string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendText(b []byte, text string) []byte {
	quoted, err := jsontext.AppendQuote(b, text)
	if err != nil { // invalid UTF-8 cannot come in through identifier; kept out all the same
		return append(b, `""`...)
	}
	return quoted
}

func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendList(b []byte, name string, texts []string) []byte {
	if len(texts) == 0 {
		return b
	}
	b = append(appendName(b, name), '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, text)
	}
	return append(b, ']')
}

// identifier keeps a partner's text only if it can be an identifier: at most max bytes of printable ASCII without space,
// quote or backslash. Anything else is dropped, because it might be a sentence with a name in it.
func identifier(text string, max int) string {
	if len(text) > max {
		return ""
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return ""
		}
	}
	return text
}
