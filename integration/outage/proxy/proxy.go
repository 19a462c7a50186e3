// Package proxy forwards TCP connections and does to their bytes what networks do: it delays, cuts, halves, duplicates and swallows them.
// It knows nothing of what it carries.
//
// What may be relied on: a connection that has lost bytes is cut before it would carry another one in the same direction, as TCP promises;
// only duplication breaks that promise, on purpose (a middlebox that repeats a request). Bytes that were swallowed never arrive later.
package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Way is how bytes are treated. The zero value forwards them as they are.
type Way struct {
	Delay     time.Duration // every chunk waits so long, in both directions
	Refuse    bool          // a new connection is reset at once
	BlackHole bool          // what arrives is swallowed, in both directions, and nobody is told
	Deaf      bool          // only what comes back is swallowed: the other side works, and is not heard
	Halve     bool          // half of the next chunk is forwarded, then the connection is reset
	Duplicate bool          // every chunk towards the target is sent twice
	Copy      bool          // a new connection gets a twin, which carries the same bytes to the target; nobody hears what it answers there
}

// Tap sees a chunk on its way.
type Tap func(toTarget bool, chunk []byte)

// Options of a Proxy. All may be zero.
type Options struct {
	Before Tap // sees each chunk before it is forwarded; default none
	After  Tap // and after it was; default none
}

// Proxy stands in front of one target.
type Proxy struct {
	target   atomic.Pointer[string]
	options  Options
	listener net.Listener
	way      atomic.Pointer[Way]
	running  sync.WaitGroup

	mu    sync.Mutex
	pairs map[*pair]struct{}
	over  bool
}

// pair is one connection and its continuation.
type pair struct {
	client, target net.Conn
	twin           net.Conn // nil = none
	once           sync.Once
	closed         chan struct{}
}

// Start listens on a port of its own on loopback.
func Start(target string, options Options) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the proxy of %s: %w", target, err)
	}
	p := &Proxy{options: options, listener: listener, pairs: map[*pair]struct{}{}}
	p.target.Store(&target)
	p.way.Store(&Way{})
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Lead leads every new connection to another target, as an address that moves in a failover does.
func (p *Proxy) Lead(target string) { p.target.Store(&target) }

// Set changes how bytes are treated from the next chunk on.
func (p *Proxy) Set(way Way) { p.way.Store(&way) }

// Cut resets every connection that stands.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.pairs {
		one.reset()
	}
}

// Close ends it and waits until nothing of it runs.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	_ = p.listener.Close() // it may be closed twice
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // of one connection
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	one := &pair{client: client, closed: make(chan struct{})}
	if p.way.Load().Refuse || !p.dial(one) || !p.keep(one) {
		one.reset()
		return
	}
	target := one.target
	var unheard sync.WaitGroup
	if one.twin != nil {
		unheard.Go(func() { _, _ = io.Copy(io.Discard, one.twin) }) // ends with the pair
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(one, client, target, true) })
	pumps.Go(func() { p.pump(one, target, client, false) })
	pumps.Wait()
	one.end(false)
	unheard.Wait()
	p.mu.Lock()
	delete(p.pairs, one)
	p.mu.Unlock()
}

// dial reports false when the target cannot be reached.
func (p *Proxy) dial(one *pair) bool {
	var err error
	if one.target, err = net.DialTimeout("tcp", *p.target.Load(), 5*time.Second); err != nil {
		one.target = nil
		return false
	}
	if !p.way.Load().Copy {
		return true
	}
	if one.twin, err = net.DialTimeout("tcp", *p.target.Load(), 5*time.Second); err != nil {
		one.twin = nil
		return false
	}
	return true
}

func (p *Proxy) keep(one *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.pairs[one] = struct{}{}
	}
	return !p.over
}

// pump forwards one direction until it ends.
func (p *Proxy) pump(one *pair, from, to net.Conn, toTarget bool) {
	buffer := make([]byte, 16<<10)
	lost := false
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			chunk := buffer[:n]
			way := p.way.Load()
			swallowed := way.BlackHole || way.Deaf && !toTarget
			switch {
			case lost && !swallowed:
				one.reset()
				return
			case swallowed:
				lost = true
			case !p.forward(one, way, to, chunk, toTarget):
				one.reset()
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || lost {
				one.reset()
			} else if half, ok := to.(*net.TCPConn); ok {
				_ = half.CloseWrite() // the other direction may go on
			}
			return
		}
	}
}

// forward reports false when the connection is over.
func (p *Proxy) forward(one *pair, way *Way, to net.Conn, chunk []byte, toTarget bool) bool {
	if way.Delay > 0 {
		timer := time.NewTimer(way.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-one.closed:
			return false
		}
	}
	if p.options.Before != nil {
		p.options.Before(toTarget, chunk)
	}
	if way.Halve {
		_, _ = to.Write(chunk[:len(chunk)/2])
		return false
	}
	times := 1
	if way.Duplicate && toTarget {
		times = 2
	}
	for range times {
		if _, err := to.Write(chunk); err != nil {
			return false
		}
	}
	if one.twin != nil && toTarget {
		if _, err := one.twin.Write(chunk); err != nil {
			return false
		}
	}
	if p.options.After != nil {
		p.options.After(toTarget, chunk)
	}
	return true
}

func (one *pair) reset() { one.end(true) }

func (one *pair) end(reset bool) {
	one.once.Do(func() {
		close(one.closed)
		for _, conn := range []net.Conn{one.client, one.target, one.twin} {
			if conn == nil {
				continue
			}
			if tcp, ok := conn.(*net.TCPConn); ok && reset {
				_ = tcp.SetLinger(0) // a reset instead of an end
			}
			_ = conn.Close()
		}
	})
}
