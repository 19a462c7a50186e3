package bankclient

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"
)

// Lengths of what is kept of a partner's words.
const (
	maxCode       = 64
	maxTransferID = 128
	maxRequestID  = 128
	maxLocation   = 256
)

const defaultResponseLimit = 256 << 10

// Config is one partner as configured. ID, BaseURL, CredentialID and Token are needed.
type Config struct {
	ID           string        // stable; operations are pinned to it
	BaseURL      string        // scheme, host and an optional path
	CredentialID string        // names the credential without being it; a new credential has a new one
	Token        func() string // the secret of CredentialID; called for every call, never logged

	// EchoesKey says that every answer of the partner's own to a create has the key's header as it came, errors too; a proxy's need not. Then an
	// error that names nobody proves nothing on a connection used before, and plain connections are used again. Default false.
	EchoesKey bool

	Timeout     time.Duration // of one call, from connection to the last byte; default: the profile's
	MaxInFlight int           // calls at the same time; default and ceiling: the profile's
	RateLimit   float64       // calls per second; default: the profile's; 0 there too = none
	RateBurst   int           // calls that may start at once; default: a tenth of a second's worth, at least 1

	TLS         *tls.Config                                                       // default: system roots, TLS 1.2 or later
	Proxy       func(*http.Request) (*url.URL, error)                             // default: none, the environment is not asked
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error) // default: net.Dialer with DialTimeout
	DialTimeout time.Duration                                                     // default 5s, at most Timeout
	TLSTimeout  time.Duration                                                     // default 5s, at most Timeout
	IdleTimeout time.Duration                                                     // of a kept-alive connection; default 30s

	MaxDelay time.Duration    // ceiling of RetryAfter; default 24h
	Breaker  Breaker          // zero: defaults
	Clock    func() time.Time // default time.Now; measures elapsed time and reads dates in headers
}

// Partner makes calls to one partner. Safe for concurrent use.
type Partner struct {
	cfg     Config
	adapter Adapter
	profile Profile
	base    *url.URL
	create  *url.URL
	gate    *Gate
	limit   int64

	endpoint  string
	lines     *lines // of calls that move money; nil where those are net/http's too
	transport *http.Transport
	lookUps   *http.Transport // each over a connection of its own
	fixed     fixed
	pool      pool
}

// New checks configuration and profile, all problems at once, and opens no connection.
func New(cfg Config, adapter Adapter) (*Partner, error) {
	if adapter == nil {
		return nil, errors.New("new partner: an adapter is needed")
	}
	profile := adapter.Profile()
	cfg = cfg.withDefaults(profile)
	base, baseErr := parseBase(cfg.BaseURL)
	if err := errors.Join(profile.Validate(), cfg.validate(profile), baseErr); err != nil {
		return nil, fmt.Errorf("new partner %q: %w", cfg.ID, err)
	}
	create, err := below(base, adapter.CreatePath())
	if err != nil {
		return nil, fmt.Errorf("new partner %q: create path: %w", cfg.ID, err)
	}
	p := &Partner{
		cfg: cfg, adapter: adapter, profile: profile, base: base, create: create,
		endpoint:  endpointOf(create),
		limit:     profile.ResponseLimit,
		gate:      newGate(cfg),
		lines:     newLines(cfg, profile, create),
		transport: newTransport(cfg, profile),
	}
	p.lookUps = p.transport // over HTTP/2 an answer belongs to its stream
	if !profile.AllowsHTTP2 {
		// "Not found" names no request. On a connection that was used before, it may be the late answer to another.
		p.lookUps = newTransport(cfg, profile)
		p.lookUps.DisableKeepAlives = true
	}
	if p.limit == 0 {
		p.limit = defaultResponseLimit
	}
	p.fixed.json, p.fixed.agent = []string{"application/json"}, []string{"paidonce"}
	p.fixed.keyHeader = http.CanonicalHeaderKey(profile.Key.Header)
	p.fixed.requestID = http.CanonicalHeaderKey(profile.RequestIDHeader)
	p.fixed.replay = http.CanonicalHeaderKey(profile.ReplayHeader)
	return p, nil
}

func (c Config) withDefaults(profile Profile) Config {
	if c.Timeout == 0 {
		c.Timeout = profile.Timeout
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = profile.MaxInFlight
	}
	if c.RateLimit == 0 {
		c.RateLimit = profile.RateLimit
	}
	if c.RateBurst == 0 {
		c.RateBurst = max(1, int(c.RateLimit/10))
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 5 * time.Second
	}
	if c.TLSTimeout == 0 {
		c.TLSTimeout = 5 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 30 * time.Second
	}
	if c.MaxDelay == 0 {
		c.MaxDelay = 24 * time.Hour
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.DialTimeout, c.TLSTimeout = min(c.DialTimeout, c.Timeout), min(c.TLSTimeout, c.Timeout)
	c.Breaker = c.Breaker.withDefaults()
	return c
}

func (c Config) validate(profile Profile) error {
	var all []error
	bad := func(text string) { all = append(all, errors.New(text)) }
	if c.ID == "" || strings.ContainsAny(c.ID, "\x00 ") {
		bad("id is needed, without space or NUL")
	}
	if c.CredentialID == "" || c.Token == nil {
		bad("credential id and token are needed")
	}
	if c.Timeout < 0 || c.DialTimeout < 0 || c.TLSTimeout < 0 || c.IdleTimeout < 0 || c.MaxDelay < 0 {
		bad("timeouts may not be negative")
	}
	if c.MaxInFlight < 0 || c.RateLimit < 0 || c.RateBurst < 0 {
		bad("limits may not be negative")
	}
	if c.EchoesKey && profile.Key.Header == "" {
		bad("no answer can echo the key: it travels in the body, not in a header")
	}
	if profile.MaxInFlight > 0 && c.MaxInFlight > profile.MaxInFlight {
		bad(fmt.Sprintf("max in flight is above the profile's %d", profile.MaxInFlight))
	}
	if profile.RateLimit > 0 && c.RateLimit > profile.RateLimit {
		bad(fmt.Sprintf("rate limit is above the profile's %g", profile.RateLimit))
	}
	all = append(all, c.Breaker.validate())
	return errors.Join(all...)
}

func parseBase(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	switch {
	case err != nil: // the error would show a password in it
		return nil, errors.New("base url is no url")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("base url needs http or https and a host")
	case base.User != nil, base.RawQuery != "", base.Fragment != "":
		return nil, errors.New("base url may carry no credentials, query or fragment")
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	base.RawPath = ""
	return base, nil
}

// below resolves a path with an optional query below the base URL.
func below(base *url.URL, pathAndQuery string) (*url.URL, error) {
	if !strings.HasPrefix(pathAndQuery, "/") {
		return nil, errors.New("path does not begin with a slash")
	}
	return url.Parse(base.String() + pathAndQuery)
}

// EndpointOf is what Prepared.Endpoint is for a partner at baseURL.
func EndpointOf(baseURL string, adapter Adapter) (string, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return "", err
	}
	create, err := below(base, adapter.CreatePath())
	if err != nil {
		return "", err
	}
	return endpointOf(create), nil
}

func endpointOf(create *url.URL) string { return http.MethodPost + " " + create.String() }

// ID is the partner's stable id.
func (p *Partner) ID() string { return p.cfg.ID }

// Profile is what the adapter declares.
func (p *Partner) Profile() Profile { return p.profile }

// CredentialID names the credential in use.
func (p *Partner) CredentialID() string { return p.cfg.CredentialID }

// Timeout bounds one call.
func (p *Partner) Timeout() time.Duration { return p.cfg.Timeout }

// Gate bounds the calls to this partner.
func (p *Partner) Gate() *Gate { return p.gate }

// Close closes idle connections. Calls in flight go on.
func (p *Partner) Close() {
	p.lines.closeIdle()
	p.transport.CloseIdleConnections()
	p.lookUps.CloseIdleConnections()
}

// ErrUnsendable is wrapped by every error of Prepare, PrepareAs and Check: nothing may be sent, the operation parks.
var ErrUnsendable = errors.New("nothing may be sent")

// Prepare renders a call with the newest renderer. An error means that the local check failed: no send, park.
func (p *Partner) Prepare(key uuid.UUID, epoch int16, t Transfer) (Prepared, error) {
	return p.PrepareAs(p.adapter.Renderer(), key, epoch, t)
}

// PrepareAs renders a call with the renderer that an operation names, so that the bytes sent again are the bytes sent first. With an error
// wrapping ErrUnsendable comes everything but a body: what the partner key would have been is pinned all the same.
func (p *Partner) PrepareAs(renderer int16, key uuid.UUID, epoch int16, t Transfer) (Prepared, error) {
	// Jobs with one fingerprint are one job, however their text is composed: they are one body too.
	t.Beneficiary.Name, t.Reference = norm.NFC.String(t.Beneficiary.Name), norm.NFC.String(t.Reference)
	sum := keySum(key, p.cfg.ID, p.adapter.Step(), epoch)
	pr := Prepared{
		PartnerID: p.cfg.ID, CredentialID: p.cfg.CredentialID, Endpoint: p.endpoint, Renderer: renderer,
		PartnerKey: partnerKey(sum).String(), EndToEndID: endToEndID(sum), Transfer: t,
	}
	if err := p.checkKey(pr.PartnerKey); err != nil {
		return pr, err
	}
	if limit := p.profile.MaxReference; limit > 0 && len([]rune(t.Reference)) > limit {
		return pr, fmt.Errorf("prepare call to %s: reference is longer than %d: %w", p.cfg.ID, limit, ErrUnsendable)
	}
	body, err := p.adapter.Render(renderer, Rendering{PartnerKey: pr.PartnerKey, EndToEndID: pr.EndToEndID, Transfer: t})
	if err != nil {
		return pr, fmt.Errorf("prepare call to %s: %w: %w", p.cfg.ID, err, ErrUnsendable)
	}
	pr.Body, pr.BodySHA256 = body, sha256.Sum256(body)
	return pr, nil
}

// Check says whether a prepared call may still be sent as it is: same partner, credential, endpoint and bytes.
func (p *Partner) Check(pr Prepared) error {
	what := ""
	switch {
	case pr.PartnerID != p.cfg.ID:
		what = "it is another partner's call"
	case pr.CredentialID != p.cfg.CredentialID:
		what = "the credential has changed"
	case pr.Endpoint != p.endpoint:
		what = "the endpoint has changed"
	case len(pr.Body) == 0 || sha256.Sum256(pr.Body) != pr.BodySHA256:
		what = "the body has changed"
	default:
		return p.checkKey(pr.PartnerKey)
	}
	return fmt.Errorf("check call to %s: %s: %w", p.cfg.ID, what, ErrUnsendable)
}

func (p *Partner) checkKey(key string) error {
	carrier := &p.profile.Key
	if key == "" || carrier.MaxLength > 0 && len(key) > carrier.MaxLength {
		return fmt.Errorf("check partner key of %s: length %d does not fit: %w", p.cfg.ID, len(key), ErrUnsendable)
	}
	if carrier.Charset == "" {
		return nil
	}
	for i := range len(key) {
		if strings.IndexByte(carrier.Charset, key[i]) < 0 {
			return fmt.Errorf("check partner key of %s: a character does not fit: %w", p.cfg.ID, ErrUnsendable)
		}
	}
	return nil
}
