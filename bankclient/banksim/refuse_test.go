package banksim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestRefuseSetBeforeServing: a bank that is told to refuse before it is opened opens with its socket closed, and takes calls once cleared.
func TestRefuseSetBeforeServing(t *testing.T) {
	b := New(Options{Calm: true})
	id, err := b.SetFault(Fault{Name: faultRefuse})
	if err != nil {
		t.Fatal(err)
	}
	var ln net.Listener
	for ln == nil { // on a port that no outgoing connection takes while the socket is closed
		ln, _ = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ln) }()
	dials := func() bool {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	within := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !holds(); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not %s", what)
			}
		}
	}
	within("refused", func() bool { return !dials() })
	if err := b.ClearFault(id); err != nil {
		t.Fatal(err)
	}
	within("open again", dials)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve ended with %v", err)
	}
}
