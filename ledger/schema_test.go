package ledger_test

import (
	"context"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger"
)

const (
	checkViolation       = "23514"
	notNullViolation     = "23502"
	uniqueViolation      = "23505"
	insufficientRight    = "42501"
	refusedChange        = "PO004"
	refusedUnbalanced    = "PO006"
	refusedErasure       = "PO009"
	invalidEnum          = "22P02"
	oneOperation         = `key = $1`
	everyStateTransition = `SELECT a::text, b::text, operation_transition_allowed(a, b)
		FROM unnest(enum_range(NULL::operation_state)) a, unnest(enum_range(NULL::operation_state)) b`
	everySettlementTransition = `SELECT coalesce(a::text, ''), coalesce(b::text, ''), settlement_transition_allowed(a, b)
		FROM unnest(enum_range(NULL::settlement_state) || NULL::settlement_state) a, unnest(enum_range(NULL::settlement_state) || NULL::settlement_state) b`
)

// stateTable is the one of I4, written by hand; open to authorized is the exemption of I5.
const stateTable = `
open       -> claimed authorized cancelled parked
claimed    -> open authorized rejected cancelled parked
parked     -> open authorized rejected
authorized ->
rejected   ->
cancelled  ->`

// settlementTable is the one of I4: nothing, then pending, then what the partner says later.
const settlementTable = `
none     -> pending
pending  -> settled failed
settled  -> returned
failed   -> returned
returned ->`

// parseTable makes a set of "before after" of a table; every state may stay what it is.
func parseTable(table string) map[string]bool {
	allowed := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		before, after, _ := strings.Cut(line, "->")
		before = strings.TrimSpace(before)
		for _, a := range append(strings.Fields(after), before) {
			allowed[strings.Replace(before+" "+a, "none", "", 1)] = true
		}
	}
	return allowed
}

// sqlTable reads a transition function over all pairs.
func sqlTable(db *database, query string) map[string]bool {
	db.t.Helper()
	rows, err := db.conn.Query(context.Background(), query)
	if err != nil {
		db.t.Fatal(err)
	}
	defer rows.Close()
	table := map[string]bool{}
	for rows.Next() {
		var before, after string
		var allowed bool // not a pointer: the function may never answer NULL, which a trigger takes for "allowed"
		if err := rows.Scan(&before, &after, &allowed); err != nil {
			db.t.Fatalf("%s to %s: %v", before, after, err)
		}
		table[before+" "+after] = allowed
	}
	if err := rows.Err(); err != nil {
		db.t.Fatal(err)
	}
	return table
}

func TestInvariant4_StateTableInGoAndInSQL(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	want := parseTable(stateTable)
	table := sqlTable(db, everyStateTransition)
	if len(table) != 36 {
		t.Errorf("%d pairs of states, want 36", len(table))
	}
	for pair, inSQL := range table {
		before, after, _ := strings.Cut(pair, " ")
		inGo := ledger.TransitionAllowed(ledger.State(before), ledger.State(after))
		if inGo != want[pair] || inSQL != want[pair] {
			t.Errorf("%s: Go %t, SQL %t, want %t", pair, inGo, inSQL, want[pair])
		}
	}
}

func TestInvariant4_SettlementTableInSQL(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	want := parseTable(settlementTable)
	want[" "] = true
	table := sqlTable(db, everySettlementTransition)
	if len(table) != 25 {
		t.Errorf("%d pairs of settlements, want 25", len(table))
	}
	for pair, inSQL := range table {
		if inSQL != want[pair] {
			t.Errorf("%q: SQL %t, want %t", pair, inSQL, want[pair])
		}
	}
}

// TestInvariant4_TriggerRefusesEveryOtherTransition drives the table through the trigger: from each state that API calls reach, the owner may set
// exactly what the table allows.
func TestInvariant4_TriggerRefusesEveryOtherTransition(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	reach := map[string]func(ledger.Claim) ledger.Record{
		"open":       func(c ledger.Claim) ledger.Record { return ledger.Schedule(c, false, 0) },
		"parked":     func(c ledger.Claim) ledger.Record { return ledger.Park(c, "mismatch", false) },
		"authorized": func(c ledger.Claim) ledger.Record { return ledger.Authorize(c, "tr_1") },
		"rejected":   func(c ledger.Claim) ledger.Record { return ledger.Reject(c, "account_closed") },
		"cancelled":  func(c ledger.Claim) ledger.Record { return ledger.Cancel(c, "expired") },
		"claimed":    nil,
	}
	allowed := parseTable(stateTable)
	for before, record := range reach {
		for after := range reach {
			w := newWish()
			c := mustClaim(t, db.Ledger, w)
			if record != nil {
				mustRecord(t, db.Ledger, record(c))
			}
			_, err := db.conn.Exec(context.Background(), `UPDATE operations SET state = $2::text::operation_state, in_doubt = false, held = false, code = coalesce(code, 'x'),
				transfer_id = CASE WHEN $2 = 'authorized' THEN coalesce(transfer_id, 'tr_2') ELSE transfer_id END, lease_until = now(),
				outcome_at = CASE WHEN $2 IN ('authorized', 'rejected', 'cancelled') THEN coalesce(outcome_at, now()) END,
				settlement = CASE WHEN $2 = 'authorized' THEN coalesce(settlement, 'pending') END WHERE key = $1`, w.Key, after)
			if want := allowed[before+" "+after]; (err == nil) != want {
				t.Errorf("%s to %s: error %v, want allowed %t", before, after, err, want)
			}
		}
	}
}

func TestInvariant4_WhatNeverChanges(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	open, authorized, rejected := newWish(), newWish(), newWish()
	mustRecord(t, db.Ledger, ledger.Schedule(mustClaim(t, db.Ledger, open), true, 0))
	mustRecord(t, db.Ledger, ledger.Authorize(mustClaim(t, db.Ledger, authorized), "tr_1"))
	mustRecord(t, db.Ledger, ledger.Reject(mustClaim(t, db.Ledger, rejected), "account_closed"))
	for _, set := range []string{
		`key = gen_random_uuid()`, `fingerprint = sha256('x')`, `fingerprint_version = 2`, `amount_minor = 4901`, `currency = 'EUR'`,
		`source = 'payroll'`, `route = 'eur-sct'`, `debtor_account = 'x'`, `created_at = created_at + interval '1 s'`, `fence = fence - 1`,
		`epoch = epoch - 1`, `partner = 'southbank'`, `partner = NULL`,
	} {
		refused(t, db.conn, refusedChange, `UPDATE operations SET `+set+` WHERE `+oneOperation, open.Key)
	}
	for _, set := range []string{
		`transfer_id = 'tr_2'`, `outcome_at = outcome_at + interval '1 s'`, `partner_key = 'x'`, `settlement = 'returned'`,
		`state = 'rejected', settlement = NULL, code = 'x'`, `state = 'open', settlement = NULL, outcome_at = NULL`,
	} {
		refused(t, db.conn, refusedChange, `UPDATE operations SET `+set+` WHERE `+oneOperation, authorized.Key)
	}
	refused(t, db.conn, refusedChange, `UPDATE operations SET code = 'kinder' WHERE `+oneOperation, rejected.Key)
	db.exec(`UPDATE operations SET contradicted_at = now() WHERE `+oneOperation, authorized.Key)
	refused(t, db.conn, refusedChange, `UPDATE operations SET contradicted_at = NULL WHERE `+oneOperation, authorized.Key)
	for _, settlement := range []string{"settled", "returned"} {
		db.exec(`UPDATE operations SET settlement = $2::text::settlement_state WHERE `+oneOperation, authorized.Key, settlement)
	}
	refused(t, db.conn, refusedChange, `UPDATE operations SET settlement = 'settled' WHERE `+oneOperation, authorized.Key)
}

// anOperation inserts an authorized one as the owner; each column can be replaced.
const anOperation = `INSERT INTO operations (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, in_doubt,
	held, fence, claim_token, lease_until, first_sent_at, outcome_at, partner, credential, partner_key, transfer_id, code, settlement, contradicted_at)
	SELECT {key}, {amount_minor}, 1, {fingerprint}, {currency}, 'wallet', 'gbp-fps', 'cust-4471', {state}, {in_doubt}, {held}, {fence}, {claim_token},
	{lease_until}, {first_sent_at}, {outcome_at}, {partner}, '2026-11', {partner_key}, {transfer_id}, {code}, {settlement}, {contradicted_at}`

func insertOperation(replaced ...string) string {
	values := []string{"{key}", "gen_random_uuid()", "{amount_minor}", "4900", "{fingerprint}", "sha256('job')", "{currency}", "'GBP'",
		"{state}", "'authorized'", "{in_doubt}", "false", "{held}", "false", "{fence}", "1", "{claim_token}", "gen_random_uuid()",
		"{lease_until}", "NULL::timestamptz", "{first_sent_at}", "now()", "{outcome_at}", "now()", "{partner}", "'northbank'",
		"{partner_key}", "'pk'", "{transfer_id}", "'tr_1'", "{code}", "NULL", "{settlement}", "'pending'::settlement_state",
		"{contradicted_at}", "NULL::timestamptz"}
	var pairs []string // the first of two pairs with the same old text counts
	for i := 0; i < len(replaced); i += 2 {
		pairs = append([]string{"{" + replaced[i] + "}", replaced[i+1]}, pairs...)
	}
	return strings.NewReplacer(append(pairs, values...)...).Replace(anOperation)
}

// TestI4I6_NobodyButTheOwnerMakesAnAuthorization that was not reached, nor entries of another one.
func TestI4I6_NobodyButTheOwnerMakesAnAuthorization(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	worker := connect(t, db.urls.Worker)
	for _, state := range []string{"authorized", "rejected", "parked"} {
		refused(t, worker, refusedChange, insertOperation("state", "'"+state+"'"))
	}
	open, authorized := mustClaim(t, db.Ledger, newWish()), mustClaim(t, db.Ledger, newWish())
	mustRecord(t, db.Ledger, ledger.Authorize(authorized, "tr_1"))
	const enter = `INSERT INTO entries (operation_id, event, account, amount_minor, currency)
		SELECT $1::int8, 'authorized', 'other:' || sign(a.minor), a.minor, $3 FROM unnest(ARRAY[-$2::int8, $2::int8]) AS a(minor)`
	refused(t, worker, refusedUnbalanced, enter, open.OperationID, 4900, "GBP")
	refused(t, worker, refusedUnbalanced, enter, authorized.OperationID, 4900, "EUR")
	refused(t, worker, refusedUnbalanced, enter, authorized.OperationID, 4901, "GBP")
	refused(t, worker, refusedUnbalanced, enter, 1<<40, 4900, "GBP")
	if _, err := worker.Exec(t.Context(), `CREATE TEMPORARY TABLE operations (LIKE public.operations)`); err != nil { // one of its own
		t.Fatal(err)
	}
	refused(t, worker, refusedChange, strings.Replace(insertOperation(), "INSERT INTO operations", "INSERT INTO public.operations", 1))
	refused(t, worker, refusedUnbalanced, enter, open.OperationID, 4900, "GBP")
	if _, err := worker.Exec(t.Context(), enter, authorized.OperationID, 4900, "GBP"); err != nil {
		t.Errorf("entries that agree: %v", err)
	}
}

func TestI3I5_EveryCheckRefuses(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	db.exec(insertOperation())
	db.exec(insertOperation("state", "'open'", "outcome_at", "NULL::timestamptz", "settlement", "NULL::settlement_state"))
	open := func(more ...string) []string {
		return append([]string{"state", "'open'", "outcome_at", "NULL::timestamptz", "settlement", "NULL::settlement_state", "transfer_id", "NULL"}, more...)
	}
	for _, c := range []struct {
		constraint string
		replaced   []string
	}{
		{"operations_authorized", []string{"transfer_id", "NULL"}},
		{"operations_authorized", []string{"transfer_id", "''"}},
		{"operations_authorized", []string{"partner", "NULL"}},
		{"operations_authorized", []string{"partner_key", "NULL"}},
		{"operations_authorized", []string{"first_sent_at", "NULL::timestamptz"}},
		{"operations_outcome_time", []string{"outcome_at", "NULL::timestamptz"}},
		{"operations_outcome_time", open("outcome_at", "now()")},
		{"operations_settlement", []string{"settlement", "NULL::settlement_state"}},
		{"operations_settlement", open("settlement", "'pending'::settlement_state")},
		{"operations_doubt", []string{"in_doubt", "true"}},
		{"operations_doubt_sent", open("in_doubt", "true", "first_sent_at", "NULL::timestamptz")},
		{"operations_amount_positive", []string{"amount_minor", "0"}},
		{"operations_amount_positive", []string{"amount_minor", "-1"}},
		{"operations_currency", []string{"currency", "'gbp'"}},
		{"operations_currency", []string{"currency", "'GBPX'"}},
		{"operations_key_real", []string{"key", "'00000000-0000-0000-0000-000000000000'"}},
		{"operations_key_real", []string{"key", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"}},
		{"operations_fingerprint_length", []string{"fingerprint", "'short'"}},
		{"operations_fence", []string{"fence", "-1"}},
		{"operations_claim", open("state", "'claimed'")},
		{"operations_claim", open("state", "'claimed'", "lease_until", "now()", "claim_token", "NULL::uuid")},
		{"operations_claim", open("state", "'claimed'", "lease_until", "now()", "fence", "0")},
		{"operations_contradicted", open("contradicted_at", "now()")},
		{"operations_held", open("state", "'parked'", "held", "true", "code", "'x'")},
		{"operations_reason", open("held", "true")},
		{"operations_reason", open("state", "'parked'")},
		{"operations_reason", open("state", "'rejected'", "outcome_at", "now()", "code", "''")},
		{"operations_reason", open("state", "'cancelled'", "outcome_at", "now()")},
	} {
		_, err := db.conn.Exec(context.Background(), insertOperation(c.replaced...))
		if err == nil || !strings.Contains(err.Error(), `"`+c.constraint+`"`) || !strings.Contains(err.Error(), checkViolation) {
			t.Errorf("%v: error %v, want a violation of %s", c.replaced, err, c.constraint)
		}
	}
	for _, column := range []string{"key", "amount_minor", "fingerprint", "currency", "state"} {
		refused(t, db.conn, notNullViolation, insertOperation(column, "NULL"))
	}
	refused(t, db.conn, invalidEnum, insertOperation("state", "'done'"))
	key := "'01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11'"
	db.exec(insertOperation("key", key))
	refused(t, db.conn, uniqueViolation, insertOperation("key", key))
}

func TestInvariant6_EntriesBalanceOrAreRefused(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	const insert = `INSERT INTO entries (operation_id, event, amount_minor, currency, account) VALUES `
	db.exec(insert + `(1, 'authorized', -4900, 'GBP', 'customer:wallet/c'), (1, 'authorized', 4900, 'GBP', 'transit:northbank')`)
	for name, values := range map[string]string{
		"one side":             `(2, 'authorized', -4900, 'GBP', 'a')`,
		"off by one":           `(2, 'authorized', -4900, 'GBP', 'a'), (2, 'authorized', 4899, 'GBP', 'b')`,
		"two currencies":       `(2, 'authorized', -4900, 'GBP', 'a'), (2, 'authorized', 4900, 'EUR', 'b')`,
		"across two operation": `(2, 'authorized', -4900, 'GBP', 'a'), (3, 'authorized', 4900, 'GBP', 'b')`,
		"one side of another":  `(1, 'settled', -4900, 'GBP', 'a')`,
		"across two events":    `(2, 'authorized', -4900, 'GBP', 'a'), (2, 'settled', 4900, 'GBP', 'b')`,
	} {
		t.Run(name, func(t *testing.T) { refused(t, db.conn, refusedUnbalanced, insert+values) })
	}
	refused(t, db.conn, checkViolation, insert+`(2, 'authorized', 0, 'GBP', 'a')`)
	refused(t, db.conn, checkViolation, insert+`(2, 'authorized', -1, 'gbp', 'a'), (2, 'authorized', 1, 'gbp', 'b')`)
	refused(t, db.conn, invalidEnum, insert+`(2, 'rejected', -1, 'GBP', 'a'), (2, 'rejected', 1, 'GBP', 'b')`)
	refused(t, db.conn, uniqueViolation, insert+`(1, 'authorized', -4900, 'GBP', 'customer:wallet/c'), (1, 'authorized', 4900, 'GBP', 'transit:northbank')`)
	refused(t, db.conn, refusedErasure, `UPDATE entries SET amount_minor = 2 * amount_minor`)
	db.wantCount(2, "entries", `SELECT count(*) FROM entries`)
}

// evidence makes one row in each table that keeps evidence.
func evidence(db *database) {
	db.t.Helper()
	ctx := context.Background()
	w := newWish()
	c := mustClaim(db.t, db.Ledger, w)
	mustRecord(db.t, db.Ledger, ledger.Authorize(c, "tr_1", verdict("authorized")))
	db.Append(ctx, []ledger.Late{{Key: newWish().Key, Facts: []ledger.Fact{verdict("authorized")}}})
	if err := db.Pause(ctx, ledger.ScopeAll, "", "why", "ann"); err != nil {
		db.t.Fatal(err)
	}
	db.exec(`INSERT INTO recoveries (by, reason, from_system, from_timeline, to_system, to_timeline, put_in_doubt) VALUES ('ann', 'why', '1', 1, '2', 2, 0)`)
	for _, table := range []string{"operations", "attempts", "observations", "entries", "strays", "pause_log", "recoveries", "payloads"} {
		db.t.Logf("%s: %d", table, value[int64](db, `SELECT count(*) FROM `+table))
		if value[int64](db, `SELECT count(*) FROM `+table) == 0 {
			db.t.Fatalf("no row in %s: the test would prove nothing", table)
		}
	}
}

func TestF1_TheWorkersRoleCannotEraseOrChangeEvidence(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	evidence(db)
	worker := connect(t, db.urls.Worker)
	for _, table := range []string{"operations", "attempts", "observations", "entries", "strays", "pause_log", "payloads", "recoveries", "ledger_identity"} {
		refused(t, worker, insufficientRight, `DELETE FROM `+table)
		refused(t, worker, insufficientRight, `TRUNCATE `+table)
		refused(t, worker, insufficientRight, `ALTER TABLE `+table+` DISABLE TRIGGER ALL`)
		refused(t, worker, insufficientRight, `DROP TABLE `+table)
	}
	refused(t, worker, insufficientRight, `DELETE FROM pauses`) // a program stops; a person lets go on
	for table, set := range map[string]string{
		"attempts": "at = now()", "observations": "verdict = ''", "entries": "amount_minor = 1", "strays": "verdict = ''", "pause_log": "by = 'x'",
		"payloads": "body = ''", "recoveries": "by = 'x'", "ledger_identity": "timeline = 9", "pauses": "reason = 'x'",
	} {
		refused(t, worker, insufficientRight, `UPDATE `+table+` SET `+set)
	}
	for _, column := range []string{"id", "key", "amount_minor", "created_at", "fingerprint_version", "fingerprint", "currency", "source", "route", "debtor_account"} {
		refused(t, worker, insufficientRight, `UPDATE operations SET `+column+` = DEFAULT`)
	}
	refused(t, worker, insufficientRight, `INSERT INTO recoveries (by, reason, from_system, from_timeline, to_system, to_timeline, put_in_doubt) VALUES ('x', 'x', '1', 1, '2', 2, 0)`)
	refused(t, worker, insufficientRight, `UPDATE goose_db_version SET version_id = 9`)
	refused(t, worker, insufficientRight, `CREATE TABLE mine (id int)`)
	refused(t, worker, insufficientRight, `SET session_replication_role = replica`)
}

func TestF2_TriggersBindTheOwnerToo(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	evidence(db)
	for _, table := range []string{"operations", "attempts", "observations", "entries", "strays", "pause_log", "recoveries"} {
		refused(t, db.conn, refusedErasure, `DELETE FROM `+table)
		refused(t, db.conn, refusedErasure, `TRUNCATE `+table)
		refused(t, db.conn, refusedErasure, `TRUNCATE `+table+` CASCADE`)
	}
	for table, set := range map[string]string{
		"attempts": "at = now()", "observations": "verdict = ''", "entries": "amount_minor = 1", "strays": "verdict = ''", "pause_log": "by = 'x'",
		"payloads": "body = ''", "recoveries": "by = 'x'",
	} {
		refused(t, db.conn, refusedErasure, `UPDATE `+table+` SET `+set)
	}
	db.exec(`DELETE FROM payloads`) // a purge may
}

func TestF1_TheReaderSeesNoPayload(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	for right, want := range map[string]bool{
		`has_table_privilege('paidonce_reader', 'operations', 'SELECT')`:             true,
		`has_table_privilege('paidonce_reader', 'observations', 'SELECT')`:           true,
		`has_table_privilege('paidonce_reader', 'payloads', 'SELECT')`:               false,
		`has_any_column_privilege('paidonce_reader', 'payloads', 'SELECT')`:          false,
		`has_any_column_privilege('paidonce_reader', 'operations', 'UPDATE')`:        false,
		`has_table_privilege('paidonce_reader', 'pauses', 'INSERT, UPDATE, DELETE')`: false,
	} {
		if got := value[bool](db, `SELECT `+right); got != want {
			t.Errorf("%s: %t, want %t", right, got, want)
		}
	}
}

func TestD13_KeyIsUUIDAndNoUniqueIndexIsOnCollatedText(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	if got := value[string](db, `SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'operations'::regclass AND attname = 'key'`); got != "uuid" {
		t.Errorf("operations.key is %s, want uuid", got)
	}
	db.wantCount(0, "unique indexes on text whose collation a library update can change", `
		SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace s ON s.oid = c.relnamespace
		  CROSS JOIN LATERAL unnest(i.indcollation) AS x(coll) JOIN pg_collation l ON l.oid = x.coll
		 WHERE i.indisunique AND s.nspname = 'public' AND c.relname NOT LIKE 'goose%' AND l.collname NOT IN ('C', 'POSIX', 'ucs_basic')`)
}

func TestD15_EveryColumnOfAUniqueIndexIsNotNull(t *testing.T) {
	db := newDatabase(t, ledger.Options{})
	// Three are meant, and a CHECK or the condition of the index says when: a run whose content is let through again guards none
	// (batch_runs_unguarded), only a replay has a number, and a correction of a letter without a readable key is guarded by its bytes.
	db.wantCount(0, "nullable columns of unique indexes", `
		SELECT count(*) FROM pg_index i JOIN pg_class x_i ON x_i.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace s ON s.oid = c.relnamespace
		  CROSS JOIN LATERAL unnest(i.indkey) AS x(n) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.n
		 WHERE i.indisunique AND s.nspname = 'public' AND NOT a.attnotnull AND x_i.relname NOT IN ('batch_runs_content', 'dead_letter_acts_replay_n', 'corrections_old_key')`)
	db.wantCount(1, "unique indexes of the key", `
		SELECT count(*) FROM pg_index i WHERE i.indrelid = 'operations'::regclass AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
		   AND i.indnatts = 1 AND i.indkey[0] = (SELECT attnum FROM pg_attribute WHERE attrelid = 'operations'::regclass AND attname = 'key')`)
	db.wantCount(0, "indexes on columns of operations that change", `
		SELECT count(*) FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) AS x(n) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = x.n
		 WHERE i.indrelid = 'operations'::regclass AND a.attname NOT IN ('id', 'key', 'contradicted_at')`)
}
