package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/integration/stack/bank"
)

// Everything that no output may show without --reveal.
const (
	canaryAccount   = "cust-canary-4471"
	canaryName      = "Canary Beneficiary"
	canaryIBAN      = "GB33BUKB20201555555555"
	canaryReference = "Canary reference"
	canaryToken     = "canary-token-for-the-bank"
)

func (i *installation) canaries() []string {
	return []string{canaryAccount, canaryName, canaryIBAN, canaryReference, canaryToken, i.password()}
}

// installation is real services, a configuration, and what all commands on it have said.
type installation struct {
	t         *testing.T
	nats      *stack.NATS
	roles     stack.NATSRoles
	bank      *bank.Bank
	databases stack.DatabaseURLs
	config    string
	health    string
	people    string // folder of the operators' tokens

	mu   sync.Mutex
	said strings.Builder
}

func install(t *testing.T) *installation {
	t.Helper()
	t.Parallel()
	roles, err := stack.MakeNATSRoles(t.TempDir(), nil) // wallet on gbp-fps, as the files have it
	if err != nil {
		t.Fatal(err)
	}
	server := stack.Broker(t, stack.NATSOptions{Dir: t.TempDir(), ConfigFile: roles.ConfigFile})
	simulator := bank.Calm(t)
	i := &installation{t: t, nats: server, roles: roles, bank: simulator, databases: stack.Databases(t), health: stack.FreeAddress(t)}
	dir := t.TempDir()
	i.write(dir, "token", canaryToken+"\n")
	i.config = i.write(dir, "paidonce.yaml", fmt.Sprintf(`
nats: { url: %q, replicas: 1, nkey_seed_file: %q, operator_nkey_seed_file: %q, gateway_nkey_seed_file: %q }
database: { url: %q, max_conns: 4, accept_loss: true }
worker: { in_flight: 64 }
partners:
  northbank:
    { adapter: reference, base_url: %q, credential_id: "2026-11", token_file: %q, timeout: 5s, max_in_flight: 32, echoes_key: true }
routes:
  gbp-fps: { partner: northbank, currencies: [GBP], max_amount: "250000.00" }
sources:
  wallet: { routes: [gbp-fps] }
health: { listen: %q }
operator: { batch_limit: 2 }
`, server.URL(), roles.Worker, roles.Operator, roles.Gateway, i.databases.Worker, simulator.URL, filepath.Join(dir, "token"), i.health))
	return i
}

func (i *installation) write(dir, name, text string) string {
	i.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

// run runs one command line and keeps what it said.
func (i *installation) run(stdin string, args ...string) said {
	i.t.Helper()
	return i.keep(command(i.t, stdin, map[string]string{"PAIDONCE_CONFIG": i.config, "USER": "tester"}, args...))
}

func (i *installation) keep(got said) said {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.said.WriteString(got.out + got.errors)
	return got
}

// inNameOf is the environment of an operator's command on a database; "" = nobody.
func (i *installation) inNameOf(name, databaseURL string) map[string]string {
	env := map[string]string{"PAIDONCE_CONFIG": i.config, "PAIDONCE_DATABASE_URL": databaseURL}
	if name != "" {
		env["PAIDONCE_OPERATOR_TOKEN_FILE"] = filepath.Join(i.people, name)
	}
	return env
}

// as runs a command at the desk, in the name of an operator; "" = the owner of the database.
func (i *installation) as(name string, args ...string) said {
	i.t.Helper()
	database := i.databases.Desk
	if name == "" {
		database = i.databases.Owner
	}
	return i.keep(command(i.t, "", i.inNameOf(name, database), args...))
}

// okAs is as for a command that must succeed.
func (i *installation) okAs(name string, args ...string) string {
	i.t.Helper()
	got := i.as(name, args...)
	if got.code != cli.OK {
		i.t.Fatalf("%s: paidonce %s: code %d\n%s%s", name, strings.Join(args, " "), got.code, got.out, got.errors)
	}
	return got.out
}

// hire makes people of every role: ada and abel may approve, olga and oscar ask, vera looks, and adam is the admin.
func (i *installation) hire() {
	i.t.Helper()
	i.people = i.t.TempDir()
	for _, p := range [][3]string{
		{"", "adam", "admin"}, {"", "ada", "approver"}, {"adam", "abel", "approver"}, {"adam", "olga", "operator"}, {"adam", "oscar", "operator"}, {"adam", "vera", "viewer"},
	} {
		args := []string{"operators", "add", p[1], "--role", p[2], "--token-out", filepath.Join(i.people, p[1]), "--reason", "joins", "-o", "json"}
		got := i.as(p[0], args...)
		if got.code == cli.Waiting {
			i.approve("ada", got)
			got = i.as(p[0], args...)
		}
		if got.code != cli.OK {
			i.t.Fatalf("add %s: %+v", p[1], got)
		}
	}
}

// approve agrees to the proposal that a command waits for.
func (i *installation) approve(name string, waiting said) {
	i.t.Helper()
	found := regexp.MustCompile(`"proposal": "([0-9a-f-]{36})"`).FindStringSubmatch(waiting.out)
	if waiting.code != cli.Waiting || found == nil {
		i.t.Fatalf("no proposal: %+v", waiting)
	}
	i.okAs(name, "proposals", "approve", found[1], "--reason", "looked at it")
}

// ok runs a command that must succeed.
func (i *installation) ok(stdin string, args ...string) string {
	i.t.Helper()
	got := i.run(stdin, args...)
	if got.code != cli.OK {
		i.t.Fatalf("paidonce %s: code %d\n%s%s", strings.Join(args, " "), got.code, got.out, got.errors)
	}
	return got.out
}

// work is process for `paidonce worker`, once it is ready.
func (i *installation) work() (stop func() cli.Code) {
	i.t.Helper()
	stop = i.process("worker")
	stack.Eventually(i.t, "ready", func() bool { code, _ := i.get("/readyz"); return code == http.StatusOK })
	return stop
}

// process runs a command until the returned function is called, which gives its exit code.
func (i *installation) process(args ...string) (stop func() cli.Code) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan cli.Code, 1)
	log := &stack.Log{}
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

// get reads a page of the health server.
func (i *installation) get(path string) (int, string) {
	return readAnswer(http.Get("http://" + i.health + path))
}

// readAnswer gives the status and the text of an answer; of one that did not come, 0 and the error.
func readAnswer(response *http.Response, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// volatile is what differs from run to run.
func volatile(text string, more ...string) string {
	for k := 0; k < len(more); k += 2 {
		text = strings.ReplaceAll(text, more[k], more[k+1])
	}
	for _, one := range []struct{ pattern, name string }{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`tr_[0-9A-Za-z_-]+`, "TRANSFER"},
		{`, \d+ ms\)`, ")"}, // told only where it was one at least
		{`[\d.]+m?s after its attempt`, "WHILE after its attempt"},
		{`delivered, and (acknowledged|it or one before it is not acknowledged yet)`, "delivered, and ACKNOWLEDGED"}, // which comes after the record
		{`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`[0-9a-f]{64}`, "SHA256"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`, "PARTNER-KEY"},
		{`[A-Z2-7]{26}`, "END-TO-END-ID"},
		{`(?s)"evidence": \{[^}]*\}`, `"evidence": {}`}, // bankclient's, and tested there
		{` \{"[^}]*\}`, " EVIDENCE"},
		{` {2,}`, "  "},
		{` +\n`, "\n"},
	} {
		text = regexp.MustCompile(one.pattern).ReplaceAllString(text, one.name)
	}
	return text
}

// golden compares with a file under testdata; PAIDONCE_GOLDEN=write writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("PAIDONCE_GOLDEN") == "write" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

const journeyKey = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"

func (i *installation) enqueueJourney(args ...string) said {
	i.t.Helper()
	return i.run("", append([]string{
		"enqueue", "--set", "nats.nkey_seed_file=" + i.roles.Publishers["wallet"], "--source", "wallet", "--route", "gbp-fps", "--key", journeyKey, "--debtor-account", canaryAccount,
		"--amount", "49.00", "--currency", "GBP", "--name", canaryName, "--iban", canaryIBAN, "--reference", canaryReference, "-o", "json",
	}, args...)...)
}

// TestMigrateStatus_UnderTheWorkersSeedSaysWhatIsWrong, instead of waiting for an answer that does not come.
func TestMigrateStatus_UnderTheWorkersSeedSaysWhatIsWrong(t *testing.T) {
	i := install(t)
	i.migrate()
	began := time.Now()
	got := i.run("", "migrate", "status") // the settings hold the worker's
	took := time.Since(began)
	if got.code != cli.NotAllowed || !strings.Contains(got.errors, "Permissions Violation") || !strings.Contains(got.errors, "role provisioner") {
		t.Errorf("after %s: %+v", took, got)
	}
	if took > 25*time.Second { // it would wait for half a minute
		t.Errorf("it took %s", took)
	}
}

// TestEnqueue_RouteThatIsNotThere: a publisher's settings name no routes, so only the broker knows; it is told as it is, without waiting.
func TestEnqueue_RouteThatIsNotThere(t *testing.T) {
	i := install(t)
	i.migrate()
	wallet := i.write(t.TempDir(), "wallet.yaml", fmt.Sprintf("nats: { url: %q, nkey_seed_file: %q }\n", i.nats.URL(), i.roles.Publishers["wallet"]))
	got := i.enqueueJourney("--route", "nosuch", "--config", wallet)
	wantCode(t, got, cli.NotAllowed, "this user may not publish to withdrawals.jobs.nosuch.wallet: there is no such route for source wallet")
}

func TestJourneyOfOneJobThroughEveryCommand(t *testing.T) {
	i := install(t)
	if out := i.ok("", "config", "check"); out != "" {
		t.Errorf("a good configuration has no problems: %q", out)
	}
	i.migrateAndBreak()
	i.hire()
	stop := i.work()
	defer func() { _ = stop() }()

	i.enqueueAndWait()
	i.checkEvent()
	i.compareOperation()
	i.compareDead()
	i.compareOthers()
	i.checkHealth()
	if code := stop(); code != cli.OK {
		t.Errorf("the worker ends with code %d", code)
	}
	i.lacksNoRight()
	i.showsNoCanary()
}

// lacksNoRight looks for a refusal of the broker in all that was said.
func (i *installation) lacksNoRight() {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if found := linesWith(i.said.String(), "ermissions Violation"); found != "" {
		i.t.Errorf("a role lacks a right that its process needs, or a process speaks under another's:\n%s", found)
	}
}

// showsNoCanary looks for the canaries, and for more, in all that was said.
func (i *installation) showsNoCanary(more ...string) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, canary := range append(i.canaries(), more...) {
		if shown := linesWith(i.said.String(), canary); shown != "" {
			i.t.Errorf("some output shows %q:\n%s", canary, shown)
		}
	}
}

// linesWith gives the lines that show the canary.
func linesWith(text, canary string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, canary) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// migrate runs `paidonce migrate up` under the owner of the database and the provisioner of the broker.
func (i *installation) migrate(args ...string) string {
	i.t.Helper()
	return i.ok("", append([]string{"migrate", "up", "--database-url", passwordless(i, i.databases.Owner), "--set", "nats.nkey_seed_file=" + i.roles.Provisioner,
		"--set", "database.password_file=" + i.write(i.t.TempDir(), "password", i.password())}, args...)...)
}

// witness is the broker as one sees it who may see everything.
func (i *installation) witness() jetstream.JetStream {
	i.t.Helper()
	url, err := i.roles.Witness(i.nats.URL())
	if err != nil {
		i.t.Fatal(err)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		i.t.Fatal(err)
	}
	return js
}

// migrateAndBreak provisions, and shows what doctor says before and after.
func (i *installation) migrateAndBreak() {
	i.t.Helper()
	before := i.run("", "doctor", "-o", "json")
	if before.code != cli.Failure || !strings.Contains(before.out, `"check": "stream WITHDRAWALS"`) {
		i.t.Errorf("doctor before provisioning: code %d\n%s%s", before.code, before.out, before.errors)
	}
	if got := i.run("", "worker"); got.code != cli.Usage || !strings.Contains(got.errors, "run `paidonce migrate up`") {
		i.t.Errorf("a worker without provisioned consumers: code %d\n%s", got.code, got.errors)
	}
	out := i.migrate("-o", "json")
	if !strings.Contains(out, "consumer route_gbp-fps") {
		i.t.Errorf("migrate up: %s", out)
	}
	if out := i.ok("", "migrate", "status", "-o", "jsonl", "--set", "nats.nkey_seed_file="+i.roles.Provisioner); strings.Contains(out, "missing") || strings.Contains(out, "differs") {
		i.t.Errorf("migrate status after up: %s", out)
	}
	got := i.run("", "doctor", "--probe", "-o", "jsonl")
	for line := range strings.Lines(got.out) {
		var row findingRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			i.t.Fatal(err)
		}
		// The tests' Postgres runs without fsync, which doctor must say.
		if wanted := row.Check == "fsync"; (row.Result == resultFail) != wanted && row.Check != "full_page_writes" && row.Check != "synchronous_commit" {
			i.t.Errorf("doctor: %+v", row)
		}
		if row.Result != resultOK && row.Advice == "" {
			i.t.Errorf("doctor gives no advice: %+v", row)
		}
	}
	has(i.t, i.run("", "doctor", "-o", "csv").out, "broker,janitor,ok,")
	has(i.t, i.run("", "doctor", "-o", "csv", "--set", "nats.operator_nkey_seed_file=").out, "broker,janitor,warn,in at least one worker,in no worker with these settings,")
}

// passwordless takes the password out of a URL.
func passwordless(i *installation, address string) string {
	i.t.Helper()
	head, rest, ok := strings.Cut(address, "://")
	user, host, ok2 := strings.Cut(rest, "@")
	name, _, ok3 := strings.Cut(user, ":")
	if !ok || !ok2 || !ok3 {
		i.t.Fatal("the database's URL has no password")
	}
	return head + "://" + name + "@" + host
}

// password is that of every role in the tests' database.
func (i *installation) password() string {
	i.t.Helper()
	_, rest, _ := strings.Cut(i.databases.Owner, "://")
	user, _, _ := strings.Cut(rest, "@")
	_, password, _ := strings.Cut(user, ":")
	if len(password) < 8 {
		i.t.Fatal("the password is too short to look for")
	}
	return password
}

func (i *installation) enqueueAndWait() {
	i.t.Helper()
	dry := i.enqueueJourney("--dry-run")
	if dry.code != cli.OK || !strings.Contains(dry.out, `"published": false`) || dry.errors != "key "+journeyKey+"\n" {
		i.t.Errorf("dry run: %+v", dry)
	}
	if got := i.run("", "ops", "show", journeyKey); got.code != cli.NotFound || got.out != "" {
		i.t.Errorf("before it is published: %+v", got)
	}
	first, second := i.enqueueJourney(), i.enqueueJourney()
	if !strings.Contains(first.out, `"duplicate": false`) || !strings.Contains(second.out, `"duplicate": true`) {
		i.t.Errorf("first %s, again %s", first.out, second.out)
	}
	stack.Eventually(i.t, "authorized", func() bool {
		return strings.Contains(i.run("", "ops", "show", journeyKey, "-o", "json").out, `"state": "authorized"`)
	})
	if executions := i.bank.Summary(); executions.Executions != 1 {
		i.t.Errorf("the bank executed %d times", executions.Executions)
	}
}

func (i *installation) compareOperation() {
	t := i.t
	golden(t, "ops_show.json", volatile(i.ok("", "ops", "show", journeyKey, "-o", "json")))
	golden(t, "ops_show.txt", volatile(i.ok("", "ops", "show", journeyKey)))
	golden(t, "ops_list.csv", volatile(i.ok("", "ops", "list", "--state", "authorized", "-o", "csv")))
	golden(t, "ops_explain.txt", volatile(i.ok("", "ops", "explain", journeyKey)))
	golden(t, "ops_explain.json", volatile(i.ok("", "ops", "explain", journeyKey, "-o", "json")))
	i.reveals("ops", "show", journeyKey, "--reveal", "--reason", "ticket 4711", "-o", "json")
	i.reveals("ops", "explain", journeyKey, "--reveal", "--reason", "ticket 4711", "-o", "json")
	i.reveals("ops", "list", "--reveal", "--reason", "ticket 4711", "-o", "json")
}

// reveals runs a command that shows the canary account, and looks for its line in the audit log.
func (i *installation) reveals(args ...string) {
	t := i.t
	t.Helper()
	if got := command(t, "", i.inNameOf("", i.databases.Desk), args...); got.code != cli.NotAllowed || strings.Contains(got.out+got.errors, canaryAccount) {
		t.Errorf("%v by nobody: %+v", args, got)
	}
	lines := strings.Count(i.okAs("ada", "audit", "list", "--act", "reveal", "-o", "jsonl"), "\n")
	if got := command(t, "", i.inNameOf("olga", i.databases.Desk), args...); got.code != cli.OK || !strings.Contains(got.out, canaryAccount) { // not kept: it shows the canary
		t.Errorf("%v: %+v", args, got)
	}
	if now := strings.Count(i.okAs("ada", "audit", "list", "--act", "reveal", "-o", "jsonl"), "\n"); now != lines+1 {
		t.Errorf("%v: %d lines of the audit log, want %d", args, now, lines+1)
	}
}

// compareDead publishes what is no job, twice the same, and looks at it twice.
func (i *installation) compareDead() {
	t := i.t
	js := i.witness()
	bad := `{"v":1,"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12","debtor_account":"` + canaryAccount + `","amount":"49.0"}`
	if _, err := js.Publish(t.Context(), "withdrawals.jobs.gbp-fps.wallet", []byte(bad)); err != nil {
		t.Fatal(err)
	}
	stack.Eventually(t, "dead letter", func() bool { return strings.Contains(i.run("", "dead", "list", "-o", "jsonl").out, `"sequence":1`) })
	first, second := i.ok("", "dead", "list", "-o", "json"), i.ok("", "dead", "list", "-o", "json")
	if first != second {
		t.Errorf("listing twice differs:\n%s\n%s", first, second)
	}
	golden(t, "dead_list.json", volatile(first))
	golden(t, "dead_show.txt", volatile(i.ok("", "dead", "show", "1")))
	if got := i.run("", "dead", "show", "99"); got.code != cli.NotFound {
		t.Errorf("dead show 99: %+v", got)
	}
	i.reveals("dead", "show", "1", "--reveal", "--reason", "ticket 4711", "-o", "json")
}

func (i *installation) compareOthers() {
	t := i.t
	golden(t, "partners.txt", volatile(i.ok("", "partners")))
	golden(t, "partners_one.txt", volatile(i.ok("", "partners", "northbank")))
	if got := i.run("", "partners", "southbank"); got.code != cli.NotFound {
		t.Errorf("partners southbank: %+v", got)
	}
	i.okAs("olga", "pause", "route", "gbp-fps", "--reason", "test")
	golden(t, "pause.txt", volatile(i.ok("", "pause")))
	i.okAs("olga", "resume", "route", "gbp-fps", "--reason", "test over")
	if got := i.as("olga", "pause", "route", "gbp-fsp", "--reason", "test"); got.code != cli.NotFound {
		t.Errorf("pause of an unknown route: %+v", got)
	}
	if out := i.ok("", "recover", "--dry-run", "-o", "json"); !strings.Contains(out, `"dry_run": true`) {
		t.Errorf("recover --dry-run: %s", out)
	}
}

// checkEvent reads the event that the relay published, against what subscribers were promised.
func (i *installation) checkEvent() {
	t := i.t
	js := i.witness()
	var event map[string]any
	stack.Eventually(t, "event", func() bool {
		stream, err := js.Stream(t.Context(), "WITHDRAWAL_EVENTS")
		if err != nil {
			return false
		}
		msg, err := stream.GetLastMsgForSubject(t.Context(), "withdrawals.events.gbp-fps.wallet.authorized")
		return err == nil && json.Unmarshal(msg.Data, &event) == nil
	})
	want := map[string]string{"type": "authorized", "key": journeyKey, "amount": "49.00", "currency": "GBP", "partner": "northbank"}
	for name, text := range want {
		if event[name] != text {
			t.Errorf("event: %s is %v, want %s", name, event[name], text)
		}
	}
	stack.Eventually(t, "event marked as published", func() bool {
		return !strings.Contains(i.run("", "ops", "explain", journeyKey, "-o", "json").out, "unpublished_events")
	})
	for _, name := range []string{"event_id", "occurred_at", "transfer_id"} {
		if text, ok := event[name].(string); !ok || text == "" {
			t.Errorf("event: %s is missing", name)
		}
	}
}

// checkHealth looks for every name that monitoring relies on, of those that a worker has.
func (i *installation) checkHealth() {
	t := i.t
	if code, body := i.get("/livez"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/livez: %d %q", code, body)
	}
	if code, body := i.get("/readyz"); code != http.StatusOK || body != `{"ready":true,"reasons":[]}`+"\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	var metrics string
	stack.Eventually(t, "dead letters counted", func() bool {
		_, metrics = i.get("/metrics")
		return strings.Contains(metrics, "\npaidonce_dead_letters 1\n")
	})
	for _, name := range []string{
		`paidonce_operations_total{outcome="authorized",partner="northbank"} 1`, `paidonce_bank_request_seconds_count{partner="northbank",verdict="authorized"} 1`,
		"paidonce_duplicates_suppressed_total{layer=", "paidonce_fenced_writes_total 0", "paidonce_lease_takeovers_total 0", "paidonce_oldest_unfinished_seconds ",
		"paidonce_in_doubt_operations 0", "paidonce_key_window_remaining_seconds ", "paidonce_outbox_lag_seconds ", "paidonce_invariant_violations_total 0",
		"paidonce_queue_waiting_jobs{route=\"gbp-fps\"} 0", "paidonce_jobs_stream_max_bytes ", "paidonce_jobs_stream_bytes ",
	} {
		if !strings.Contains(metrics, "\n"+name) {
			t.Errorf("/metrics: %s is missing", name)
		}
	}
}
