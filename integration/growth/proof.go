package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

const statementPage = 300 // a client reads only so much of an answer

// proof runs `paidonce prove` on the grown ledger, whose partner's statement says exactly what the ledger does.
func (s *server) proof(ctx context.Context, urls stack.DatabaseURLs, m *measurement) (err error) {
	broker, err := stack.StartNATSProcess(stack.NATSOptions{NoSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Shutdown()) }()
	if err := emptyStreams(ctx, broker.URL()); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, urls.Superuser)
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	defer pool.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	bank := &http.Server{Handler: statement{pool}, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = bank.Serve(listener) }() // ends with Close
	defer func() { _ = bank.Close() }()
	file, err := s.writeConfig(urls, broker.URL(), listener.Addr().String())
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(s.dir.Path(), "prove-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	var told, said bytes.Buffer
	cmd := exec.CommandContext(ctx, s.binary, "prove", "--config", file, "--tmp", tmp, "-o", "json")
	cmd.Stdout, cmd.Stderr = &told, &said
	began := time.Now()
	err = cmd.Run()
	m.ProveS = time.Since(began).Seconds()
	if cmd.ProcessState == nil {
		return fmt.Errorf("prove: %w", err)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.ProveMB = float64(usage.Maxrss) / 1024
	}
	m.ProveUS = micros(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / float64(m.Rows)
	var verdict struct {
		Held bool  `json:"held"`
		Keys int64 `json:"keys"`
	}
	if decodeErr := json.Unmarshal(told.Bytes(), &verdict); decodeErr != nil || err != nil || !verdict.Held {
		return fmt.Errorf("prove: %w: %s", errors.Join(err, decodeErr), said.Bytes()[max(0, said.Len()-3000):])
	}
	m.Proved = verdict.Keys
	return nil
}

// emptyStreams makes the streams as after a purge of the events, so that those of filled rows are not missed.
func emptyStreams(ctx context.Context, address string) error {
	nc, err := queue.Connect(address, queue.ConnectOptions{Role: queue.RoleProvisioner})
	if err != nil {
		return err
	}
	defer nc.Close()
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{"gbp-fps"}, AckWait: 30 * time.Second, MaxAckPending: 1 << 17})
	if err != nil {
		return err
	}
	if err := queue.Provision(ctx, nc, topology); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if _, err := js.Publish(ctx, "withdrawals.events.gbp-fps.wallet.accepted", []byte("{}")); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	events, err := js.Stream(ctx, queue.StreamEvents)
	if err != nil {
		return fmt.Errorf("look at the events: %w", err)
	}
	return events.Purge(ctx)
}

func (s *server) writeConfig(urls stack.DatabaseURLs, broker, bank string) (string, error) {
	database, err := url.Parse(urls.Worker)
	if err != nil {
		return "", errors.New("parse database URL: it is not one")
	}
	password, _ := database.User.Password()
	database.User = url.User(database.User.Username())
	path := func(name string) string { return filepath.Join(s.dir.Path(), name) }
	text := fmt.Sprintf("nats: { url: %q, replicas: 1 }\ndatabase: { url: %q, password_file: %q, accept_loss: true }\n"+
		"partners:\n  northbank: { adapter: reference, base_url: %q, credential_id: growth, token_file: %q }\n"+
		"routes:\n  gbp-fps: { partner: northbank, currencies: [GBP] }\nsources:\n  wallet: { routes: [gbp-fps] }\n",
		broker, database.String(), path("database.password"), "http://"+bank, path("bank.token"))
	for name, content := range map[string]string{"paidonce.yaml": text, "database.password": password, "bank.token": "growth"} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("write the configuration: %w", err)
		}
	}
	return path("paidonce.yaml"), nil
}

// statement is a partner whose book is the ledger.
type statement struct{ pool *pgxpool.Pool }

// ServeHTTP answers with one page of transfers.
func (s statement) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64) // the first page has none
	rows, err := s.pool.Query(r.Context(), `SELECT o.id, o.transfer_id, o.amount_minor, o.created_at, a.end_to_end_id
		FROM operations o JOIN attempts a ON a.operation_id = o.id WHERE o.id > $1 AND a.operation_id > $1 AND o.state = 'authorized' ORDER BY o.id LIMIT $2`, after, statementPage)
	if err != nil {
		http.Error(w, "the ledger cannot be read", http.StatusInternalServerError)
		return
	}
	defer rows.Close()
	var page bytes.Buffer
	page.WriteString(`{"data":[`)
	n, last := 0, int64(0)
	for ; rows.Next(); n++ {
		var transfer, endToEnd string
		var minor int64
		var at time.Time
		if err := rows.Scan(&last, &transfer, &minor, &at, &endToEnd); err != nil {
			http.Error(w, "the ledger cannot be read", http.StatusInternalServerError)
			return
		}
		if n > 0 {
			page.WriteByte(',')
		}
		fmt.Fprintf(&page, `{"id":%q,"status":"accepted","amount":"%d.%02d","currency":"GBP","end_to_end_id":%q,"created_at":%q}`,
			transfer, minor/100, minor%100, endToEnd, at.UTC().Format(time.RFC3339))
	}
	if rows.Err() != nil { // a page that ends early would be taken for the last one
		http.Error(w, "the ledger cannot be read", http.StatusInternalServerError)
		return
	}
	next := "null"
	if n == statementPage {
		next = strconv.Quote(strconv.FormatInt(last, 10))
	}
	fmt.Fprintf(&page, `],"next_cursor":%s}`, next)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(page.Bytes()) // a client that is gone does not listen
}
