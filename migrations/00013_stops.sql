-- A cancelled run wants its rows stopped, also those that are under way or in doubt at that moment: nothing more is sent for them. They are still asked
-- after, since what was sent may have been paid.
--
-- Why a table: the mark is read where the sweep remembers what it claimed, and costs a claim by delivery nothing. An operation's state says the same as
-- before: what is in doubt is not ended by somebody's wish.

-- +goose Up
CREATE TABLE stops (
    operation_id bigint PRIMARY KEY,
    code         text        NOT NULL, -- the reason with which it ends, if nothing was sent
    at           timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT stops_code CHECK (code <> '')
);
CREATE TRIGGER stops_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON stops FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();

-- As before, and marks what it does not end. Each statement sees what was committed before it, so whatever a worker records between the two is marked.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cancel_run_rows(run uuid, after integer, most integer, token uuid, OUT seen integer, OUT last integer, OUT ended integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  ids bigint[];
  of_source text;
BEGIN
  SELECT r.source INTO of_source FROM batch_runs r WHERE r.id = run AND r.state = 'cancelled'
     AND (owner_speaks('database:' || session_user)
          OR EXISTS (SELECT FROM audit l WHERE l.act = 'batch_cancel' AND l.target = r.run_key AND operator_proven(l."by", '{operator,admin}')
                        AND NOT EXISTS (SELECT FROM audit_results x WHERE x.audit_id = l.id)));
  IF NOT FOUND THEN
    RAISE EXCEPTION 'cancel_run_rows: without a line of the audit log, or without its operator''s token' USING ERRCODE = 'PO023';
  END IF;
  SELECT array_agg(p.operation_id), count(*), max(p.n) INTO ids, seen, last
    FROM (SELECT b.n, b.operation_id FROM batch_rows b WHERE b.run_id = run AND b.n > after ORDER BY b.n LIMIT most) p;
  WITH locked AS MATERIALIZED ( -- in the order of their keys, as every statement over many rows does
    SELECT o.id FROM operations o WHERE o.id = ANY(ids) AND o.state = 'open' AND NOT o.in_doubt AND o.source = of_source ORDER BY o.key FOR UPDATE
  ), cancelled AS (
    UPDATE operations o SET state = 'cancelled', outcome_at = now(), held = false, code = 'run_cancelled', lease_until = NULL
      FROM locked l WHERE o.id = l.id AND o.state = 'open' AND NOT o.in_doubt
    RETURNING o.id, o.fence
  ), note AS (
    INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, code) SELECT id, token, 0, fence, 'note', '', 'run_cancelled' FROM cancelled
  ), event AS (
    INSERT INTO outbox (operation_id, fence, type, code) SELECT id, fence, 'cancelled', 'run_cancelled' FROM cancelled
  ), forgotten AS (
    DELETE FROM due USING cancelled c WHERE due.operation_id = c.id
  )
  DELETE FROM unpublished_jobs u USING cancelled c WHERE u.operation_id = c.id;
  INSERT INTO stops (operation_id, code)
  SELECT o.id, 'run_cancelled' FROM operations o WHERE o.id = ANY(ids) AND o.source = of_source AND o.state IN ('open', 'claimed', 'parked')
  ON CONFLICT DO NOTHING;
  -- With those of an earlier try.
  SELECT count(*) INTO ended FROM operations o WHERE o.id = ANY(ids) AND o.state = 'cancelled' AND o.code = 'run_cancelled';
END $$;
-- +goose StatementEnd

-- What earlier cancellations left.
INSERT INTO stops (operation_id, code)
SELECT d.operation_id, 'run_cancelled' FROM batch_runs r JOIN batch_rows b ON b.run_id = r.id JOIN due d ON d.operation_id = b.operation_id
 WHERE r.state = 'cancelled' ON CONFLICT DO NOTHING;
