package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
	"github.com/paidonce/paidonce/cmd/internal/config"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/queue"
)

// AdapterOf gives the adapter of that name. config.Adapters lists the names; a test compares the two.
func AdapterOf(name string) (bankclient.Adapter, error) {
	switch name {
	case "reference":
		return reference.New(), nil
	}
	return nil, fmt.Errorf("adapter %q is not known", name)
}

// Rules are what worker, bankclient and the reader of batch files demand of the settings, for config.Input.
func Rules() []config.Rule { return []config.Rule{timingRule, partnerRule, templateRule} }

// timingRule applies the timing rules of package worker.
func timingRule(c *config.Config) []config.Problem {
	t := worker.Timings{
		Lease: c.Worker.Lease, AckWait: c.Worker.AckWait, Heartbeat: c.Worker.AckWait / 3,
		RecordMargin: c.Worker.RecordMargin, ShutdownGrace: c.Worker.ShutdownGrace,
	}
	t.PartnerTimeouts = map[string]time.Duration{}
	for id, p := range c.Partners {
		if p.Timeout > 0 { // else the settings' own check has said so
			t.PartnerTimeouts[id] = p.Timeout
		}
	}
	return problems("worker", t.Check())
}

// partnerRule makes every partner without its secret, so that its own checks and those of its profile speak at once.
func partnerRule(c *config.Config) []config.Problem {
	var found []config.Problem
	for _, id := range slices.Sorted(maps.Keys(c.Partners)) {
		if complete(c.Partners[id]) {
			_, err := newPartner(id, c.Partners[id], "unused", Around{})
			found = append(found, problems("partners."+id, err)...)
		}
	}
	return found
}

// complete reports whether the settings' own checks leave anything for others to say.
func complete(p *config.Partner) bool {
	_, err := AdapterOf(p.Adapter)
	return err == nil && p.BaseURL != "" && !p.BaseURL.HasSecret() && p.CredentialID != "" && p.Timeout > 0 && p.MaxInFlight > 0 && p.RateLimit >= 0
}

// problems makes one problem of each error that was joined.
func problems(path string, err error) []config.Problem {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var found []config.Problem
		for _, one := range joined.Unwrap() {
			found = append(found, problems(path, one)...)
		}
		return found
	}
	return []config.Problem{{Path: path, Text: strings.ReplaceAll(err.Error(), "\n", "; ")}}
}

func asProblems(path string, err error) []config.Problem {
	var known config.Problems
	if errors.As(err, &known) {
		return known
	}
	return problems(path, err)
}

// Bank is one partner as configured, and ready to be called.
type Bank struct {
	*bankclient.Partner
	Settings *config.Partner
}

// Banks makes every configured partner with its secret, in the order of their ids.
func Banks(c *config.Config) ([]Bank, error) { return banks(c, Around{}) }

func banks(c *config.Config, around Around) ([]Bank, error) {
	var banks []Bank
	var found config.Problems
	for _, id := range slices.Sorted(maps.Keys(c.Partners)) {
		settings := c.Partners[id]
		token, err := c.PartnerToken(id)
		if err != nil {
			found = append(found, asProblems("partners."+id, err)...)
			continue
		}
		partner, err := newPartner(id, settings, token, around)
		if err != nil {
			found = append(found, asProblems("partners."+id, err)...)
			continue
		}
		banks = append(banks, Bank{Partner: partner, Settings: settings})
	}
	if len(found) > 0 {
		return nil, found
	}
	return banks, nil
}

func newPartner(id string, settings *config.Partner, token config.Secret, around Around) (*bankclient.Partner, error) {
	adapter, err := AdapterOf(settings.Adapter)
	if err != nil {
		return nil, err
	}
	if around.Adapter != nil {
		adapter = around.Adapter(id, adapter)
	}
	return bankclient.New(bankclient.Config{
		ID: id, BaseURL: settings.BaseURL.Reveal(), CredentialID: settings.CredentialID, Token: token.Reveal,
		Timeout: settings.Timeout, MaxInFlight: settings.MaxInFlight, RateLimit: float64(settings.RateLimit), EchoesKey: settings.EchoesKey,
	}, adapter)
}

// workerOptions says the settings in the worker's words.
func workerOptions(c *config.Config, log *zerolog.Logger, metrics prometheus.Registerer) worker.Options {
	options := worker.Options{
		Routes: map[string]worker.Route{}, Sources: map[string]worker.Source{},
		Lease: c.Worker.Lease, AckWait: c.Worker.AckWait, RecordMargin: c.Worker.RecordMargin,
		ShutdownGrace: c.Worker.ShutdownGrace, SweepEvery: c.Worker.SweepEvery,
		Logger: log, Registerer: metrics,
	}
	for name, route := range c.Routes {
		options.Routes[name] = worker.Route{Partner: route.Partner, Currencies: route.Currencies, MaxAmounts: maxAmounts(route)}
	}
	for name, source := range c.Sources {
		options.Sources[name] = worker.Source{Routes: source.Routes}
	}
	return options
}

func maxAmounts(route *config.Route) []money.Amount {
	if route.MaxAmount == "" {
		return nil
	}
	var amounts []money.Amount
	for _, currency := range route.Currencies {
		amount, err := money.Parse(route.MaxAmount, currency)
		if err != nil {
			panic("the settings were checked: max_amount is an amount of every currency of its route")
		}
		amounts = append(amounts, amount)
	}
	return amounts
}

// Topology is what must exist in JetStream for these settings.
func Topology(c *config.Config) (queue.Topology, error) {
	topology, err := queue.NewTopology(queue.TopologyOptions{
		Routes:        slices.Sorted(maps.Keys(c.Routes)),
		Replicas:      c.NATS.Replicas,
		MaxBytes:      c.NATS.MaxJobsBytes,
		AckWait:       c.Worker.AckWait,
		MaxAckPending: maxAckPending(c),
	})
	if err != nil {
		return queue.Topology{}, config.Problems(problems("nats", err))
	}
	return topology, nil
}

// maxAckPending leaves room for sixteen workers; the broker holds back what exceeds it, so that it must not bind.
func maxAckPending(c *config.Config) int { return 16 * 2 * c.Worker.InFlight }

// Connect connects to the broker in a role.
func Connect(c *config.Config, role queue.Role, source string, log zerolog.Logger) (*nats.Conn, error) {
	secure, err := brokerTLS(c.NATS)
	if err != nil {
		return nil, err
	}
	options := queue.ConnectOptions{Role: role, Source: source, CredsFile: c.NATS.CredsFile, NKeySeedFile: c.NATS.NKeyFile, TLS: secure, Log: log}
	switch n := c.NATS; {
	case role == queue.RoleOperator && n.OperatorCredsFile+n.OperatorNKeyFile != "":
		options.CredsFile, options.NKeySeedFile = n.OperatorCredsFile, n.OperatorNKeyFile
	case role == queue.RoleGateway && n.GatewayCredsFile+n.GatewayNKeyFile != "":
		options.CredsFile, options.NKeySeedFile = n.GatewayCredsFile, n.GatewayNKeyFile
	}
	return queue.Connect(c.NATS.URL.Reveal(), options)
}

func brokerTLS(n config.NATS) (*tls.Config, error) {
	if n.TLSCAFile == "" && n.TLSCertFile == "" {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if n.TLSCAFile != "" {
		pem, err := os.ReadFile(n.TLSCAFile)
		if err != nil {
			return nil, config.Problems{{Path: "nats.tls_ca_file", Text: "cannot be read"}}
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, config.Problems{{Path: "nats.tls_ca_file", Text: "holds no certificate"}}
		}
	}
	if n.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(n.TLSCertFile, n.TLSKeyFile)
		if err != nil {
			return nil, config.Problems{{Path: "nats.tls_cert_file", Text: "and nats.tls_key_file are no certificate and key"}}
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	return secure, nil
}

// NeedWorker says what a worker cannot do without, beyond what Load checks.
func NeedWorker(c *config.Config) error {
	var found config.Problems
	need := func(missing bool, path, text string) {
		if missing {
			found = append(found, config.Problem{Place: c.Origin(path), Path: path, Text: text})
		}
	}
	need(c.Database.URL == "", "database.url", "is missing")
	need(len(c.Partners) == 0, "partners", "a worker needs at least one")
	need(len(c.Routes) == 0, "routes", "a worker needs at least one")
	need(len(c.Sources) == 0, "sources", "a worker needs at least one")
	if len(found) > 0 {
		return found
	}
	return nil
}
