package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/integration/stack"
)

func TestSize(t *testing.T) {
	got := command(t, "", nil, "doctor", "--size", "rate=3000", "bank_latency=400ms", "workers=2", "-o", "json")
	if got.code != cli.OK || !strings.Contains(got.out, `"needed": "1800 over all workers"`) || !strings.Contains(got.errors, "warning: broker, jobs stream: raise nats.max_jobs_bytes") {
		t.Errorf("%+v", got)
	}
}

// TestDoctor_NamesWhatNobodySweeps: a partner that was taken out of the settings while it had unfinished operations.
func TestDoctor_NamesWhatNobodySweeps(t *testing.T) {
	urls := stack.Databases(t)
	onDatabase(t, urls.Superuser, func(conn *pgx.Conn) {
		for _, sql := range []string{
			`INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, created_at)
			 SELECT gen_random_uuid(), 1, 1, decode(repeat('00', 32), 'hex'), 'GBP', 'wallet', 'gbp-fps', 'c', 'open', now() - interval '3 hours' FROM generate_series(1, 4)`,
			`INSERT INTO due (operation_id, due_at, partner) SELECT id, now(), 'oldbank' FROM operations`,
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	env := map[string]string{"PAIDONCE_DATABASE_URL": urls.Worker, "PAIDONCE_NATS_URL": "nats://127.0.0.1:1"}
	got := command(t, "", env, "doctor", "-o", "csv")
	for _, want := range []string{
		"ledger,swept by nobody,warn,partner oldbank configured,\"4 unfinished operations, 0 of them parked\"", "ledger,oldest unfinished,warn,at most 1h0m0s,3h0m",
	} {
		if got.code != cli.Failure || !strings.Contains(got.out, want) {
			t.Errorf("code %d, want 1 (no broker) and %q in:\n%s", got.code, want, got.out)
		}
	}
	if got := command(t, "", env, "doctor", "-o", "csv", "--oldest", "4h"); !strings.Contains(got.out, "ledger,oldest unfinished,ok") {
		t.Errorf("with more patience:\n%s", got.out)
	}
}

// TestDoctor_NamesCorrectionsThatNobodyPublished: recorded, and their command was killed before the job left. A younger one may be on its way.
func TestDoctor_NamesCorrectionsThatNobodyPublished(t *testing.T) {
	urls := stack.Databases(t)
	env := map[string]string{"PAIDONCE_DATABASE_URL": urls.Worker, "PAIDONCE_NATS_URL": "nats://127.0.0.1:1"}
	if got := command(t, "", env, "doctor", "-o", "csv"); !strings.Contains(got.out, "ledger,unpublished corrections,ok,none,0") {
		t.Errorf("without any:\n%s", got.out)
	}
	onDatabase(t, urls.Superuser, func(conn *pgx.Conn) {
		for _, sql := range []string{
			`SET session_replication_role = replica`,
			`INSERT INTO corrections (new_key, stream_at, sequence, old_sha256, payload_sha256, source, route, amount_minor, currency, at, by)
			 SELECT gen_random_uuid(), '2026-11-30', n, sha256(n::text::bytea), sha256('b'), 'wallet', 'gbp-fps', 1, 'GBP', now() - interval '1 hour' * (n - 1), 'olga'
			   FROM generate_series(1, 5) n`,
			`INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)
			 SELECT new_key, 1, 1, decode(repeat('00', 32), 'hex'), 'GBP', 'wallet', 'gbp-fps', 'c', 'open' FROM corrections WHERE sequence = 2`,
			`INSERT INTO dead_letter_acts (stream_at, sequence, act, by, job_sequence, duplicate) VALUES ('2026-11-30', 3, 'published', 'olga', 1, false)`,
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got := command(t, "", env, "doctor", "-o", "csv"); !strings.Contains(got.out, `ledger,unpublished corrections,warn,none,"2, the oldest of 20`) {
		t.Errorf("with two:\n%s", got.out)
	}
}

// TestDoctor_NamesReplaysWithoutATrace: published, and neither an operation nor a letter again. A younger one may wait for its worker.
func TestDoctor_NamesReplaysWithoutATrace(t *testing.T) {
	urls := stack.Databases(t)
	env := map[string]string{"PAIDONCE_DATABASE_URL": urls.Worker, "PAIDONCE_NATS_URL": "nats://127.0.0.1:1"}
	if got := command(t, "", env, "doctor", "-o", "csv"); !strings.Contains(got.out, "ledger,replays without a trace,ok,none,0") {
		t.Errorf("without any:\n%s", got.out)
	}
	const plan, draft = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a12"
	onDatabase(t, urls.Superuser, func(conn *pgx.Conn) {
		for _, sql := range []string{
			`SET session_replication_role = replica`,
			`INSERT INTO dead_plans (id, draft, digest, at, expires_at, by, stream_at, filter, letters)
			 VALUES ('` + plan + `', '` + draft + `', sha256('x'), now(), now() + interval '1 h', 'olga', '2026-11-30', '', 5)`,
			`INSERT INTO dead_letter_acts (stream_at, sequence, act, by, key, plan, replay_n)
			 SELECT '2026-11-30', n, 'replay', 'olga', lpad(n::text, 32, '0')::uuid, '` + draft + `', 1 FROM generate_series(1, 6) n`,
			`INSERT INTO dead_letter_acts (stream_at, sequence, act, by, job_sequence, duplicate, at)
			 SELECT '2026-11-30', n, 'published', 'olga', n, false, now() - interval '1 min' * CASE n WHEN 1 THEN 5 ELSE 15 END FROM generate_series(1, 5) n`,
			`INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state)
			 VALUES (lpad('2', 32, '0')::uuid, 1, 1, sha256('x'), 'GBP', 'wallet', 'gbp-fps', 'c', 'open')`,
			`INSERT INTO dead_letters (stream_at, sequence, at, job_sequence, deliveries, replays, bytes, sha256, reason, detail, source, route, fault, key)
			 VALUES ('2026-11-30', 9, now(), 1, 1, 1, 1, sha256('x'), 'invalid', '', 'wallet', 'gbp-fps', 'x', lpad('3', 32, '0')::uuid)`,
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got := command(t, "", env, "doctor", "-o", "csv"); !strings.Contains(got.out, `ledger,replays without a trace,warn,none,"2, some of plan `+plan) {
		t.Errorf("with two:\n%s", got.out)
	}
}
