package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/underfire"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/outage/proxy"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/worker/queue"
)

const (
	referencePartner = "northbank"
	referenceRoute   = "gbp-fps"
	oddRoute         = "gbp-odd"
	deafRoute        = "gbp-deaf"
)

func lanes() []proof.Lane {
	return []proof.Lane{{Source: "wallet", Route: referenceRoute}, {Source: "shop", Route: oddRoute},
		{Source: "payroll", Route: referenceRoute}, {Source: "wallet", Route: oddRoute}, {Source: "payroll", Route: deafRoute}}
}

// world is everything that is attacked.
type world struct {
	held      *stack.Directory
	postgres  *stack.Postgres
	urls      stack.DatabaseURLs
	nats      *stack.NATSProcess
	roles     stack.NATSRoles
	witness   string // URL of the broker
	banks     []*arena.Bank
	proxies   map[target]*proxy.Proxy
	config    string
	log       *os.File
	person    *ledger.Ledger
	nc        *nats.Conn
	publisher *queue.Publisher
	wrong     string // program of a worker whose wall clock can be wrong; "" = none
}

// ownToLedger is the way of all but the workers to the ledger. Nothing strikes it; it leads to where the ledger lives, as an address that moves does.
const ownToLedger target = "to postgres, for banks and people"

func startWorld(ctx context.Context, o options) (*world, error) {
	w := &world{proxies: map[target]*proxy.Proxy{}}
	for _, step := range []func(context.Context, options) error{w.build, w.startStores, w.startBanks, w.startProxies, w.configure, w.connect} {
		if err := step(ctx, o); err != nil {
			return nil, errors.Join(err, w.stop())
		}
	}
	return w, nil
}

// build makes the folder for everything, and the program of a worker whose clock is wrong, if one is asked for.
func (w *world) build(ctx context.Context, o options) error {
	var err error
	if w.held, err = stack.OpenDirectory(""); err != nil || !o.wrongClocks {
		return err
	}
	w.wrong, err = arena.BuildWrongClock(ctx, w.held.Path(), "github.com/paidonce/paidonce/integration/soak")
	return err
}

func (w *world) startStores(ctx context.Context, _ options) error {
	var err error
	if w.log, err = os.Create(filepath.Join(w.held.Path(), "worker.log")); err != nil {
		return fmt.Errorf("open the workers' log: %w", err)
	}
	// A commit that was answered must survive the crash of the server; the machine itself does not crash here, so that fsync can stay off.
	if w.postgres, err = startServer(ctx, w.held.Path()); err != nil {
		return err
	}
	if w.urls, err = w.postgres.CreateDatabase(ctx, "paidonce"); err != nil {
		return err
	}
	if err := w.startProxy(ownToLedger, w.urls.Worker); err != nil {
		return err
	}
	w.urls.Superuser, w.urls.Owner = w.through(ownToLedger, w.urls.Superuser), w.through(ownToLedger, w.urls.Owner)
	for _, statement := range []string{"CREATE INDEX soak_partner_key ON attempts (partner_key)", noSpace} { // the index is of the banks' check
		if err := w.execute(ctx, statement); err != nil {
			return err
		}
	}
	if w.roles, err = stack.MakeNATSRoles(filepath.Join(w.held.Path(), "roles"), nil); err != nil {
		return err
	}
	w.nats, err = stack.StartNATSProcess(stack.NATSOptions{Dir: filepath.Join(w.held.Path(), "nats"), ConfigFile: w.roles.ConfigFile})
	if err != nil {
		return err
	}
	w.witness, err = w.roles.Witness(w.nats.URL())
	return err
}

// execute runs one statement as superuser.
func (w *world) execute(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, w.urls.Superuser)
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (w *world) startBanks(ctx context.Context, o options) error {
	for i, idempotency := range []*banksim.Idempotency{nil, oddIdempotency(), deafIdempotency()} {
		b, err := arena.StartBank(ctx, w.urls.Superuser, banksim.Options{Seed: o.seed + uint64(i), MaxDelay: longestBankDelay, Idempotency: idempotency})
		if err != nil {
			return err
		}
		w.banks = append(w.banks, b)
	}
	return errors.Join(w.banks[1].SetProfile(honest(w.banks[1].Profile())), w.banks[2].SetProfile(honest(w.banks[2].Profile())))
}

func (w *world) startProxies(context.Context, options) error {
	for name, address := range map[target]string{
		toLedger: w.urls.Worker, toBroker: w.nats.URL(), toBank: w.banks[0].URL, toOddBank: w.banks[1].URL,
		toDeaf: w.banks[2].URL,
	} {
		if err := w.startProxy(name, address); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) startProxy(name target, address string) error {
	at, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("parse the address of the %s: it is none", name)
	}
	w.proxies[name], err = proxy.Start(at.Host, proxy.Options{})
	return err
}

// through is an address, by way of its proxy.
func (w *world) through(name target, address string) string {
	at, err := url.Parse(address)
	if err != nil {
		panic("the address was parsed before")
	}
	at.Host = w.proxies[name].Addr()
	return at.String()
}

func (w *world) configure(ctx context.Context, _ options) error {
	var sources []string
	for _, lane := range lanes() {
		if !strings.Contains(strings.Join(sources, " "), lane.Source) {
			sources = append(sources, lane.Source)
		}
	}
	var err error
	w.config, err = arena.Settings{
		BrokerURL: w.through(toBroker, w.nats.URL()), Roles: w.roles, DatabaseURL: w.through(toLedger, w.urls.Worker), Sources: sources, MaxConns: 8,
		Lease: lease, AckWait: ackWait, LookUps: "[300ms, 500ms, 1s, 2s, 2s, 2s]",
		Partners: []arena.Partner{
			{ID: referencePartner, Route: referenceRoute, BaseURL: w.through(toBank, w.banks[0].URL), EchoesKey: true},
			{ID: oddPartner, Route: oddRoute, BaseURL: w.through(toOddBank, w.banks[1].URL)}, // relied upon to echo nothing, as most banks
			{ID: deafPartner, Route: deafRoute, BaseURL: w.through(toDeaf, w.banks[2].URL), EchoesKey: true},
		},
	}.Write(w.held.Path())
	if err != nil {
		return err
	}
	return underfire.Provision(ctx, w.config, w.roles.Provisioner)
}

func (w *world) connect(ctx context.Context, _ options) error {
	var err error
	if w.person, err = ledger.Open(ctx, w.urls.Owner, ledger.Options{MaxConns: 2}); err != nil {
		return err
	}
	if w.nc, err = queue.Connect(w.nats.URL(), queue.ConnectOptions{Role: queue.RoleGateway, NKeySeedFile: w.roles.Gateway, Log: zerolog.Nop()}); err != nil {
		return err
	}
	w.publisher, err = queue.NewPublisher(w.nc, queue.PublisherOptions{})
	return err
}

func (w *world) places() proof.Places {
	return proof.Places{LedgerURL: w.urls.Superuser, BrokerURL: w.witness, Routes: []string{referenceRoute, oddRoute, deafRoute},
		BankURLs: []string{w.banks[0].ControlURL, w.banks[1].ControlURL, w.banks[2].ControlURL}}
}

func (w *world) stop() error {
	var errs []error
	if w.nc != nil {
		w.nc.Close()
	}
	if w.person != nil {
		w.person.Close()
	}
	for _, p := range w.proxies {
		p.Close()
	}
	for _, b := range w.banks {
		errs = append(errs, b.Stop())
	}
	if w.nats != nil {
		errs = append(errs, w.nats.Shutdown())
	}
	if w.postgres != nil {
		errs = append(errs, w.postgres.Stop())
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	if w.held != nil {
		errs = append(errs, w.held.Close())
	}
	return errors.Join(errs...)
}
