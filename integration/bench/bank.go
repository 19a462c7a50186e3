package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

// runBank is the bank's process: the calm simulator.
func runBank(ctx context.Context, s childSettings, ready func(childReady) error) error {
	bank := banksim.New(banksim.Options{Calm: true, Latency: time.Duration(s.LatencyMS) * time.Millisecond})
	api, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, api.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, serve := range []func() error{func() error { return bank.Serve(api) }, func() error { return bank.ServeControl(control) }} {
		group.Go(func() error {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return bank.Close()
	})
	if err := ready(childReady{URL: "http://" + api.Addr().String(), ControlURL: "http://" + control.Addr().String()}); err != nil {
		return err
	}
	return group.Wait()
}

// bankSummary is what the bank's oracle says in numbers.
type bankSummary struct {
	Creates    int64 `json:"creates"`
	Executions int64 `json:"executions"`
	Keys       int64 `json:"keys"`
	KeysTwice  int64 `json:"keys_executed_more_than_once"`
	LookUps    int64 `json:"look_ups"`
}

func (c *child) summary(ctx context.Context) (bankSummary, error) {
	var s bankSummary
	body, err := c.ask(ctx, http.MethodGet, "/oracle/summary", nil)
	if err != nil {
		return s, err
	}
	return s, errors.Join(json.UnmarshalRead(body, &s), body.Close())
}

func (c *child) setLatency(ctx context.Context, d time.Duration) error {
	body, err := c.ask(ctx, http.MethodPost, "/settings", fmt.Appendf(nil, `{"latency_ms":%d}`, d.Milliseconds()))
	if err != nil {
		return err
	}
	return body.Close()
}

// book reads the bank's own transfers: partner key -> transfer id.
func (c *child) book(ctx context.Context) (map[string]string, error) {
	body, err := c.ask(ctx, http.MethodGet, "/statement", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // only read from
	book := map[string]string{}
	for decoder := jsontext.NewDecoder(body); ; {
		var t struct {
			ID       string `json:"id"`
			Key      string `json:"key"`
			Executed bool   `json:"executed"`
		}
		if err := json.UnmarshalDecode(decoder, &t); errors.Is(err, io.EOF) {
			return book, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the bank's book: %w", err)
		}
		if t.Executed {
			book[t.Key] = t.ID
		}
	}
}

func (c *child) ask(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.ControlURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the bank: %w", err)
	}
	response, err := plainClient().Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the bank: %w", err)
	}
	if response.StatusCode >= 300 {
		return nil, errors.Join(fmt.Errorf("ask the bank for %s: status %d", path, response.StatusCode), response.Body.Close())
	}
	return response.Body, nil
}

// plainClient is for questions beside the measurement.
func plainClient() *http.Client { return &http.Client{Timeout: 2 * time.Minute} }
