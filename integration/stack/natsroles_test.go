package stack

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	roles "github.com/paidonce/paidonce/deploy/nats"
)

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNATSRoles_AreTheFilesOfDeploy: nothing but the keys and the witness is added.
func TestNATSRoles_AreTheFilesOfDeploy(t *testing.T) {
	dir := t.TempDir()
	if _, err := MakeNATSRoles(dir, nil); err != nil {
		t.Fatal(err)
	}
	if readFile(t, dir, "roles.conf") != readFile(t, "../../deploy/nats", "roles.conf") {
		t.Error("the roles are not those of deploy/nats")
	}
	accounts := regexp.MustCompile(`(?m)^ +\{ user: witness, password: "[A-Z2-7]{26}" \}\n`).ReplaceAllString(readFile(t, dir, "accounts.conf"), "")
	if accounts != readFile(t, "../../deploy/nats", "accounts.conf") {
		t.Errorf("the users are not those of deploy/nats:\n%s", accounts)
	}
	keys := regexp.MustCompile(`"U[A-Z2-7]{55}"`).ReplaceAllString(readFile(t, dir, "nkeys.conf"), "KEY")
	if want := regexp.MustCompile(`"U[A-Z]+"`).ReplaceAllString(roles.Keys, "KEY"); keys != want {
		t.Errorf("keys\n%s\nwant\n%s", keys, want)
	}
}

func TestNATSRoles_BindOnAServer(t *testing.T) {
	r, err := MakeNATSRoles(t.TempDir(), map[string][]string{"wallet": {"gbp-fps", "eur-sct"}, "pay-out": {"gbp-fps"}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := StartNATSProcess(NATSOptions{ConfigFile: r.ConfigFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	if nc, err := nats.Connect(server.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("one without a key: %v", err)
		nc.Close()
	}
	url, err := r.Witness(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	publish(t, url)

	for _, c := range []struct {
		seed, inbox, subject string
		allowed              bool
	}{
		{r.Publishers["wallet"], "_INBOX_publisher.wallet", "withdrawals.jobs.gbp-fps.wallet", true},
		{r.Publishers["wallet"], "_INBOX_publisher.wallet", "withdrawals.jobs.eur-sct.wallet", true},
		{r.Publishers["wallet"], "_INBOX_publisher.wallet", "withdrawals.jobs.gbp-fps.pay-out", false},
		{r.Publishers["pay-out"], "_INBOX_publisher.pay-out", "withdrawals.jobs.gbp-fps.pay-out", true},
		{r.Publishers["pay-out"], "_INBOX_publisher.wallet", "withdrawals.jobs.gbp-fps.pay-out", false}, // another's inbox
		{r.Publishers["pay-out"], "_INBOX_publisher.pay-out", "withdrawals.jobs.eur-sct.pay-out", false},
		{r.Gateway, "_INBOX_gateway", "withdrawals.jobs.eur-sct.pay-out", true},
		{r.Worker, "_INBOX_worker", "withdrawals.events.gbp-fps.wallet.authorized", true},
		{r.Worker, "_INBOX_worker", "$JS.API.STREAM.CREATE.WITHDRAWALS", false},
		{r.Operator, "_INBOX_operator", "$JS.API.STREAM.PURGE.WITHDRAWALS", true},
		{r.Operator, "_INBOX_operator", "s", false},
		{r.Provisioner, "_INBOX_provisioner", "$JS.API.STREAM.CREATE.WITHDRAWALS", true},
		{r.Provisioner, "_INBOX_provisioner", "withdrawals.jobs.gbp-fps.wallet", false},
	} {
		if err := askAs(t, server.URL(), c.seed, c.inbox, c.subject); (err == nil) != c.allowed {
			t.Errorf("%s with inbox %s, publish to %s: %v", filepath.Base(c.seed), c.inbox, c.subject, err)
		}
	}
}

// askAs publishes with an inbox for the answer, and gives the server's denial of either.
func askAs(t *testing.T, url, seed, inbox, subject string) error {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, key, nats.CustomInboxPrefix(inbox))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.SubscribeSync(nc.NewInbox()); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish(subject, nil); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := nc.LastError(); err != nil && strings.Contains(err.Error(), "ermission") { // the server denies before it answers the flush
		return err
	}
	return nil
}
