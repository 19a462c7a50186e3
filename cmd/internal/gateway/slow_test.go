package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/ledger"
)

// serve serves a gateway as `paidonce gateway` does, and says where.
func (g *gate) serve() string {
	t := g.city.t
	t.Helper()
	server, err := gateway.Listen("127.0.0.1:0", g.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server.Addr()
}

// slowly sends the parts one after the other, each after a while, and gives what came back until the server closed the connection.
func slowly(t *testing.T, address string, every time.Duration, parts ...string) (answer string, took time.Duration) {
	t.Helper()
	began := time.Now()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // many times what a test's server gives
		t.Fatal(err)
	}
	over := make(chan string, 1)
	go func() {
		said, _ := io.ReadAll(c) // the end, or a reset
		over <- string(said)
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if len(parts) > 0 {
			_, _ = io.WriteString(c, parts[0]) // refused, once it is closed
			parts = parts[1:]
		}
		select {
		case answer := <-over:
			return answer, time.Since(began)
		case <-tick.C:
		}
	}
}

// TestSlow_NobodyHoldsAConnectionForEver: heads that never end, bodies that never end, and connections without requests are cut, whatever
// trickles in; nothing of them is accepted, and others are served meanwhile.
func TestSlow_NobodyHoldsAConnectionForEver(t *testing.T) {
	c := newCity(t)
	// What is cut after the long one is found by the test's own bound. A busy machine may need the wide one for a head that comes at once.
	const short, wide, long = 400 * time.Millisecond, 3 * time.Second, 40 * time.Second
	serving := func(head, whole, idle time.Duration) (*gate, string) {
		g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) { o.HeaderTimeout, o.ReadTimeout, o.IdleTimeout = head, whole, idle })
		return g, g.serve()
	}
	_, head := serving(short, long, long)
	_, idle := serving(long, long, short)
	g, whole := serving(wide, wide, long)
	key := newKey()
	lines := "POST /v1/withdrawals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + walletToken + "\r\nIdempotency-Key: " + key + "\r\n" +
		"Content-Type: application/json\r\n"
	length := "Content-Length: 400\r\n\r\n"
	trickle := strings.Split(strings.Repeat("X-Slow: 1\r\n|", 600), "|")
	crumbs := strings.Split(strings.Repeat(" |", 300), "|")
	for name, one := range map[string]struct {
		address string
		parts   []string
		atLeast time.Duration
		status  string // of the answer, if there must be one; "" = the connection is just closed, or told that it was too slow
	}{
		"a head that trickles": {head, append([]string{lines}, trickle...), short, ""},
		"half a head":          {head, []string{lines}, short, ""},
		"nothing at all":       {head, nil, short, ""},
		"a body that trickles": {whole, append([]string{lines + length}, crumbs...), wide, "HTTP/1.1 400 "},
		"half a body":          {whole, []string{lines + length + body[:40]}, wide, "HTTP/1.1 400 "},
		"a second request that does not come": {
			idle, []string{"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"}, short, "HTTP/1.1 200 "},
	} {
		answer, took := slowly(t, one.address, 20*time.Millisecond, one.parts...)
		if took < one.atLeast || took > 30*time.Second {
			t.Errorf("%s: cut after %s, want %s and little more", name, took, one.atLeast)
		}
		if one.status != "" && !strings.HasPrefix(answer, one.status) || one.status == "" && answer != "" && !strings.HasPrefix(answer, "HTTP/1.1 408 ") {
			t.Errorf("%s: %.200q", name, answer)
		}
		if strings.Contains(answer, walletToken) || strings.Contains(answer, canaryName) {
			t.Errorf("%s: the answer shows what was sent", name)
		}
	}
	c.wantCount(0, "operations", `SELECT count(*) FROM operations`)
	g.url = "http://" + whole
	g.post(key, body).want(t, http.StatusAccepted, "", false) // and the key of those that were cut is as good as new
}

// TestSlow_AWaitOutlastsTheReadTimeout: who has sent everything may wait for longer than he had for sending.
func TestSlow_AWaitOutlastsTheReadTimeout(t *testing.T) {
	c := newCity(t)
	g := c.newGate(c.open(ledger.Options{}), func(o *gateway.Options) { o.HeaderTimeout, o.ReadTimeout = 1500*time.Millisecond, 2*time.Second })
	connection, err := net.Dial("tcp", g.serve())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	request, err := http.NewRequest(http.MethodPost, "http://x/v1/withdrawals", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range wallet(newKey(), "Prefer", "wait=4") {
		request.Header.Set(name, value)
	}
	began := time.Now()
	if err := request.Write(connection); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted || time.Since(began) < 4*time.Second {
		t.Errorf("%d after %s", response.StatusCode, time.Since(began))
	}
}
