package main

import (
	"compress/gzip"
	"context"
	"io"
	"os"
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

// finish makes so many authorized operations, a hundred days old, and gives their keys.
func finish(t *testing.T, urls stack.DatabaseURLs, n int) []uuid.UUID {
	t.Helper()
	l, err := ledger.Open(t.Context(), urls.Worker, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var keys []uuid.UUID
	for range n {
		key := uuid.Must(uuid.NewV7())
		keys = append(keys, key)
		a := l.Claim(t.Context(), []ledger.Wish{{
			Key: key, Fingerprint: ledger.Fingerprint{Version: 1}, Source: "wallet", Route: "gbp-fps", DebtorAccount: "cust-4471",
			Amount: money.Amount{Minor: 4900, Currency: "GBP"}, Payload: []byte(`{"v":1}`), PublishedAt: time.Now(),
			Intention: ledger.Intention{Partner: "northbank", Credential: "a", Endpoint: "POST http://127.0.0.1/", Renderer: 1, PartnerKey: "k", EndToEndID: "E"},
		}})[0]
		if a.Answer != ledger.Claimed {
			t.Fatalf("claim: %s, %v", a.Answer, a.Err)
		}
		fact := ledger.Fact{Kind: ledger.FactVerdict, Verdict: "authorized", TransferID: "tr"}
		if r := l.Record(t.Context(), []ledger.Record{ledger.Authorize(a.Claim, "tr", fact)})[0]; r.Answer != ledger.Recorded {
			t.Fatalf("record: %s, %v", r.Answer, r.Err)
		}
	}
	onDatabase(t, urls.Owner, func(conn *pgx.Conn) {
		for _, sql := range []string{
			`ALTER TABLE operations DISABLE TRIGGER USER`,
			`UPDATE operations SET created_at = created_at - interval '100 days', outcome_at = outcome_at - interval '100 days'`,
			`ALTER TABLE operations ENABLE TRIGGER USER`,
		} {
			if _, err := conn.Exec(context.Background(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	return keys
}

func onDatabase(t *testing.T, url string, do func(*pgx.Conn)) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }() // its work is done
	do(conn)
}

func wantPayloads(t *testing.T, url string, want int) {
	t.Helper()
	onDatabase(t, url, func(conn *pgx.Conn) {
		var n int
		if err := conn.QueryRow(context.Background(), `SELECT count(*) FROM payloads`).Scan(&n); err != nil || n != want {
			t.Errorf("%d payloads, %v; want %d", n, err, want)
		}
	})
}

func TestPurge(t *testing.T) {
	urls, dir := stack.Databases(t), t.TempDir()
	keys := finish(t, urls, 3)
	by := func(name string, args ...string) said {
		env := map[string]string{"PAIDONCE_DATABASE_URL": urls.Desk, "PAIDONCE_OPERATOR_TOKEN_FILE": filepath.Join(dir, name)}
		if name == "" {
			env = map[string]string{"PAIDONCE_DATABASE_URL": urls.Owner}
		}
		return command(t, "", env, args...)
	}
	for _, p := range [][2]string{{"adam", "admin"}, {"olga", "operator"}, {"piet", "approver"}} {
		if got := by("", "operators", "add", p[0], "--role", p[1], "--token-out", filepath.Join(dir, p[0]), "--reason", "joins"); got.code != cli.OK {
			t.Fatalf("add %s: %+v", p[0], got)
		}
	}
	purge := []string{"purge", "--older-than", "90d", "--reason", "retention", "-o", "json"}
	if got := by("olga", append(purge, "--dry-run")...); got.code != cli.OK || !strings.Contains(got.out, `"deleted": 3`) || !strings.Contains(got.out, `"dry_run": true`) {
		t.Errorf("dry run: %+v", got)
	}
	if got := by("piet", purge...); got.code != cli.NotAllowed {
		t.Errorf("by an approver: %+v", got)
	}
	got := by("olga", purge...)
	proposal := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(got.errors)
	if got.code != cli.Waiting || proposal == "" {
		t.Fatalf("without an archive, alone: %+v", got)
	}
	wantPayloads(t, urls.Owner, 3)
	archive := filepath.Join(dir, "first.jsonl.gz")
	if got := by("olga", append(purge, "--archive", archive, "--limit", "1")...); got.code != cli.OK || !strings.Contains(got.out, `"deleted": 1`) {
		t.Errorf("with an archive: %+v", got)
	}
	wantPayloads(t, urls.Owner, 2)
	if text := unzipped(t, archive); strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, `{"key":"`+keys[0].String()+`","source":"wallet"`) || !strings.Contains(text, `"body":"eyJ2IjoxfQ=="`) {
		t.Errorf("archive:\n%s", text)
	}
	if got := by("olga", append(purge, "--archive", archive)...); got.code == cli.OK || !strings.Contains(got.errors, "file exists") {
		t.Errorf("into a file that exists: %+v", got)
	}
	wantPayloads(t, urls.Owner, 2)
	if got := by("piet", "proposals", "approve", proposal, "--reason", "retention"); got.code != cli.OK {
		t.Fatalf("approve: %+v", got)
	}
	if got := by("olga", purge...); got.code != cli.OK || !strings.Contains(got.out, `"deleted": 2`) {
		t.Errorf("approved: %+v", got)
	}
	wantPayloads(t, urls.Owner, 0)
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read from
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPurgeAndSize_UsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"a change needs --reason":     {"purge", "--older-than", "90d"},
		"--older-than takes 1d":       {"purge", "--older-than", "23h", "--reason", "x"},
		"as 90d or 2160h":             {"purge", "--reason", "x"},
		"named .jsonl.gz or":          {"purge", "--older-than", "90d", "--archive", "x.json", "--reason", "x"},
		"--limit must not":            {"purge", "--older-than", "90d", "--limit", "-1", "--reason", "x"},
		"rate and bank_latency":       {"doctor", "--size"},
		"is not name=value":           {"doctor", "--size", "3000"},
		"no arguments are taken here": {"doctor", "rate=3000"},
	} {
		if got := command(t, "", nil, args...); got.code != cli.Usage || !strings.Contains(got.errors, want) {
			t.Errorf("%v: code %d, %s; want 2 and %q", args, got.code, got.errors, want)
		}
	}
}
