package banksim_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
)

func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func checkTLSRefused(t *testing.T, _ *rig, f banksim.Fault) {
	own, pool := certificate(t)
	r := newRig(t, banksim.Options{Calm: true, TLS: &tls.Config{Certificates: []tls.Certificate{own}}})
	for _, version := range []string{"1.2", "1.3"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}}
		r.http.Transport = transport
		r.set(banksim.Fault{Name: f.Name, Next: 1, Value: version})
		req, err := http.NewRequest(http.MethodPost, "https://"+r.address+"/v1/transfers", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if a := r.do(req); a.err == nil || !strings.Contains(a.err.Error(), "remote error: tls: ") {
			t.Errorf("TLS %s: %+v", version, a)
		}
		req, err = http.NewRequest(http.MethodGet, "https://"+r.address+"/v1/transfers", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer token")
		r.do(req).want(t, 200, `{"data":[],"next_cursor":null}`) // the fault is spent
		transport.CloseIdleConnections()
	}
}

func TestTLSAnswersCanBeSpoilt(t *testing.T) {
	own, pool := certificate(t)
	r := newRig(t, banksim.Options{Calm: true, TLS: &tls.Config{Certificates: []tls.Certificate{own}}})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	r.http.Transport = transport
	r.set(banksim.Fault{Name: "cut_body_length", On: "statement", Next: 1})
	req, err := http.NewRequest(http.MethodGet, "https://"+r.address+"/v1/transfers", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token")
	if a := r.do(req); a.err == nil {
		t.Errorf("a cut body looked whole: %+v", a)
	}
}
