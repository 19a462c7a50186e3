package ledger_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a ledger and Postgres and, when told to, loses one reply: the request is forwarded, Postgres answers (what was
// asked for is committed), and then both sides are cut.
type proxy struct {
	t        testing.TB
	listener net.Listener
	upstream string
	mu       sync.Mutex
	armed    *loss
	conns    []net.Conn
	relays   sync.WaitGroup
}

// loss is one reply to lose.
type loss struct {
	marker   []byte        // in the request
	answered func()        // called between the answer and the cut; may be nil
	lost     chan struct{} // closed afterwards
}

// throughProxy is the worker's URL by way of a proxy.
func throughProxy(t testing.TB, worker string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(worker)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, upstream: u.Host}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	p.relays.Go(p.accept)
	t.Cleanup(p.close)
	return p, u.String()
}

// lose arms the proxy for the next request that contains marker.
func (p *proxy) lose(marker string, answered func()) *loss {
	l := &loss{marker: []byte(marker), answered: answered, lost: make(chan struct{})}
	p.mu.Lock()
	p.armed = l
	p.mu.Unlock()
	return l
}

func (l *loss) happened() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			p.t.Error(err)
			_ = client.Close()
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		c := &relay{proxy: p, client: client, server: server}
		p.relays.Go(c.requests)
		p.relays.Go(c.answers)
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.relays.Wait()
}

// relay is one connection.
type relay struct {
	*proxy
	client, server net.Conn
	losing         *loss // guarded by mu
}

func (c *relay) cut() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (c *relay) requests() {
	defer c.cut()
	buffer := make([]byte, 1<<16)
	var tail []byte
	for {
		n, err := c.client.Read(buffer)
		if err != nil {
			return
		}
		tail = append(tail, buffer[:n]...)
		c.mu.Lock()
		if c.armed != nil && bytes.Contains(tail, c.armed.marker) {
			c.losing, c.armed = c.armed, nil // before the request is forwarded, so before any answer to it
		}
		c.mu.Unlock()
		tail = tail[max(0, len(tail)-64):]
		if _, err := c.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (c *relay) answers() {
	defer c.cut()
	buffer := make([]byte, 1<<16)
	var swallowed []byte
	for {
		n, err := c.server.Read(buffer)
		if err != nil {
			return
		}
		c.mu.Lock()
		losing := c.losing
		c.mu.Unlock()
		if losing == nil {
			if _, err := c.client.Write(buffer[:n]); err != nil {
				return
			}
			continue
		}
		swallowed = append(swallowed, buffer[:n]...)
		if bytes.HasSuffix(swallowed, []byte("Z\x00\x00\x00\x05I")) { // ready, and outside of any transaction
			if losing.answered != nil {
				losing.answered()
			}
			close(losing.lost)
			return
		}
	}
}
