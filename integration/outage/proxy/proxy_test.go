package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// echo answers every byte, and counts what reached it.
func echo(t *testing.T) (string, func() string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []byte
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				buffer := make([]byte, 1024)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					mu.Lock()
					seen = append(seen, buffer[:n]...)
					mu.Unlock()
					if _, err := conn.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return listener.Addr().String(), func() string { mu.Lock(); defer mu.Unlock(); return string(seen) }
}

func through(t *testing.T) (*Proxy, func() string) {
	t.Helper()
	target, seen := echo(t)
	p, err := Start(target, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, seen
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// say sends a text and returns as many bytes of the answer as come within the wait.
func say(t *testing.T, conn net.Conn, text string, answer int, wait time.Duration) (string, error) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, answer)
	n, err := io.ReadFull(bufio.NewReader(conn), buffer)
	return string(buffer[:n]), err
}

func TestEachWay(t *testing.T) {
	const text = "0123456789"
	for name, test := range map[string]struct {
		way     Way
		answer  string
		arrived string
		silent  bool // no answer and no end either
	}{
		"as it is":  {Way{}, text, text, false},
		"delayed":   {Way{Delay: 20 * time.Millisecond}, text, text, false},
		"halved":    {Way{Halve: true}, "", "01234", false},
		"swallowed": {Way{BlackHole: true}, "", "", true},
		"deaf":      {Way{Deaf: true}, "", text, true},
		"twice":     {Way{Duplicate: true}, text + text, text + text, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, seen := through(t)
			conn := dial(t, p)
			p.Set(test.way)
			got, err := say(t, conn, text, max(len(test.answer), 1), 300*time.Millisecond)
			if got != test.answer && test.answer != "" || test.silent != errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("answer %q, %v", got, err)
			}
			deadline := time.After(5 * time.Second)
			for seen() != test.arrived {
				select {
				case <-deadline:
					t.Fatalf("%q arrived, want %q", seen(), test.arrived)
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
}

func TestCopy_TheTargetGetsItTwiceAndOneAnswerComesBack(t *testing.T) {
	p, seen := through(t)
	p.Set(Way{Copy: true})
	conn := dial(t, p)
	if got, err := say(t, conn, "0123456789", 11, 300*time.Millisecond); got != "0123456789" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answer %q, %v", got, err)
	}
	if got := seen(); len(got) != 20 {
		t.Errorf("%q arrived", got)
	}
}

func TestAConnectionThatLostBytesIsCutBeforeTheNextOnes(t *testing.T) {
	p, seen := through(t)
	conn := dial(t, p)
	p.Set(Way{BlackHole: true})
	if _, err := say(t, conn, "lost", 1, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	p.Set(Way{})
	if got, err := say(t, conn, "next", 4, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
	if seen() != "" {
		t.Errorf("%q arrived behind a gap", seen())
	}
}

func TestCutAndRefuse(t *testing.T) {
	p, _ := through(t)
	conn := dial(t, p)
	if got, err := say(t, conn, "x", 1, 5*time.Second); got != "x" {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := say(t, conn, "y", 1, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stands: %v", err)
	}
	p.Set(Way{Refuse: true})
	again, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return // refused before the dial saw that it had succeeded
	}
	defer func() { _ = again.Close() }()
	if _, err := say(t, again, "z", 1, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection stands: %v", err)
	}
}
