package stack

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Broker is a JetStream server for one test. It syncs nothing.
func Broker(t testing.TB, options NATSOptions) *NATS {
	t.Helper()
	options.NoSync = true
	return started(t, options, StartNATS)
}

// BrokerProcess is Broker for a test that kills it or measures memory.
func BrokerProcess(t testing.TB, options NATSOptions) *NATSProcess {
	t.Helper()
	options.NoSync = true
	return started(t, options, StartNATSProcess)
}

func started[S interface{ Shutdown() error }](t testing.TB, options NATSOptions, start func(NATSOptions) (S, error)) S {
	t.Helper()
	server, err := start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Eventually polls until it holds. The end after two minutes is a bound on hanging, not on speed.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within two minutes", what)
		case <-tick.C:
		}
	}
}

// Log is a log that is written and read at the same time.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
