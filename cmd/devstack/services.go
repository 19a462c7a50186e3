package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	route        = "gbp-fps"
	source       = "wallet"
	partnerID    = "northbank"
	credentialID = "devstack"
	passwordName = "database.password"

	bankPortName = "bank.port"
	bankHost     = "http://127.0.0.1:"

	sourceTokenName = source + ".token"
	doorName        = "gateway.url"
	workerGrace     = 10 * time.Second
)

// services are everything that runs, in the order in which it is started; it is stopped the other way round.
type services struct {
	held   *stack.Directory
	dir    string
	config string
	wallet string // the configuration of who publishes
	urls   stack.DatabaseURLs
	roles  stack.NATSRoles

	postgres *stack.Postgres
	nats     *stack.NATS
	bank     *bank
	worker   *product
	gateway  *product
	door     string // where the gateway answers requests
}

// startServices starts everything; on an error it stops what it has started.
func startServices(ctx context.Context, o options, say *progress) (*services, error) {
	s := &services{}
	if err := s.start(ctx, o, say); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *services) start(ctx context.Context, o options, say *progress) error {
	var err error
	if s.held, err = stack.OpenDirectory(o.dir); err != nil {
		return err
	}
	s.dir = s.held.Path()
	if err := s.startPostgres(ctx, o, say); err != nil {
		return err
	}
	say.step("nats")
	if s.roles, err = stack.MakeNATSRoles(filepath.Join(s.dir, "nats-roles"), nil); err != nil { // source and route are those of the files
		return err
	}
	if s.nats, err = stack.StartNATS(stack.NATSOptions{Dir: filepath.Join(s.dir, "nats"), Port: o.ports.nats, ConfigFile: s.roles.ConfigFile}); err != nil {
		return err
	}
	say.step("bank")
	token := rand.Text()
	settings := bankSettings{Seed: o.seed, Calm: o.calm, Port: o.ports.bank, ControlPort: o.ports.control,
		Token: token, CredentialID: credentialID, DatabaseURL: s.urls.Superuser}
	if o.dir != "" {
		settings.Book = filepath.Join(s.dir, "bank.book")
		if settings.Port == 0 {
			settings.Port = s.bankPort()
		}
	}
	if s.bank, err = startBank(settings); err != nil {
		return err
	}
	if o.dir != "" {
		if err := os.WriteFile(filepath.Join(s.dir, bankPortName), []byte(strings.TrimPrefix(s.bank.URL, bankHost)), 0o600); err != nil {
			return fmt.Errorf("remember the bank's port: %w", err)
		}
	}
	return s.startProducts(ctx, o, token, say)
}

// bankPort is the bank's of the run before in the same directory: an operation that was in doubt then is asked after at the same place. 0 = none, or
// somebody else has it now.
func (s *services) bankPort() int {
	text, err := os.ReadFile(filepath.Join(s.dir, bankPortName))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	listener, err := listen(port)
	if err != nil {
		return 0
	}
	_ = listener.Close()
	return port
}

// startProducts starts worker and gateway side by side, as they would run in production.
func (s *services) startProducts(ctx context.Context, o options, token string, say *progress) error {
	var addresses [3]string
	for i, port := range []int{o.ports.health, o.ports.gateway, 0} {
		var err error
		if port == 0 {
			if port, err = stack.FreePort(); err != nil {
				return err
			}
		}
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	s.door = addresses[1]
	if err := s.writeConfig(ctx, token, addresses[0]); err != nil {
		return err
	}
	if err := s.provision(ctx); err != nil {
		return err
	}
	say.step("worker and gateway")
	var err error
	if s.worker, err = startProduct(childWorker, s.dir, s.config, addresses[0]); err != nil {
		return err
	}
	if s.gateway, err = startProduct(childGateway, s.dir, s.config, addresses[2]); err != nil {
		return err
	}
	return errors.Join(s.worker.awaitReady(ctx), s.gateway.awaitReady(ctx))
}

func (s *services) startPostgres(ctx context.Context, o options, say *progress) error {
	binDir, err := stack.FindPostgres(o.pgBin)
	if err != nil {
		return err
	}
	say.step("postgres of " + binDir)
	s.postgres, err = stack.StartPostgres(ctx, stack.PostgresOptions{
		BinDir: binDir, Dir: filepath.Join(s.dir, "postgres"), Port: o.ports.postgres, Durable: true,
	})
	if err != nil {
		return err
	}
	if s.urls, err = s.postgres.CreateDatabase(ctx, "paidonce"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.urls.Superuser)
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	// Only for the bank's check of each request: no product statement looks for a partner key.
	_, err = conn.Exec(ctx, "CREATE INDEX IF NOT EXISTS devstack_partner_key ON attempts (partner_key)")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("make the index of the bank's check: %w", err)
	}
	return nil
}

// writeConfig writes what a real worker would be given. Times are short, so that a killed worker's operations are taken over
// within seconds; the rules between them are the same as in production.
func (s *services) writeConfig(ctx context.Context, token, health string) error {
	tokenFile, passwordFile := filepath.Join(s.dir, "bank.token"), filepath.Join(s.dir, passwordName)
	sourceFile := filepath.Join(s.dir, sourceTokenName)
	database, err := url.Parse(s.urls.Worker)
	if err != nil {
		return errors.New("parse the database URL: it is not one")
	}
	password, _ := database.User.Password()
	database.User = url.User(database.User.Username())
	text := fmt.Sprintf(`nats:     { url: %q, replicas: 1, nkey_seed_file: %q, operator_nkey_seed_file: %q, gateway_nkey_seed_file: %q }
database: { url: %q, password_file: %q, max_conns: 16, accept_loss: true }
worker:   { in_flight: 128, lease: 5s, ack_wait: 4s, record_margin: 1s, sweep_every: 100ms, shutdown_grace: %s }
partners:
  %s:
    adapter: reference
    base_url: %q
    credential_id: %s
    token_file: %q
    timeout: 1500ms
    max_in_flight: 128
    echoes_key: true
    look_ups: [500ms, 1s, 1s, 2s, 2s, 2s, 3s, 3s, 5s, 5s, 5s, 10s, 10s]
routes:
  %s: { partner: %s, currencies: [GBP], max_amount: "250000.00" }
sources:
  %s: { routes: [%s], token_file: %q }
health:   { listen: %q }
gateway:  { listen: %q, intake_grace: 5s }
`, s.nats.URL(), s.roles.Worker, s.roles.Operator, s.roles.Gateway, database.String(), passwordFile, workerGrace, partnerID, s.bank.URL, credentialID, tokenFile, route, partnerID, source, route, sourceFile, health, s.door)
	s.config, s.wallet = filepath.Join(s.dir, "paidonce.yaml"), filepath.Join(s.dir, source+".yaml")
	wallet := fmt.Sprintf("nats: { url: %q, nkey_seed_file: %q }\n", s.nats.URL(), s.roles.Publishers[source])
	for path, content := range map[string]string{s.config: text, s.wallet: wallet, tokenFile: token, passwordFile: password, sourceFile: rand.Text(),
		filepath.Join(s.dir, doorName): "http://" + s.door} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	return s.hire(ctx, text)
}

// provision makes streams and consumers: workers only bind to them.
func (s *services) provision(ctx context.Context) error {
	settings, err := loadConfig(s.config, "")
	if err != nil {
		return err
	}
	topology, err := app.Topology(settings)
	if err != nil {
		return err
	}
	nc, err := s.connect(queue.RoleProvisioner, "")
	if err != nil {
		return err
	}
	defer nc.Close()
	return queue.Provision(ctx, nc, topology)
}

func (s *services) connect(role queue.Role, from string) (*nats.Conn, error) {
	seed := map[queue.Role]string{queue.RoleProvisioner: s.roles.Provisioner, queue.RolePublisher: s.roles.Publishers[from]}[role]
	return queue.Connect(s.nats.URL(), queue.ConnectOptions{Role: role, Source: from, NKeySeedFile: seed, Log: zerolog.Nop()})
}

func (s *services) stop() error {
	var errs []error
	if s.gateway != nil {
		errs = append(errs, s.gateway.stop())
	}
	if s.worker != nil {
		errs = append(errs, s.worker.stop())
	}
	if s.bank != nil {
		s.bank.child.stop(5 * time.Second)
	}
	if s.nats != nil {
		errs = append(errs, s.nats.Shutdown())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	if s.held != nil {
		errs = append(errs, s.held.Close())
	}
	return errors.Join(errs...)
}
