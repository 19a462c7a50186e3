package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
)

const (
	payroll = "row_ref,debtor_account,amount,currency,name,iban,reference\n" +
		"e-1," + canaryAccount + ",10.00,GBP," + canaryName + "," + canaryIBAN + "," + canaryReference + "\n" +
		"e-2," + canaryAccount + ",20.50,GBP,=Formula," + canaryIBAN + "," + canaryReference + "\n" +
		"e-3," + canaryAccount + ",30.00,GBP," + canaryName + "," + canaryIBAN + "," + canaryReference + "\n"
	runKey = "2026-11-payroll"
)

// batch runs a batch command under its own database role; "" = without a token.
func (i *installation) batch(name string, args ...string) said {
	i.t.Helper()
	got := command(i.t, "", i.inNameOf(name, i.databases.Batch), append([]string{"batch"}, append(args, "--set", "nats.nkey_seed_file="+i.roles.Publishers["wallet"])...)...)
	if len(args) > 0 && args[0] != "report" {
		i.keep(got)
	}
	return got
}

// wantCode fails unless a command ended with code and said all of it.
func wantCode(t *testing.T, got said, code cli.Code, says ...string) {
	t.Helper()
	for _, text := range says {
		if !strings.Contains(got.out+got.errors, text) {
			t.Errorf("does not say %q", text)
		}
	}
	if got.code != code || t.Failed() {
		t.Fatalf("code %d, want %d\n%s\n%s", got.code, code, got.out, got.errors)
	}
}

func TestJourneyOfABatch(t *testing.T) {
	i := install(t)
	i.migrate()
	i.hire()
	stop := i.work()
	defer func() { _ = stop() }()
	dir := t.TempDir()
	good, bad := i.write(dir, "november.csv", payroll), i.write(dir, "bad.csv", strings.Replace(payroll, "20.50", "1.9E+18", 1))
	twins := i.write(dir, "twins.csv", payroll+strings.Replace(payroll[strings.LastIndex(payroll, "e-3"):], "e-3", "e-4", 1))
	of := []string{"--source", "wallet", "--route", "gbp-fps"}
	submit := func(who, file string, more ...string) said {
		return i.batch(who, append(append([]string{"submit", file, "--run", runKey, "--reason", "payroll"}, of...), more...)...)
	}

	wantCode(t, i.batch("", append([]string{"check", good, "--expect-rows", "3", "--expect-sum", "60.50 GBP", "-o", "json"}, of...)...), cli.OK, `"good": true`, `"amount": "60.50"`)
	wantCode(t, i.batch("", append([]string{"check", good, "--expect-rows", "4"}, of...)...), cli.Failure, "expected_rows")
	wantCode(t, i.batch("", append([]string{"check", bad, "-o", "csv"}, of...)...), cli.Failure, "line,row,column,cell,code,message,hint", "\n3,2,amount,")
	wantCode(t, i.batch("", append([]string{"check", twins}, of...)...), cli.Ambiguous, "--allow-duplicates")
	wantCode(t, i.batch("", append([]string{"check", twins, "--allow-duplicates", "two shifts"}, of...)...), cli.OK)
	wantCode(t, i.batch("", append([]string{"check", i.write(dir, "ref.csv", payroll+payroll[strings.LastIndex(payroll, "e-3"):]), "--allow-duplicates", "two shifts"}, of...)...),
		cli.Failure, "row_ref_twice", "line 4")
	i.templatesOfABatch(dir)
	wantCode(t, i.batch("", "check", good, "--source", "nobody", "--delimiter", "xx", "--expect-sum", "1"), cli.Usage, "--source", "--delimiter", "--expect-sum")
	wantCode(t, submit("olga", bad), cli.Failure, "amount")
	wantCode(t, submit("olga", good, "--dry-run"), cli.OK, "second person")
	wantCode(t, i.batch("olga", "status", runKey), cli.NotFound)
	wantCode(t, submit("vera", good), cli.NotAllowed)

	wantCode(t, submit("olga", good), cli.Waiting, "batch approve "+runKey)
	wantCode(t, i.batch("", "status", runKey), cli.OK, "not_enqueued", "60.50", "waiting")
	wantCode(t, i.batch("olga", "approve", runKey, "--reason", "mine"), cli.NotAllowed)
	wantCode(t, i.batch("ada", "approve", runKey, "--reason", "looked", "--digest", "0123456789abcdef"), cli.Conflict)
	wantCode(t, i.batch("olga", "resume", runKey, "--reason", "approved?", "--dry-run"), cli.OK, "approval by another person", "waiting")
	wantCode(t, i.batch("ada", "approve", runKey, "--reason", "looked", "--digest", "0123456789abcdef", "--dry-run"), cli.Conflict)
	wantCode(t, i.batch("ada", "approve", runKey, "--reason", "totals agree", "--dry-run"), cli.OK, "nothing is decided; as it stands ada may approve it", "60.50 GBP")
	wantCode(t, i.batch("ada", "approve", runKey, "--reason", "totals agree"), cli.OK, "batch resume "+runKey)
	wantCode(t, i.batch("olga", "resume", runKey, "--reason", "approved", "-o", "json"), cli.OK, `"enqueued": 3`, `"published": 3`)
	wantCode(t, submit("oscar", good), cli.OK, "it goes on")
	wantCode(t, submit("olga", twins, "--allow-duplicates", "two shifts"), cli.Conflict, "other")
	other := append([]string{"submit", good, "--run", "again", "--reason", "payroll"}, of...)
	wantCode(t, i.batch("olga", other...), cli.Conflict, runKey, "--again")
	wantCode(t, i.batch("olga", append(other, "--again", "December")...), cli.Waiting)
	longer := append([]string{"submit", i.write(dir, "longer.csv", payroll+strings.Replace(payroll[strings.LastIndex(payroll, "e-3"):], "e-3,", "e-9,", 1)),
		"--run", "longer", "--reason", "payroll", "--allow-duplicates", "two shifts"}, of...)
	wantCode(t, i.batch("olga", longer...), cli.Conflict, "3 in run "+runKey, "lines 2, 3, 4 of the file", "--again")
	wantCode(t, i.batch("olga", append(longer, "--dry-run")...), cli.Conflict, "3 in run "+runKey)
	i.notCompared(dir, append(longer, "--dry-run"))

	followed := i.batch("", "status", runKey, "--rows", "--follow", "-o", "jsonl")
	wantCode(t, followed, cli.OK)
	if n := strings.Count(followed.out, `"state":"authorized"`); n != 3 {
		t.Errorf("%d rows were followed to their outcome:\n%s", n, followed.out)
	}
	key := regexp.MustCompile(`"key":"([0-9a-f-]{36})"`).FindStringSubmatch(followed.out)[1]
	wantCode(t, i.batch("", "status", "--key", key, "-o", "json"), cli.OK, `"run": "`+runKey+`"`, `"row_ref": "e-`)
	wantCode(t, i.batch("", "status", "--key", journeyKey), cli.NotFound)
	desk := map[string]string{"PAIDONCE_CONFIG": i.config, "PAIDONCE_DATABASE_URL": i.databases.Desk}
	wantCode(t, command(t, "", desk, "ops", "explain", key), cli.OK, "from wallet over gbp-fps, as row ", " of run "+runKey)
	var status struct {
		Finished int
		Complete bool
		Counts   []struct {
			State, Amount string
			Rows          int
		}
	}
	if err := json.Unmarshal([]byte(i.batch("", "status", runKey, "-o", "json").out), &status); err != nil {
		t.Fatal(err)
	}
	if status.Finished != 3 || !status.Complete || len(status.Counts) != 1 || status.Counts[0].Rows != 3 || status.Counts[0].Amount != "60.50" {
		t.Errorf("status %+v", status)
	}
	i.reportsOfABatch(dir)
	i.refusedRow(dir)
	i.heldRun(dir)
	i.expiresWhileHeld(dir)
	wantCode(t, i.batch("olga", "pause", runKey, "--reason", "late"), cli.OK, "paused")
	wantCode(t, i.batch("olga", "cancel", runKey, "--reason", "late"), cli.Partial, "3 rows were begun before")
	wantCode(t, i.batch("olga", "resume", runKey, "--reason", "oh"), cli.Conflict, "cancelled")
	wantCode(t, i.batch("olga", "cancel", "again", "--reason", "no", "-o", "json"), cli.OK, `"never_enqueued": 3`)
	wantCode(t, i.batch("", "status", "-o", "csv"), cli.OK, "run,state,rows", "again,cancelled,3")

	i.databases.Batch = i.databases.Desk
	wantCode(t, submit("olga", i.write(dir, "december.csv", strings.Replace(payroll, "10.00", "11.00", 1)), "--run", "december"), cli.NotAllowed, "logs in as paidonce_batch")

	if code := stop(); code != cli.OK {
		t.Errorf("the worker ends with code %d", code)
	}
	i.lacksNoRight()
	i.showsNoCanary()
}

// refusedRow: a run of which the bank refuses one row is shown as any other, and whatever shows it ends with code 6.
func (i *installation) refusedRow(dir string) {
	t := i.t
	t.Helper()
	if _, err := i.bank.SetFault(banksim.Fault{Name: "reject", Next: 1}); err != nil {
		t.Fatal(err)
	}
	file := i.write(dir, "refused.csv", strings.ReplaceAll(payroll[:strings.Index(payroll, "e-3")], "0,GBP", "3,GBP"))
	wantCode(t, i.batch("olga", "submit", file, "--run", "refused", "--reason", "bonus", "--source", "wallet", "--route", "gbp-fps"), cli.OK)
	const says = "1 of 2 rows are rejected or parked"
	wantCode(t, i.batch("", "status", "refused", "--follow"), cli.Partial, says, "authorized", "rejected")
	wantCode(t, i.batch("", "status", "refused", "--rows", "--follow", "-o", "jsonl"), cli.Partial, says, `"state":"authorized"`, `"reason":"account_closed"`)
	wantCode(t, i.batch("", "status", "refused", "-o", "json"), cli.Partial, says, `"finished": 2`)
	for _, format := range []string{"table", "json", "jsonl", "csv"} {
		wantCode(t, i.batch("", "status", "refused", "--rows", "-o", format), cli.Partial, says, "account_closed")
	}
	wantCode(t, i.batch("", "status", "refused", "--rows", "--state", "authorized", "-o", "csv"), cli.Partial, says, ",authorized,")
	wantCode(t, i.batch("olga", "report", "refused", "--reason", "reconciliation"), cli.Partial, says, `"account_closed"`, `"authorized"`)
	wantCode(t, i.batch("olga", "report", "refused", "--reason", "reconciliation", "--out", filepath.Join(dir, "refused-report.csv")), cli.Partial, says)
	if text, err := os.ReadFile(filepath.Join(dir, "refused-report.csv")); err != nil || !strings.Contains(string(text), `"account_closed"`) {
		t.Errorf("the report is whole all the same: %v\n%s", err, text)
	}
}

// heldRun: what is neither under way nor in doubt of a paused run is not paid when another pause ends, and is when the run is resumed.
func (i *installation) heldRun(dir string) {
	i.t.Helper()
	desk := func(args ...string) said {
		i.t.Helper()
		env := map[string]string{"PAIDONCE_CONFIG": i.config, "PAIDONCE_DATABASE_URL": i.databases.Desk, "PAIDONCE_OPERATOR_TOKEN_FILE": filepath.Join(i.people, "olga")}
		return command(i.t, "", env, append(args, "--reason", "maintenance")...)
	}
	file := i.write(dir, "held.csv", strings.ReplaceAll(payroll[:strings.Index(payroll, "e-3")], "0,GBP", "1,GBP"))
	wantCode(i.t, desk("pause", "source", "wallet"), cli.OK)
	wantCode(i.t, i.batch("olga", "submit", file, "--run", "held", "--reason", "bonus", "--source", "wallet", "--route", "gbp-fps"), cli.OK, "open ")
	wantCode(i.t, i.batch("olga", "pause", "held", "--reason", "wait", "--dry-run", "-o", "json"), cli.OK, "nothing is changed", `"outcome": "dry_run"`, `"would_hold": 2`, `"begun_before": 0`)
	wantCode(i.t, i.batch("olga", "pause", "held", "--reason", "wait"), cli.OK, "held now, of what was enqueued: 2", "[====", "held   ")
	wantCode(i.t, desk("resume", "source", "wallet"), cli.OK)
	wantCode(i.t, i.batch("", "status", "held", "--follow"), cli.OK, "held   ") // at rest: nothing happens before somebody does something
	wantCode(i.t, i.batch("", "status", "held", "--rows", "--state", "held", "-o", "csv"), cli.OK, "held,2,3,e-2,", ",run_paused,")
	wantCode(i.t, i.batch("olga", "resume", "held", "--reason", "go on", "--dry-run", "-o", "json"), cli.OK, `"state": "paused"`, `"would_come_back": 2`, `"would_enqueue": 0`)
	wantCode(i.t, i.batch("olga", "cancel", "held", "--reason", "go on", "--dry-run", "-o", "json"), cli.OK, `"would_be_cancelled": 2`, `"would_never_be_enqueued": 0`)
	wantCode(i.t, i.batch("olga", "resume", "held", "--reason", "go on", "--rate", "1000"), cli.OK, "2 rows that were held come back")
	wantCode(i.t, i.batch("", "status", "held", "--follow", "-o", "json"), cli.OK, `"finished": 2`)
}

// expiresWhileHeld: a row whose not_after passes while its run is paused is never sent. It is cancelled then, as one is that nothing holds.
func (i *installation) expiresWhileHeld(dir string) {
	t := i.t
	t.Helper()
	until := time.Now().Add(16 * time.Second).UTC().Truncate(time.Second) // late enough for three commands on a busy machine
	file := i.write(dir, "late.csv", "row_ref,debtor_account,amount,currency,name,iban,not_after\n"+
		"l-1,"+canaryAccount+",10.02,GBP,"+canaryName+","+canaryIBAN+",\nl-2,"+canaryAccount+",20.02,GBP,"+canaryName+","+canaryIBAN+","+until.Format(time.RFC3339)+"\n")
	i.okAs("olga", "pause", "source", "wallet", "--reason", "maintenance")
	wantCode(t, i.batch("olga", "submit", file, "--run", "late", "--reason", "bonus", "--source", "wallet", "--route", "gbp-fps"), cli.OK, "open ")
	wantCode(t, i.batch("olga", "pause", "late", "--reason", "wait"), cli.OK, "held now, of what was enqueued: 2")
	i.okAs("olga", "resume", "source", "wallet", "--reason", "over")
	stack.Eventually(t, "not_after has passed, and the row has expired", func() bool {
		return strings.Contains(i.batch("", "status", "late", "--rows", "--state", "cancelled", "-o", "jsonl").out, `"row_ref":"l-2"`)
	})
	wantCode(t, i.batch("", "status", "late", "-o", "json"), cli.OK, `"state": "paused"`)
	listed := i.batch("", "status", "late", "--rows", "-o", "jsonl")
	wantCode(t, listed, cli.OK)
	keys := regexp.MustCompile(`"row_ref":"l-[12]","key":"([0-9a-f-]{36})"`).FindAllStringSubmatch(listed.out, -1)
	has(t, i.okAs("vera", "ops", "explain", keys[0][1]), "as row 1 of run late", "its run late was paused, which holds what was neither under way nor in doubt", "paidonce batch resume late --reason")
	wantCode(t, i.batch("olga", "resume", "late", "--reason", "go on", "--rate", "1000"), cli.OK, "1 rows that were held come back")
	wantCode(t, i.batch("", "status", "late", "--follow", "-o", "json"), cli.OK, `"finished": 2`)
	rows := i.batch("", "status", "late", "--rows", "-o", "csv")
	wantCode(t, rows, cli.OK)
	if !regexp.MustCompile(`l-1,[0-9a-f-]{36},authorized,`).MatchString(rows.out) || !regexp.MustCompile(`l-2,[0-9a-f-]{36},cancelled,[^\n]*,expired,`).MatchString(rows.out) {
		t.Errorf("rows\n%s", rows.out)
	}
	has(t, i.okAs("vera", "ops", "explain", keys[1][1]), "It was never sent: no attempt is on record.", "It is cancelled: expired.")
}

// notCompared runs a command where the settings say that rows are not compared with those of other runs.
func (i *installation) notCompared(dir string, args []string) {
	i.t.Helper()
	plain := i.config
	defer func() { i.config = plain }()
	text, err := os.ReadFile(plain)
	if err != nil {
		i.t.Fatal(err)
	}
	i.config = i.write(dir, "apart.yaml", string(text)+"\nbatch: { overlap_window: 0s }\n")
	wantCode(i.t, i.batch("olga", args...), cli.OK)
}

// templatesOfABatch: a file in its own words is read as its template says, and flags go before the template.
func (i *installation) templatesOfABatch(dir string) {
	i.t.Helper()
	plain := i.config
	defer func() { i.config = plain }()
	text, err := os.ReadFile(plain)
	if err != nil {
		i.t.Fatal(err)
	}
	i.config = i.write(dir, "templates.yaml", string(text)+`
batch:
  templates:
    payroll: { source: wallet, route: gbp-fps, delimiter: ;, decimal_mark: ",", columns: [Ref=row_ref, From=debtor_account, Sum=amount, Ccy=currency, Name=name, IBAN=iban, Team=-] }
    bank: { format: pain.001.001.09, source: wallet }
`)
	file := i.write(dir, "own.csv", "Ref;From;Sum;Ccy;Name;IBAN;Team\ne-1;"+canaryAccount+";10,00;GBP;"+canaryName+";"+canaryIBAN+";1.9E+18\n")
	wantCode(i.t, i.batch("", "check", file, "--template", "payroll", "--expect-sum", "10.00 GBP"), cli.OK, "1, 0 of them bad")
	wantCode(i.t, i.batch("", "check", file, "--template", "payroll", "--decimal", "."), cli.Failure, "Sum (3)", "amount_mark")
	wantCode(i.t, i.batch("", "check", file, "--template", "payroll", "--source", "nobody"), cli.Usage, "nobody is not configured")
	wantCode(i.t, i.batch("", "check", file, "--template", "payrol"), cli.Usage, `--template: "payrol" is not configured; there are: bank, payroll`)
	wantCode(i.t, i.batch("", "check", file, "--template", "bank"), cli.Failure, "pain.001.001.09")
	wantCode(i.t, i.batch("", "check", file, "--source", "wallet", "--columns", "Ref=rowref"), cli.Usage, `"Ref=rowref" is neither`)
	submit := []string{"submit", file, "--template", "payroll", "--run", "own-words", "--reason", "payroll"}
	wantCode(i.t, i.batch("olga", submit...), cli.OK, "own-words")
	report := i.batch("olga", "report", "own-words", "--reason", "look", "--for", "machine")
	wantCode(i.t, report, cli.OK, `"Ref","From","Sum","Ccy","Name","IBAN","row"`, `"e-1","`+canaryAccount+`","10.00","GBP"`)
	i.config = i.write(dir, "bad.yaml", string(text)+"\nbatch: { templates: { payroll: { columns: [name, Sum=colour], delimiter: xx } } }\n")
	env := map[string]string{"PAIDONCE_CONFIG": i.config, "PAIDONCE_DATABASE_URL": i.databases.Desk}
	wantCode(i.t, command(i.t, "", env, "config", "check"), cli.Usage, "batch.templates.payroll.delimiter  must be one character", `"Sum=colour" is neither a column`)
}

// reportsOfABatch: for people formulas are harmless, machines get every byte, and who has no role gets neither.
func (i *installation) reportsOfABatch(dir string) {
	i.t.Helper()
	report := func(who string, args ...string) said {
		return i.batch(who, append([]string{"report", "--reason", "reconciliation"}, args...)...)
	}
	wantCode(i.t, i.batch("olga", "report", runKey), cli.Usage, "--reason")
	wantCode(i.t, report("vera", runKey), cli.NotAllowed)
	wantCode(i.t, report("ada", runKey), cli.NotAllowed)
	people, machine := report("olga", runKey), filepath.Join(dir, "report.csv")
	wantCode(i.t, people, cli.OK, `"row_ref","debtor_account","amount","currency","name","iban","reference","row","line","key"`, `"'=Formula"`, `"authorized"`, canaryIBAN)
	if !regexp.MustCompile(`"e-2","[^"]+","20\.50","GBP","'=Formula","[^"]+","[^"]+","2","3","[0-9a-f-]{36}","authorized","","[^"]+","","20`).MatchString(people.out) {
		i.t.Errorf("report:\n%s", people.out)
	}
	wantCode(i.t, report("olga", runKey, "--for", "machine", "--out", machine), cli.OK)
	text, err := os.ReadFile(machine)
	if err != nil || !strings.Contains(string(text), `"=Formula"`) {
		i.t.Errorf("%v:\n%s", err, text)
	}
	wantCode(i.t, report("olga", runKey, "--for", "machine", "--out", machine), cli.Failure)
	wantCode(i.t, report("olga", runKey, "--for", "cats"), cli.Usage)
	wantCode(i.t, report("olga", "nothing"), cli.NotFound)
	env := map[string]string{"PAIDONCE_CONFIG": i.config, "PAIDONCE_DATABASE_URL": i.databases.Batch}
	audited := command(i.t, "", env, "audit", "list", "--target", "batch run "+runKey, "-o", "csv").out
	if shown, refused := strings.Count(audited, ",reveal,"), strings.Count(audited, ",refused"); shown != 5 || refused != 2 || strings.Contains(people.errors, "audit") {
		i.t.Errorf("%d lines of the audit log, %d of them refused; want 5 and 2:\n%s", shown, refused, audited)
	}
}
