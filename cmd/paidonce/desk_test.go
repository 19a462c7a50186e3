package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// office is an installation without broker, bank and worker: the desk needs none of them. The test does what a worker would.
type office struct {
	*installation
	worker *ledger.Ledger
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{installation: &installation{t: t, databases: stack.Databases(t)}}
	dir := t.TempDir()
	o.write(dir, "token", canaryToken+"\n")
	o.config = o.write(dir, "paidonce.yaml", fmt.Sprintf(`
database: { url: %q, max_conns: 4 }
nats: { url: "nats://127.0.0.1:1" }
partners:
  northbank: { adapter: reference, base_url: "http://127.0.0.1:1", credential_id: "2026-11", token_file: %q, timeout: 5s, max_in_flight: 32 }
routes:
  gbp-fps: { partner: northbank, currencies: [GBP] }
sources:
  wallet: { routes: [gbp-fps] }
`, o.databases.Worker, filepath.Join(dir, "token")))
	o.worker = openLedger(t, o.databases.Worker)
	o.hire()
	return o
}

func openLedger(t *testing.T, url string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), url, ledger.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// operation records one that was claimed, and leaves it as the record says.
func (o *office) operation(record func(ledger.Claim) ledger.Record) string {
	o.t.Helper()
	claim := o.claim("northbank")
	if result := o.worker.Record(o.t.Context(), []ledger.Record{record(claim.Claim)})[0]; result.Answer != ledger.Recorded {
		o.t.Fatalf("%+v", result)
	}
	return claim.Claim.Key.String()
}

// claimed leaves one that a worker is at.
func (o *office) claimed() string { return o.claim("northbank").Claim.Key.String() }

func (o *office) claim(partner string) ledger.ClaimAnswer {
	o.t.Helper()
	key := uuid.Must(uuid.NewV7())
	claim := o.worker.Claim(o.t.Context(), []ledger.Wish{{
		Key: key, Fingerprint: ledger.Fingerprint{Version: 1, Sum: sha256.Sum256(key[:])}, Source: "wallet", Route: "gbp-fps", DebtorAccount: canaryAccount,
		Amount: money.Amount{Minor: 4900, Currency: "GBP"}, PublishedAt: time.Now(),
		Payload: []byte(`{"v":1,"beneficiary":{"name":"` + canaryName + `","iban":"` + canaryIBAN + `"},"reference":"` + canaryReference + `"}`),
		Intention: ledger.Intention{Partner: partner, Credential: "2026-11", Endpoint: "POST http://127.0.0.1:1/v1/transfers", Renderer: 1,
			BodySHA256: sha256.Sum256([]byte("body")), PartnerKey: uuid.NewString(), EndToEndID: strings.ReplaceAll(key.String(), "-", "")[:26]},
	}})[0]
	if claim.Answer != ledger.Claimed {
		o.t.Fatalf("%+v", claim)
	}
	return claim
}

// inDoubt parks an operation of which a look-up found nothing.
func inDoubt(c ledger.Claim) ledger.Record {
	return ledger.Park(c, "in_doubt", true,
		ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown", Evidence: []byte(`{"phase":"wrote_request","error":"timeout","elapsed_ms":20000}`)},
		ledger.Fact{Kind: ledger.FactLookUp, Verdict: "not_found", Evidence: []byte(`{"phase":"complete","status":404}`)})
}

func untouched(c ledger.Claim) ledger.Record { return ledger.Schedule(c, false, time.Hour) }

// has ends the test where a text lacks what it must say.
func has(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Fatalf("%q is not in\n%s", want, text)
		}
	}
}

// TestJourneyOfAParkedOperation: found, explained, asked after, decided by two, and told of afterwards; nothing shows whose money it is.
func TestJourneyOfAParkedOperation(t *testing.T) {
	o := newOffice(t)
	key, other := o.operation(inDoubt), o.operation(inDoubt)
	has(t, o.okAs("vera", "ops", "list", "--state", "parked", "-o", "csv"), key, ",24h0m0s", "*") // the reference partner keeps keys for a day
	if got := o.as("vera", "ops", "list", "--state", "parked", "-o", "json"); !strings.Contains(got.errors, "in doubt, of those listed: 98.00 GBP") {
		t.Errorf("money at risk: %q", got.errors)
	}
	has(t, o.okAs("vera", "ops", "explain", key), "claimed under fence 1", "it is not known whether money moved (got as far as wrote_request, timeout, 20000 ms)",
		"asked the partner: it has nothing under this key", "Known\n", "A look-up since the last attempt found nothing", "Not known\n  Whether the partner moved the money.",
		"paidonce ops lookup "+key, "paidonce ops resolve "+key+" --authorized --transfer-id T", "--rejected --code C", "--retry")

	dry := o.as("olga", "ops", "resolve", key, "--retry", "--reason", "ticket 4711", "--dry-run", "-o", "json")
	if dry.code != cli.OK || !strings.Contains(dry.out, `"needs": "approval by another person"`) {
		t.Errorf("dry run: %+v", dry)
	}
	resolve := []string{"ops", "resolve", key, "--retry", "--reason", "ticket 4711", "-o", "json"}
	waiting := o.as("olga", resolve...)
	has(t, waiting.errors, "paidonce proposals approve ")
	if again := o.as("olga", resolve...); again.code != cli.Waiting || proposalIn(t, again) != proposalIn(t, waiting) {
		t.Errorf("asked twice: %+v", again)
	}
	id := proposalIn(t, waiting)
	has(t, o.okAs("ada", "proposals", "list", "--state", "open", "-o", "jsonl"), id)
	has(t, o.okAs("ada", "proposals", "show", id), key, `"to":"open"`, "49.00")
	if got := o.as("olga", "proposals", "approve", id, "--reason", "me"); got.code != cli.NotAllowed {
		t.Errorf("the author approves: %+v", got)
	}
	has(t, o.okAs("vera", "ops", "explain", key), "paidonce proposals approve "+id, "olga: resolve (ticket 4711) -> waiting")
	o.approve("ada", waiting)
	has(t, o.okAs("olga", resolve...), `"outcome": "done"`)
	has(t, o.okAs("vera", "ops", "show", key, "-o", "json"), `"state": "open"`, `"in_doubt": true`)
	has(t, o.okAs("vera", "ops", "explain", key), "olga decided: open again", "paidonce ops lookup "+key)
	if got := o.as("olga", resolve...); got.code != cli.Conflict || !strings.Contains(got.errors, "it is not parked") {
		t.Errorf("again: %+v", got)
	}

	authorized := []string{"ops", "resolve", other, "--authorized", "--transfer-id", "tr_81", "--evidence", "statement line 12", "--reason", "ticket 4712", "-o", "json"}
	o.approve("abel", o.as("oscar", authorized...))
	has(t, o.okAs("olga", authorized...), `"outcome": "done"`) // whoever is on the next shift
	has(t, o.okAs("olga", authorized...), `"outcome": "no_effect"`)
	has(t, o.okAs("vera", "ops", "show", other, "-o", "json"), `"state": "authorized"`, `"transfer_id": "tr_81"`)
	third := o.operation(inDoubt)
	if got := o.as("olga", "ops", "resolve", third, "--authorized", "--transfer-id", "tr_81", "--evidence", "x", "--reason", "y"); got.code != cli.Conflict {
		t.Errorf("another operation's transfer: %+v", got)
	}
	for _, args := range [][]string{{"--rejected", "--code", "x", "--reason", "no evidence"}, {"--authorized", "--transfer-id", "tr_9", "--reason", "no evidence"}} {
		if got := o.as("olga", append([]string{"ops", "resolve", third}, args...)...); got.code != cli.Conflict || !strings.Contains(got.errors, "evidence") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	has(t, o.okAs("vera", "audit", "list", "--target", other, "-o", "csv"), "oscar,resolve", "olga,resolve", "waiting", "done", "no_effect", "statement line 12")
	o.showsNoCanary()
}

func proposalIn(t *testing.T, got said) string {
	t.Helper()
	found := regexp.MustCompile(`"proposal": "([0-9a-f-]{36})"`).FindStringSubmatch(got.out)
	if found == nil {
		t.Fatalf("no proposal: %+v", got)
	}
	return found[1]
}

// TestJourneyOfARetry: what a person opens again, the worker claims, sends once and ends, as anything else that is due.
func TestJourneyOfARetry(t *testing.T) {
	i := install(t)
	i.migrate()
	i.hire()
	stop := i.work()
	defer func() { _ = stop() }()
	i.okAs("olga", "pause", "source", "wallet", "--reason", "test")
	i.enqueueJourney()
	stack.Eventually(t, "held", func() bool {
		return strings.Contains(i.run("", "ops", "show", journeyKey, "-o", "json").out, `"held_reason"`)
	})
	owner, err := pgx.Connect(t.Context(), i.databases.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close(context.Background()) }()
	if _, err := owner.Exec(t.Context(), `WITH parked AS (UPDATE operations SET state = 'parked', held = false, code = 'poison', unobserved = 3 RETURNING id)
		UPDATE due SET parked = true FROM parked WHERE operation_id = id`); err != nil {
		t.Fatal(err)
	}
	i.okAs("olga", "resume", "source", "wallet", "--reason", "over")
	has(t, i.okAs("olga", "ops", "resolve", journeyKey, "--retry", "--reason", "the worker is mended", "-o", "json"), `"outcome": "done"`)
	stack.Eventually(t, "authorized", func() bool {
		return strings.Contains(i.run("", "ops", "show", journeyKey, "-o", "json").out, `"state": "authorized"`)
	})
	if n := i.bank.Summary().Executions; n != 1 {
		t.Errorf("the bank executed %d times", n)
	}
	has(t, i.okAs("vera", "ops", "explain", journeyKey), "olga decided: open again", "olga: resolve (the worker is mended) -> done", "attempt 1", "authorized, for good")
	if code := stop(); code != cli.OK {
		t.Errorf("the worker ends with code %d", code)
	}
	i.showsNoCanary()
}

func TestLookUpAndCancel(t *testing.T) {
	o := newOffice(t)
	parked, open := o.operation(inDoubt), o.operation(untouched)
	answered := make(chan said, 1)
	go func() {
		answered <- o.as("olga", "ops", "lookup", parked, "--reason", "the customer called", "--wait", "30s", "-o", "json")
	}()
	stack.Eventually(t, "asked", func() bool { // as a worker: what is due is looked up
		work, err := o.worker.LookAtParked(t.Context(), "northbank", 10)
		for _, w := range work {
			o.worker.Append(t.Context(), []ledger.Late{{Key: w.Claim.Key, Facts: []ledger.Fact{{Kind: ledger.FactLookUp, Verdict: "authorized", TransferID: "tr_7"}}}})
		}
		return err == nil && len(work) > 0
	})
	if got := <-answered; got.code != cli.OK || !strings.Contains(got.errors, "Authorized: the partner has the transfer") {
		t.Errorf("%+v", got)
	}
	if got := o.as("olga", "ops", "lookup", o.operation(inDoubt), "--reason", "nobody works", "--wait", "300ms"); got.code != cli.TryAgain || !strings.Contains(got.errors, "is a worker running?") {
		t.Errorf("nobody answers: %+v", got)
	}
	for _, c := range []struct {
		args []string
		code cli.Code
		says string
	}{
		{[]string{"lookup", parked}, cli.Conflict, "there is nothing to ask"},
		{[]string{"lookup", open}, cli.Conflict, "not in doubt"},
		{[]string{"cancel", parked}, cli.Conflict, "only what is open is cancelled"},
		{[]string{"cancel", o.operation(func(c ledger.Claim) ledger.Record {
			return ledger.Schedule(c, true, time.Hour, ledger.Fact{Kind: ledger.FactVerdict, Verdict: "unknown"})
		})},
			cli.Conflict, "in doubt"},
		{[]string{"cancel", uuid.NewString()}, cli.NotFound, "no such operation"},
		{[]string{"cancel", open, "--dry-run"}, cli.OK, ""},
		{[]string{"cancel", open}, cli.OK, ""},
		{[]string{"cancel", open}, cli.OK, ""},
		{[]string{"resolve", open, "--retry"}, cli.Conflict, "it is not parked"},
	} {
		got := o.as("olga", append(append([]string{"ops"}, c.args...), "--reason", "test")...)
		if got.code != c.code || !strings.Contains(got.errors, c.says) {
			t.Errorf("%v: %+v, want code %d and %q", c.args, got, c.code, c.says)
		}
	}
	has(t, o.okAs("vera", "ops", "show", open, "-o", "json"), `"state": "cancelled"`, `"code": "operator"`)
	o.showsNoCanary()
}

// TestResumeWhereMoneyIsInDoubt needs an approver, also when a person had paused before.
func TestResumeWhereMoneyIsInDoubt(t *testing.T) {
	o := newOffice(t)
	resume := []string{"resume", "partner", "northbank", "--reason", "cured"}
	pause := func(reason string) {
		t.Helper()
		if err := o.worker.Pause(t.Context(), ledger.ScopePartner, "northbank", reason, ledger.ByWorker); err != nil {
			t.Fatal(err)
		}
	}
	pause(ledger.PausedOurFunds)
	has(t, o.okAs("vera", "pause"), "our_funds", "an operator resumes it")
	o.okAs("olga", resume...)
	for _, reason := range ledger.DoubtReasons() {
		o.okAs("olga", "pause", "partner", "northbank", "--reason", "maintenance")
		pause(reason)
		has(t, o.okAs("vera", "pause"), "maintenance; since then also: ", reason, "an approver resumes it")
		if got := o.as("olga", resume...); got.code != cli.NotAllowed || !strings.Contains(got.errors, reason) {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	// One who asks and agrees may: ada is an approver only, and asking is an operator's.
	if got := o.as("ada", resume...); got.code != cli.NotAllowed {
		t.Errorf("%+v", got)
	}
	o.okAs("adam", resume...)
	if got := o.as("olga", resume...); got.code != cli.NotFound {
		t.Errorf("nothing is paused: %+v", got)
	}
}

func TestOperatorsCommands(t *testing.T) {
	o := newOffice(t)
	shown := o.okAs("adam", "operators", "add", "vic", "--role", "viewer", "--reason", "looks", "-o", "json")
	if !regexp.MustCompile(`"token": "po_[0-9a-f]{64}"`).MatchString(shown) {
		t.Errorf("the token is shown once: %s", shown)
	}
	taken := o.write(t.TempDir(), "there", "something")
	if got := o.as("adam", "operators", "add", "wim", "--role", "viewer", "--reason", "x", "--token-out", taken); got.code != cli.Usage {
		t.Errorf("a file that is there is not written over: %+v", got)
	}
	list := o.okAs("vera", "operators", "list", "-o", "json")
	has(t, list, `"name": "vic"`, `"name": "adam"`, `"made_by": "database:paidonce_owner"`)
	if strings.Contains(list, `"wim"`) || strings.Contains(list, "po_") {
		t.Errorf("list: %s", list)
	}
	o.okAs("adam", "operators", "disable", "olga", "--reason", "left")
	if got := o.as("olga", "pause", "all", "--reason", "still here"); got.code != cli.NotAllowed || !strings.Contains(got.errors, "disabled") {
		t.Errorf("a disabled operator: %+v", got)
	}
	for shell, want := range map[string][]string{"": {"all", "partner", "route", "source"}, "partner": {"northbank"}, "route": {"gbp-fps"}, "source": {"wallet"}} {
		args := []string{"__complete", "pause"}
		if shell != "" {
			args = append(args, shell)
		}
		if got := o.run("", append(args, "")...); !strings.HasPrefix(got.out, strings.Join(want, "\n")+"\n") {
			t.Errorf("completion of pause %s: %q", shell, got.out)
		}
	}
	// Who never saw the first operator made is told how.
	empty := &installation{t: t, databases: stack.Databases(t), config: o.config}
	if got := empty.as("olga", "pause", "all", "--reason", "x"); got.code != cli.Usage && got.code != cli.NotAllowed {
		t.Errorf("%+v", got)
	}
	got := command(t, "", map[string]string{"PAIDONCE_CONFIG": o.config, "PAIDONCE_DATABASE_URL": empty.databases.Desk}, "pause", "all", "--reason", "x")
	if got.code != cli.NotAllowed || !strings.Contains(got.errors, "paidonce operators add NAME --role admin") {
		t.Errorf("without operators: %+v", got)
	}
	got = command(t, "", map[string]string{"PAIDONCE_CONFIG": o.config, "PAIDONCE_OPERATOR_TOKEN_FILE": filepath.Join(o.people, "adam")}, "pause", "all", "--reason", "x")
	if got.code != cli.NotAllowed || !strings.Contains(got.errors, "paidonce_desk") {
		t.Errorf("under the worker's role in the database: %+v", got)
	}
}

// TestOpsList_IsBounded: what is not finished is found at once; for the rest so many are looked through, and the end says where to go on.
func TestOpsList_IsBounded(t *testing.T) {
	o := newOffice(t)
	var keys []string
	for range 3 {
		keys = append(keys, o.operation(untouched))
	}
	ended := o.operation(func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed") })
	short := o.as("vera", "ops", "list", "--state", "cancelled", "--reach", "2")
	if short.code != cli.OK || short.out != "" || !strings.Contains(short.errors, "looked through 2 operations: go on with --before 3, or through all of them with --all") {
		t.Errorf("%+v", short)
	}
	if rest := o.as("vera", "ops", "list", "--state", "cancelled", "--reach", "2", "--before", "3"); rest.code != cli.OK || strings.Contains(rest.errors, "go on") {
		t.Errorf("%+v", rest)
	}
	if all := o.okAs("vera", "ops", "list", "--all", "--limit", "1", "-o", "csv"); strings.Count(all, "\n") != 5 || strings.Count(all, "key,state") != 1 {
		t.Errorf("every page:\n%s", all)
	}
	if none := o.okAs("vera", "ops", "list", "--all", "--source", "nobody", "-o", "csv"); strings.Count(none, "\n") != 1 {
		t.Errorf("of nothing:\n%s", none)
	}
	if page := o.as("vera", "ops", "list", "--limit", "2", "-o", "jsonl"); strings.Count(page.out, "\n") != 2 || !strings.Contains(page.errors, "there are more: --before 3") {
		t.Errorf("a page: %+v", page)
	}
	risk := o.okAs("vera", "ops", "list", "--sort", "risk", "-o", "jsonl")
	has(t, risk, keys...)
	if strings.Contains(risk, ended) {
		t.Errorf("what is finished is at no risk:\n%s", risk)
	}
	if got := o.as("vera", "ops", "list", "--sort", "risk", "--state", "rejected"); got.code != cli.Usage {
		t.Errorf("%+v", got)
	}
	has(t, o.okAs("vera", "ops", "list", "--state", "rejected", "--since", "1h", "-o", "csv"), ended)
	if got := o.okAs("vera", "ops", "list", "--since", "2100-01-01T00:00:00Z", "-o", "json"); got != "[]\n" {
		t.Errorf("since then: %s", got)
	}
}

// TestExplain_ResumingComesLast: after a mismatch the operation is decided first, and the pause ended by whoever may.
func TestExplain_ResumingComesLast(t *testing.T) {
	o := newOffice(t)
	key := o.operation(inDoubt)
	if err := o.worker.Pause(t.Context(), ledger.ScopePartner, "northbank", ledger.PausedMismatch, ledger.ByWorker); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(o.okAs("vera", "ops", "explain", key)), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "paidonce resume partner northbank --reason ...   # an approver, once it is understood; paused by worker: mismatch") {
		t.Errorf("the last line is %q", last)
	}
	// A list for people is short; what a proposal is about to the byte is shown one by one, and to machines.
	waiting := o.as("olga", "ops", "resolve", key, "--rejected", "--code", "x", "--evidence", "line 12", "--reason", "why", "-o", "json")
	id := proposalIn(t, waiting)
	if list := o.okAs("ada", "proposals", "list"); !strings.Contains(list, id) || strings.Contains(list, "DIGEST") || strings.Contains(list, "parked_for") {
		t.Errorf("a list for people:\n%s", list)
	}
	for _, text := range []string{o.okAs("ada", "proposals", "list", "-o", "csv"), o.okAs("ada", "proposals", "show", id)} {
		has(t, text, id, "digest", "parked_for")
	}
}

// TestOpsList_WhatHasLessOfItsWindowLeftComesFirst: the windows are those of the partners that are configured.
func TestOpsList_WhatHasLessOfItsWindowLeftComesFirst(t *testing.T) {
	o := newOffice(t)
	elsewhere := o.claim("elsewhere").Claim // sent first, to a partner of which nothing is known here
	if result := o.worker.Record(t.Context(), []ledger.Record{inDoubt(elsewhere)})[0]; result.Answer != ledger.Recorded {
		t.Fatalf("%+v", result)
	}
	known := o.operation(inDoubt)
	list := o.okAs("vera", "ops", "list", "--state", "parked", "-o", "csv")
	if one, other := strings.Index(list, known), strings.Index(list, elsewhere.Key.String()); one < 0 || other < one {
		t.Errorf("the order is another:\n%s", list)
	}
}

// TestAudit_OfATime: an incident has a beginning and an end.
func TestAudit_OfATime(t *testing.T) {
	o := newOffice(t)
	count := func(args ...string) int {
		return strings.Count(o.okAs("vera", append([]string{"audit", "list", "-o", "jsonl"}, args...)...), "\n")
	}
	all := count()
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--since", "2100-01-01T00:00:00Z"}, 0}, {[]string{"--since", "1h"}, all}, {[]string{"--until", "1h"}, 0},
		{[]string{"--until", "2100-01-01T00:00:00Z", "--since", "2020-01-01T00:00:00Z"}, all},
	} {
		if got := count(c.args...); got != c.want || all == 0 {
			t.Errorf("%v: %d lines, want %d", c.args, got, c.want)
		}
	}
	if got := o.as("vera", "audit", "list", "--since", "-1h"); got.code != cli.Usage {
		t.Errorf("%+v", got)
	}
}
