-- A run that was on record before a failover may have rows that were lost here together with their operations, while their jobs come again. When it is
-- cancelled they are stopped too. All that is known of them are their keys, which lie in the parts of the run.
--
-- Why a table beside stops: there is no operation yet. Why a claim does not read it: whatever comes again from before a failover is in doubt, so
-- it is asked after first, and an attempt that follows is committed by itself. That is where it is read, and where the sweep remembers.

-- +goose Up
CREATE TABLE key_stops (
    key  uuid PRIMARY KEY,
    code text        NOT NULL, -- the reason, as in stops
    at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT key_stops_code CHECK (code <> '')
);
CREATE TRIGGER key_stops_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON key_stops FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();

-- For who cancels a run, with that person's token, and for keys that are no operations of another source.
-- +goose StatementBegin
CREATE FUNCTION stop_run_keys(run uuid, keys uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  of_source text;
BEGIN
  SELECT r.source INTO of_source FROM batch_runs r WHERE r.id = run AND r.state = 'cancelled'
     AND r.at < (SELECT doubt_before FROM ledger_identity)
     AND (owner_speaks('database:' || session_user)
          OR EXISTS (SELECT FROM audit l WHERE l.act = 'batch_cancel' AND l.target = r.run_key AND operator_proven(l."by", '{operator,admin}')
                        AND NOT EXISTS (SELECT FROM audit_results x WHERE x.audit_id = l.id)));
  IF NOT FOUND THEN
    RAISE EXCEPTION 'stop_run_keys: without a line of the audit log, without its operator''s token, or of a run that nothing can be lost of' USING ERRCODE = 'PO023';
  END IF;
  INSERT INTO key_stops (key, code)
  SELECT k, 'run_cancelled' FROM unnest(keys) k WHERE NOT EXISTS (SELECT FROM operations o WHERE o.key = k AND o.source <> of_source)
   ORDER BY k ON CONFLICT DO NOTHING;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION stop_run_keys(uuid, uuid[]) FROM PUBLIC;
