package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/job"
)

const sourceToken = "canary-token-of-the-source"

// openDoor gives the installation a gateway address and its source a token.
func (i *installation) openDoor() (url string) {
	i.t.Helper()
	address := stack.FreeAddress(i.t)
	text, err := os.ReadFile(i.config)
	if err != nil {
		i.t.Fatal(err)
	}
	token := i.write(filepath.Dir(i.config), "source", sourceToken+"\n")
	changed := strings.Replace(string(text), "wallet: { routes: [gbp-fps] }", fmt.Sprintf("wallet: { routes: [gbp-fps], token_file: %q }", token), 1)
	i.write(filepath.Dir(i.config), "paidonce.yaml", changed+fmt.Sprintf("gateway: { listen: %q }\n", address))
	return "http://" + address
}

func submit(url, key string) (int, string) {
	request, err := http.NewRequest("POST", url+"/v1/withdrawals", strings.NewReader(`{"route":"gbp-fps","debtor_account":"`+canaryAccount+
		`","amount":"49.00","currency":"GBP","beneficiary":{"name":"`+canaryName+`","iban":"`+canaryIBAN+`"},"reference":"`+canaryReference+`"}`))
	if err != nil {
		return 0, err.Error()
	}
	request.Header = http.Header{"Authorization": {"Bearer " + sourceToken}, "Idempotency-Key": {key}, "Prefer": {"wait=20"}}
	return readAnswer((&http.Client{}).Do(request))
}

// TestGateway_SaysWhatIsMissing, all of it at once, before it connects to anything, and never a token.
func TestGateway_SaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good": sourceToken + "\n", "short": "tiny-canary\n", "empty": "# none\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := func(database, wallet, casino string) string {
		file := filepath.Join(t.TempDir(), "paidonce.yaml")
		text := fmt.Sprintf(`
database: { url: %q }
partners: { northbank: { adapter: reference, base_url: "http://127.0.0.1:1", credential_id: c1, token_file: /nowhere } }
routes: { gbp-fps: { partner: northbank, currencies: [GBP] } }
sources: { wallet: { routes: [gbp-fps]%s }, casino: { routes: [gbp-fps]%s } }
`, database, wallet, casino)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	token := func(name string) string { return fmt.Sprintf(", token_file: %q", filepath.Join(dir, name)) }
	const database = "postgres://paidonce@127.0.0.1:1/paidonce"
	for name, c := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"nothing is set": {"", nil, []string{"3 problems", "database.url: is missing", "routes: a gateway needs at least one", "sources: a gateway needs at least one"}},
		"no tokens, no database, no address": {settings("", "", token("gone")), []string{"--set", "gateway.listen="}, []string{"4 problems", "database.url: is missing",
			"gateway.listen: is missing", "sources.wallet.token_file: is missing: the gateway knows the source by its token", "sources.casino.token_file: open secret: "}},
		"a file without a token": {settings(database, token("good"), token("empty")), nil, []string{"1 problem", "sources.casino.token_file: ", "is empty"}},
		"a short token":          {settings(database, token("good"), token("short")), nil, []string{"1 problem", "source casino: a token is shorter than 16 characters"}},
		"one token for two":      {settings(database, token("good"), token("good")), nil, []string{"1 problem", "sources casino and wallet have the same token"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.file != "" {
				c.args = append(c.args, "--config", c.file)
			}
			got := command(t, "", nil, append([]string{"gateway"}, c.args...)...)
			if got.code != cli.Usage || got.out != "" {
				t.Errorf("code %d, out %q", got.code, got.out)
			}
			for _, want := range c.want {
				if !strings.Contains(got.errors, want) {
					t.Errorf("%q is missing in\n%s", want, got.errors)
				}
			}
			if strings.Contains(got.errors, "canary") {
				t.Errorf("it shows a token: %s", got.errors)
			}
		})
	}
}

// TestGateway_OneWithdrawalFromDoorToEvents, through `run --with worker,gateway` and through two processes.
func TestGateway_OneWithdrawalFromDoorToEvents(t *testing.T) {
	i := install(t)
	url := i.openDoor()
	i.migrate()
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
		stack.Eventually(t, "authorized", func() bool {
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
	i.lacksNoRight()
	i.showsNoCanary(sourceToken)
}
