package enumerate

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// rewriter stands between a ledger and Postgres and changes the text of statements on their way: the product runs as it ships, and its SQL says
// something else.
type rewriter struct {
	t        testing.TB
	listener net.Listener
	upstream string
	change   func(sql string) string // set before anything connects
	hits     atomic.Int64            // statements that were changed
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

func startRewriter(t testing.TB, upstream string, change func(string) string) *rewriter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rewriter{t: t, listener: listener, upstream: upstream, change: change}
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// by is a URL by way of the rewriter.
func (r *rewriter) by(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		r.t.Fatal(err)
	}
	u.Host = r.listener.Addr().String()
	return u.String()
}

func (r *rewriter) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.upstream)
		if err != nil {
			r.t.Error(err)
			_ = client.Close()
			return
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		end := func() {
			_ = client.Close()
			_ = server.Close()
		}
		r.running.Go(func() {
			defer end()
			if err := r.requests(client, server); err != nil {
				r.t.Error(err)
			}
		})
		r.running.Go(func() {
			defer end()
			_, _ = io.Copy(client, server) // ends with either side
		})
	}
}

func (r *rewriter) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

// requests forwards messages of the frontend: those before a session have no type, then each is a type, a length that counts itself, and a body.
// An error is a connection that this does not understand; that it ended is none.
func (r *rewriter) requests(client, server net.Conn) error {
	in := bufio.NewReader(client)
	for typed := false; ; {
		kind := byte(0)
		if typed {
			var err error
			if kind, err = in.ReadByte(); err != nil {
				return nil
			}
		}
		var length [4]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return nil
		}
		size := int(binary.BigEndian.Uint32(length[:])) - len(length)
		if size < 0 || size > 1<<24 {
			return fmt.Errorf("a message of %d bytes from the frontend", size)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			return nil
		}
		if !typed && bytes.HasPrefix(body, []byte{0, 3, 0, 0}) { // the session begins; a question about TLS has another number
			typed = true
			if _, err := server.Write(append(length[:], body...)); err != nil {
				return nil
			}
			continue
		}
		if _, err := server.Write(r.message(kind, body)); err != nil {
			return nil
		}
	}
}

// message is a message as it goes on: statements to prepare (P: a name, the text, types) and simple queries (Q: the text) changed.
func (r *rewriter) message(kind byte, body []byte) []byte {
	switch kind {
	case 'P':
		name := bytes.IndexByte(body, 0) + 1
		text := bytes.IndexByte(body[name:], 0)
		body = bytes.Join([][]byte{body[:name], r.changed(body[name : name+text]), body[name+text:]}, nil)
	case 'Q':
		text := bytes.IndexByte(body, 0)
		body = append(r.changed(body[:text]), body[text:]...)
	}
	var out []byte
	if kind != 0 {
		out = append(out, kind)
	}
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)+4))
	return append(out, body...)
}

func (r *rewriter) changed(sql []byte) []byte {
	is := r.change(string(sql))
	if is == string(sql) {
		return sql
	}
	r.hits.Add(1)
	return []byte(strings.Clone(is))
}
