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
// A second answer may also come late, after the next request has begun to go out; nothing tells it from the answer then. So each request takes the
// connection's fitness for another away, and only an answer that names its request gives it back, and not where a late error could be taken for the
// next call's (mayOweAnError). It is given back before the body is read, since net/http gives the connection to others then. An answer without a
// body comes too late for that: after it nothing is written to the connection any more.
type watched struct {
	net.Conn
	state atomic.Uint32
	fit   atomic.Bool // the next request may be written
	spent atomic.Bool // none ever will
	given atomic.Pointer[exchange]
}

// What a connection refuses a write with. Not a byte of the request has left.
var (
	errSpent = errors.New("the connection is spent")
	errLate  = errors.New("too late to begin")
)

// States of a watched connection. Only bytes that are read in watchAsked lead to watchAnswered.
const (
	watchIdle     = iota // a request has got the connection
	watchAsked           // its first byte was handed to the kernel
	watchAnswered        // something came back after that
)

func (w *watched) Write(b []byte) (int, error) {
	if w.state.Load() == watchIdle {
		x, err := w.given.Load(), error(nil)
		switch {
		case w.spent.Load() || !w.fit.Swap(false):
			err = errSpent
		case x.isLate():
			err = errLate
		}
		if err != nil {
			w.spend()
			_ = w.Conn.Close() // nobody uses it again; its error adds nothing
			return 0, err
		}
		x.begun.Store(true)
		w.state.Store(watchAsked) // before the bytes leave, so that no answer can overtake it
	}
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
func (w *watched) begin(x *exchange) {
	w.given.Store(x)
	w.state.Store(watchIdle)
}

// renew lets another request be written.
func (w *watched) renew() { w.fit.Store(true) }

// spend lets none be written any more.
func (w *watched) spend() { w.spent.Store(true) }

// refused says that nothing of x was written to the connection, or will be. What became of the connection does not say so: net/http may have given
// it to the next request before it tells x of its answer.
func (w *watched) refused(x *exchange) bool { return w.spent.Load() && !x.begun.Load() }

// answered says whether the bytes at hand can be the answer to the current request.
func (w *watched) answered() bool { return w.state.Load() == watchAnswered }

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func watch(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newWatched(c), nil
	}
}

// newWatched is a connection that is fit for its first request. What is written before a request has got it, as a handshake, is none.
func newWatched(c net.Conn) *watched {
	w := &watched{Conn: c}
	w.state.Store(watchAsked)
	w.renew()
	return w
}

// watchedOf finds the watched connection below TLS; nil if there is none (HTTP/2 shares connections between requests).
func watchedOf(c net.Conn) *watched {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	w, _ := c.(*watched)
	return w
}
