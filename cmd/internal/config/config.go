package config

import (
	"io"
	"time"
)

// Config is everything that can be set. Names and meanings are in the list of settings.
type Config struct {
	NATS     NATS
	Database Database
	Worker   Worker
	Partners map[string]*Partner
	Routes   map[string]*Route
	Sources  map[string]*Source
	Health   Health
	Gateway  Gateway
	Operator Operator
	Batch    Batch
	Log      Log

	origins map[string]string // path -> place, for messages
	stdin   io.Reader
}

// NATS says how to reach the broker and what its streams shall look like.
type NATS struct {
	URL       URL
	CredsFile string
	NKeyFile  string

	OperatorCredsFile string
	OperatorNKeyFile  string
	GatewayCredsFile  string
	GatewayNKeyFile   string

	TLSCAFile    string
	TLSCertFile  string
	TLSKeyFile   string
	Replicas     int
	MaxJobsBytes int64
}

// Database says how to reach Postgres.
type Database struct {
	URL          URL
	PasswordFile string
	MaxConns     int
	AcceptLoss   bool
}

// Worker bounds the work of one worker process and its times.
type Worker struct {
	InFlight      int
	Pullers       int
	Lease         time.Duration
	AckWait       time.Duration
	RecordMargin  time.Duration
	SweepEvery    time.Duration
	ShutdownGrace time.Duration
}

// Partner is one bank behind an adapter.
type Partner struct {
	Adapter      string
	BaseURL      URL
	CredentialID string
	TokenFile    string
	Timeout      time.Duration
	MaxInFlight  int
	RateLimit    int
	EchoesKey    bool
	LookUps      []time.Duration
	DoubtLimits  []string
}

// Route maps a rail that jobs name to a partner.
type Route struct {
	Partner    string
	Currencies []string
	MaxAmount  string
}

// Source is one upstream system that publishes jobs.
type Source struct {
	Routes    []string
	Keys      string
	TokenFile string
}

// Health is the address for probes and metrics.
type Health struct {
	Listen string
	Pprof  bool
}

// Gateway is the HTTP API.
type Gateway struct {
	Listen      string
	IntakeGrace time.Duration
}

// Operator is what operators' commands and console go by.
type Operator struct {
	TokenFile    string
	ProposalTTL  time.Duration
	AmountLimits []string
	ReplayLimit  int
	DiscardLimit int
	BatchLimit   int
}

// Batch is what payout runs go by.
type Batch struct {
	OverlapWindow time.Duration
	Templates     map[string]*Template
}

// Template says how one program writes its files.
type Template struct {
	Format        string
	Source        string
	Route         string
	Encoding      string
	Delimiter     string
	DecimalMark   string
	ThousandsMark string
	Columns       []string
	Trailer       string
	Charset       string
	Ignore        []string
	TimeZone      string
}

// Log says what is written to standard error, and how.
type Log struct {
	Level  string
	Format string
}

// Origin says where the setting at path came from: "flag", "environment PAIDONCE_X", "file:line" or "default".
func (c *Config) Origin(path string) string {
	if place, ok := c.origins[path]; ok {
		return place
	}
	return "default"
}
