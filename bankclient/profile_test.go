package bankclient_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/bankclient/reference"
)

func TestReferenceProfileIsTheDeclaredOne(t *testing.T) {
	p := reference.New().Profile()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if !p.HonoursKeys || !p.SerialisesDuplicates || p.KeyWindow != 24*time.Hour || p.KeyScope != "credential" ||
		p.LookUp != bankclient.LookUpByKey || p.VisibilityBound != 5*time.Second || p.LatestArrival != 60*time.Second {
		t.Fatalf("profile is not that of the reference API")
	}
}

// A profile may tighten a row of the table with a listed code, never loosen one.
func TestProfileMayNotLoosenTheTable(t *testing.T) {
	rule := func(status int, m bankclient.Meaning, c bankclient.Cause) error {
		p := reference.New().Profile()
		p.Codes = []bankclient.CodeRule{{Status: status, Code: "x", Means: m, Cause: c}}
		return p.Validate()
	}
	for status := 100; status <= 599; status++ {
		rejects := rule(status, bankclient.MeansRejected, bankclient.CauseNone) == nil
		if want := status == 400 || status == 401 || status == 402 || status == 403 || status == 404 || status == 422; rejects != want {
			t.Errorf("%d may mean rejected: %t", status, rejects)
		}
		clears := rule(status, bankclient.MeansNotExecuted, bankclient.CauseNone) == nil
		want := false
		switch status {
		case 401, 403, 405, 406, 413, 414, 415, 431, 429, 503:
			want = true
		}
		if clears != want {
			t.Errorf("%d may mean not executed: %t", status, clears)
		}
	}
	if rule(422, bankclient.MeansNotExecuted, bankclient.CauseOurFunds) != nil {
		t.Error("our lack of funds may be listed")
	}
}

func TestProfileProblemsComeAllAtOnce(t *testing.T) {
	p := bankclient.Profile{
		SerialisesDuplicates: true, KeyWindow: -1, LookUpConsistent: true, LookUp: bankclient.LookUpByListing, Key: bankclient.Carrier{Header: "a b"},
		Codes:  []bankclient.CodeRule{{Status: 422, Code: "x", Means: bankclient.MeansRejected}, {Status: 422, Code: "x", Means: bankclient.MeansRejected}},
		States: []bankclient.StateRule{{State: "s", Verdict: notExecuted}, {State: "r", Verdict: rejected, Settled: true}},
	}
	err := p.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, part := range []string{"adapter and version", "serialises", "negative duration", "consistent", "by listing", "key header", "timeout",
		"listed twice", `"s" may not`, `"r" contradicts`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
}

func TestConfigProblemsComeAllAtOnce(t *testing.T) {
	_, err := bankclient.New(bankclient.Config{
		BaseURL: "http://u:s3cret@x", Timeout: -1, MaxInFlight: 1 << 20, RateLimit: -1, Breaker: bankclient.Breaker{FailureRatio: 2},
	}, reference.New())
	if err == nil {
		t.Fatal("valid")
	}
	for _, part := range []string{"id is needed", "credential", "timeouts", "limits", "max in flight", "ratio", "base url"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("the error shows the password")
	}
	for _, bad := range []string{"", "ftp://x", "http://", "http://x?a=b", "http://x#f", "://", "http://x/%zz"} {
		if _, err := bankclient.New(config(bad), reference.New()); err == nil {
			t.Errorf("base url %q was taken", bad)
		}
	}
	if _, err := bankclient.New(config("http://x"), nil); err == nil {
		t.Error("no adapter was taken")
	}
}

// No answer can echo a key that travels in the body: the setting would have every connection used again that nothing guards.
func TestEchoesKeyNeedsAHeader(t *testing.T) {
	cfg := echoing(config("http://x"))
	if _, err := bankclient.New(cfg, reference.New()); err != nil {
		t.Error(err)
	}
	_, err := bankclient.New(cfg, vary(func(p *bankclient.Profile) { p.Key.Header = "" }))
	if err == nil || !strings.Contains(err.Error(), "echo") {
		t.Errorf("%v; want that nothing can echo it", err)
	}
}

func TestBaseURLKeepsItsPath(t *testing.T) {
	b := say(t, reply(201, jsonType, agreeing))
	p := partnerAt(t, b.URL+"/bank/")
	pr := prepare(t, p)
	if pr.Endpoint != http.MethodPost+" "+b.URL+"/bank/v1/transfers" {
		t.Fatalf("endpoint %s", pr.Endpoint)
	}
	wantVerdict(t, p.Send(t.Context(), pr), authorized, operation)
	if got := b.seen()[0].Target; got != "/bank/v1/transfers" {
		t.Fatalf("target %s", got)
	}
}
