package config

import "strings"

// Setting is one thing that can be set. Path holds <name> where a partner, route, source or template is named.
type Setting struct {
	Path    string
	Default string // as it would be written in the file; "" = none
	Meaning string
	Secret  bool // may carry a secret: refused as a flag when it does
	Guarded bool // bounds whoever runs the command: taken from the file alone, which its owner guards

	at func(c *Config, name string) any // pointer to the field; nil when no such entry
}

// Env is the environment variable of the setting, or "" for those of a named partner, route, source or template, and for guarded ones.
func (s Setting) Env() string {
	if strings.Contains(s.Path, "<name>") || s.Guarded {
		return ""
	}
	return variable(s.Path)
}

func variable(path string) string {
	return "PAIDONCE_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// Settings lists everything that can be set, in the order of the reference.
func Settings() []Setting {
	list := processSettings()
	list = append(list, partnerSettings()...)
	list = append(list, routeSettings()...)
	list = append(list, sourceSettings()...)
	list = append(list, listenSettings()...)
	return append(list, templateSettings()...)
}

func processSettings() []Setting {
	return []Setting{
		{Path: "nats.url", Default: "nats://127.0.0.1:4222", Secret: true, Meaning: "servers of the broker, comma separated",
			at: func(c *Config, _ string) any { return &c.NATS.URL }},
		{Path: "nats.creds_file", Meaning: "credentials file (JWT and seed) for the broker",
			at: func(c *Config, _ string) any { return &c.NATS.CredsFile }},
		{Path: "nats.nkey_seed_file", Meaning: "file with the nkey seed for the broker",
			at: func(c *Config, _ string) any { return &c.NATS.NKeyFile }},
		{Path: "nats.operator_creds_file", Meaning: "credentials file of the operator's role, for janitor and dead letters; without one a worker with its own runs no janitor",
			at: func(c *Config, _ string) any { return &c.NATS.OperatorCredsFile }},
		{Path: "nats.operator_nkey_seed_file", Meaning: "nkey seed of the operator's role; without one a worker under a seed of its own runs no janitor",
			at: func(c *Config, _ string) any { return &c.NATS.OperatorNKeyFile }},
		{Path: "nats.gateway_creds_file", Meaning: "credentials file of the gateway's role, where one process or one file serves worker and gateway",
			at: func(c *Config, _ string) any { return &c.NATS.GatewayCredsFile }},
		{Path: "nats.gateway_nkey_seed_file", Meaning: "nkey seed of the gateway's role; without one a gateway takes nats.nkey_seed_file",
			at: func(c *Config, _ string) any { return &c.NATS.GatewayNKeyFile }},
		{Path: "nats.tls_ca_file", Meaning: "CA certificates that the broker's certificate must chain to",
			at: func(c *Config, _ string) any { return &c.NATS.TLSCAFile }},
		{Path: "nats.tls_cert_file", Meaning: "client certificate for the broker",
			at: func(c *Config, _ string) any { return &c.NATS.TLSCertFile }},
		{Path: "nats.tls_key_file", Meaning: "key of the client certificate",
			at: func(c *Config, _ string) any { return &c.NATS.TLSKeyFile }},
		{Path: "nats.replicas", Default: "3", Meaning: "replicas of every stream; 3 in production, 1 on a laptop",
			at: func(c *Config, _ string) any { return &c.NATS.Replicas }},
		{Path: "nats.max_jobs_bytes", Default: "8589934592", Meaning: "size of the jobs stream; publishing fails beyond it",
			at: func(c *Config, _ string) any { return &c.NATS.MaxJobsBytes }},
		{Path: "database.url", Secret: true, Meaning: "Postgres, as postgres://user@host:port/name",
			at: func(c *Config, _ string) any { return &c.Database.URL }},
		{Path: "database.password_file", Meaning: "file with the password; - reads standard input",
			at: func(c *Config, _ string) any { return &c.Database.PasswordFile }},
		{Path: "database.max_conns", Default: "16", Meaning: "most connections of one process",
			at: func(c *Config, _ string) any { return &c.Database.MaxConns }},
		{Path: "database.accept_loss", Default: "false", Meaning: "no synchronous standby: a lost primary may lose what was recorded last",
			at: func(c *Config, _ string) any { return &c.Database.AcceptLoss }},
		{Path: "worker.in_flight", Default: "1024", Meaning: "most calls in flight of one process, over all partners",
			at: func(c *Config, _ string) any { return &c.Worker.InFlight }},
		{Path: "worker.pullers", Default: "2", Meaning: "fetch loops per route",
			at: func(c *Config, _ string) any { return &c.Worker.Pullers }},
		{Path: "worker.lease", Default: "60s", Meaning: "how long a claim holds without renewal, by the database clock",
			at: func(c *Config, _ string) any { return &c.Worker.Lease }},
		{Path: "worker.ack_wait", Default: "30s", Meaning: "how long the broker waits for a sign of life of a delivery",
			at: func(c *Config, _ string) any { return &c.Worker.AckWait }},
		{Path: "worker.record_margin", Default: "5s", Meaning: "time kept for recording after a call",
			at: func(c *Config, _ string) any { return &c.Worker.RecordMargin }},
		{Path: "worker.sweep_every", Default: "1s", Meaning: "how often the sweep looks for what is due",
			at: func(c *Config, _ string) any { return &c.Worker.SweepEvery }},
		{Path: "worker.shutdown_grace", Default: "45s", Meaning: "how long a stopping worker finishes calls in flight; its supervisor must wait for 18 s more",
			at: func(c *Config, _ string) any { return &c.Worker.ShutdownGrace }},
	}
}

func partnerSettings() []Setting {
	field := func(pick func(p *Partner) any) func(*Config, string) any {
		return func(c *Config, name string) any {
			if p := c.Partners[name]; p != nil {
				return pick(p)
			}
			return nil
		}
	}
	return []Setting{
		{Path: "partners.<name>.adapter", Meaning: "which adapter speaks to the partner: reference",
			at: field(func(p *Partner) any { return &p.Adapter })},
		{Path: "partners.<name>.base_url", Secret: true, Meaning: "where the partner's API is",
			at: field(func(p *Partner) any { return &p.BaseURL })},
		{Path: "partners.<name>.credential_id", Meaning: "name of the credential in use; an operation in doubt is sent again only under the same one",
			at: field(func(p *Partner) any { return &p.CredentialID })},
		{Path: "partners.<name>.token_file", Meaning: "file with the credential's secret; - reads standard input",
			at: field(func(p *Partner) any { return &p.TokenFile })},
		{Path: "partners.<name>.timeout", Default: "20s", Meaning: "longest a call may take",
			at: field(func(p *Partner) any { return &p.Timeout })},
		{Path: "partners.<name>.max_in_flight", Default: "512", Meaning: "most calls in flight to this partner from one process",
			at: field(func(p *Partner) any { return &p.MaxInFlight })},
		{Path: "partners.<name>.rate_limit", Default: "0", Meaning: "most calls per second from one process; 0 = none",
			at: field(func(p *Partner) any { return &p.RateLimit })},
		{Path: "partners.<name>.echoes_key", Default: "false", Meaning: "the partner promises the idempotency key's header in every answer to a create, errors and its limiter's too: plain connections are used again, and an error without it proves nothing on a used one",
			at: field(func(p *Partner) any { return &p.EchoesKey })},
		{Path: "partners.<name>.look_ups", Default: "[5s, 30s, 2m, 10m, 1h]", Meaning: "when an operation in doubt is looked up; then at the last interval, until half of the partner's key window is over or, without one, at once: then it is parked",
			at: field(func(p *Partner) any { return &p.LookUps })},
		{Path: "partners.<name>.doubt_limits", Meaning: "most money in doubt at the partner, per currency, as [50000.00 GBP]; above it the partner pauses until a person resumes it",
			at: field(func(p *Partner) any { return &p.DoubtLimits })},
	}
}

func routeSettings() []Setting {
	field := func(pick func(r *Route) any) func(*Config, string) any {
		return func(c *Config, name string) any {
			if r := c.Routes[name]; r != nil {
				return pick(r)
			}
			return nil
		}
	}
	return []Setting{
		{Path: "routes.<name>.partner", Meaning: "the partner that the route leads to",
			at: field(func(r *Route) any { return &r.Partner })},
		{Path: "routes.<name>.currencies", Meaning: "the currencies that the route takes",
			at: field(func(r *Route) any { return &r.Currencies })},
		{Path: "routes.<name>.max_amount", Meaning: "largest amount of one withdrawal, with exactly the digits of its currency; empty = none",
			at: field(func(r *Route) any { return &r.MaxAmount })},
	}
}

func sourceSettings() []Setting {
	field := func(pick func(s *Source) any) func(*Config, string) any {
		return func(c *Config, name string) any {
			if s := c.Sources[name]; s != nil {
				return pick(s)
			}
			return nil
		}
	}
	return []Setting{
		{Path: "sources.<name>.routes", Meaning: "the routes that the source may use",
			at: field(func(s *Source) any { return &s.Routes })},
		{Path: "sources.<name>.keys", Default: "require", Meaning: "a request without a key is refused (require) or given one and counted (warn)",
			at: field(func(s *Source) any { return &s.Keys })},
		{Path: "sources.<name>.token_file", Meaning: "file with the source's bearer tokens, one a line, each as it is or as sha256: and its digest",
			at: field(func(s *Source) any { return &s.TokenFile })},
	}
}

func listenSettings() []Setting {
	return []Setting{
		{Path: "health.listen", Default: "127.0.0.1:9470", Meaning: "address of /livez, /readyz and /metrics; empty = none",
			at: func(c *Config, _ string) any { return &c.Health.Listen }},
		{Path: "health.pprof", Default: "false", Meaning: "the health address also serves /debug/pprof, to whoever reaches it",
			at: func(c *Config, _ string) any { return &c.Health.Pprof }},
		{Path: "gateway.listen", Default: "127.0.0.1:8470", Meaning: "address of the HTTP API",
			at: func(c *Config, _ string) any { return &c.Gateway.Listen }},
		{Path: "gateway.intake_grace", Default: "30s", Meaning: "how long the sweep leaves an accepted withdrawal to its own message",
			at: func(c *Config, _ string) any { return &c.Gateway.IntakeGrace }},
		{Path: "operator.token_file", Meaning: "file with the token of the person who runs the commands; - reads standard input",
			at: func(c *Config, _ string) any { return &c.Operator.TokenFile }},
		{Path: "operator.proposal_ttl", Default: "24h", Guarded: true, Meaning: "how long a proposal, and its approval, hold",
			at: func(c *Config, _ string) any { return &c.Operator.ProposalTTL }},
		{Path: "operator.amount_limits", Default: "[100000.00 GBP, 100000.00 EUR, 100000.00 USD]", Guarded: true, Meaning: "most money that one person decides upon alone, per currency; a currency that is not listed: none",
			at: func(c *Config, _ string) any { return &c.Operator.AmountLimits }},
		{Path: "operator.replay_limit", Default: "100", Guarded: true, Meaning: "most dead letters that one person replays alone",
			at: func(c *Config, _ string) any { return &c.Operator.ReplayLimit }},
		{Path: "operator.discard_limit", Default: "100", Guarded: true, Meaning: "most dead letters that one person discards alone",
			at: func(c *Config, _ string) any { return &c.Operator.DiscardLimit }},
		{Path: "operator.batch_limit", Default: "1000", Guarded: true, Meaning: "most rows of a batch that one person submits alone",
			at: func(c *Config, _ string) any { return &c.Operator.BatchLimit }},
		{Path: "batch.overlap_window", Default: "120h", Guarded: true, Meaning: "how far back the rows of a file are compared with those of other runs of its source, by row_ref, amount, account and reference; 0 = not at all",
			at: func(c *Config, _ string) any { return &c.Batch.OverlapWindow }},
		{Path: "log.level", Default: "info", Meaning: "debug, info, warn or error",
			at: func(c *Config, _ string) any { return &c.Log.Level }},
		{Path: "log.format", Default: "json", Meaning: "json, or console for people",
			at: func(c *Config, _ string) any { return &c.Log.Format }},
	}
}

func templateSettings() []Setting {
	field := func(pick func(t *Template) any) func(*Config, string) any {
		return func(c *Config, name string) any {
			if t := c.Batch.Templates[name]; t != nil {
				return pick(t)
			}
			return nil
		}
	}
	return []Setting{
		{Path: "batch.templates.<name>.format", Default: "csv", Meaning: "what the files are: csv, ndjson, pain.001.001.03 or pain.001.001.09",
			at: field(func(t *Template) any { return &t.Format })},
		{Path: "batch.templates.<name>.source", Meaning: "the upstream system that pays, unless --source says otherwise",
			at: field(func(t *Template) any { return &t.Source })},
		{Path: "batch.templates.<name>.route", Meaning: "the route of rows that name none, unless --route says otherwise",
			at: field(func(t *Template) any { return &t.Route })},
		{Path: "batch.templates.<name>.encoding", Default: "utf-8", Meaning: "utf-8, with or without a byte order mark; files in any other are refused",
			at: field(func(t *Template) any { return &t.Encoding })},
		{Path: "batch.templates.<name>.delimiter", Default: ",", Meaning: "what stands between cells: a comma, a semicolon, an upright stroke, or tab",
			at: field(func(t *Template) any { return &t.Delimiter })},
		{Path: "batch.templates.<name>.decimal_mark", Default: ".", Meaning: "what stands before the minor digits of amounts: . or ,",
			at: field(func(t *Template) any { return &t.DecimalMark })},
		{Path: "batch.templates.<name>.thousands_mark", Meaning: "what may stand between groups of three digits: a point, a comma, an apostrophe or a space; empty = nothing",
			at: field(func(t *Template) any { return &t.ThousandsMark })},
		{Path: "batch.templates.<name>.columns", Meaning: "the header, exactly and in its order: column, HEADER=column where the file calls it otherwise, HEADER=- for what is no part of a payment; " +
			"empty = the known columns, in their order",
			at: field(func(t *Template) any { return &t.Columns })},
		{Path: "batch.templates.<name>.trailer", Meaning: "first cell of the row that closes every file; a file without that row is cut off",
			at: field(func(t *Template) any { return &t.Trailer })},
		{Path: "batch.templates.<name>.charset", Meaning: "sepa: only the Latin letters of the EPC in names and references",
			at: field(func(t *Template) any { return &t.Charset })},
		{Path: "batch.templates.<name>.ignore", Meaning: "elements of pain.001 that may be dropped, as [CtgyPurp]",
			at: field(func(t *Template) any { return &t.Ignore })},
		{Path: "batch.templates.<name>.time_zone", Default: "UTC", Meaning: "where a date without a time begins, as Europe/Berlin",
			at: field(func(t *Template) any { return &t.TimeZone })},
	}
}
