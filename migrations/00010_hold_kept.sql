-- What a paused run holds keeps what it had: a scheduled next attempt, and the reason for which it was held already. It expires in time. And what
-- comes in doubt is held by nobody: the partner must be asked, paused or not.
--
-- Why a table: most rows of a run have neither, and those that have come back to it. Hold and free stay one statement a page.

-- +goose Up
CREATE TABLE run_holds (
    operation_id bigint PRIMARY KEY,
    due_at       timestamptz NOT NULL, -- when it was to be looked at
    code         text                  -- why it was held before; NULL = it was not
);

-- What has a time after which it is not sent is looked at then, and expires. A row of a run that was never claimed has no schedule but its
-- not_before, so only the others are kept.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION hold_run_rows(run uuid, after integer, most integer, OUT seen integer, OUT last integer, OUT moved integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  page record;
BEGIN
  SELECT u.of_source, u.ids, u.seen, u.last INTO page FROM rows_under(run, 'batch_pause', 'paused', after, most) u;
  WITH locked AS MATERIALIZED ( -- in the order of their keys, as every statement over many rows does
    SELECT o.id, o.fence, o.held, o.code FROM operations o WHERE o.id = ANY(page.ids) AND o.state = 'open' AND NOT o.in_doubt AND o.source = page.of_source
     ORDER BY o.key FOR UPDATE
  ), held AS (
    UPDATE operations o SET held = true, code = 'run_paused' FROM locked l
     WHERE o.id = l.id AND o.state = 'open' AND NOT o.in_doubt AND NOT (o.held AND o.code = 'run_paused')
    RETURNING o.id, l.fence, l.held AS before, l.code
  ), kept AS (
    INSERT INTO run_holds AS k (operation_id, due_at, code)
    SELECT d.operation_id, d.due_at, CASE WHEN h.before THEN h.code END FROM held h JOIN due d ON d.operation_id = h.id WHERE h.fence > 0 OR h.before
    ON CONFLICT (operation_id) DO UPDATE SET due_at = excluded.due_at, code = excluded.code
  ), later AS (
    UPDATE due d SET due_at = least(now() + interval '100 years', p.not_after) FROM held h LEFT JOIN payloads p ON p.operation_id = h.id
     WHERE d.operation_id = h.id
  )
  SELECT count(*) INTO moved FROM held;
  seen := page.seen;
  last := page.last;
END $$;
-- +goose StatementEnd
-- What was held comes back between two times from now, so that the partner is not flooded; not before its own time, and held for the reason that it
-- had, if any.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION free_run_rows(run uuid, after integer, most integer, from_ms bigint, to_ms bigint, OUT seen integer, OUT last integer, OUT moved integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  page record;
BEGIN
  SELECT u.of_source, u.ids, u.seen, u.last INTO page FROM rows_under(run, 'batch_resume', 'released', after, most) u;
  WITH locked AS MATERIALIZED (
    SELECT o.id, k.due_at, k.code FROM operations o LEFT JOIN run_holds k ON k.operation_id = o.id
     WHERE o.id = ANY(page.ids) AND o.state = 'open' AND o.held AND o.code = 'run_paused' AND o.source = page.of_source
     ORDER BY o.key FOR UPDATE OF o
  ), freed AS (
    UPDATE operations o SET held = l.code IS NOT NULL AND NOT o.in_doubt, code = CASE WHEN NOT o.in_doubt THEN l.code END FROM locked l
     WHERE o.id = l.id AND o.held AND o.code = 'run_paused'
    RETURNING o.id, CASE WHEN NOT o.in_doubt THEN l.due_at END AS due_at
  ), soon AS (
    UPDATE due d SET due_at = greatest(now() + (from_ms + random() * (to_ms - from_ms)) * interval '1 ms', p.not_before, f.due_at)
      FROM freed f LEFT JOIN payloads p ON p.operation_id = f.id WHERE d.operation_id = f.id
  )
  SELECT count(*) INTO moved FROM freed;
  DELETE FROM run_holds k WHERE k.operation_id = ANY(page.ids);
  seen := page.seen;
  last := page.last;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ask_operation(line bigint, on_key uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  PERFORM refuse_desk(line, 'look_up', on_key::text, NULL);
  UPDATE due d SET due_at = now() FROM operations o WHERE o.key = on_key AND d.operation_id = o.id AND o.state IN ('open', 'parked') AND d.due_at > now()
     AND NOT (o.held AND o.code = 'run_paused' AND NOT o.in_doubt);
END $$;
-- +goose StatementEnd

-- Held, and put in doubt by a recovery since: nobody asks.
WITH doubted AS (
  UPDATE operations o SET held = false, code = NULL FROM due d
   WHERE d.operation_id = o.id AND NOT d.parked AND o.state = 'open' AND o.held AND o.code = 'run_paused' AND o.in_doubt
  RETURNING o.id
)
UPDATE due d SET due_at = now() + random() * interval '30 s' FROM doubted o WHERE d.operation_id = o.id;
