// Package bank starts the simulated bank inside this process. It stands apart from stack, so that tests that need no bank do
// not depend on it.
package bank

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/stack"
)

// Bank is a simulated bank inside this process, reachable over HTTP.
type Bank struct {
	*banksim.Bank
	URL        string // of the reference API
	ControlURL string // of the control API

	serving sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

// listen listens on a port that nobody takes while the bank has closed its socket, which it does to refuse.
func listen() (net.Listener, error) {
	var listener net.Listener
	var err error
	for range 5 { // somebody may be quicker
		var port int
		if port, err = stack.FreePort(); err != nil {
			return nil, err
		}
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return listener, nil
		}
	}
	return nil, err
}

// Start opens a simulated bank on two ports of its own; hostile, unless the options say otherwise.
func Start(options banksim.Options) (*Bank, error) {
	api, err := listen()
	if err != nil {
		return nil, fmt.Errorf("open the bank: %w", err)
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the bank's control: %w", err), api.Close())
	}
	scheme := "http://"
	if options.TLS != nil {
		scheme = "https://"
	}
	b := &Bank{Bank: banksim.New(options), URL: scheme + api.Addr().String(), ControlURL: "http://" + control.Addr().String()}
	b.serving.Go(func() { b.serve(b.Bank.Serve(api)) })
	b.serving.Go(func() { b.serve(b.ServeControl(control)) })
	return b, nil
}

// Calm opens a bank for one test that does no harm of itself.
func Calm(t testing.TB) *Bank {
	t.Helper()
	b, err := Start(banksim.Options{Calm: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *Bank) serve(err error) {
	if !errors.Is(err, http.ErrServerClosed) {
		b.mu.Lock()
		b.failed = errors.Join(b.failed, err)
		b.mu.Unlock()
	}
}

// Stop closes the bank at once and waits until nothing of it runs.
func (b *Bank) Stop() error {
	err := b.Close()
	b.serving.Wait()
	return errors.Join(err, b.failed)
}
