package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// The parts of the limit.
const (
	limitConsume  = "consume+ack"
	limitExchange = "exchange"
	limitLedger   = "claim+outcome"
)

// limitRound measures each part alone.
func (b *bench) limitRound(ctx context.Context, r *report) error {
	for _, part := range []string{limitConsume, limitExchange, limitLedger} {
		m, err := b.limitPart(ctx, part)
		if err != nil {
			return fmt.Errorf("limit, %s: %w", part, err)
		}
		b.say("limit, %s: %.1f us", part, m.totalUS())
		if err := r.add(m); err != nil {
			return err
		}
	}
	return nil
}

// limitPart runs one part in a child that stops itself twice: when it is warm, and when it is done.
func (b *bench) limitPart(ctx context.Context, part string) (m measurement, err error) {
	s, err := b.openStage(ctx, 0, route)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if part == limitConsume {
		jobs, err := makeJobs(warmOf(b.o.jobs)+b.o.jobs, route)
		if err != nil {
			return m, err
		}
		if err := s.publish(ctx, jobs); err != nil {
			return m, err
		}
	}
	c, err := startChild(part, childSettings{DatabaseURL: s.urls.Worker, NATSURL: b.nats.URL(), BankURL: s.bank.URL, Jobs: b.o.jobs, InFlight: 64})
	if err != nil {
		return m, err
	}
	defer c.stop()
	if err := c.awaitStopped(ctx); err != nil {
		return m, err
	}
	from, err := s.usage(ctx, c)
	if err != nil {
		return m, err
	}
	c.Signal(syscall.SIGCONT)
	from.at = time.Now()
	if err := c.awaitStopped(ctx); err != nil {
		return m, err
	}
	to, err := s.usage(ctx, c)
	if err != nil {
		return m, err
	}
	return newMeasurement(partLimit, part, "", b.o.jobs, from, to), nil
}

// limit is cores divided by the cost of all parts.
func (r *report) limit() float64 {
	var sum float64
	for _, part := range []string{limitConsume, limitExchange, limitLedger} {
		cost := median(r.of(partLimit, part, ""), (*measurement).totalUS)
		if cost == 0 {
			return 0
		}
		sum += cost
	}
	return float64(runtime.NumCPU()) * 1e6 / sum
}

func warmOf(jobs int) int { return max(jobs/20, 256) }

// stopHere stops this whole process until the parent lets it go on.
func stopHere() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// awaitStopped waits until the child has stopped itself. One that was let go on counts as running from the signal on, so it is not mistaken.
func (c *child) awaitStopped(ctx context.Context) error {
	for {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.PID()), "stat"))
		if err != nil {
			return fmt.Errorf("look at the child: %w", err)
		}
		if state := string(text[strings.LastIndexByte(string(text), ')')+2:]); state[0] == 'T' {
			return nil
		}
		if err := c.alive(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// runLimitConsume takes jobs and acknowledges them.
func runLimitConsume(ctx context.Context, s childSettings, ready func(childReady) error) error {
	nc, err := nats.Connect(s.NATSURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	consumer, err := jobsOf(ctx, nc)
	if err != nil {
		return err
	}
	if err := ready(childReady{}); err != nil {
		return err
	}
	n := 0
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		_ = msg.Ack() // a lost one would show as a child that never ends
		if n++; n == warmOf(s.Jobs) || n == warmOf(s.Jobs)+s.Jobs {
			stopHere()
		}
	}, jetstream.PullMaxMessages(1024))
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	return nil
}

// runLimitExchange makes calls over a connection for each caller, as package bankclient does, and reads the answers without looking at them.
func runLimitExchange(ctx context.Context, s childSettings, ready func(childReady) error) error {
	transfers, err := url.Parse(s.BankURL + "/v1/transfers")
	if err != nil {
		return err
	}
	o := order{Amount: "49.00", Currency: "GBP", Beneficiary: map[string]any{"name": "A N Example", "iban": "GB33BUKB20201555555555"}, Reference: "Withdrawal"}
	body, err := o.body()
	if err != nil {
		return err
	}
	keys := make([]string, warmOf(s.Jobs)+s.Jobs)
	for i := range keys {
		keys[i] = uuid.Must(uuid.NewV7()).String()
	}
	if err := ready(childReady{}); err != nil {
		return err
	}
	for _, part := range [][]string{keys[:warmOf(s.Jobs)], keys[warmOf(s.Jobs):]} {
		var next atomic.Int64
		var group errgroup.Group
		for range s.InFlight {
			group.Go(func() error {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", transfers.Host)
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close() }() // its answers were read
				in, into := bufio.NewReader(conn), make([]byte, 4096)
				for i := next.Add(1) - 1; int(i) < len(part); i = next.Add(1) - 1 {
					if err := exchange(conn, in, transfers, part[i], body, into); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		stopHere()
	}
	<-ctx.Done()
	return nil
}

func exchange(conn io.Writer, in *bufio.Reader, to *url.URL, key string, body, into []byte) error {
	request := &http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer bench"}, "Idempotency-Key": {key}},
	}
	var out bytes.Buffer
	if err := request.Write(&out); err != nil {
		return err
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		return err
	}
	response, err := http.ReadResponse(in, request)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = response.Body.Read(into)
	}
	if !errors.Is(err, io.EOF) || response.StatusCode != http.StatusCreated {
		return fmt.Errorf("bank: status %d: %w", response.StatusCode, err)
	}
	return response.Body.Close()
}

// runLimitLedger claims and records full batches on two connections.
func runLimitLedger(ctx context.Context, s childSettings, ready func(childReady) error) error {
	l, err := ledger.Open(ctx, s.DatabaseURL, ledger.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	defer l.Close()
	const batch = 256
	batches := make([][]ledger.Wish, (warmOf(s.Jobs)+s.Jobs+batch-1)/batch)
	warm := (warmOf(s.Jobs) + batch - 1) / batch
	for i := range batches {
		n := batch
		if i == len(batches)-1 {
			n = warmOf(s.Jobs) + s.Jobs - i*batch
		}
		if batches[i], err = makeWishes(n); err != nil {
			return err
		}
	}
	if err := ready(childReady{}); err != nil {
		return err
	}
	for _, part := range [][][]ledger.Wish{batches[:warm], batches[warm:]} {
		var next atomic.Int64
		var group errgroup.Group
		for range 2 {
			group.Go(func() error {
				for i := next.Add(1) - 1; int(i) < len(part); i = next.Add(1) - 1 {
					if err := claimAndRecord(ctx, l, part[i]); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		stopHere()
	}
	<-ctx.Done()
	return nil
}

func makeWishes(n int) ([]ledger.Wish, error) {
	jobs, err := makeJobs(n, route)
	if err != nil {
		return nil, err
	}
	wishes := make([]ledger.Wish, n)
	for i, m := range jobs {
		wishes[i] = ledger.Wish{
			Key: m.key, Fingerprint: ledger.Fingerprint{Version: 1}, Source: source, Route: route, DebtorAccount: "cust-000001",
			Amount: money.Amount{Minor: 4900, Currency: "GBP"}, Payload: m.payload, PublishedAt: time.Now(),
			Intention: ledger.Intention{Partner: partnerID, Credential: "bench", Endpoint: "POST http://127.0.0.1:12345/v1/transfers", Renderer: 1,
				PartnerKey: m.key.String(), EndToEndID: strings.ReplaceAll(m.key.String(), "-", "")[:26]},
		}
	}
	return wishes, nil
}

func claimAndRecord(ctx context.Context, l *ledger.Ledger, wishes []ledger.Wish) error {
	answers := l.Claim(ctx, wishes)
	records := make([]ledger.Record, len(answers))
	for i, a := range answers {
		if a.Answer != ledger.Claimed {
			return fmt.Errorf("a fresh operation was not claimed: %w", a.Err)
		}
		transferID := "tr_" + strconv.FormatInt(a.Claim.OperationID, 10)
		records[i] = ledger.Authorize(a.Claim, transferID, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "authorized", TransferID: transferID,
			Evidence: []byte(`{"phase":"complete","status":201,"request_id":"req_0123456789abcdef","transfer_id":"` + transferID + `","body_bytes":310,"elapsed_ms":1}`)})
	}
	for _, result := range l.Record(ctx, records) {
		if result.Answer != ledger.Recorded {
			return fmt.Errorf("a claim was not recorded: %w", result.Err)
		}
	}
	return nil
}
