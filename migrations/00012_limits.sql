-- What one person may do alone, said where only the owner of the ledger writes: whoever runs a command chooses the file that it reads.
--
-- Why beside the settings: a table without a row binds nobody, and the settings hold as before. With rows both hold, so the narrower one does.

-- +goose Up
CREATE TABLE operator_limits (
    what text COLLATE "C" PRIMARY KEY CHECK (what ~ '^([a-z][a-z_]{0,62}|[A-Z]{3})$'), -- an act: most things at once; a currency: most money of one act
    most bigint NOT NULL CHECK (most >= 0),                                            -- in minor units
    at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    by   text NOT NULL DEFAULT session_user
);

-- An act that is not named has no limit of things. A currency that is not: none at all, as in the settings.
-- +goose StatementBegin
CREATE FUNCTION beyond_one_person(act text, things bigint, sums jsonb) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM operator_limits)
     AND (EXISTS (SELECT FROM operator_limits l WHERE l.what = act AND things > l.most)
          OR EXISTS (SELECT FROM jsonb_each_text(sums) s WHERE s.value::numeric > coalesce((SELECT l.most FROM operator_limits l WHERE l.what = s.key), 0)))
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION beyond_one_person(text, bigint, jsonb) FROM PUBLIC;

-- As before, and with a second person for what is beyond one.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_state_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  wanted text := CASE NEW.state WHEN 'paused' THEN 'batch_pause' WHEN 'cancelled' THEN 'batch_cancel'
                      ELSE CASE OLD.state WHEN 'paused' THEN 'batch_resume' ELSE 'batch_submit' END END;
  asked boolean := wanted = 'batch_submit' AND (NEW.again_reason IS NOT NULL OR EXISTS (SELECT FROM proposals p WHERE p.act = 'batch_submit'
                   AND (p.target = NEW.run_key OR position(convert_to('"content_digest":"' || encode(NEW.content_digest, 'hex') || '"', 'UTF8') IN p.content) > 0))
                   OR beyond_one_person('batch_submit', NEW.rows, NEW.sums));
BEGIN
  IF NOT operator_proven(NEW.changed_by, '{operator,admin}') THEN
    RAISE EXCEPTION 'batch run %: % in the name of an operator without that operator''s token, or by a program of an older version', NEW.run_key, NEW.state
      USING ERRCODE = 'PO023';
  END IF;
  IF NOT EXISTS (SELECT FROM audit l WHERE l.act = wanted AND l.target = NEW.run_key AND l.by = NEW.changed_by
                    AND (NOT asked OR EXISTS (SELECT FROM executions e JOIN proposals p ON p.id = e.proposal_id
                          WHERE p.id = l.proposal_id AND p.act = wanted AND p.target = NEW.run_key AND p.digest = l.digest AND e.digest = l.digest
                            AND p.expires_at > clock_timestamp() AND position(convert_to('"id":"' || NEW.id || '"', 'UTF8') IN p.content) > 0))
                    AND NOT EXISTS (SELECT FROM audit_results r WHERE r.audit_id = l.id)) THEN
    RAISE EXCEPTION 'batch run %: % by nobody that the audit log knows%', NEW.run_key, NEW.state,
      CASE WHEN asked THEN ', or without the second person who was asked' ELSE '' END USING ERRCODE = 'PO023';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
