package banksim

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// reply is one answer of the bank before anything happens to it on its way.
type reply struct {
	status     int
	code       string
	message    string
	transferID string
	link       string
	retryAfter string
	location   string
	replayed   bool
	stored     bool      // a refusal that is kept under the key
	transfer   *transfer // what this request made
	body       []byte    // success body; refusals are rendered from code
}

func (b *Bank) refusal(status int, code, retryAfter string) *reply {
	return &reply{status: status, code: code, retryAfter: retryAfter}
}

// payload is the body as sent.
func (b *Bank) payload(rp *reply) []byte {
	if rp.code == "" {
		return rp.body
	}
	body := append(b.buffer(), `{"error":{"code":"`...)
	body = append(body, rp.code...)
	body = append(body, '"')
	for _, member := range [...][2]string{{"message", rp.message}, {"transfer_id", rp.transferID}, {"href", rp.link}} {
		if member[1] != "" {
			body = append(body, `,"`...)
			body = append(body, member[0]...)
			body = append(body, `":`...)
			body = strconv.AppendQuote(body, member[1])
		}
	}
	return append(body, `}}`...)
}

// answer sends a reply unharmed.
func (b *Bank) answer(w http.ResponseWriter, rp *reply) {
	header := w.Header()
	body := b.payload(rp)
	if len(body) > 0 {
		header["Content-Type"] = b.jsonType
	}
	if rp.retryAfter != "" {
		header.Set("Retry-After", retryAfter(rp.retryAfter))
	}
	if rp.location != "" {
		header.Set("Location", rp.location)
	}
	if rp.replayed {
		header.Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(rp.status)
	_, _ = w.Write(body) // the client may be gone; the bank does not mind
	b.release(body)
}

// retryAfter turns "date+N" into a date; everything else goes out as it is, however odd.
func retryAfter(text string) string {
	ahead, isDate := strings.CutPrefix(text, "date+")
	seconds, err := strconv.Atoi(ahead)
	if !isDate || err != nil {
		return text
	}
	return time.Now().Add(time.Duration(seconds) * time.Second).UTC().Format(http.TimeFormat)
}
