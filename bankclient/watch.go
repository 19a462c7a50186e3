package bankclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
)

// watched is a connection that knows whether bytes came in after the current request began to go out. net/http hands bytes
// that lay on a kept-alive connection before (a second answer to the request before ours) to the next request as its answer;
// an error answer carries no echo that could tell.
//
// A second answer may also come late, after the next request has begun to go out; nothing tells it from the answer then. So a connection
// that brought an answer which names no request is spent: nothing is written to it any more. Neither is it after any answer where a late error
// could be taken for the next call's (mayOweAnError).
type watched struct {
	net.Conn
	state atomic.Uint32
	spent atomic.Bool
}

// errSpent is what a spent connection refuses a write with. Not a byte of the request has left.
var errSpent = errors.New("the connection is spent")

// States of a watched connection. Only bytes that are read in watchAsked lead to watchAnswered.
const (
	watchIdle     = iota // a request has got the connection
	watchAsked           // its first byte was handed to the kernel
	watchAnswered        // something came back after that
)

func (w *watched) Write(b []byte) (int, error) {
	if w.spent.Load() {
		_ = w.Conn.Close() // nobody uses it again; its error adds nothing
		return 0, errSpent
	}
	w.state.CompareAndSwap(watchIdle, watchAsked) // before the bytes leave, so that no answer can overtake it
	return w.Conn.Write(b)
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.state.CompareAndSwap(watchAsked, watchAnswered)
	}
	return n, err
}

// begin is called when a request has got the connection, before it is written.
func (w *watched) begin() { w.state.Store(watchIdle) }

// spend makes it refuse the next request. It is called before the answer is read to its end, for then the connection may be given to others.
func (w *watched) spend() { w.spent.Store(true) }

// refused says that the current request met a spent connection, and that nothing of it was written or will be.
func (w *watched) refused() bool { return w.spent.Load() && w.state.Load() == watchIdle }

// answered says whether the bytes at hand can be the answer to the current request.
func (w *watched) answered() bool { return w.state.Load() == watchAnswered }

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func watch(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watched{Conn: c}, nil
	}
}

// watchedOf finds the watched connection below TLS; nil if there is none (HTTP/2 shares connections between requests).
func watchedOf(c net.Conn) *watched {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	w, _ := c.(*watched)
	return w
}
