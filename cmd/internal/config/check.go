package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // an image from scratch has no time zone database

	"github.com/paidonce/paidonce/ledger/money"
)

// Adapters lists the adapters that a partner may name.
func Adapters() []string { return []string{"reference"} }

// check judges the settings against each other. What only a worker needs is judged by NeedWorker.
func (c *Config) check() Problems {
	k := &checker{config: c}
	k.process()
	for _, name := range c.names("partners") {
		k.partner("partners."+name, c.Partners[name])
	}
	for _, name := range c.names("routes") {
		k.route("routes."+name, c.Routes[name])
	}
	for _, name := range c.names("sources") {
		k.source("sources."+name, c.Sources[name])
	}
	for _, name := range c.names("batch.templates") {
		k.template("batch.templates."+name, c.Batch.Templates[name])
	}
	k.sums()
	k.standardInput()
	return k.problems
}

type checker struct {
	config   *Config
	problems Problems
}

func (k *checker) say(path, format string, args ...any) {
	k.problems = append(k.problems, Problem{Place: k.config.Origin(path), Path: path, Text: fmt.Sprintf(format, args...)})
}

func (k *checker) process() {
	c := k.config
	for _, server := range strings.Split(c.NATS.URL.Reveal(), ",") {
		k.address("nats.url", server, "nats", "tls", "ws", "wss")
	}
	if c.Database.URL != "" {
		k.address("database.url", c.Database.URL.Reveal(), "postgres", "postgresql")
		if c.Database.PasswordFile != "" && c.Database.URL.HasSecret() {
			k.say("database.password_file", "is set although database.url carries a password; keep one")
		}
	}
	k.atLeast("database.max_conns", c.Database.MaxConns, 1)
	k.atLeast("worker.in_flight", c.Worker.InFlight, 1)
	k.atLeast("worker.pullers", c.Worker.Pullers, 1)
	if c.NATS.Replicas != 1 && c.NATS.Replicas != 3 && c.NATS.Replicas != 5 {
		k.say("nats.replicas", "must be 1, 3 or 5")
	}
	if c.NATS.MaxJobsBytes < 1<<20 {
		k.say("nats.max_jobs_bytes", "must be at least 1048576")
	}
	if c.NATS.CredsFile != "" && c.NATS.NKeyFile != "" {
		k.say("nats.nkey_seed_file", "and nats.creds_file exclude each other")
	}
	if c.NATS.OperatorCredsFile != "" && c.NATS.OperatorNKeyFile != "" {
		k.say("nats.operator_nkey_seed_file", "and nats.operator_creds_file exclude each other")
	}
	if c.NATS.GatewayCredsFile != "" && c.NATS.GatewayNKeyFile != "" {
		k.say("nats.gateway_nkey_seed_file", "and nats.gateway_creds_file exclude each other")
	}
	if (c.NATS.TLSCertFile == "") != (c.NATS.TLSKeyFile == "") {
		k.say("nats.tls_key_file", "and nats.tls_cert_file belong together")
	}
	k.listen("health.listen", c.Health.Listen)
	k.listen("gateway.listen", c.Gateway.Listen)
	if c.Gateway.IntakeGrace < time.Second || c.Gateway.IntakeGrace > time.Hour {
		k.say("gateway.intake_grace", "must be between 1s and 1h")
	}
	if c.Operator.ProposalTTL < time.Minute || c.Operator.ProposalTTL > 30*24*time.Hour {
		k.say("operator.proposal_ttl", "must be between 1m and 720h")
	}
	k.amounts("operator.amount_limits", c.Operator.AmountLimits)
	k.atLeast("operator.replay_limit", c.Operator.ReplayLimit, 0)
	k.atLeast("operator.discard_limit", c.Operator.DiscardLimit, 0)
	k.atLeast("operator.batch_limit", c.Operator.BatchLimit, 0)
	if window := c.Batch.OverlapWindow; window < 0 || window > 366*24*time.Hour {
		k.say("batch.overlap_window", "must be between 0 and 8784h; 0 = the rows of a file are not compared with those of other runs")
	}
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "json", "console")
}

func (k *checker) partner(path string, p *Partner) {
	k.oneOf(path+".adapter", p.Adapter, Adapters()...)
	if p.BaseURL == "" {
		k.say(path+".base_url", "is missing")
	} else {
		k.address(path+".base_url", p.BaseURL.Reveal(), "http", "https")
		if p.BaseURL.HasSecret() {
			k.say(path+".base_url", "carries a secret; use token_file")
		}
	}
	if p.CredentialID == "" {
		k.say(path+".credential_id", "is missing: it names the credential in use, so that a rotation is noticed")
	}
	if p.TokenFile == "" {
		k.say(path+".token_file", "is missing")
	}
	if p.Timeout <= 0 {
		k.say(path+".timeout", "must be longer than 0")
	}
	k.atLeast(path+".max_in_flight", p.MaxInFlight, 1)
	k.atLeast(path+".rate_limit", p.RateLimit, 0)
	k.amounts(path+".doubt_limits", p.DoubtLimits)
	if len(p.LookUps) == 0 {
		k.say(path+".look_ups", "must list at least one delay")
	}
	for i, delay := range p.LookUps {
		if delay <= 0 || (i > 0 && delay < p.LookUps[i-1]) {
			k.say(path+".look_ups", "must rise from a delay longer than 0; item %d does not", i+1)
			break
		}
	}
}

func (k *checker) amounts(path string, list []string) {
	if _, err := Amounts(list); err != nil {
		k.say(path, "%s", err)
	}
}

// Amounts reads amounts such as "50000.00 GBP", one per currency, as minor units by currency.
func Amounts(list []string) (map[string]int64, error) {
	amounts := make(map[string]int64, len(list))
	for i, text := range list {
		decimal, currency, _ := strings.Cut(text, " ")
		amount, err := money.Parse(decimal, currency)
		if err != nil {
			return nil, fmt.Errorf("item %d is not an amount and its currency, as 50000.00 GBP", i+1)
		}
		if _, twice := amounts[currency]; twice {
			return nil, fmt.Errorf("lists %s twice", currency)
		}
		amounts[currency] = amount.Minor
	}
	return amounts, nil
}

func (k *checker) route(path string, r *Route) {
	k.known(path+".partner", r.Partner, "partners")
	if len(r.Currencies) == 0 {
		k.say(path+".currencies", "must list at least one currency")
	}
	for i, currency := range r.Currencies {
		switch _, ok := money.Digits(currency); {
		case !ok:
			k.say(path+".currencies", "%q is not a currency of ISO 4217 in upper case", currency)
			continue
		case slices.Contains(r.Currencies[:i], currency):
			k.say(path+".currencies", "lists %s twice", currency)
			continue
		case r.MaxAmount == "":
			continue
		}
		if _, err := money.Parse(r.MaxAmount, currency); err != nil {
			k.say(path+".max_amount", "%q is not an amount of %s with exactly its digits", r.MaxAmount, currency)
		}
	}
}

func (k *checker) source(path string, s *Source) {
	if len(s.Routes) == 0 {
		k.say(path+".routes", "must list at least one route")
	}
	for _, route := range s.Routes {
		k.known(path+".routes", route, "routes")
	}
	k.oneOf(path+".keys", s.Keys, "require", "warn")
}

// template judges what refers to other settings. What a file can be, the package that reads it says.
func (k *checker) template(path string, t *Template) {
	k.oneOf(path+".encoding", t.Encoding, "utf-8")
	if t.Source != "" {
		k.known(path+".source", t.Source, "sources")
	}
	if t.Route != "" {
		k.known(path+".route", t.Route, "routes")
		if s := k.config.Sources[t.Source]; s != nil && !slices.Contains(s.Routes, t.Route) {
			k.say(path+".route", "%s may not be used by %s", t.Route, t.Source)
		}
	}
	if _, err := time.LoadLocation(t.TimeZone); err != nil || t.TimeZone == "" || t.TimeZone == "Local" {
		k.say(path+".time_zone", "is no place of the time zone database, as Europe/Berlin")
	}
}

func (k *checker) sums() {
	c, sum := k.config, 0
	for _, p := range c.Partners {
		sum += p.MaxInFlight
	}
	if sum > c.Worker.InFlight {
		k.say("worker.in_flight", "is %d, less than the sum of the partners' max_in_flight, %d", c.Worker.InFlight, sum)
	}
}

// standardInput can be read once.
func (k *checker) standardInput() {
	first := ""
	for _, path := range k.config.paths() {
		s, name, _ := find(k.config, path)
		if text, ok := s.at(k.config, name).(*string); !ok || *text != "-" || !strings.HasSuffix(path, "_file") {
			continue
		}
		switch {
		case strings.HasPrefix(path, "nats."):
			k.say(path, "must be a file")
		case first != "":
			k.say(path, "and %s both read standard input", first)
		default:
			first = path
		}
	}
}

func (k *checker) known(path, name, group string) {
	names := k.config.names(group)
	switch {
	case name == "":
		k.say(path, "is missing")
	case slices.Contains(names, name):
	default:
		text := fmt.Sprintf("%q is not under %s", name, group)
		if meant := nearest(name, names); meant != "" {
			text += fmt.Sprintf("; did you mean %s?", meant)
		}
		k.say(path, "%s", text)
	}
}

func (k *checker) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.say(path, "must be one of: %s", strings.Join(allowed, ", "))
	}
}

func (k *checker) atLeast(path string, value, least int) {
	if value < least {
		k.say(path, "must be at least %d", least)
	}
}

// address judges a URL without echoing it.
func (k *checker) address(path, text string, schemes ...string) {
	parsed, err := url.Parse(strings.TrimSpace(text))
	if err != nil || parsed.Host == "" && parsed.Query().Get("host") == "" || !slices.Contains(schemes, parsed.Scheme) {
		k.say(path, "must be a URL that starts with %s:// and names a host", strings.Join(schemes, ":// or "))
	}
}

func (k *checker) listen(path, address string) {
	if address == "" {
		return
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		k.say(path, "must be an address such as 127.0.0.1:9470")
	}
}
