package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const chunkRows = 50_000

// fillHelpers are functions of the number of a row, so that every table says the same of it.
const fillHelpers = `
CREATE SCHEMA IF NOT EXISTS growth;
CREATE OR REPLACE FUNCTION growth.made(g bigint, n bigint, until timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
  $$ SELECT until - interval '1 hour' - (n - g) * (interval '300 days' / n) $$;
CREATE OR REPLACE FUNCTION growth.v4(mix text, at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
  $$ SELECT (left(mix, 12) || '4' || substr(mix, 14, 3) || '8' || substr(mix, 18))::uuid $$;
CREATE OR REPLACE FUNCTION growth.v7(mix text, at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
  $$ SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(mix, 14, 3) || '8' || substr(mix, 18))::uuid $$;
CREATE OR REPLACE FUNCTION growth.state(g bigint) RETURNS operation_state LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
  $$ SELECT CASE WHEN g % 4000 = 1 THEN 'open' WHEN g % 5000 = 2 THEN 'parked' WHEN g % 50 < 3 THEN 'rejected' WHEN g % 100 = 53 THEN 'cancelled'
            ELSE 'authorized' END::operation_state $$`

// fillTables inserts rows $1 to $2 of $3, which end at $4, table by table.
func fillTables(kind string) []string {
	key := "growth." + kind + "(mix, at)"
	from := `(SELECT g, at, state, mix, mixed, 100 + ('x' || left(mix, 7))::bit(28)::bigint % 1000000 AS minor,
	'cust-' || lpad((('x' || right(mix, 7))::bit(28)::bigint % 1000000)::text, 6, '0') AS account
	  FROM (SELECT g, growth.made(g, $3::bigint, $4::timestamptz) AS at, growth.state(g) AS state, md5('growth ' || g) AS mix, md5('mixed ' || g) AS mixed
	          FROM generate_series($1::bigint, $2::bigint) AS g OFFSET 0) AS once) AS row`
	return []string{
		`INSERT INTO operations (id, key, amount_minor, created_at, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, in_doubt,
		        unobserved, settlement, fence, claim_token, first_sent_at, outcome_at, partner, credential, partner_key, transfer_id, code)
		 OVERRIDING SYSTEM VALUE
		 SELECT g, ` + key + `, minor, at, 1, decode(mix || mix, 'hex'), 'GBP', 'wallet', 'gbp-fps', account, state, state = 'parked',
		        0, CASE WHEN state = 'authorized' THEN 'pending'::settlement_state END, (state <> 'cancelled')::int,
		        CASE WHEN state <> 'cancelled' THEN growth.v7(mixed, at) END, CASE WHEN state <> 'cancelled' THEN at END,
		        CASE WHEN state IN ('authorized', 'rejected', 'cancelled') THEN at + interval '400 ms' END,
		        CASE WHEN state <> 'cancelled' THEN 'northbank' END, CASE WHEN state <> 'cancelled' THEN 'growth' END,
		        CASE WHEN state <> 'cancelled' THEN growth.v4(mixed, at)::text END, CASE WHEN state = 'authorized' THEN 'tr_' || g END,
		        CASE state WHEN 'rejected' THEN 'account_closed' WHEN 'cancelled' THEN 'expired' WHEN 'parked' THEN 'in_doubt_too_long' END
		   FROM ` + from,
		`INSERT INTO payloads (operation_id, published_at, body)
		 SELECT g, at, convert_to('{"v":1,"key":"' || ` + key + ` || '","debtor_account":"' || account || '","amount":"' || minor / 100 || '.' || lpad((minor % 100)::text, 2, '0')
		        || '","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},"reference":"Withdrawal ' || lpad((g % 1000000)::text, 6, '0')
		        || '","metadata":{"note":"' || repeat('x', 120) || '"}}', 'UTF8')
		   FROM ` + from,
		`INSERT INTO attempts (operation_id, fence, renderer, claim_token, at, body_sha256, partner, credential, endpoint, partner_key, end_to_end_id)
		 SELECT g, 1, 1, growth.v7(mixed, at), at, decode(mix || mix, 'hex'), 'northbank', 'growth', 'POST http://127.0.0.1:12345/v1/transfers',
		        growth.v4(mixed, at)::text, upper(left(mixed, 26))
		   FROM ` + from + ` WHERE state <> 'cancelled'`,
		`INSERT INTO observations (operation_id, claim_token, n, fence, at, authoritative, kind, verdict, transfer_id, code, evidence)
		 SELECT g, growth.v7(mixed, at), 0, (state <> 'cancelled')::int, at + interval '400 ms', state = 'rejected', CASE WHEN state = 'cancelled' THEN 'note' ELSE 'verdict' END,
		        CASE state WHEN 'authorized' THEN 'authorized' WHEN 'rejected' THEN 'rejected' WHEN 'open' THEN 'not_executed' WHEN 'parked' THEN 'unknown' ELSE '' END,
		        CASE WHEN state = 'authorized' THEN 'tr_' || g END, CASE state WHEN 'rejected' THEN 'account_closed' WHEN 'cancelled' THEN 'expired' END,
		        CASE WHEN state = 'cancelled' THEN '{}' ELSE '{"phase":"complete","status":201,"request_id":"req_0123456789abcdef","transfer_id":"tr_' || g || '","body_bytes":310,"elapsed_ms":1}' END::jsonb
		   FROM ` + from,
		`INSERT INTO entries (operation_id, event, at, amount_minor, currency, account)
		 SELECT g, 'authorized', at + interval '400 ms', side.sign * minor, 'GBP', CASE side.sign WHEN 1 THEN 'transit:northbank' ELSE 'customer:wallet/' || account END
		   FROM ` + from + ` CROSS JOIN (VALUES (-1), (1)) AS side(sign) WHERE state = 'authorized'`,
		`INSERT INTO due (operation_id, due_at, parked, partner)
		 SELECT g, now() + CASE WHEN state = 'parked' THEN interval '12 hours' ELSE interval '-1 minute' END, state = 'parked', 'northbank'
		   FROM ` + from + ` WHERE state IN ('open', 'parked')`,
	}
}

// fill brings the grown ledger to so many rows, and leaves a durable server.
func (s *server) fill(ctx context.Context, kind string, rows int) error {
	if err := s.start(ctx, false); err != nil {
		return err
	}
	if _, err := s.database(ctx, grownDatabase); err != nil {
		return err
	}
	if err := s.exec(ctx, grownDatabase, fillHelpers); err != nil {
		return err
	}
	var first int
	err := s.with(ctx, grownDatabase, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT coalesce(max(id), 0) + 1 FROM operations").Scan(&first)
	})
	if err != nil {
		return fmt.Errorf("find the end of the ledger: %w", err)
	}
	if err := s.fillRange(ctx, kind, first, rows); err != nil {
		return err
	}
	sql := fmt.Sprintf("SELECT setval('operations_id_seq', greatest(%d, (SELECT max(id) FROM operations)))", rows)
	if err := s.exec(ctx, grownDatabase, sql); err != nil {
		return err
	}
	if err := s.exec(ctx, grownDatabase, "VACUUM (FREEZE, ANALYZE)"); err != nil {
		return err
	}
	return s.start(ctx, true)
}

func (s *server) fillRange(ctx context.Context, kind string, first, rows int) error {
	cfg, err := pgx.ParseConfig(s.postgres.URL(grownDatabase, ""))
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	cfg.RuntimeParams["session_replication_role"] = "replica" // no triggers: the rows are balanced, and prove looks again
	cfg.RuntimeParams["work_mem"] = "64MB"
	until := time.Now()
	var next, done atomic.Int64
	next.Store(int64(first))
	group, ctx := errgroup.WithContext(ctx)
	for range s.o.fillers {
		group.Go(func() error {
			conn, err := pgx.ConnectConfig(ctx, cfg)
			if err != nil {
				return fmt.Errorf("connect to postgres: %w", err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // its work is committed or failed
			for {
				from := next.Add(chunkRows) - chunkRows
				if from > int64(rows) {
					return nil
				}
				to := min(from+chunkRows-1, int64(rows))
				for _, sql := range fillTables(kind) {
					if _, err := conn.Exec(ctx, sql, from, to, rows, until); err != nil {
						return fmt.Errorf("rows %d to %d: %.30s: %w", from, to, sql, err)
					}
				}
				if n := done.Add(to - from + 1); n%1_000_000 < chunkRows {
					s.say("filled %d", n)
				}
			}
		})
	}
	return group.Wait()
}
