package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/worker/job"
)

const sourceToken = "canary-token-of-the-source"

// openDoor gives the installation a gateway address and its source a token.
func (i *installation) openDoor() (url string) {
	i.t.Helper()
	address := freeAddress(i.t)
	text, err := os.ReadFile(i.config)
	if err != nil {
		i.t.Fatal(err)
	}
	token := i.write(filepath.Dir(i.config), "source", sourceToken+"\n")
	changed := strings.Replace(string(text), "wallet: { routes: [gbp-fps] }", fmt.Sprintf("wallet: { routes: [gbp-fps], token_file: %q }", token), 1)
	i.write(filepath.Dir(i.config), "paidonce.yaml", changed+fmt.Sprintf("gateway: { listen: %q }\n", address))
	return "http://" + address
}

// process runs a command until the returned function is called, which gives its exit code.
func (i *installation) process(args ...string) (stop func() cli.Code) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan cli.Code, 1)
	log := &lockedBuffer{}
	go func() {
		ended <- run(ctx, world{
			args: args, stdin: strings.NewReader(""), stdout: io.Discard, stderr: log,
			lookup: func(name string) (string, bool) { return i.config, name == "PAIDONCE_CONFIG" },
		})
	}()
	return sync.OnceValue(func() cli.Code {
		cancel()
		code := <-ended
		i.mu.Lock()
		defer i.mu.Unlock()
		i.said.WriteString(log.String())
		return code
	})
}

func submit(url, key string) (int, string) {
	request, err := http.NewRequest("POST", url+"/v1/withdrawals", strings.NewReader(`{"route":"gbp-fps","debtor_account":"`+canaryAccount+
		`","amount":"49.00","currency":"GBP","beneficiary":{"name":"`+canaryName+`","iban":"`+canaryIBAN+`"},"reference":"`+canaryReference+`"}`))
	if err != nil {
		return 0, err.Error()
	}
	request.Header = http.Header{"Authorization": {"Bearer " + sourceToken}, "Idempotency-Key": {key}, "Prefer": {"wait=20"}}
	response, err := (&http.Client{}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// TestGateway_OneWithdrawalFromDoorToEvents, through `run --with worker,gateway` and through two processes.
func TestGateway_OneWithdrawalFromDoorToEvents(t *testing.T) {
	i := install(t)
	url := i.openDoor()
	i.ok("", "migrate", "up", "--database-url", passwordless(i, i.databases.Owner), "--set", "database.password_file="+i.write(t.TempDir(), "password", i.password()))
	if got := i.run("", "events", "tail", "--all", "--follow=false"); got.code != cli.OK || got.out != "" {
		t.Errorf("no events yet: %d %q %q", got.code, got.out, got.errors)
	}
	for n, processes := range [][][]string{
		{{"run", "--with", "worker,gateway"}},
		{{"gateway", "--set", "health.listen="}, {"worker"}},
	} {
		var stops []func() cli.Code
		for _, args := range processes {
			stops = append(stops, i.process(args...))
		}
		key := job.NewKey().String()
		var status int
		var text string
		until(t, "authorized", func() bool {
			status, text = submit(url, key)
			return status == http.StatusCreated || status == http.StatusOK
		})
		if !strings.Contains(text, `"state":"authorized"`) || !strings.Contains(text, key) {
			t.Errorf("%d %s", status, text)
		}
		shown := i.ok("", "events", "tail", "--all", "--count", fmt.Sprint(2*(n+1)))
		if strings.Count(shown, `"type":"accepted"`) != n+1 || strings.Count(shown, `"type":"authorized"`) != n+1 ||
			strings.Index(shown, key+".accepted") > strings.Index(shown, key+".authorized") {
			t.Errorf("events:\n%s", shown)
		}
		if n == 0 {
			if _, metrics := i.get("/metrics"); !strings.Contains(metrics, "paidonce_gateway_requests_total") || !strings.Contains(metrics, "paidonce_operations_total") {
				t.Error("one process does not show the numbers of both")
			}
		}
		for _, stop := range stops {
			if code := stop(); code != cli.OK {
				t.Errorf("a process ended with %d\n%s", code, i.said.String())
			}
		}
	}
	if got := i.ok("", "events", "tail", "--since", "1h", "--type", "rejected", "--follow=false"); got != "" {
		t.Errorf("rejected: %q", got)
	}
	for _, args := range [][]string{{"--route", "a.b"}, {"--all", "--since", "1h"}, {"--count", "-1"}} {
		if got := i.run("", append([]string{"events", "tail"}, args...)...); got.code != cli.Usage {
			t.Errorf("%v: code %d", args, got.code)
		}
	}
	for _, canary := range append(i.canaries(), sourceToken) {
		if strings.Contains(i.said.String(), canary) {
			t.Errorf("something shows %q", canary)
		}
	}
}
