-- What the logins of the desk and of batches could do without the person in whose name they do it: the state of a run, the end of a token, the
-- lease of the relay, a key closed by a discard, events of outcomes, and operations of others taken into a run.
--
-- Why has_table_privilege in two triggers: whoever records attempts is the application or the owner. It costs the application next to nothing, and
-- no role needs to be there.

-- +goose Up
-- The state of a run changes with the token of an operator who may do it, under a line of theirs. Where a second person was asked about the run, or
-- about the same payments under another run key, it is under that person's agreement to this run, to the byte.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_state_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  wanted text := CASE NEW.state WHEN 'paused' THEN 'batch_pause' WHEN 'cancelled' THEN 'batch_cancel'
                      ELSE CASE OLD.state WHEN 'paused' THEN 'batch_resume' ELSE 'batch_submit' END END;
  asked boolean := wanted = 'batch_submit' AND (NEW.again_reason IS NOT NULL OR EXISTS (SELECT FROM proposals p WHERE p.act = 'batch_submit'
                   AND (p.target = NEW.run_key OR position(convert_to('"content_digest":"' || encode(NEW.content_digest, 'hex') || '"', 'UTF8') IN p.content) > 0)));
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

-- A token is ended by whose it is, by an admin, or by the owner. One that ends itself still proves the rest of its statement.
-- +goose StatementBegin
CREATE FUNCTION refuse_token_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT owner_speaks('database:' || session_user)
     AND NOT EXISTS (SELECT FROM operator_tokens t JOIN operators o ON o.name = t.operator
                      WHERE t.digest = sha256(decode(coalesce(current_setting('paidonce.proof', true), ''), 'hex'))
                        AND (t.valid_until > clock_timestamp() OR t.xmin = pg_current_xact_id()::xid)
                        AND o.disabled_at IS NULL AND (o.name = OLD.operator OR 'admin' = ANY (o.roles))) THEN
    RAISE EXCEPTION 'operator_tokens: ended by whose token it is, by an admin, or by the owner of the database' USING ERRCODE = 'PO011';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER operator_tokens_end BEFORE UPDATE ON operator_tokens FOR EACH ROW EXECUTE FUNCTION refuse_token_end();

-- The desk holds leases of its plans, and no others.
-- +goose StatementBegin
CREATE FUNCTION refuse_lease() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  named text[] := CASE TG_OP WHEN 'INSERT' THEN ARRAY[NEW.name] WHEN 'DELETE' THEN ARRAY[OLD.name] ELSE ARRAY[OLD.name, NEW.name] END;
BEGIN
  IF EXISTS (SELECT FROM unnest(named) AS n(name) WHERE n.name NOT LIKE 'dead/%') AND NOT has_table_privilege('attempts'::regclass, 'INSERT') THEN
    RAISE EXCEPTION 'leases: % belongs to the application', named[1] USING ERRCODE = '42501';
  END IF;
  RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
-- +goose StatementEnd
CREATE TRIGGER leases_owned BEFORE INSERT OR UPDATE OR DELETE ON leases FOR EACH ROW EXECUTE FUNCTION refuse_lease();

-- What is discarded is a letter of the index, under its own key.
-- +goose StatementBegin
CREATE FUNCTION refuse_discard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM dead_letters l WHERE l.stream_at = NEW.stream_at AND l.sequence = NEW.sequence AND l.key IS NOT DISTINCT FROM NEW.key) THEN
    RAISE EXCEPTION 'dead letter %: there is no such letter, or it has another key', NEW.sequence USING ERRCODE = 'PO021';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER dead_letter_acts_discard BEFORE INSERT ON dead_letter_acts FOR EACH ROW WHEN (NEW.act = 'discard') EXECUTE FUNCTION refuse_discard();

-- As before, and under a line of the audit log, with what the letter says.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION close_discarded_key(letter_of timestamptz, letter bigint, fingerprint_version smallint, fingerprint bytea, source text, route text,
                                    account text, amount_minor bigint, currency text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  old uuid;
  who text;
  made bigint;
BEGIN
  SELECT a.key, a."by" INTO old, who FROM dead_letter_acts a JOIN dead_letters l ON l.stream_at = a.stream_at AND l.sequence = a.sequence AND l.key = a.key
   WHERE a.stream_at = letter_of AND a.sequence = letter AND a.act = 'discard' AND l.source = close_discarded_key.source AND l.route = close_discarded_key.route
     AND l.amount_minor = close_discarded_key.amount_minor AND l.currency = close_discarded_key.currency
     AND EXISTS (SELECT FROM audit t WHERE t.act = 'discard' AND t."by" = a."by" AND NOT EXISTS (SELECT FROM audit_results r WHERE r.audit_id = t.id));
  IF old IS NULL OR NOT operator_proven(who, '{operator,admin}') AND NOT owner_speaks(who) THEN
    RAISE EXCEPTION 'dead letter %: nobody who is here has discarded it, or it has no key', letter USING ERRCODE = 'PO021';
  END IF;
  INSERT INTO operations AS o (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, outcome_at, code)
  VALUES (old, close_discarded_key.amount_minor, close_discarded_key.fingerprint_version, close_discarded_key.fingerprint, close_discarded_key.currency,
          close_discarded_key.source, close_discarded_key.route, account, 'cancelled', now(), 'discarded')
  ON CONFLICT ON CONSTRAINT operations_key DO NOTHING RETURNING o.id INTO made;
  IF made IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, code) VALUES (made, gen_random_uuid(), 0, 0, 'note', '', 'discarded');
  INSERT INTO outbox (operation_id, fence, type, code) VALUES (made, 0, 'cancelled', 'discarded');
  RETURN true;
END $$;
-- +goose StatementEnd

-- Batches tell that operations were accepted, and nothing else. After the row, so that COPY goes on as it does.
-- +goose StatementBegin
CREATE FUNCTION refuse_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'outbox: % is told by the application', NEW.type USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd
CREATE TRIGGER outbox_told AFTER INSERT ON outbox FOR EACH ROW
WHEN (NEW.type <> 'accepted' AND NOT has_table_privilege('attempts'::regclass, 'INSERT')) EXECUTE FUNCTION refuse_event();

-- Whether a row that is seen was written by this transaction, in a savepoint or not: then its transaction goes on. Nobody else's is seen so.
-- +goose StatementBegin
CREATE FUNCTION written_here(maker xid) RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
  SELECT CASE WHEN age(maker) > age(pg_current_xact_id()::xid) THEN false
              ELSE pg_xact_status(((pg_current_xact_id()::text)::bigint + age(pg_current_xact_id()::xid) - age(maker))::text::xid8) = 'in progress' END
$$;
-- +goose StatementEnd
-- No row of a run is an operation before the run is released, nor one of another source, nor one that another run has: a run's rows are ended,
-- held and let go with it. What this transaction made is in no other run.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_early_rows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  those record;
BEGIN
  IF EXISTS (SELECT FROM (SELECT run_id, max(n) AS last FROM fresh GROUP BY run_id) f LEFT JOIN batch_runs r ON r.id = f.run_id
              WHERE r.state IS DISTINCT FROM 'released' OR f.last > r.rows) THEN
    RAISE EXCEPTION 'batch_rows: operations of a run that is not released, or rows that it does not have' USING ERRCODE = 'PO022';
  END IF;
  FOR those IN
    SELECT f.run_id, o.source, o.xmin AS maker, array_agg(f.operation_id) AS ids
      FROM fresh f LEFT JOIN LATERAL (SELECT x.source, x.xmin FROM operations x WHERE x.id = f.operation_id LIMIT 1) o ON true
     GROUP BY f.run_id, o.source, o.xmin
  LOOP
    IF those.source IS DISTINCT FROM (SELECT r.source FROM batch_runs r WHERE r.id = those.run_id) THEN
      RAISE EXCEPTION 'batch_rows: operations that are not there, or not of the source of the run' USING ERRCODE = 'PO022';
    END IF;
    IF NOT written_here(those.maker)
       AND EXISTS (SELECT FROM batch_rows b WHERE b.operation_id = ANY (those.ids) AND b.run_id <> those.run_id) THEN
      RAISE EXCEPTION 'batch_rows: operations of another run' USING ERRCODE = 'PO022';
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION written_here(xid) FROM PUBLIC;
