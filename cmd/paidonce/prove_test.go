package main

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/cmd/internal/prove"
	"github.com/paidonce/paidonce/integration/stack"
)

func (i *installation) proved(args ...string) (prove.Report, said) {
	i.t.Helper()
	got := i.run("", append([]string{"prove", "-o", "json"}, args...)...)
	var report prove.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		i.t.Fatalf("%v: %+v", err, got)
	}
	return report, got
}

func TestProveCommand(t *testing.T) {
	i := install(t)
	if got := i.run("", "prove"); got.code != cli.Usage || !strings.Contains(got.errors, "migrate up") {
		t.Errorf("before migrating: %+v", got)
	}
	i.migrate()
	stop := i.work()
	defer func() { _ = stop() }()
	i.enqueueJourney()
	stack.Eventually(t, "published", func() bool {
		report, _ := i.proved("--patience", "0s")
		return report.Authorized == 1 && report.OutboxPending == 0
	})
	report, got := i.proved()
	if got.code != cli.OK || strings.Contains(got.errors, "paidonce:") || !report.Held || report.Keys != 1 || report.Transfers != 1 {
		t.Errorf("a good run: %+v", got)
	}
	for _, member := range []string{
		"keys", "authorized", "rejected", "cancelled", "parked", "open", "dead", "twice", "lost", "orphans_ours", "orphans_theirs", "mismatched",
		"unbalanced", "outbox_pending", "checked_at", // programs rely on these names
	} {
		if !strings.Contains(got.out, `"`+member+`"`) {
			t.Errorf("-o json lacks %s: %s", member, got.out)
		}
	}
	if out := i.ok("", "prove", "--since", "1h", "--partner", "northbank"); !regexp.MustCompile(`(?m)^held +true$`).MatchString(out) || !regexp.MustCompile(`(?m)^authorized +1$`).MatchString(out) {
		t.Errorf("table: %q", out)
	}
	i.payAgain()
	if report, got = i.proved(); got.code != cli.Failure || report.Held || report.Twice != 1 || report.Findings[0].Key != journeyKey {
		t.Errorf("paid twice: %+v", got)
	}
	got = i.run("", "prove")
	for _, want := range []string{"paidonce: not proved: 1 faults\n  twice: " + journeyKey, "\n    pause the partner"} {
		if got.code != cli.Failure || !strings.Contains(got.errors, want) || !strings.Contains(got.out, "KIND") {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
	i.showsNoCanary()
}

// payAgain makes the bank execute the key of the journey once more, as if it had forgotten it.
func (i *installation) payAgain() {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), i.databases.Superuser)
	if err != nil {
		i.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var partnerKey, endToEnd string
	if err := conn.QueryRow(i.t.Context(), "SELECT partner_key, end_to_end_id FROM attempts").Scan(&partnerKey, &endToEnd); err != nil {
		i.t.Fatal(err)
	}
	i.bank.Forget(partnerKey)
	request, err := http.NewRequestWithContext(i.t.Context(), http.MethodPost, i.bank.URL+"/v1/transfers", strings.NewReader(
		`{"amount":"49.00","currency":"GBP","beneficiary":{"name":"x"},"reference":"y","end_to_end_id":"`+endToEnd+`"}`))
	if err != nil {
		i.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer any")
	request.Header.Set("Idempotency-Key", partnerKey)
	response, err := (&http.Client{Timeout: time.Minute}).Do(request)
	if err != nil || response.StatusCode != http.StatusCreated {
		i.t.Fatalf("%v, %+v", err, response)
	}
	_ = response.Body.Close()
}

func TestProveUsage(t *testing.T) {
	for _, args := range [][]string{{"--since", "yesterday"}, {"--since", "-1h"}, {"--findings", "0"}, {"--patience", "-1s"}, {"extra"}} {
		if got := command(t, "", nil, append([]string{"prove"}, args...)...); got.code != cli.Usage || got.out != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// What prove needs of a partner is what a partner is.
var _ prove.Bank = paced{(*bankclient.Partner)(nil)}
