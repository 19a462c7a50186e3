-- Batch payout runs: one file, paid once.
--
-- Why the rows of a run lie in parts first: they are written before anything is decided, a thousand times faster than one by one, with the
-- keys that they will have for ever. A part leaves when its rows are operations, in the same transaction; then their payloads are in one
-- place only. Why batch_rows hold no state: what became of a row is what became of its operation.

-- +goose Up
CREATE TABLE batch_runs (
    id                uuid PRIMARY KEY, -- also the holder of the run's unpublished jobs
    run_key           text COLLATE "C" NOT NULL,
    at                timestamptz NOT NULL DEFAULT now(),
    by                text NOT NULL CHECK (by <> ''),
    reason            text NOT NULL CHECK (reason <> ''),
    format            text NOT NULL,
    columns           text[] NOT NULL DEFAULT '{}', -- of the file, where it has any
    source            text NOT NULL,
    route             text NOT NULL, -- '' = every row names its own
    not_before        timestamptz,
    rows              integer NOT NULL CHECK (rows > 0),
    sums              jsonb NOT NULL, -- minor units by currency
    counts            jsonb NOT NULL, -- rows by currency
    digest            bytea NOT NULL CHECK (octet_length(digest) = 32),         -- of the bytes of the file
    content_digest    bytea NOT NULL CHECK (octet_length(content_digest) = 32), -- of the payments, in whatever order
    content_guard     bytea, -- the same content is one run; NULL: a second person let it be paid again, or nothing of the run was begun
    again_reason      text,  -- why the same content is paid again
    duplicates        integer NOT NULL DEFAULT 0 CHECK (duplicates >= 0),
    duplicates_reason text,  -- why rows that look alike are all meant
    -- what changes comes last
    state             text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'released', 'paused', 'cancelled')),
    changed_at        timestamptz NOT NULL DEFAULT now(),
    changed_by        text NOT NULL CHECK (changed_by <> ''),

    CONSTRAINT batch_runs_run_key UNIQUE (run_key),
    CONSTRAINT batch_runs_run_key_form CHECK (run_key ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    CONSTRAINT batch_runs_content UNIQUE (content_guard),
    CONSTRAINT batch_runs_guard CHECK (content_guard IS NULL OR content_guard = content_digest),
    CONSTRAINT batch_runs_unguarded CHECK (content_guard IS NOT NULL OR again_reason IS NOT NULL OR state = 'cancelled'),
    CONSTRAINT batch_runs_again CHECK (again_reason <> ''),
    CONSTRAINT batch_runs_duplicates CHECK (duplicates = 0 OR duplicates_reason <> '')
);
CREATE INDEX batch_runs_content_digest ON batch_runs (content_digest);

-- Rows that are no operations yet, packed. Before their run is on record they belong to nobody, and are removed if it never comes.
CREATE TABLE batch_parts (
    run_id   uuid NOT NULL,
    part     integer NOT NULL,
    first_n  integer NOT NULL,
    rows     integer NOT NULL CHECK (rows > 0),
    body     bytea NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    recorded integer NOT NULL DEFAULT 0, -- how many of them, from the first, are operations
    PRIMARY KEY (run_id, part),
    CONSTRAINT batch_parts_recorded CHECK (recorded >= 0 AND recorded < rows)
);
ALTER TABLE batch_parts ALTER COLUMN body SET STORAGE EXTERNAL; -- it is compressed

-- Which operation a row became. The key is the operation's.
CREATE TABLE batch_rows (
    run_id       uuid NOT NULL,
    n            integer NOT NULL CHECK (n > 0),
    line         integer NOT NULL,
    operation_id bigint NOT NULL,
    row_ref      text, -- the author's own name of the row
    PRIMARY KEY (run_id, n)
);
CREATE INDEX batch_rows_operation ON batch_rows USING brin (operation_id) WITH (pages_per_range = 16);

-- +goose StatementBegin
CREATE FUNCTION refuse_run_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'batch run %: % -> %: what a run pays never changes, and a cancelled one stays so', OLD.run_key, OLD.state, NEW.state
    USING ERRCODE = 'PO021';
END $$;
-- +goose StatementEnd
CREATE TRIGGER batch_runs_change BEFORE UPDATE ON batch_runs FOR EACH ROW
WHEN (NOT (OLD.state = NEW.state OR (OLD.state = 'waiting' AND NEW.state IN ('released', 'cancelled'))
           OR (OLD.state = 'released' AND NEW.state IN ('paused', 'cancelled')) OR (OLD.state = 'paused' AND NEW.state IN ('released', 'cancelled')))
   OR ROW (OLD.id, OLD.run_key, OLD.at, OLD.by, OLD.reason, OLD.format, OLD.columns, OLD.source, OLD.route, OLD.rows, OLD.sums, OLD.counts,
           OLD.digest, OLD.content_digest, OLD.duplicates)
      IS DISTINCT FROM
      ROW (NEW.id, NEW.run_key, NEW.at, NEW.by, NEW.reason, NEW.format, NEW.columns, NEW.source, NEW.route, NEW.rows, NEW.sums, NEW.counts,
           NEW.digest, NEW.content_digest, NEW.duplicates)
   OR ROW (OLD.not_before, OLD.again_reason, OLD.duplicates_reason) IS DISTINCT FROM ROW (NEW.not_before, NEW.again_reason, NEW.duplicates_reason)
   OR (OLD.content_guard IS DISTINCT FROM NEW.content_guard AND NEW.content_guard IS NOT NULL))
EXECUTE FUNCTION refuse_run_change();

-- Nothing is released that the audit log does not know, and the same content again not without a second person.
-- +goose StatementBegin
CREATE FUNCTION refuse_release() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM audit l WHERE l.act = 'batch_submit' AND l.target = NEW.run_key AND l.by = NEW.changed_by
                    AND (NEW.again_reason IS NULL OR EXISTS (SELECT FROM executions e WHERE e.proposal_id = l.proposal_id))
                    AND NOT EXISTS (SELECT FROM audit_results r WHERE r.audit_id = l.id)) THEN
    RAISE EXCEPTION 'batch run %: released by nobody that the audit log knows', NEW.run_key USING ERRCODE = 'PO023';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER batch_runs_release BEFORE UPDATE ON batch_runs FOR EACH ROW
WHEN (OLD.state = 'waiting' AND NEW.state = 'released') EXECUTE FUNCTION refuse_release();

-- What a second person has agreed to is what lies in the parts: nothing is added to a run that is on record, nothing leaves one that waits.
-- +goose StatementBegin
CREATE FUNCTION refuse_part_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  found text;
BEGIN
  SELECT state INTO found FROM batch_runs WHERE id = CASE TG_OP WHEN 'INSERT' THEN NEW.run_id ELSE OLD.run_id END;
  IF TG_OP = 'INSERT' AND found IS NULL THEN
    RETURN NEW;
  ELSIF TG_OP = 'UPDATE' AND found = 'released' AND NEW.recorded > OLD.recorded
        AND ROW (OLD.run_id, OLD.part, OLD.first_n, OLD.rows, OLD.body, OLD.at) = ROW (NEW.run_id, NEW.part, NEW.first_n, NEW.rows, NEW.body, NEW.at) THEN
    RETURN NEW;
  ELSIF TG_OP = 'DELETE' AND (found IS NULL OR found IN ('released', 'cancelled')) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'batch_parts: % in a run that is %', TG_OP, coalesce(found, 'not on record') USING ERRCODE = 'PO022';
END $$;
-- +goose StatementEnd
CREATE TRIGGER batch_parts_change BEFORE INSERT OR UPDATE OR DELETE ON batch_parts FOR EACH ROW EXECUTE FUNCTION refuse_part_change();

-- A part leaves a run when its rows are operations, or never will be. Asked at the commit, which holds both.
-- +goose StatementBegin
CREATE FUNCTION refuse_lost_part() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM batch_runs WHERE id = OLD.run_id AND state <> 'cancelled')
     AND (SELECT count(*) FROM batch_rows WHERE run_id = OLD.run_id AND n >= OLD.first_n AND n < OLD.first_n + OLD.rows) < OLD.rows THEN
    RAISE EXCEPTION 'batch_parts: part % leaves its run, and its rows are no operations', OLD.part USING ERRCODE = 'PO022';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER batch_parts_lost AFTER DELETE ON batch_parts DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse_lost_part();

-- What a cancellation may do to operations it does here: to those of a run that is cancelled, under a line of the audit log that was written for it
-- and has no result yet, with its operator's token. It takes the rows of a run in pages, and the row decides: what was begun goes on.
-- +goose StatementBegin
CREATE FUNCTION cancel_run_rows(run uuid, after integer, most integer, token uuid, OUT seen integer, OUT last integer, OUT ended integer)
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
  -- With those of an earlier try.
  SELECT count(*) INTO ended FROM operations o WHERE o.id = ANY(ids) AND o.state = 'cancelled' AND o.code = 'run_cancelled';
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION cancel_run_rows(uuid, integer, integer, uuid) FROM PUBLIC;

CREATE TRIGGER batch_runs_kept BEFORE DELETE OR TRUNCATE ON batch_runs FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER batch_parts_kept BEFORE TRUNCATE ON batch_parts FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER batch_rows_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON batch_rows FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();

-- A holder with a million jobs must not be in the way of the others when they look for theirs.
CREATE INDEX unpublished_jobs_holder ON unpublished_jobs (holder, operation_id);
