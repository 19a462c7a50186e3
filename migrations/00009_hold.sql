-- A paused run starts nothing more: what is enqueued and not begun is held, row by row, as a cancellation ends it. And a run changes its state
-- under a line of the audit log only.
--
-- Why not as the pauses of a scope, which are read inside the claim: every claim would have to find the run of its operation. A held operation
-- is refused by the claim as it stands, and its next look lies so far ahead that the sweep of an older program does not find it either.

-- +goose Up
-- A line is written with its operator's token, before the act. Where a second person was asked, it is under that person's agreement.
-- +goose StatementBegin
CREATE FUNCTION refuse_state_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  wanted text := CASE NEW.state WHEN 'paused' THEN 'batch_pause' WHEN 'cancelled' THEN 'batch_cancel'
                      ELSE CASE OLD.state WHEN 'paused' THEN 'batch_resume' ELSE 'batch_submit' END END;
  asked boolean := wanted = 'batch_submit' AND (NEW.again_reason IS NOT NULL
                   OR EXISTS (SELECT FROM proposals p WHERE p.act = 'batch_submit' AND p.target = NEW.run_key));
BEGIN
  IF NOT EXISTS (SELECT FROM audit l WHERE l.act = wanted AND l.target = NEW.run_key AND l.by = NEW.changed_by
                    AND (NOT asked OR EXISTS (SELECT FROM executions e WHERE e.proposal_id = l.proposal_id))
                    AND NOT EXISTS (SELECT FROM audit_results r WHERE r.audit_id = l.id)) THEN
    RAISE EXCEPTION 'batch run %: % by nobody that the audit log knows%', NEW.run_key, NEW.state,
      CASE WHEN asked THEN ', or without the second person who was asked' ELSE '' END USING ERRCODE = 'PO023';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
DROP TRIGGER batch_runs_release ON batch_runs;
DROP FUNCTION refuse_release();
CREATE TRIGGER batch_runs_state BEFORE UPDATE ON batch_runs FOR EACH ROW
WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION refuse_state_change();

-- No row of a run is an operation before the run is released.
-- +goose StatementBegin
CREATE FUNCTION refuse_early_rows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM (SELECT DISTINCT run_id FROM fresh) f LEFT JOIN batch_runs r ON r.id = f.run_id WHERE r.state IS DISTINCT FROM 'released') THEN
    RAISE EXCEPTION 'batch_rows: operations of a run that is not released' USING ERRCODE = 'PO022';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER batch_rows_released AFTER INSERT ON batch_rows REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION refuse_early_rows();

-- Rows of a run in pages, for who pauses or resumes it, with that person's token. The state of the run is locked for the page, so what was said
-- last is what remains.
-- +goose StatementBegin
CREATE FUNCTION rows_under(run uuid, wanted text, in_state text, after integer, most integer, OUT of_source text, OUT ids bigint[], OUT seen integer, OUT last integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  stands text;
BEGIN
  SELECT r.source, r.state INTO of_source, stands FROM batch_runs r WHERE r.id = run
     AND (owner_speaks('database:' || session_user)
          OR EXISTS (SELECT FROM audit l WHERE l.act = wanted AND l.target = r.run_key AND operator_proven(l."by", '{operator,admin}')
                        AND NOT EXISTS (SELECT FROM audit_results x WHERE x.audit_id = l.id))) FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION '%: without a line of the audit log, or without its operator''s token', wanted USING ERRCODE = 'PO023';
  ELSIF stands <> in_state THEN
    RAISE EXCEPTION '%: meanwhile somebody else has said that the run is %', wanted, stands USING ERRCODE = 'PO024';
  END IF;
  SELECT array_agg(p.operation_id), count(*), max(p.n) INTO ids, seen, last
    FROM (SELECT b.n, b.operation_id FROM batch_rows b WHERE b.run_id = run AND b.n > after ORDER BY b.n LIMIT most) p;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION hold_run_rows(run uuid, after integer, most integer, OUT seen integer, OUT last integer, OUT moved integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  page record;
BEGIN
  SELECT u.of_source, u.ids, u.seen, u.last INTO page FROM rows_under(run, 'batch_pause', 'paused', after, most) u;
  WITH locked AS MATERIALIZED ( -- in the order of their keys, as every statement over many rows does
    SELECT o.id FROM operations o WHERE o.id = ANY(page.ids) AND o.state = 'open' AND NOT o.in_doubt AND o.source = page.of_source ORDER BY o.key FOR UPDATE
  ), held AS (
    UPDATE operations o SET held = true, code = 'run_paused' FROM locked l
     WHERE o.id = l.id AND o.state = 'open' AND NOT o.in_doubt AND NOT (o.held AND o.code = 'run_paused')
    RETURNING o.id
  ), later AS (
    UPDATE due d SET due_at = now() + interval '100 years' FROM held h WHERE d.operation_id = h.id
  )
  SELECT count(*) INTO moved FROM held;
  seen := page.seen;
  last := page.last;
END $$;
-- +goose StatementEnd
-- What was held comes back between two times from now, so that the partner is not flooded; not before its own time.
-- +goose StatementBegin
CREATE FUNCTION free_run_rows(run uuid, after integer, most integer, from_ms bigint, to_ms bigint, OUT seen integer, OUT last integer, OUT moved integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  page record;
BEGIN
  SELECT u.of_source, u.ids, u.seen, u.last INTO page FROM rows_under(run, 'batch_resume', 'released', after, most) u;
  WITH locked AS MATERIALIZED (
    SELECT o.id FROM operations o WHERE o.id = ANY(page.ids) AND o.state = 'open' AND o.held AND o.code = 'run_paused' AND o.source = page.of_source
     ORDER BY o.key FOR UPDATE
  ), freed AS (
    UPDATE operations o SET held = false, code = NULL FROM locked l WHERE o.id = l.id AND o.held AND o.code = 'run_paused' RETURNING o.id
  ), soon AS (
    UPDATE due d SET due_at = greatest(now() + (from_ms + random() * (to_ms - from_ms)) * interval '1 ms', p.not_before)
      FROM freed f LEFT JOIN payloads p ON p.operation_id = f.id WHERE d.operation_id = f.id
  )
  SELECT count(*) INTO moved FROM freed;
  seen := page.seen;
  last := page.last;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION rows_under(uuid, text, text, integer, integer), hold_run_rows(uuid, integer, integer),
  free_run_rows(uuid, integer, integer, bigint, bigint) FROM PUBLIC;

-- Neither the end of another pause nor a look-up begins what a paused run holds.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ask_operation(line bigint, on_key uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  PERFORM refuse_desk(line, 'look_up', on_key::text, NULL);
  UPDATE due d SET due_at = now() FROM operations o WHERE o.key = on_key AND d.operation_id = o.id AND o.state IN ('open', 'parked') AND d.due_at > now()
     AND NOT (o.held AND o.code = 'run_paused');
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bring_back(line bigint, on_scope text, named text, spread_ms bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  PERFORM refuse_desk(line, 'resume', btrim(on_scope || ' ' || named), NULL);
  WITH free AS (
    SELECT d.operation_id FROM due d JOIN operations o ON o.id = d.operation_id
     WHERE o.held AND o.code <> 'run_paused' AND d.due_at > now() + spread_ms * interval '1 ms'
       AND NOT EXISTS (SELECT FROM pauses p WHERE p.scope = on_scope AND p.name = named)
       AND (on_scope = 'all' OR (on_scope = 'partner' AND d.partner = named) OR (on_scope = 'route' AND o.route = named)
            OR (on_scope = 'source' AND o.source = named))
       FOR UPDATE OF d SKIP LOCKED
  )
  UPDATE due d SET due_at = now() + random() * spread_ms * interval '1 ms' FROM free f WHERE d.operation_id = f.operation_id;
END $$;
-- +goose StatementEnd
