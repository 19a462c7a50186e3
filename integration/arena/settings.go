package arena

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/paidonce/paidonce/integration/stack"
)

// Partner is one bank of a worker's configuration, and the route that leads to it.
type Partner struct {
	ID      string
	Route   string
	BaseURL string

	EchoesKey bool // as banksim does; default: it is not relied upon
}

// echoes leaves out what is the default: the workers of earlier versions read these settings too.
func (p Partner) echoes() string {
	if p.EchoesKey {
		return ", echoes_key: true"
	}
	return ""
}

// Settings of a worker. Zero times take the short defaults, which keep the timing rules.
type Settings struct {
	BrokerURL   string
	DatabaseURL string // with its password
	Partners    []Partner
	Sources     []string // each may use every route
	Health      string   // address; default none
	Replicas    int      // of the streams; default 1

	Roles stack.NATSRoles // whose worker and operator the worker is; default: the broker lets everybody do everything

	Lease, AckWait, RecordMargin, Timeout, Grace time.Duration // defaults 1.5s, 1.2s, 200ms, 900ms, 3s
	SweepEvery                                   time.Duration // default 50ms
	LookUps                                      string        // default [200ms, 300ms, 500ms, 1s]
	MaxConns                                     int           // default 4
	InFlight                                     int           // of the process, shared evenly by the partners; default 64
}

func (s Settings) withDefaults() Settings {
	for _, d := range []struct {
		at *time.Duration
		to time.Duration
	}{
		{&s.Lease, 1500 * time.Millisecond}, {&s.AckWait, 1200 * time.Millisecond}, {&s.RecordMargin, 200 * time.Millisecond},
		{&s.Timeout, 900 * time.Millisecond}, {&s.Grace, 3 * time.Second}, {&s.SweepEvery, 50 * time.Millisecond},
	} {
		if *d.at == 0 {
			*d.at = d.to
		}
	}
	if s.LookUps == "" {
		s.LookUps = "[200ms, 300ms, 500ms, 1s]"
	}
	if s.MaxConns == 0 {
		s.MaxConns = 4
	}
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.InFlight == 0 {
		s.InFlight = 64
	}
	return s
}

// Token is what every bank of an arena accepts.
const Token = "arena"

// CredentialID names it.
const CredentialID = "arena"

// Write writes the configuration into a folder and says where.
func (s Settings) Write(dir string) (string, error) {
	s = s.withDefaults()
	database, err := url.Parse(s.DatabaseURL)
	if err != nil {
		return "", errors.New("parse the database URL: it is not one")
	}
	password, _ := database.User.Password()
	database.User = url.User(database.User.Username())
	passwordFile, tokenFile := filepath.Join(dir, "database.password"), filepath.Join(dir, "bank.token")
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, `nats:     { url: %q, nkey_seed_file: %q, operator_nkey_seed_file: %q, replicas: %d }
database: { url: %q, password_file: %q, max_conns: %d, accept_loss: true }
worker:   { in_flight: %d, lease: %s, ack_wait: %s, record_margin: %s, sweep_every: %s, shutdown_grace: %s }
health:   { listen: %q }
partners:
`, s.BrokerURL, s.Roles.Worker, s.Roles.Operator, s.Replicas, database.String(), passwordFile, s.MaxConns, s.InFlight, s.Lease, s.AckWait, s.RecordMargin, s.SweepEvery, s.Grace, s.Health)
	var routes []string
	for _, p := range s.Partners {
		routes = append(routes, p.Route)
		_, _ = fmt.Fprintf(&text, "  %s: { adapter: reference, base_url: %q, credential_id: %s, token_file: %q, timeout: %s, max_in_flight: %d, look_ups: %s%s }\n",
			p.ID, p.BaseURL, CredentialID, tokenFile, s.Timeout, s.InFlight/len(s.Partners), s.LookUps, p.echoes())
	}
	text.WriteString("routes:\n")
	for _, p := range s.Partners {
		_, _ = fmt.Fprintf(&text, "  %s: { partner: %s, currencies: [GBP], max_amount: \"250000.00\" }\n", p.Route, p.ID)
	}
	text.WriteString("sources:\n")
	for _, source := range s.Sources {
		_, _ = fmt.Fprintf(&text, "  %s: { routes: [%s] }\n", source, strings.Join(routes, ", "))
	}
	file := filepath.Join(dir, "paidonce.yaml")
	for path, content := range map[string]string{file: text.String(), passwordFile: password, tokenFile: Token} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", fmt.Errorf("write the worker's configuration: %w", err)
		}
	}
	return file, nil
}
