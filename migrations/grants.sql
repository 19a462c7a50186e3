-- Rights of the application's roles (deploy/postgres/roles.sql makes them). Applied after every migration; a role that is not there is left out,
-- so that a laptop with one superuser works too. What is not granted here is refused: above all UPDATE and DELETE on evidence. So what an
-- earlier version of this file granted is taken back first, in the same transaction.
DO $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT CASE WHEN c.relkind = 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass AS what, g.rolname
             FROM pg_class c JOIN pg_roles g ON g.rolname IN ('paidonce_app', 'paidonce_reader', 'paidonce_operator', 'paidonce_batch')
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
              AND c.relowner = (SELECT relowner FROM pg_class WHERE oid = 'operations'::regclass)
              AND (EXISTS (SELECT FROM aclexplode(c.relacl) x WHERE x.grantee = g.oid)
                   OR EXISTS (SELECT FROM pg_attribute a CROSS JOIN LATERAL aclexplode(a.attacl) x WHERE a.attrelid = c.oid AND x.grantee = g.oid))
           UNION ALL
           SELECT 'FUNCTION ' || p.oid::regprocedure, g.rolname
             FROM pg_proc p JOIN pg_roles g ON g.rolname IN ('paidonce_app', 'paidonce_reader', 'paidonce_operator', 'paidonce_batch')
            WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = (SELECT relowner FROM pg_class WHERE oid = 'operations'::regclass)
              AND EXISTS (SELECT FROM aclexplode(p.proacl) x WHERE x.grantee = g.oid)
  LOOP
    EXECUTE format('REVOKE ALL ON %s FROM %I', r.what, r.rolname);
  END LOOP;
END $$;
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_app') THEN
    GRANT USAGE ON SCHEMA public TO paidonce_app;
    GRANT SELECT, INSERT ON operations, payloads, attempts, observations, strays, entries, pause_log TO paidonce_app;
    GRANT UPDATE (state, in_doubt, held, unobserved, epoch, settlement, fence, claim_token, lease_until, first_sent_at, outcome_at,
                  contradicted_at, partner, credential, partner_key, transfer_id, code) ON operations TO paidonce_app;
    GRANT SELECT, INSERT, UPDATE, DELETE ON due, outbox, unpublished_jobs, leases TO paidonce_app;
    GRANT SELECT, INSERT ON pauses TO paidonce_app; -- a program stops; a person lets go on
    GRANT SELECT ON ledger_identity, recoveries, fast_clocks, goose_db_version TO paidonce_app;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_reader') THEN
    GRANT USAGE ON SCHEMA public TO paidonce_reader;
    GRANT SELECT ON operations, attempts, observations, strays, entries, outbox, unpublished_jobs, due, pauses, pause_log, ledger_identity,
      recoveries, fast_clocks, leases, goose_db_version TO paidonce_reader; -- not payloads: beneficiaries live there
  END IF;
END $$;
-- Operators: what the desk (command line, console) does in the name of a person. It writes nothing of an operation, nor of a pause, but through
-- functions that ask for the line of the audit log, the token and the approval.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_operator') THEN
    GRANT USAGE ON SCHEMA public TO paidonce_operator;
    GRANT SELECT ON operations, payloads, attempts, observations, strays, entries, outbox, unpublished_jobs, due, pauses, pause_log, ledger_identity,
      recoveries, fast_clocks, leases, goose_db_version, operators, operator_limits, audit, audit_results, proposals, approvals, executions, closures TO paidonce_operator;
    GRANT SELECT (operator, made_at, made_by, valid_until) ON operator_tokens TO paidonce_operator;
    GRANT INSERT ON audit, audit_results, proposals, approvals, executions, operators, operator_tokens TO paidonce_operator;
    GRANT UPDATE (disabled_at, disabled_by) ON operators TO paidonce_operator;
    GRANT UPDATE (valid_until) ON operator_tokens TO paidonce_operator;
    GRANT EXECUTE ON FUNCTION operator_of(bytea), operators_any(), others_decide(text), said_of(uuid), lock_operation(bigint, uuid),
      resolve_operation(bigint, uuid, integer, text, text, text, uuid, jsonb), cancel_operation(bigint, uuid, text, uuid),
      ask_operation(bigint, uuid), pause_scope(bigint, text, text, text, text), resume_scope(bigint, text, text, text, text),
      bring_back(bigint, text, text, bigint) TO paidonce_operator;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_reader') THEN
    GRANT SELECT ON operators, operator_limits, audit, audit_results, proposals, approvals, executions, closures TO paidonce_reader;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_app') THEN
    GRANT SELECT, INSERT, UPDATE, DELETE ON closures TO paidonce_app;
  END IF;
END $$;
-- Batch payout runs: what `paidonce batch` does beside the desk. Only this role and the application's make operations.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_batch') THEN
    GRANT INSERT ON operations, payloads, due, unpublished_jobs TO paidonce_batch;
    GRANT DELETE, UPDATE ON unpublished_jobs TO paidonce_batch;
    GRANT INSERT (operation_id, fence, type) ON outbox TO paidonce_batch; -- in the order in which they come, and by a trigger 'accepted' only
    -- What is neither under way nor in doubt is ended, held and let go, and nothing else of an operation.
    GRANT EXECUTE ON FUNCTION cancel_run_rows(uuid, integer, integer, uuid), stop_run_keys(uuid, uuid[]), hold_run_rows(uuid, integer, integer),
      free_run_rows(uuid, integer, integer, bigint, bigint) TO paidonce_batch;
    GRANT USAGE ON SEQUENCE operations_id_seq TO paidonce_batch;
    GRANT INSERT ON batch_parts, batch_sums, batch_rows TO paidonce_batch;
    GRANT INSERT (id, run_key, by, reason, format, columns, source, route, not_before, rows, sums, counts, digest, content_digest, content_guard, again_reason,
                  duplicates, duplicates_reason, changed_by) ON batch_runs TO paidonce_batch; -- not its state: a run begins waiting
    GRANT UPDATE (state, changed_at, changed_by, content_guard) ON batch_runs TO paidonce_batch;
    GRANT UPDATE (recorded), DELETE ON batch_parts TO paidonce_batch;
    GRANT DELETE ON batch_sums TO paidonce_batch; -- by a trigger only before the run is on record
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_operator') THEN
    GRANT SELECT ON batch_runs, batch_parts, batch_sums, batch_rows, stops, key_stops TO paidonce_operator;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_app') THEN
    GRANT SELECT (id, run_key, state, changed_at) ON batch_runs TO paidonce_app; -- doctor names runs that nobody enqueues
    GRANT SELECT (run_id) ON batch_parts TO paidonce_app;
    GRANT SELECT (run_id, n, operation_id) ON batch_rows TO paidonce_app;
    GRANT SELECT ON stops, key_stops TO paidonce_app;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_reader') THEN
    GRANT SELECT ON batch_runs, batch_rows, stops, key_stops TO paidonce_reader; -- not batch_parts: beneficiaries lie there; nor what is hashed of them
  END IF;
END $$;
-- Dead letters: the index is the desk's to rebuild, what was done to letters is only added to.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_operator') THEN
    GRANT SELECT, INSERT, UPDATE, DELETE ON dead_letters TO paidonce_operator;
    GRANT SELECT, INSERT ON dead_plans, dead_plan_letters, corrections, dead_letter_acts TO paidonce_operator;
    GRANT INSERT, UPDATE, DELETE ON leases TO paidonce_operator; -- that one replay of a plan runs at a time
    GRANT EXECUTE ON FUNCTION close_corrected_key(uuid, smallint, bytea, text, text, text, bigint, text),
      close_discarded_key(timestamptz, bigint, smallint, bytea, text, text, text, bigint, text) TO paidonce_operator;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_app') THEN
    GRANT SELECT (new_key, stream_at, sequence, at, route, old_key) ON corrections TO paidonce_app; -- doctor and prove count what was not published
    GRANT SELECT (stream_at, sequence, act, at, key, replay_n, plan) ON dead_letter_acts TO paidonce_app; -- and replays of which nothing is known
    GRANT SELECT (stream_at, key, replays) ON dead_letters TO paidonce_app;
    GRANT SELECT (id, draft) ON dead_plans TO paidonce_app;
  END IF;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_reader') THEN
    GRANT SELECT ON dead_letters, dead_plans, dead_plan_letters, corrections, dead_letter_acts TO paidonce_reader;
  END IF;
END $$;
-- Purge: payloads are the one thing that is ever deleted, by operators and not by workers. Which ones, a trigger of migration 6 says.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_operator') THEN
    GRANT DELETE ON payloads TO paidonce_operator;
  END IF;
END $$;
