package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/paidonce/paidonce/integration/stack"
)

// The contenders.
const (
	namePaidonce   = "paidonce"
	nameNaive      = "naive"
	nameNaiveBatch = "naive-batch"
	nameRiver      = "river"
	nameDBOS       = "dbos"
	nameAgainst    = "against" // another build of paidonce
)

// contender is one way to do the work.
type contender struct {
	name    string
	share   int // of the jobs, one in so many: the slow ones would take all day
	relays  bool
	prepare func(ctx context.Context, s *stage) error
	start   func(ctx context.Context, s *stage, inFlight int) (*child, error)
	enqueue func(ctx context.Context, s *stage, jobs []made) error
}

func contenderOf(name string) contender {
	nothing := func(context.Context, *stage) error { return nil }
	publish := func(ctx context.Context, s *stage, jobs []made) error { return s.publish(ctx, jobs) }
	again := func(ctx context.Context, s *stage, inFlight int) (*child, error) {
		return startChild(name, childSettings{DatabaseURL: s.urls.Worker, NATSURL: s.bench.nats.URL(), BankURL: s.bank.URL,
			InFlight: inFlight, Batched: name == nameNaiveBatch})
	}
	switch name {
	case namePaidonce:
		return contender{name: name, share: 1, relays: true, prepare: nothing, enqueue: publish, start: startPaidonce(func(b *bench) string { return b.binary })}
	case nameAgainst:
		return contender{name: name, share: 1, relays: true, prepare: nothing, enqueue: publish, start: startPaidonce(func(b *bench) string { return b.o.against })}
	case nameNaive, nameNaiveBatch:
		return contender{name: name, share: 6, prepare: nothing, start: again, enqueue: publish}
	case nameRiver:
		return contender{name: name, share: 8, prepare: prepareRiver, start: startPeer(name), enqueue: enqueueRiver}
	case nameDBOS:
		return contender{name: name, share: 16, prepare: prepareDBOS, start: startDBOS, enqueue: enqueueDBOS}
	}
	panic("the flags were checked: " + name + " is a contender")
}

// startPaidonce runs a binary that users run, with a configuration as users write it, under the restricted role.
func startPaidonce(binary func(*bench) string) func(context.Context, *stage, int) (*child, error) {
	return func(ctx context.Context, s *stage, inFlight int) (*child, error) {
		port, err := stack.FreePort()
		if err != nil {
			return nil, err
		}
		file, err := s.writeConfig(inFlight, port, echoes(ctx, binary(s.bench)))
		if err != nil {
			return nil, err
		}
		log, err := os.Create(filepath.Join(s.dir, "worker.log"))
		if err != nil {
			return nil, fmt.Errorf("open the worker's log: %w", err)
		}
		defer func() { _ = log.Close() }() // the child has its own handle
		cmd := exec.Command(binary(s.bench), "worker", "--config", file)
		cmd.Stdout, cmd.Stderr = log, log
		stack.OwnGroup(cmd)
		process, err := stack.StartProcess(cmd)
		if err != nil {
			return nil, fmt.Errorf("start the worker: %w", err)
		}
		c := &child{Process: process, childReady: childReady{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}}
		if err := c.awaitReady(ctx); err != nil {
			text, _ := os.ReadFile(log.Name()) // it is only for the message
			c.stop()
			return nil, fmt.Errorf("%w; its log ends: %s", err, text[max(0, len(text)-2000):])
		}
		return c, nil
	}
}

func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("ask the worker: %w", err)
		}
		if response, err := plainClient().Do(request); err == nil {
			_ = response.Body.Close() // only its status counts
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-c.Done():
			return c.alive()
		case <-ctx.Done():
			return fmt.Errorf("wait for the worker: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// echoes is the setting by which connections to a bank over plain TCP are used again. A build that does not know it does so without being told.
func echoes(ctx context.Context, binary string) string {
	known, err := exec.CommandContext(ctx, binary, "config", "reference").Output()
	if err != nil || !bytes.Contains(known, []byte("echoes_key")) {
		return ""
	}
	return ", echoes_key: true"
}

// writeConfig writes the worker's configuration: all features on, defaults wherever the part of the benchmark does not ask for more.
func (s *stage) writeConfig(inFlight, healthPort int, echoes string) (string, error) {
	database, err := url.Parse(s.urls.Worker)
	if err != nil {
		return "", fmt.Errorf("parse the database URL: it is not one")
	}
	password, _ := database.User.Password()
	database.User = url.User(database.User.Username())
	passwordFile, tokenFile := filepath.Join(s.dir, "database.password"), filepath.Join(s.dir, "bank.token")
	partners, routes, names := "", "", route
	partner := func(id, on, baseURL string) {
		partners += fmt.Sprintf("  %s: { adapter: reference, base_url: %q, credential_id: bench, token_file: %q, timeout: %s, max_in_flight: %d%s }\n",
			id, baseURL, tokenFile, partnerTimeout, inFlight, echoes)
		routes += fmt.Sprintf("  %s: { partner: %s, currencies: [GBP], max_amount: \"250000.00\" }\n", on, id)
	}
	partner(partnerID, route, s.bank.URL)
	if s.other != nil {
		partner(otherID, otherRoute, s.other.URL)
		names += ", " + otherRoute
	}
	text := fmt.Sprintf("nats: { url: %q, replicas: 1 }\ndatabase: { url: %q, password_file: %q, accept_loss: true }\n"+
		"worker: { in_flight: %d, ack_wait: %s }\npartners:\n%sroutes:\n%ssources:\n  %s: { routes: [%s] }\nhealth: { listen: \"127.0.0.1:%d\"%s }\n",
		s.bench.nats.URL(), database.String(), passwordFile, 2*inFlight, ackWait, partners, routes, source, names, healthPort, s.bench.pprofSetting())
	file := filepath.Join(s.dir, "paidonce.yaml")
	for path, content := range map[string]string{file: text, passwordFile: password, tokenFile: "bench"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("write the worker's configuration: %w", err)
		}
	}
	return file, nil
}

// partnerTimeout is short enough for the isolation part and long enough for a bank of 500 ms on a busy machine.
const partnerTimeout = 5 * time.Second
