package bankclient_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/bankclient/reference"
)

// FuzzAnswer sends to a bank that answers with arbitrary bytes, through the whole client. It never panics, and Authorized needs
// every one of our values in the answer.
func FuzzAnswer(f *testing.F) {
	log.SetOutput(io.Discard) // net/http logs what it finds on an idle connection
	f.Add(reply(201, jsonType, agreeing))
	f.Add(reply(200, jsonType, with("accepted", "rejected"), "Idempotent-Replayed: true"))
	f.Add(reply(422, jsonType, errorBody("account_closed")))
	f.Add(reply(429, jsonType, errorBody("rate_limited"), "Retry-After: 1"))
	f.Add(reply(201, "", "", "Location: /v1/transfers/tr_1"))
	f.Add("HTTP/1.1 102 X\r\n\r\n" + reply(201, jsonType, agreeing))
	f.Add("HTTP/1.1 201 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n")
	f.Add(reply(201, jsonType, agreeing+agreeing))
	f.Fuzz(func(t *testing.T, answer string) {
		cfg := config("http://bank.invalid")
		cfg.Timeout = 100 * time.Millisecond
		cfg.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				req, err := http.ReadRequest(bufio.NewReader(theirs))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(theirs, answer)
			}()
			return ours, nil
		}
		p := open(t, cfg, reference.New())
		pr, err := p.Prepare(uuid.MustParse(opKey), 0, withdrawal())
		if err != nil {
			t.Fatal(err)
		}
		r := p.Send(t.Context(), pr)
		if r.Verdict == notExecuted && r.Evidence.Status == 0 {
			t.Fatalf("a request that was read is called not executed: %s", r.Evidence.JSON())
		}
		if r.Verdict != authorized || strings.Contains(answer, `\`) || strings.Contains(strings.ToLower(answer), "chunked") {
			return // escapes and chunks may write our values in other bytes
		}
		for _, ours := range []string{"49.00", "GBP", "A N Example", "GB33BUKB20201555555555", "Withdrawal 88104", opEndToEnd} {
			if !strings.Contains(answer, ours) {
				t.Fatalf("authorized by an answer that does not show %q", ours)
			}
		}
	})
}
