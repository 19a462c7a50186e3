package bankclient_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// eventually polls, bounded, for what has no signal of its own.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a bound on hanging, not on speed
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func transportGoroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("net/http.(*persistConn)")) + bytes.Count(stacks, []byte("net/http.(*Transport)"))
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bank"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

func startTLSBank(t *testing.T, server *tls.Config, answer func(c net.Conn, n int, a arrival) bool) *bank {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{URL: "https://" + l.Addr().String()}
	b.serve(t, l, answer)
	return b
}

func sayAgreeing(c net.Conn, _ int, _ arrival) bool {
	_, _ = io.WriteString(c, reply(201, jsonType, agreeing))
	return true
}

func TestA5_TLSRefusalConcernsThePartner(t *testing.T) {
	cert, roots := selfSigned(t)
	stranger, _ := selfSigned(t)
	demanding := func(version uint16) *tls.Config {
		return &tls.Config{
			Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
			MinVersion: version, MaxVersion: version,
		}
	}
	plain := say(t, "SSH-2.0-OpenSSH\r\n")
	for name, row := range map[string]struct {
		server *tls.Config
		client *tls.Config
	}{
		"no client certificate, TLS 1.2":      {demanding(tls.VersionTLS12), &tls.Config{RootCAs: roots}},
		"no client certificate, TLS 1.3":      {demanding(tls.VersionTLS13), &tls.Config{RootCAs: roots}},
		"unknown client certificate, TLS 1.2": {demanding(tls.VersionTLS12), &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{stranger}}},
		"server not trusted":                  {&tls.Config{Certificates: []tls.Certificate{cert}}, nil},
		"server has another name":             {&tls.Config{Certificates: []tls.Certificate{cert}}, &tls.Config{RootCAs: roots, ServerName: "bank.example"}},
		"too old":                             {&tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, &tls.Config{RootCAs: roots}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startTLSBank(t, row.server, sayAgreeing)
			cfg := config(b.URL)
			cfg.TLS = row.client
			p := open(t, cfg, reference.New())
			r := p.Send(t.Context(), prepare(t, p))
			wantVerdict(t, r, notExecuted, partner)
			if len(b.seen()) != 0 {
				t.Error("a request arrived")
			}
		})
	}
	t.Run("no TLS there", func(t *testing.T) {
		cfg := config("https" + plain.URL[len("http"):])
		p := open(t, cfg, reference.New())
		p.Send(t.Context(), prepare(t, p))
	})
	t.Run("silent in the handshake", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody speaks
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		cfg := config("https://" + l.Addr().String())
		cfg.TLSTimeout = 50 * time.Millisecond
		p := open(t, cfg, reference.New())
		wantVerdict(t, p.Send(t.Context(), prepare(t, p)), notExecuted, partner)
	})
	t.Run("closed in the handshake", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = io.ReadFull(c, make([]byte, 1))
				_ = c.Close()
			}
		}()
		p := partnerAt(t, "https://"+l.Addr().String())
		wantVerdict(t, p.Send(t.Context(), prepare(t, p)), notExecuted, partner)
	})
}

// alertAfter serves TLS 1.3 and, after so many answered requests on a connection, sends the alert that a server sends when it
// looks at the client's certificate late. crypto/tls offers no way to send one, so it is sealed here with the logged secret.
func alertAfter(t *testing.T, requests int) (*bank, *x509.CertPool) {
	t.Helper()
	cert, roots := selfSigned(t)
	secrets := new(keyLog)
	return startTLSBank(t, &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
		SessionTicketsDisabled: true, // so that answers are the only records under the application keys
		KeyLogWriter:           secrets,
	}, func(c net.Conn, n int, a arrival) bool {
		if n <= requests {
			return sayAgreeing(c, n, a)
		}
		secure := c.(*tls.Conn)
		record, err := sealAlert(secure.ConnectionState().CipherSuite, secrets.serverTraffic(), uint64(requests), 116)
		if err != nil {
			t.Error(err)
		}
		_, _ = secure.NetConn().Write(record)
		_, _ = io.Copy(io.Discard, secure.NetConn())
		return false
	}), roots
}

// keyLog keeps the last server traffic secret that crypto/tls logged.
type keyLog struct {
	mu     sync.Mutex
	secret []byte
}

func (k *keyLog) Write(line []byte) (int, error) {
	if fields := strings.Fields(string(line)); fields[0] == "SERVER_TRAFFIC_SECRET_0" {
		secret, err := hex.DecodeString(fields[2])
		if err != nil {
			return 0, err
		}
		k.mu.Lock()
		k.secret = secret
		k.mu.Unlock()
	}
	return len(line), nil
}

func (k *keyLog) serverTraffic() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secret
}

// sealAlert makes one TLS 1.3 alert record (RFC 8446, 5.2, 6 and 7.3).
func sealAlert(suite uint16, secret []byte, sequence uint64, alert byte) ([]byte, error) {
	if suite != tls.TLS_AES_128_GCM_SHA256 {
		return nil, fmt.Errorf("suite %s is not the one that this helper seals for", tls.CipherSuiteName(suite))
	}
	expand := func(label string, length int) ([]byte, error) {
		label = "tls13 " + label
		info := append([]byte{0, byte(length), byte(len(label))}, label...)
		return hkdf.Expand(sha256.New, secret, string(append(info, 0)), length)
	}
	key, keyErr := expand("key", 16)
	nonce, nonceErr := expand("iv", 12)
	if err := errors.Join(keyErr, nonceErr); err != nil {
		return nil, err
	}
	for i := range 8 {
		nonce[11-i] ^= byte(sequence >> (8 * i))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	inner := []byte{2, alert, 21} // fatal, the alert, and the record's true type
	header := []byte{23, 3, 3, 0, byte(len(inner) + aead.Overhead())}
	return append(header, aead.Seal(nil, nonce, inner, header)...), nil
}

func TestA5_TLS13AlertOnTheFirstRequestOnly(t *testing.T) {
	for requests, want := range map[int]bankclient.Verdict{0: notExecuted, 1: unknown} {
		b, roots := alertAfter(t, requests)
		cfg := config(b.URL)
		cfg.TLS = &tls.Config{RootCAs: roots}
		p := open(t, cfg, reference.New())
		pr := prepare(t, p)
		for range requests {
			wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
		}
		r := p.Send(t.Context(), pr)
		scope := operation
		if want == notExecuted {
			scope = partner
		}
		wantVerdict(t, r, want, scope)
		if r.Evidence.Error != "tls alert: certificate required" || r.Evidence.Reused != (requests > 0) {
			t.Errorf("evidence %s", r.Evidence.JSON())
		}
	}
}
