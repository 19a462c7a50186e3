package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions says what to start; its zero value works.
type PostgresOptions struct {
	BinDir   string            // server binaries; default: FindPostgres
	Dir      string            // private directory, kept by Stop and used again if it holds a cluster; default: temporary, removed by Stop
	Port     int               // default: a free one
	Settings map[string]string // server settings, over all others; default: none
	Durable  bool              // fsync, full_page_writes and synchronous_commit on, as in production; default: off
}

// Postgres is a private server.
type Postgres struct {
	options  PostgresOptions
	dir      *Directory
	id       identity
	port     int
	password string
	process  *Process
}

var errPortTaken = errors.New("the port is taken")

// StartPostgres makes a cluster (or finds one in Dir) and starts a server on it. ctx bounds the start only.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	var err error
	if options.BinDir == "" {
		if options.BinDir, err = FindPostgres(""); err != nil {
			return nil, err
		}
	}
	id, err := postgresUser(options.BinDir)
	if err != nil {
		return nil, err
	}
	dir, err := OpenDirectory(options.Dir)
	if err != nil {
		return nil, err
	}
	p := &Postgres{options: options, dir: dir, id: id, port: options.Port}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	for range 5 {
		if options.Port == 0 {
			if p.port, err = FreePort(); err != nil {
				break
			}
		}
		if err = p.start(ctx); !errors.Is(err, errPortTaken) || options.Port != 0 {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return p, nil
}

func (p *Postgres) prepare(ctx context.Context) error {
	if err := os.Chmod(p.dir.path, 0o711); err != nil {
		return fmt.Errorf("open the way to the data directory: %w", err)
	}
	if err := p.id.reach(p.dir.path); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.dir.path, dataName, "PG_VERSION")); err != nil {
		if err := makeCluster(ctx, p.options.BinDir, p.dir.path, p.id); err != nil {
			return err
		}
	}
	password, err := os.ReadFile(filepath.Join(p.dir.path, passwordName))
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	p.password = string(password)
	return nil
}

func (p *Postgres) settings() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.port),
		"unix_socket_directories": "", // their paths may be at most 107 bytes long, temporary directories are longer
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		"max_wal_size":            "2GB",
		"logging_collector":       "off",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if !p.options.Durable {
		for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
			settings[name] = "off"
		}
	}
	for name, value := range p.options.Settings {
		settings[name] = value
	}
	var args []string
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

func (p *Postgres) logPath() string { return filepath.Join(p.dir.path, "postgres.log") }

// start starts the server process and waits until it answers.
func (p *Postgres) start(ctx context.Context) error {
	log, err := os.Create(p.logPath())
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own handle
	cmd := exec.Command(filepath.Join(p.options.BinDir, "postgres"), slices.Concat([]string{"-D", filepath.Join(p.dir.path, dataName)}, p.settings())...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir.path, postgresEnvironment(), log, log
	p.id.apply(cmd)
	OwnGroup(cmd)
	tieToParent(cmd, true)
	if p.process, err = StartProcess(cmd); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := p.awaitReady(ctx); err != nil {
		p.Kill()
		return err
	}
	return nil
}

func (p *Postgres) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, p.URL("postgres", "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.process.Done():
			return p.startFailure()
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres: %w (last: %w): %s", ctx.Err(), err, p.logTail())
		case <-tick.C:
		}
	}
}

func (p *Postgres) startFailure() error {
	tail := p.logTail()
	if strings.Contains(tail, "could not bind") || strings.Contains(tail, "could not create any TCP/IP sockets") {
		return fmt.Errorf("start postgres on port %d: %w", p.port, errPortTaken)
	}
	return fmt.Errorf("start postgres: it ended: %s", tail)
}

func (p *Postgres) logTail() string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return "no log"
	}
	return lastLines(string(text), 8)
}

// URL is the connection string for a database and a user; "" means postgres. All users made by Prepare have the same password.
func (p *Postgres) URL(database, user string) string {
	return connectionURL(p.port, p.password, database, user)
}

func connectionURL(port int, password, database, user string) string {
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + cmp.Or(database, "postgres"),
		User: url.UserPassword(cmp.Or(user, "postgres"), password), RawQuery: "sslmode=disable"}
	return u.String()
}

// Port is the server's port; it stays the same over restarts.
func (p *Postgres) Port() int { return p.port }

// PID is the server's process id.
func (p *Postgres) PID() int { return p.process.PID() }

// BinDir is where the server binaries are.
func (p *Postgres) BinDir() string { return p.options.BinDir }

// Kill ends the server as a crash does: sessions are cut, nothing is flushed; the next start recovers from the log. (SIGKILL
// to the postmaster alone would leave its backends writing for a while, and the next start refused.)
func (p *Postgres) Kill() {
	p.process.Signal(syscall.SIGQUIT)
	<-p.process.Done()
}

// shutDown ends the server in order, rolling back what runs; if that takes longer than ten seconds, as Kill does.
func (p *Postgres) shutDown() {
	p.process.Signal(syscall.SIGINT)
	select {
	case <-p.process.Done():
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Restart starts the server again on the same data and port; a running one is shut down first.
func (p *Postgres) Restart(ctx context.Context) error {
	p.shutDown()
	return p.start(ctx)
}

// Stop ends the server and removes its directory if that was a temporary one.
func (p *Postgres) Stop() error {
	p.shutDown()
	return p.dir.Close()
}
