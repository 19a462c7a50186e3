package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	source, route, partner = "wallet", "gbp-fps", "northbank"
	keys                   = 300
	longest                = 2 * time.Minute
)

// errNoPooler says how to get one.
var errNoPooler = errors.New("pgbouncer is not installed: apt-get install pgbouncer (Debian), dnf install pgbouncer (Fedora), brew install pgbouncer (macOS)")

func findPooler() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoPooler
}

// pooler is pgbouncer in front of a server.
type pooler struct {
	binary, dir string
	port        int
	process     *stack.Process
}

// newPooler writes the configuration: transaction mode, two server connections for many clients, and no memory of prepared statements.
func newPooler(dir string, urls stack.DatabaseURLs) (*pooler, error) {
	binary, err := findPooler()
	if err != nil {
		return nil, err
	}
	port, err := stack.FreePort()
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(urls.Worker)
	if err != nil {
		return nil, errors.New("parse the database URL: it is not one")
	}
	password, _ := server.User.Password()
	p := &pooler{binary: binary, dir: dir, port: port}
	config := fmt.Sprintf(`[databases]
paidonce = host=127.0.0.1 port=%s dbname=paidonce
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = plain
auth_file = %s
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_lifetime = 2
server_reset_query = DISCARD ALL
server_reset_query_always = 1
`, server.Port(), port, filepath.Join(dir, "users"))
	if knowsPrepared(binary) {
		config += "max_prepared_statements = 0\n"
	}
	for name, text := range map[string]string{"pgbouncer.ini": config, "users": fmt.Sprintf("%q %q\n", server.User.Username(), password)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write the pooler's configuration: %w", err)
		}
	}
	return p, os.Chmod(dir, 0o755)
}

// knowsPrepared says whether this version could keep named prepared statements over transactions, which must be off here; older ones cannot,
// and refuse the setting.
func knowsPrepared(binary string) bool {
	text, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(text), "PgBouncer %d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 1 || minor >= 21
}

func (p *pooler) start(ctx context.Context) error {
	args := []string{filepath.Join(p.dir, "pgbouncer.ini")}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...) // it refuses to be root
	}
	cmd := exec.Command(p.binary, args...)
	log, err := os.OpenFile(filepath.Join(p.dir, "pgbouncer.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the pooler's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own handle
	cmd.Stdout, cmd.Stderr = log, log
	if p.process, err = stack.StartProcess(cmd); err != nil {
		return fmt.Errorf("start pgbouncer: %w", err)
	}
	err = until(ctx, 10*time.Second, "pgbouncer answers", func() (bool, error) {
		conn, err := net.DialTimeout("tcp", p.address(), time.Second)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
	if err == nil {
		return nil
	}
	text, readErr := os.ReadFile(log.Name())
	return errors.Join(err, readErr, errors.New(string(text)))
}

func (p *pooler) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// url is an address that leads through the pooler.
func (p *pooler) url(direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		panic("the URL was parsed before")
	}
	u.Host = p.address()
	return u.String()
}

func until(ctx context.Context, within time.Duration, what string, holds func() (bool, error)) error {
	deadline := time.After(within)
	for {
		held, err := holds()
		if held {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("not within %s: %s (last: %w)", within, what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// run starts everything, loads, disturbs and proves.
func run(ctx context.Context, out io.Writer) (err error) {
	if _, err := findPooler(); err != nil {
		return err
	}
	held, err := stack.OpenDirectory("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	postgres, err := stack.StartPostgres(ctx, stack.PostgresOptions{Settings: map[string]string{"synchronous_commit": "on"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Stop()) }()
	urls, err := postgres.CreateDatabase(ctx, "paidonce")
	if err != nil {
		return err
	}
	roles, err := stack.MakeNATSRoles(filepath.Join(held.Path(), "roles"), map[string][]string{source: {route}})
	if err != nil {
		return err
	}
	nats, err := stack.StartNATS(stack.NATSOptions{NoSync: true, ConfigFile: roles.ConfigFile})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nats.Shutdown()) }()
	bank, err := arena.StartBank(ctx, urls.Superuser, banksim.Options{Seed: 3, MaxDelay: 500 * time.Millisecond, Never: arena.NeedAPerson()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.Stop()) }()
	p, err := newPooler(held.Path(), urls)
	if err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return err
	}
	defer func() { p.process.Kill() }()
	j, err := attack(ctx, held.Path(), nats.URL(), roles, urls, bank, p)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "behind pgbouncer, %s\n", j)
	if !j.Held() {
		return errors.New("it did not hold: " + strings.Join(j.Violations, "; "))
	}
	return nil
}

// attack loads two workers behind the pooler, disturbs its sessions, and judges.
func attack(ctx context.Context, dir, broker string, roles stack.NATSRoles, urls stack.DatabaseURLs, bank *arena.Bank, p *pooler) (*proof.Judgement, error) {
	config, err := arena.Settings{BrokerURL: broker, Roles: roles, DatabaseURL: p.url(urls.Worker), Sources: []string{source}, MaxConns: 16,
		Partners: []arena.Partner{{ID: partner, Route: route, BaseURL: bank.URL, EchoesKey: true}}}.Write(dir)
	if err != nil {
		return nil, err
	}
	if err := underfire.Provision(ctx, config, roles.Provisioner); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "worker.log"))
	if err != nil {
		return nil, fmt.Errorf("open the workers' log: %w", err)
	}
	defer func() { _ = log.Close() }() // the children have their own handles
	for range 2 {
		w, err := arena.StartWorker(arena.Order{Config: config}, log, func(string) {})
		if err != nil {
			return nil, err
		}
		defer w.Kill()
	}
	all, err := load(ctx, broker, roles, func(n int) error {
		switch n {
		case 100, 200:
			return terminate(ctx, urls)
		case 150:
			p.process.Kill()
			return p.start(ctx)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	witness, err := roles.Witness(broker)
	if err != nil {
		return nil, err
	}
	w, err := proof.Open(ctx, proof.Places{LedgerURL: urls.Superuser, BrokerURL: witness, Routes: []string{route}, BankURLs: []string{bank.ControlURL}})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	calm := 0
	err = until(ctx, longest, "everything is at rest", func() (bool, error) {
		now, err := w.Standing(ctx)
		if calm++; err != nil || !now.Done() {
			calm = 0
			err = errors.Join(fmt.Errorf("%+v", now), err)
		}
		return calm >= 2, err
	})
	if err != nil {
		left, unread := w.LeftOver(ctx, 20)
		return nil, errors.Join(err, errors.New(strings.Join(left, "\n")), unread)
	}
	ev, err := w.Collect(ctx, all)
	if err != nil {
		return nil, err
	}
	return proof.Judge(all, ev), nil
}

// load publishes a mixture, ten messages at a time, and calls disturb with how many were published.
func load(ctx context.Context, broker string, roles stack.NATSRoles, disturb func(int) error) (proof.Publication, error) {
	nc, err := queue.Connect(broker, queue.ConnectOptions{Role: queue.RolePublisher, Source: source, NKeySeedFile: roles.Publishers[source], Log: zerolog.Nop()})
	if err != nil {
		return proof.Publication{}, err
	}
	defer nc.Close()
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		return proof.Publication{}, err
	}
	m, err := proof.NewMixture([]proof.Lane{{Source: source, Route: route}}, keys, 3, time.Now())
	if err != nil {
		return proof.Publication{}, err
	}
	all := proof.Publication{Keys: m.Keys}
	for n := 0; n < len(m.Messages); n += 10 {
		if err := all.Send(ctx, publisher, m.Messages[n:min(n+10, len(m.Messages))]); err != nil {
			return all, err
		}
		if err := disturb(n); err != nil {
			return all, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return all, ctx.Err()
		}
	}
	return all, nil
}

// terminate ends every session that the pooler holds at the server.
func terminate(ctx context.Context, urls stack.DatabaseURLs) error {
	conn, err := pgx.Connect(ctx, urls.Superuser)
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'paidonce_worker'")
	return errors.Join(err, conn.Close(ctx))
}
