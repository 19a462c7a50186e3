package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/integration/stack"
)

// TestMain lets the children of devstack be this test program.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(exitCode(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
	}
	stack.Alone()
	os.Exit(m.Run())
}

var lastLine = regexp.MustCompile(`^proved: keys=(\d+) authorized=(\d+) rejected=(\d+) cancelled=(\d+) parked=(\d+) dead=(\d+) twice=0 lost=0$`)

func TestRun_OnceHoldsAgainstTheHostileBank(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "devstack")
	err := run(t.Context(), []string{"--once", "--jobs", "160", "--kills", "2", "--seed", "5", "--dir", dir}, &out, &log)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, &log, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	found := lastLine.FindStringSubmatch(lines[len(lines)-1])
	if found == nil {
		t.Fatalf("last line %q", lines[len(lines)-1])
	}
	// 160 keys; 10 conflicts and 10 malformed messages are dead letters; 3 keys have expired (7, 57 and 107), and 157.
	if found[1] != "160" || found[6] != "20" || found[4] != "4" {
		t.Errorf("last line %q", found[0])
	}
	for _, name := range []string{"worker.log", "gateway.log"} { // a right that a role lacks shows here, and otherwise only as a time-out
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || strings.Contains(strings.ToLower(string(text)), "permissions violation") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	log.Reset()
	out.Reset()
	place, book := bankOf(t, dir)
	if err := run(t.Context(), []string{"--once", "--jobs", "16", "--kills", "0", "--dir", dir, "--calm"}, &out, &log); err != nil {
		t.Errorf("a second run in the same directory: %v\n%s%s", err, &log, &out)
	}
	// What the first run left in doubt is asked after where it was sent, at a bank that remembers it.
	if again, more := bankOf(t, dir); again != place || !strings.HasPrefix(more, book) || book == "" || len(more) == len(book) {
		t.Errorf("the bank was at %q with a book of %d bytes, and is at %q with one of %d", place, len(book), again, len(more))
	}
}

// bankOf tells where the last run's bank was, and what it did.
func bankOf(t *testing.T, dir string) (place, book string) {
	t.Helper()
	settings, err := os.ReadFile(filepath.Join(dir, "paidonce.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "bank.book"))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`base_url: .*`).FindString(string(settings)), string(text)
}

// startStack starts everything but the worker.
func startStack(t *testing.T, args ...string) (options, *services, *progress) {
	t.Helper()
	t.Parallel()
	say := newProgress(&bytes.Buffer{})
	o, err := parseOptions(args, say.out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServices(t.Context(), o, say)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return o, s, say
}

// TestProve_SeesWhatTheBankDidByItself pays a transfer behind the worker's back.
func TestProve_SeesWhatTheBankDidByItself(t *testing.T) {
	o, s, say := startStack(t, "--jobs", "16", "--kills", "0", "--calm")
	if nc, err := nats.Connect(s.nats.URL()); err == nil {
		nc.Close()
		t.Error("the broker lets anybody in")
	}
	pay(t, s)
	j, err := prove(t.Context(), o, s, say)
	if err != nil {
		t.Fatal(err)
	}
	if j.Held() || !strings.HasPrefix(j.String(), "not proved: ") {
		t.Errorf("held: %s", j)
	}
	for _, want := range []string{"nobody asked for", "before their attempt was committed"} {
		if !slices.ContainsFunc(j.Violations, func(v string) bool { return strings.Contains(v, want) }) {
			t.Errorf("no violation says %q: %q", want, j.Violations)
		}
	}
}

// TestGateway_TheFirstWithdrawalOfTheGuide does what the printed line does, twice, and the proof goes on to hold.
func TestGateway_TheFirstWithdrawalOfTheGuide(t *testing.T) {
	o, s, say := startStack(t, "--jobs", "16", "--kills", "1", "--calm")
	line := guide(s)
	for n, want := range []int{http.StatusCreated, http.StatusOK} {
		status, text := followGuide(t, line)
		if status != want || !strings.Contains(text, `"state":"authorized"`) {
			t.Errorf("time %d: %d %s, want %d", n+1, status, text, want)
		}
	}
	j, err := prove(t.Context(), o, s, say)
	if err != nil {
		t.Fatal(err)
	}
	if !j.Held() {
		t.Errorf("%s\n%s", j, say.out)
	}
}

// followGuide sends what the guide's curl would.
func followGuide(t *testing.T, text string) (int, string) {
	t.Helper()
	parts := regexp.MustCompile(`(?s)curl -s (\S+/v1/withdrawals) -H "Authorization: Bearer \$\(cat (\S+)\)".*?-H 'Idempotency-Key: ([^']+)' -H 'Prefer: ([^']+)'.*?-d '([^']+)'`).FindStringSubmatch(text)
	if parts == nil {
		t.Fatalf("no line for a withdrawal in\n%s", text)
	}
	token, err := os.ReadFile(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, parts[1], strings.NewReader(parts[5]))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + string(token)}, "Idempotency-Key": {parts[3]}, "Prefer": {parts[4]}, "Content-Type": {"application/json"}}
	response, err := (&http.Client{}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func pay(t *testing.T, s *services) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(s.dir, "bank.token"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"amount":"1.00","currency":"GBP","beneficiary":{"name":"A N Example","sort_code":"200000","account_number":"55779911"},"reference":"x","end_to_end_id":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.bank.URL+"/v1/transfers", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + string(token)}, "Idempotency-Key": {"0b9e5a0e-0000-8000-8000-000000000001"}, "Content-Type": {"application/json"}}
	response, err := (&http.Client{}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("status %d, %v", response.StatusCode, err)
	}
}

func TestRun_StopsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, log bytes.Buffer
	err := run(ctx, []string{"--once"}, &out, &log)
	if code := exitCode(err, &log); code != 130 {
		t.Errorf("exit code %d of %v", code, err)
	}
}

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {pflag.ErrHelp, 0}, {errNotHeld, 1}, {errors.New("x"), 1},
		{fmt.Errorf("%w: x", errUsage), 2}, {fmt.Errorf("x: %w", context.Canceled), 130},
	} {
		if code := exitCode(test.err, new(bytes.Buffer)); code != test.code {
			t.Errorf("%v: %d, want %d", test.err, code, test.code)
		}
	}
}

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(nil, new(bytes.Buffer))
	if err != nil || o.once || o.jobs != 1000 || o.kills != 2 || o.wait != 200*time.Second {
		t.Errorf("defaults %+v, %v", o, err)
	}
	for _, args := range [][]string{{"x"}, {"--jobs", "0"}, {"--kills", "-1"}, {"--nonsense"}} {
		if _, err := parseOptions(args, new(bytes.Buffer)); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestKillPlan_SpreadOverTheRun(t *testing.T) {
	p := newKillPlan(options{jobs: 1000, kills: 50, seed: 3})
	if len(p.at) != 50 || !slices.IsSorted(p.at) || p.at[49] >= 850 {
		t.Fatalf("plan %v", p.at)
	}
	p.at = []int{5, 7}
	if p.due(4) || !p.due(9) || p.empty() || !p.due(9) || !p.empty() || p.due(9) {
		t.Error("each kill is due once, when its place is reached")
	}
}

// TestProgress_OneRow: on a terminal the line that changes never goes on in a second row, of which nothing could be taken back; elsewhere it has no codes.
func TestProgress_OneRow(t *testing.T) {
	for terminal, want := range map[bool][2]string{true: {"\r\x1b[K\x1b[?7l   0.0s  published 0/0", " times\x1b[?7h"}, false: {"   0.0s  published 0/0", " times\n"}} {
		var out bytes.Buffer
		p := &progress{out: &out, terminal: terminal, began: time.Now()}
		p.published(0)
		if got := out.String(); !strings.HasPrefix(got, want[0]) || !strings.HasSuffix(got, want[1]) {
			t.Errorf("terminal %t: %q", terminal, got)
		}
	}
}
