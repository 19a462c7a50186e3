package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/integration/stack"
)

// TestDoctor_NamesReleasedRunsThatNobodyEnqueues: their command died. One that is enqueued, moves on, waits or is paused is not named.
func TestDoctor_NamesReleasedRunsThatNobodyEnqueues(t *testing.T) {
	urls := stack.Databases(t)
	env := map[string]string{"PAIDONCE_DATABASE_URL": urls.Worker, "PAIDONCE_NATS_URL": "nats://127.0.0.1:1"}
	if got := command(t, "", env, "doctor", "-o", "csv"); !strings.Contains(got.out, "ledger,runs that nobody enqueues,ok,none,none") {
		t.Errorf("without any:\n%s", got.out)
	}
	onDatabase(t, urls.Superuser, func(conn *pgx.Conn) {
		for _, sql := range []string{
			`SET session_replication_role = replica`,
			`INSERT INTO batch_runs (id, run_key, by, reason, format, source, route, rows, sums, counts, digest, content_digest, content_guard, changed_by, state, changed_at)
			 SELECT gen_random_uuid(), key, 'olga', 'x', 'csv', 'payroll', 'gbp-fps', 9, '{}', '{}', sha256(key::bytea), sha256(key::bytea), sha256(key::bytea), 'olga', state,
			        now() - since::interval
			   FROM (VALUES ('still', 'released', '11 min'), ('young', 'released', '5 min'), ('done', 'released', '2 h'), ('slow', 'released', '2 h'), ('waits', 'waiting', '2 h'),
			                ('stopped', 'paused', '2 h')) v(key, state, since)`,
			`INSERT INTO batch_parts (run_id, part, first_n, rows, body) SELECT id, 0, 1, 9, '' FROM batch_runs WHERE run_key <> 'done'`,
			`WITH o AS (INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)
			            VALUES (gen_random_uuid(), 1, 1, sha256(''), 'GBP', 'payroll', 'gbp-fps', 'c', 'open') RETURNING id)
			 INSERT INTO batch_rows (run_id, n, line, operation_id) SELECT r.id, 1, 2, o.id FROM o, batch_runs r WHERE run_key = 'slow'`,
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	got := command(t, "", env, "doctor", "-o", "csv")
	if strings.Count(got.out, "\nledger,run ") != 1 || !strings.Contains(got.out, "\nledger,run still,warn,") || !strings.Contains(got.out, "batch resume still") {
		t.Errorf("with one that stands still:\n%s", got.out)
	}
}

// TestDoctor_NamesHeldRowsThatNobodyLetsGo: whoever resumed or cancelled their run died half-way, or knew of none. Those of a paused run wait for a
// person who knows, and those of a run that is resumed just now are on their way.
func TestDoctor_NamesHeldRowsThatNobodyLetsGo(t *testing.T) {
	urls := stack.Databases(t)
	env := map[string]string{"PAIDONCE_DATABASE_URL": urls.Worker, "PAIDONCE_NATS_URL": "nats://127.0.0.1:1"}
	if got := command(t, "", env, "doctor", "-o", "csv"); !strings.Contains(got.out, "ledger,held rows that nobody lets go,ok,none,none") {
		t.Errorf("without any:\n%s", got.out)
	}
	onDatabase(t, urls.Superuser, func(conn *pgx.Conn) {
		for _, sql := range []string{
			`SET session_replication_role = replica`,
			`INSERT INTO batch_runs (id, run_key, by, reason, format, source, route, rows, sums, counts, digest, content_digest, content_guard, changed_by, state, changed_at)
			 SELECT gen_random_uuid(), key, 'olga', 'x', 'csv', 'payroll', 'gbp-fps', 9, '{}', '{}', sha256(key::bytea), sha256(key::bytea), sha256(key::bytea), 'olga', state,
			        now() - since::interval
			   FROM (VALUES ('half', 'released', '11 min'), ('now', 'released', '5 min'), ('ended', 'cancelled', '2 h'), ('stopped', 'paused', '2 h'),
			                ('free', 'released', '2 h')) v(key, state, since)`,
			`CREATE TEMP TABLE made AS SELECT r.id AS run, r.run_key, n, gen_random_uuid() AS key FROM batch_runs r, generate_series(1, 2) n`,
			`INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, held, code)
			 SELECT key, 1, 1, sha256(''), 'GBP', 'payroll', 'gbp-fps', 'c', 'open', true, CASE run_key WHEN 'free' THEN 'our_limits' ELSE 'run_paused' END FROM made`,
			`INSERT INTO batch_rows (run_id, n, line, operation_id) SELECT m.run, m.n, m.n + 1, o.id FROM made m JOIN operations o ON o.key = m.key`,
			`INSERT INTO due (operation_id, due_at, partner) SELECT id, now() + interval '100 years', 'northbank' FROM operations`,
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	got := command(t, "", env, "doctor", "-o", "csv")
	if strings.Count(got.out, "\nledger,held rows ") != 2 || !strings.Contains(got.out, "\nledger,held rows of run half,warn,") || !strings.Contains(got.out, "batch resume half") ||
		!strings.Contains(got.out, "\nledger,held rows of run ended,warn,") || !strings.Contains(got.out, "batch cancel ended") || !strings.Contains(got.out, `"2, released since `) {
		t.Errorf("with some of two runs:\n%s", got.out)
	}
}
