package bankclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// errProxyRefused marks a CONNECT that the proxy did not grant.
var errProxyRefused = errors.New("proxy refused")

// newTransport makes the one transport of a partner. Calls use it directly, without http.Client: nothing above it follows
// redirects, keeps cookies or repeats a call. What bounds a call is its context; what is set here bounds its parts.
func newTransport(cfg Config, profile Profile) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(profile.AllowsHTTP2)

	dial := dialerOf(cfg)
	if !profile.AllowsHTTP2 {
		dial = watch(dial)
	}
	return &http.Transport{
		Proxy:                  cfg.Proxy,
		OnProxyConnectResponse: checkProxy,
		DialContext:            dial,
		TLSClientConfig:        secureOf(cfg),
		TLSHandshakeTimeout:    cfg.TLSTimeout,
		Protocols:              protocols,
		MaxConnsPerHost:        cfg.MaxInFlight,
		MaxIdleConns:           cfg.MaxInFlight,
		MaxIdleConnsPerHost:    cfg.MaxInFlight,
		IdleConnTimeout:        cfg.IdleTimeout,
		ResponseHeaderTimeout:  0, // the context's deadline covers it, without a second timer per call
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaders,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
	}
}

func dialerOf(cfg Config) dialer {
	if cfg.DialContext != nil {
		return cfg.DialContext
	}
	return (&net.Dialer{Timeout: cfg.DialTimeout}).DialContext
}

func secureOf(cfg Config) *tls.Config {
	secure := cfg.TLS.Clone()
	if secure == nil {
		secure = &tls.Config{}
	}
	secure.MinVersion = max(secure.MinVersion, tls.VersionTLS12)
	return secure
}

func checkProxy(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return errProxyRefused
	}
	return nil
}

// secureFailure says whether an error from before a connection was got comes from TLS. Everything else that can happen
// there (no name, no route, refused, timed out, our context ended, proxy) concerns the network.
func secureFailure(err error) bool {
	var network *net.OpError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errProxyRefused):
		return false
	case alertOf(err) != "", notTrusted(err), errors.As(err, new(tls.RecordHeaderError)):
		return true
	case errors.As(err, &network):
		// Reading and writing happen only inside of the handshake here.
		return network.Op == "read" || network.Op == "write" || network.Op == "local error"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	default:
		text := err.Error()
		return strings.Contains(text, "tls: ") || strings.Contains(text, "TLS handshake") ||
			strings.Contains(text, "server gave HTTP response to HTTPS client")
	}
}

func notTrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(x509.CertificateInvalidError))
}

// alertOf gives the text of a TLS alert that the other side sent, "" if there was none.
func alertOf(err error) string {
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" && alert.Err != nil {
		return strings.TrimPrefix(alert.Err.Error(), "tls: ")
	}
	return ""
}

// accessAlert says whether the other side refused our certificate or our access (RFC 8446, 6.2).
func accessAlert(err error) bool {
	text := alertOf(err)
	if text == "" {
		return false
	}
	return slices.ContainsFunc([]tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}, func(alert tls.AlertError) bool {
		return strings.TrimPrefix(alert.Error(), "tls: ") == text
	})
}

// errorWords tells a transport error in words of ours: an error's own text can hold URLs and the partner's bytes.
func errorWords(err error) string {
	var timeout net.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return errCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline exceeded"
	case errors.Is(err, errProxyRefused):
		return "proxy refused"
	case errors.As(err, new(*net.DNSError)):
		return "name not resolved"
	case alertOf(err) != "":
		return "tls alert: " + alertOf(err)
	case notTrusted(err):
		return "certificate not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	case errors.Is(err, syscall.EPIPE):
		return "broken pipe"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected end"
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "server closed idle connection"):
		return "connection closed"
	default:
		return "transport error"
	}
}

// errCanceled are the words for a call that we gave up ourselves: it says nothing of the partner.
const errCanceled = "canceled"
