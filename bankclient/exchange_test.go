package bankclient

import (
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"testing"

	"github.com/google/uuid"
)

// Bytes count as an answer only if they were read after the current request began to be written.
func TestA5_BytesFromBeforeTheRequestAreNoAnswer(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	w := newWatched(ours)
	read := func() {
		go func() { _, _ = theirs.Write([]byte("x")) }()
		if _, err := w.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	write := func() {
		go func() { _, _ = io.ReadFull(theirs, make([]byte, 1)) }()
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := func(answered bool, when string) {
		t.Helper()
		if w.answered() != answered {
			t.Errorf("answered %t %s", w.answered(), when)
		}
	}
	w.begin(newExchange())
	want(false, "before anything")
	read()
	want(false, "by bytes from before the request")
	write()
	want(false, "by bytes from before the request, now written")
	read()
	want(true, "by bytes from after it")
	write()
	want(true, "with more of the request written")
	w.begin(newExchange())
	want(false, "by the answer to the request before")
}

func TestA5_AnswerFromBeforeTheRequestIsUnknown(t *testing.T) {
	p, pr := fuzzPartner(t)
	x := newExchange()
	x.status, x.answer, x.body = 422, http.Header{"Content-Type": {"application/json"}}, []byte(`{"code":"closed"}`)
	if r := p.judge(&pr, x); r.Verdict != Rejected {
		t.Fatalf("verdict %s, want the rejection that the next step takes away", r.Verdict)
	}
	x.watched = &watched{}
	x.gotFirstByte()
	if r := p.judge(&pr, x); r.Verdict != Unknown {
		t.Fatalf("verdict %s", r.Verdict)
	}
}

type closed struct {
	net.Conn
	times int
}

func (c *closed) Close() error {
	c.times++
	return nil
}

// NotExecuted for headers that were not written stays true: if the connection's writer comes later, it finds the connection
// closed. If it was first, the call is Unknown.
func TestA5_SealedExchangeIsNeverWritten(t *testing.T) {
	p, pr := fuzzPartner(t)
	for _, writerFirst := range []bool{false, true} {
		x, c := newExchange(), &closed{}
		x.gotConn(httptrace.GotConnInfo{Conn: c})
		x.err = syscall.ECONNRESET
		if writerFirst {
			x.wroteHeaders()
		}
		r := p.judge(&pr, x)
		if !writerFirst {
			x.wroteHeaders()
			x.wroteRequest(httptrace.WroteRequestInfo{})
		}
		want, closes := NotExecuted, 1
		if writerFirst {
			want, closes = Unknown, 0
		}
		if r.Verdict != want || c.times != closes {
			t.Errorf("writer first %t: verdict %s, connection closed %d times", writerFirst, r.Verdict, c.times)
		}
	}
}

func fuzzPartner(t testing.TB) (*Partner, Prepared) {
	t.Helper()
	p, err := New(Config{
		ID: "p", BaseURL: "http://127.0.0.1:1", CredentialID: "c", Token: func() string { return "t" },
	}, fuzzAdapter{})
	if err != nil {
		t.Fatal(err)
	}
	pr, err := p.Prepare(uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"), 0, Transfer{
		Amount: "49.00", AmountMinor: 4900, Currency: "GBP", Reference: "Q7", Beneficiary: Beneficiary{Name: "Zed"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, pr
}
