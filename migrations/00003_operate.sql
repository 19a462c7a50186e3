-- Operators: who may change what, what they asked for, who agreed, what was done, and with what result.
--
-- Why functions that run as the owner: several people share one database login. What is written in a person's name is accepted only
-- together with that person's proof, the SHA-256 of the token, given for one transaction (paidonce.proof). Kept is the SHA-256 of the proof,
-- so that neither a dump nor a log of statements opens the desk. Why triggers: four eyes must hold through whatever door a change comes.

-- +goose Up
CREATE TABLE operators (
    name        text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$' AND name NOT IN ('worker', 'paidonce')), -- programs
    roles       text[] NOT NULL CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['viewer', 'operator', 'approver', 'admin']),
    made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by     text NOT NULL CHECK (made_by <> ''),
    disabled_at timestamptz, -- for good: a name is never given to another person
    disabled_by text,
    CONSTRAINT operators_disabled CHECK ((disabled_at IS NULL) = (disabled_by IS NULL))
);
CREATE TABLE operator_tokens (
    digest      bytea PRIMARY KEY CHECK (octet_length(digest) = 32), -- SHA-256 of the proof
    operator    text COLLATE "C" NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_by     text NOT NULL CHECK (made_by <> ''),
    valid_until timestamptz NOT NULL DEFAULT 'infinity'
);
CREATE INDEX operator_tokens_operator ON operator_tokens (operator);

-- Written and committed before the act; what came of it is a row of audit_results. A line without one was begun and not ended.
CREATE TABLE audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by          text COLLATE "C" NOT NULL,
    act         text COLLATE "C" NOT NULL CHECK (act ~ '^[a-z][a-z_]{0,62}$'),
    target      text NOT NULL CHECK (target <> ''),
    reason      text NOT NULL CHECK (reason <> ''),
    evidence    text NOT NULL DEFAULT '',
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    weight      jsonb NOT NULL DEFAULT '{}',
    proposal_id uuid -- under whose approval
);
CREATE INDEX audit_target ON audit (target);
CREATE INDEX audit_proposal ON audit (proposal_id) WHERE proposal_id IS NOT NULL;
CREATE TABLE audit_results (
    audit_id bigint PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    by       text COLLATE "C" NOT NULL,
    outcome  text COLLATE "C" NOT NULL CHECK (outcome ~ '^[a-z][a-z_]{0,62}$'),
    detail   text NOT NULL DEFAULT ''
);

-- Four eyes. The digest covers what will be done to the byte; the content holds no names and no account numbers.
CREATE TABLE proposals (
    id         uuid PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    by         text COLLATE "C" NOT NULL,
    act        text COLLATE "C" NOT NULL,
    target     text NOT NULL,
    reason     text NOT NULL CHECK (reason <> ''),
    evidence   text NOT NULL DEFAULT '',
    content    bytea NOT NULL,
    digest     bytea NOT NULL,
    weight     jsonb NOT NULL DEFAULT '{}',
    expires_at timestamptz NOT NULL,
    CONSTRAINT proposals_digest CHECK (digest = sha256(convert_to(act || E'\n', 'UTF8') || content)),
    CONSTRAINT proposals_expiry CHECK (expires_at > at AND expires_at <= at + interval '30 days')
);
CREATE INDEX proposals_digest_at ON proposals (digest, at);
CREATE TABLE approvals (
    proposal_id uuid PRIMARY KEY, -- one decision, whoever is first
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by          text COLLATE "C" NOT NULL,
    decision    text NOT NULL CHECK (decision IN ('approved', 'declined')),
    digest      bytea NOT NULL,
    reason      text NOT NULL CHECK (reason <> '')
);
CREATE TABLE executions (
    proposal_id uuid PRIMARY KEY, -- an approval is used up once; what was begun and not ended is gone on with under it
    audit_id    bigint NOT NULL UNIQUE,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by          text COLLATE "C" NOT NULL,
    digest      bytea NOT NULL
);

-- What a worker has closed by itself, because calls came to nothing: no pause, and no person is needed. Told so that people see it.
CREATE TABLE closures (
    partner text COLLATE "C" NOT NULL,
    holder  uuid NOT NULL,
    since   timestamptz NOT NULL DEFAULT now(),
    until   timestamptz NOT NULL,
    PRIMARY KEY (partner, holder)
);

-- Whose token it is; no row when it is nobody's.
-- +goose StatementBegin
CREATE FUNCTION operator_of(proof bytea) RETURNS TABLE (name text, roles text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT o.name, o.roles FROM operator_tokens t JOIN operators o ON o.name = t.operator
   WHERE t.digest = sha256(proof) AND t.valid_until > clock_timestamp() AND o.disabled_at IS NULL
$$;
-- +goose StatementEnd
-- Whether this transaction carries the proof of that operator, and one of the roles (none asked: any).
-- +goose StatementBegin
CREATE FUNCTION operator_proven(who text, wanted text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM operator_of(decode(coalesce(current_setting('paidonce.proof', true), ''), 'hex')) o
                  WHERE o.name = who AND (cardinality(wanted) = 0 OR o.roles && wanted))
$$;
-- +goose StatementEnd
-- The owner of the ledger makes the first operators, while fewer than two could decide anything, and gives a new token to one who has lost the
-- last. Nobody else is believed to be 'database:<role>'.
-- +goose StatementBegin
CREATE FUNCTION owner_speaks(who text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT who = 'database:' || session_user
     AND pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'operators'::regclass), 'MEMBER')
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION operators_any() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$ SELECT EXISTS (SELECT FROM operators) $$;
-- +goose StatementEnd
-- An admin who makes an identity could agree with themselves under its name. So from the second decider on, another one agrees to it.
-- +goose StatementBegin
CREATE FUNCTION others_decide(who text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM operators o WHERE o.name <> who AND o.roles && '{approver,admin}') -- the disabled count: else disabling would free one's hands
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION agreed_identity(agreed text, who text, wanted text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT EXISTS (SELECT FROM executions e JOIN proposals p ON p.id = e.proposal_id
                  WHERE p.act = agreed AND p.target = who AND p.expires_at > clock_timestamp()
                    AND CASE WHEN wanted IS NULL THEN NOT EXISTS (SELECT FROM operator_tokens t WHERE t.operator = who AND t.made_at > e.at) -- one token each
                             ELSE convert_from(p.content, 'UTF8')::jsonb -> 'roles' = to_jsonb(wanted) END)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION refuse_unproven() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT operator_proven(NEW."by", '{}') AND NOT owner_speaks(NEW."by") THEN
    RAISE EXCEPTION '%: written in the name of an operator without that operator''s token', TG_TABLE_NAME USING ERRCODE = 'PO011';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_proven BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION refuse_unproven();
CREATE TRIGGER proposals_proven BEFORE INSERT ON proposals FOR EACH ROW EXECUTE FUNCTION refuse_unproven();

-- A result is written by whoever wrote the line. A token that ran out in between must not leave an act without its result, so it still tells whose
-- line it is.
-- +goose StatementBegin
CREATE FUNCTION refuse_result() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM audit WHERE id = NEW.audit_id AND by = NEW."by") THEN
    RAISE EXCEPTION 'audit_results: a result belongs to a line of the same operator' USING ERRCODE = 'PO011';
  END IF;
  IF NOT EXISTS (SELECT FROM operator_tokens t WHERE t.operator = NEW."by" AND t.digest = sha256(decode(coalesce(current_setting('paidonce.proof', true), ''), 'hex')))
     AND NOT owner_speaks(NEW."by") THEN
    RAISE EXCEPTION 'audit_results: written in the name of an operator without that operator''s token' USING ERRCODE = 'PO011';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_results_own BEFORE INSERT ON audit_results FOR EACH ROW EXECUTE FUNCTION refuse_result();

-- +goose StatementBegin
CREATE FUNCTION refuse_operator() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  who text := CASE TG_OP WHEN 'INSERT' THEN NEW.made_by ELSE NEW.disabled_by END;
BEGIN
  IF TG_OP = 'UPDATE' AND (OLD.name <> NEW.name OR OLD.roles <> NEW.roles OR OLD.made_at <> NEW.made_at OR OLD.made_by <> NEW.made_by
      OR OLD.disabled_at IS NOT NULL) THEN
    RAISE EXCEPTION 'operators: an operator is disabled once, and nothing else changes' USING ERRCODE = 'PO011';
  END IF;
  IF TG_OP = 'UPDATE' AND (operator_proven(who, '{admin}') OR owner_speaks(who)) THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'INSERT' AND operator_proven(who, '{admin}')
     AND (NEW.roles = '{viewer}' OR NOT others_decide(who) OR agreed_identity('operator_add', NEW.name, NEW.roles)) THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'INSERT' AND owner_speaks(who) AND (operators_any() OR 'admin' = ANY(NEW.roles))
     AND (SELECT count(*) FROM operators WHERE disabled_at IS NULL AND roles && '{approver,admin}') < 2 THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'operators: made by an admin, with another''s approval; by the owner of the database while fewer than two can decide, an admin first'
    USING ERRCODE = 'PO011';
END $$;
-- +goose StatementEnd
CREATE TRIGGER operators_guard BEFORE INSERT OR UPDATE ON operators FOR EACH ROW EXECUTE FUNCTION refuse_operator();

-- +goose StatementBegin
CREATE FUNCTION refuse_token() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND (OLD.digest <> NEW.digest OR OLD.operator <> NEW.operator OR OLD.made_at <> NEW.made_at OR OLD.made_by <> NEW.made_by
      OR NEW.valid_until > OLD.valid_until) THEN
    RAISE EXCEPTION 'operator_tokens: a token only ever ends earlier' USING ERRCODE = 'PO011';
  END IF;
  IF TG_OP = 'UPDATE' THEN
    RETURN NEW;
  END IF;
  IF NOT EXISTS (SELECT FROM operators WHERE name = NEW.operator AND disabled_at IS NULL) THEN
    RAISE EXCEPTION 'operator_tokens: there is no such operator' USING ERRCODE = 'PO011';
  END IF;
  IF NOT (owner_speaks(NEW.made_by) OR (NEW.made_by = NEW.operator AND operator_proven(NEW.operator, '{}'))
          OR (operator_proven(NEW.made_by, '{admin}')
              AND (NOT others_decide(NEW.made_by) OR agreed_identity('operator_rotate', NEW.operator, NULL)
                   OR EXISTS (SELECT FROM operators o WHERE o.name = NEW.operator AND (o.roles = '{viewer}' OR o.made_by = NEW.made_by
                              AND NOT EXISTS (SELECT FROM operator_tokens t WHERE t.operator = o.name))))) -- the first comes with the operator
         ) THEN
    RAISE EXCEPTION 'operator_tokens: made by the operator, by an admin with another''s approval, or by the owner of the database' USING ERRCODE = 'PO011';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER operator_tokens_guard BEFORE INSERT OR UPDATE ON operator_tokens FOR EACH ROW EXECUTE FUNCTION refuse_token();

-- +goose StatementBegin
CREATE FUNCTION refuse_approval() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  p proposals%ROWTYPE;
BEGIN
  SELECT id, at, by, act, target, reason, evidence, content, digest, weight, expires_at INTO p FROM proposals WHERE id = NEW.proposal_id;
  CASE
    WHEN p.id IS NULL THEN RAISE EXCEPTION 'approvals: there is no such proposal' USING ERRCODE = 'PO015';
    WHEN NEW.decision = 'approved' AND p."by" = NEW."by" THEN
      RAISE EXCEPTION 'approvals: an author does not approve' USING ERRCODE = 'PO012';
    WHEN NEW.digest <> p.digest THEN RAISE EXCEPTION 'approvals: not what was proposed' USING ERRCODE = 'PO013';
    WHEN p.expires_at <= clock_timestamp() THEN RAISE EXCEPTION 'approvals: the proposal has expired' USING ERRCODE = 'PO014';
    WHEN NOT operator_proven(NEW."by", '{approver,admin}') AND NOT (NEW.decision = 'declined' AND p."by" = NEW."by" AND operator_proven(NEW."by", '{}')) THEN
      RAISE EXCEPTION 'approvals: decided by an approver or an admin, with that person''s token' USING ERRCODE = 'PO011';
    ELSE RETURN NEW;
  END CASE;
END $$;
-- +goose StatementEnd
CREATE TRIGGER approvals_guard BEFORE INSERT ON approvals FOR EACH ROW EXECUTE FUNCTION refuse_approval();

-- +goose StatementBegin
CREATE FUNCTION refuse_execution() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF NOT operator_proven(NEW."by", '{}')
     OR NOT EXISTS (SELECT FROM proposals p JOIN approvals a ON a.proposal_id = p.id JOIN audit l ON l.id = NEW.audit_id
                     WHERE p.id = NEW.proposal_id AND a.decision = 'approved' AND a."by" <> p."by" AND p.expires_at > clock_timestamp()
                       AND p.digest = NEW.digest AND a.digest = NEW.digest AND l.digest = NEW.digest AND l.proposal_id = p.id AND l."by" = NEW."by" AND l.act = p.act) THEN
    RAISE EXCEPTION 'executions: only what another person has approved, unchanged and in time' USING ERRCODE = 'PO014';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER executions_guard BEFORE INSERT ON executions FOR EACH ROW EXECUTE FUNCTION refuse_execution();

-- What the desk may do to an operation, or to a pause, it does through the functions below: under a line of the audit log that was written for it
-- and has no result yet, with its operator's token, and, where money may have moved, as another person has approved that very act. Gives the
-- operator; NULL for who owns the tables, and needs no function.
-- +goose StatementBegin
CREATE FUNCTION refuse_desk(line bigint, what text, upon text, wanted jsonb) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  l record;
BEGIN
  IF owner_speaks('database:' || session_user) THEN
    RETURN NULL;
  END IF;
  SELECT a."by" AS who, a.proposal_id INTO l FROM audit a
   WHERE a.id = line AND a.act = what AND a.target = upon AND NOT EXISTS (SELECT FROM audit_results r WHERE r.audit_id = a.id);
  IF NOT FOUND OR NOT operator_proven(l.who, '{operator,admin}') THEN
    RAISE EXCEPTION '%: without a line of the audit log, or without its operator''s token', what USING ERRCODE = 'PO011';
  END IF;
  IF wanted IS NOT NULL AND NOT EXISTS (SELECT FROM executions e JOIN proposals p ON p.id = e.proposal_id
                                         WHERE e.proposal_id = l.proposal_id AND p.act = what AND p.target = upon
                                           AND convert_from(p.content, 'UTF8')::jsonb @> wanted) THEN
    RAISE EXCEPTION '%: not as another person has approved it', what USING ERRCODE = 'PO014';
  END IF;
  RETURN l.who;
END $$;
-- +goose StatementEnd
-- What has been said of an operation, each word once: what a person's decision rests on. That the partner found nothing, or did not answer, is
-- no news that could speak against it.
-- +goose StatementBegin
CREATE FUNCTION said_of(on_key uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
  SELECT coalesce(string_agg(x.said, '; ' ORDER BY x.said COLLATE "C"), '')
    FROM (SELECT DISTINCT concat_ws(' ', b.kind, b.verdict, b.transfer_id, b.code) AS said FROM operations o JOIN observations b ON b.operation_id = o.id
           WHERE o.key = on_key AND b.verdict NOT IN ('', 'not_found', 'no_answer')) AS x
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION lock_operation(line bigint, on_key uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  PERFORM refuse_desk(line, 'resolve', on_key::text, NULL);
  PERFORM FROM operations WHERE key = on_key FOR UPDATE;
END $$;
-- +goose StatementEnd
-- A person's decision on a parked operation: observation, state, entries and event. Opened again it keeps its doubt, and is due at once; the
-- count of claims that killed their worker begins again.
-- +goose StatementBegin
CREATE FUNCTION resolve_operation(line bigint, on_key uuid, seen integer, decision text, transfer text, why text, token uuid, said jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  o record;
BEGIN
  SELECT id, in_doubt, partner INTO o FROM operations WHERE key = on_key AND state = 'parked' AND fence = seen FOR UPDATE;
  IF NOT FOUND OR decision NOT IN ('authorized', 'rejected', 'open') THEN
    RETURN false;
  END IF;
  PERFORM refuse_desk(line, 'resolve', on_key::text, CASE WHEN decision <> 'open' OR o.in_doubt THEN
    jsonb_strip_nulls(jsonb_build_object('key', on_key, 'fence', seen, 'to', decision, 'transfer_id', nullif(transfer, ''), 'code', nullif(why, ''), 'said', said_of(on_key))) END);
  IF decision = 'authorized' THEN -- two could take one transfer at once: whoever is second sees what people and workers have just recorded
    PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws(E'\n', 'transfer', o.partner, transfer), 0));
    IF EXISTS (SELECT FROM operations x WHERE x.id > (SELECT max(m.id) - 10000 FROM operations m) AND x.id <> o.id AND x.partner = o.partner AND x.transfer_id = transfer)
       OR EXISTS (SELECT FROM audit a JOIN operations x ON x.key = CASE WHEN a.target ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN a.target::uuid END
                   WHERE a.act = 'resolve' AND a.at > now() - interval '1 day' AND x.id <> o.id AND x.partner = o.partner AND x.transfer_id = transfer) THEN
      RAISE EXCEPTION 'resolve: another operation has that transfer at this partner' USING ERRCODE = 'PO016';
    END IF;
  END IF;
  WITH resolved AS (
    UPDATE operations p
       SET state = decision::operation_state, fence = p.fence + 1, unobserved = 0, held = false, lease_until = NULL,
           in_doubt = p.in_doubt AND decision = 'open',
           code = CASE WHEN decision = 'rejected' THEN why END, transfer_id = CASE WHEN decision = 'authorized' THEN transfer END,
           outcome_at = CASE WHEN decision <> 'open' THEN now() END,
           settlement = CASE WHEN decision = 'authorized' THEN 'pending'::settlement_state END
     WHERE p.id = o.id
    RETURNING p.id, p.fence, p.amount_minor, p.currency, p.source, p.debtor_account, p.partner
  ), observation AS (
    INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, transfer_id, code, evidence)
    SELECT id, token, 0, fence, 'resolution', '', nullif(transfer, ''), nullif(why, ''), said FROM resolved
  ), entry AS (
    INSERT INTO entries (operation_id, event, amount_minor, currency, account)
    SELECT r.id, 'authorized', side.sign * r.amount_minor, r.currency, side.account
      FROM resolved r
     CROSS JOIN LATERAL (VALUES (-1, 'customer:' || r.source || '/' || r.debtor_account), (1, 'transit:' || r.partner)) AS side(sign, account)
     WHERE decision = 'authorized'
  ), event AS (
    INSERT INTO outbox (operation_id, fence, type, code) SELECT id, fence, decision::outbox_type, nullif(why, '') FROM resolved WHERE decision <> 'open'
  ), ended AS (
    DELETE FROM due d USING resolved r WHERE d.operation_id = r.id AND decision <> 'open'
  )
  UPDATE due d SET due_at = now(), parked = false FROM resolved r WHERE d.operation_id = r.id AND decision = 'open';
  RETURN true;
END $$;
-- +goose StatementEnd
-- The row decides: a claim that was first leaves nothing to cancel.
-- +goose StatementBegin
CREATE FUNCTION cancel_operation(line bigint, on_key uuid, why text, token uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  cancelled boolean;
BEGIN
  PERFORM refuse_desk(line, 'cancel', on_key::text, NULL);
  WITH ended AS (
    UPDATE operations SET state = 'cancelled', outcome_at = now(), held = false, code = why, lease_until = NULL
     WHERE key = on_key AND state = 'open' AND NOT in_doubt RETURNING id, fence
  ), note AS (
    INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, code) SELECT id, token, 0, fence, 'note', '', why FROM ended
  ), event AS (
    INSERT INTO outbox (operation_id, fence, type, code) SELECT id, fence, 'cancelled', why FROM ended
  ), forgotten AS (
    DELETE FROM due USING ended e WHERE due.operation_id = e.id
  )
  SELECT count(*) > 0 INTO cancelled FROM ended;
  RETURN cancelled;
END $$;
-- +goose StatementEnd

-- A worker asks the partner sooner.
-- +goose StatementBegin
CREATE FUNCTION ask_operation(line bigint, on_key uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  PERFORM refuse_desk(line, 'look_up', on_key::text, NULL);
  UPDATE due d SET due_at = now() FROM operations o WHERE o.key = on_key AND d.operation_id = o.id AND o.state IN ('open', 'parked') AND d.due_at > now();
END $$;
-- +goose StatementEnd
-- Pausing what is paused keeps the first reason; a further one is logged. who counts for the owner of the tables alone.
-- +goose StatementBegin
CREATE FUNCTION pause_scope(line bigint, on_scope text, named text, why text, who text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  person text := coalesce(refuse_desk(line, 'pause', btrim(on_scope || ' ' || named), NULL), who);
  fresh boolean;
BEGIN
  INSERT INTO pauses (scope, name, reason, by) VALUES (on_scope, named, why, person) ON CONFLICT DO NOTHING;
  fresh := FOUND;
  INSERT INTO pause_log (scope, name, act, reason, by) SELECT on_scope, named, 'pause', why, person
   WHERE fresh OR NOT EXISTS (SELECT FROM pause_log l WHERE l.scope = on_scope AND l.name = named AND l.act = 'pause' AND l.reason = why AND l."by" = person
                                 AND l.id > coalesce((SELECT max(r.id) FROM pause_log r WHERE r.scope = on_scope AND r.name = named AND r.act = 'resume'), 0));
END $$;
-- +goose StatementEnd
-- What a worker has paused because money is in doubt, also beneath a person's pause, an approver resumes. Gives the transaction; NULL: nothing
-- was paused there.
-- +goose StatementBegin
CREATE FUNCTION resume_scope(line bigint, on_scope text, named text, why text, who text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  person text := refuse_desk(line, 'resume', btrim(on_scope || ' ' || named), NULL);
BEGIN
  DELETE FROM pauses WHERE scope = on_scope AND name = named;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF person IS NOT NULL AND NOT operator_proven(person, '{approver,admin}') AND EXISTS (
       SELECT FROM pause_log l WHERE l.scope = on_scope AND l.name = named AND l.act = 'pause'
          AND (l."by" = 'worker' AND l.reason IN ('mismatch', 'contradicted outcome', 'invariant_violation', 'doubt_limit')
               OR l."by" = 'paidonce' AND l.reason = 'contradicted outcome')
          AND l.id > coalesce((SELECT max(r.id) FROM pause_log r WHERE r.scope = on_scope AND r.name = named AND r.act = 'resume'), 0)) THEN
    RAISE EXCEPTION 'resume: money is in doubt there, so an approver resumes' USING ERRCODE = 'PO011';
  END IF;
  INSERT INTO pause_log (scope, name, act, reason, by) VALUES (on_scope, named, 'resume', why, coalesce(person, who));
  RETURN pg_current_xact_id()::text;
END $$;
-- +goose StatementEnd
-- What a pause held comes back, spread so that the partner is not flooded. What is locked is at work; waiting for it in an order of our own could
-- deadlock with a batch of records.
-- +goose StatementBegin
CREATE FUNCTION bring_back(line bigint, on_scope text, named text, spread_ms bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  PERFORM refuse_desk(line, 'resume', btrim(on_scope || ' ' || named), NULL);
  WITH free AS (
    SELECT d.operation_id FROM due d JOIN operations o ON o.id = d.operation_id
     WHERE o.held AND d.due_at > now() + spread_ms * interval '1 ms' AND NOT EXISTS (SELECT FROM pauses p WHERE p.scope = on_scope AND p.name = named)
       AND (on_scope = 'all' OR (on_scope = 'partner' AND d.partner = named) OR (on_scope = 'route' AND o.route = named)
            OR (on_scope = 'source' AND o.source = named))
       FOR UPDATE OF d SKIP LOCKED
  )
  UPDATE due d SET due_at = now() + random() * spread_ms * interval '1 ms' FROM free f WHERE d.operation_id = f.operation_id;
END $$;
-- +goose StatementEnd

CREATE TRIGGER operators_kept BEFORE DELETE OR TRUNCATE ON operators FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER operator_tokens_kept BEFORE DELETE OR TRUNCATE ON operator_tokens FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER audit_results_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_results FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER proposals_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON proposals FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER approvals_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON approvals FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER executions_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON executions FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();

REVOKE EXECUTE ON FUNCTION operator_of(bytea), operator_proven(text, text[]), owner_speaks(text), operators_any(),
  others_decide(text), agreed_identity(text, text, text[]),
  refuse_desk(bigint, text, text, jsonb), said_of(uuid), lock_operation(bigint, uuid), resolve_operation(bigint, uuid, integer, text, text, text, uuid, jsonb),
  cancel_operation(bigint, uuid, text, uuid), ask_operation(bigint, uuid), pause_scope(bigint, text, text, text, text),
  resume_scope(bigint, text, text, text, text), bring_back(bigint, text, text, bigint) FROM PUBLIC;

-- A person's decision is an observation too. Its verdict is empty: it proves nothing of the partner, and older programs read it as a note.
-- Not validated: every row was good under the narrower rule, and reading them all would hold the table.
ALTER TABLE observations DROP CONSTRAINT observations_kind_check,
    ADD CONSTRAINT observations_kind_check CHECK (kind IN ('verdict', 'look_up', 'webhook', 'late', 'note', 'resolution')) NOT VALID;
