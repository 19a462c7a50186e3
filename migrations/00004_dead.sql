-- Dead letters: an index of their stream, and what people did to them.
--
-- Why two kinds of tables: dead_letters can be thrown away and read again from the stream; it holds no payload, no names and no accounts. What
-- was done to a letter is nowhere else, is only ever added to, and names the letter by the time its stream was made and its sequence: a stream
-- that is made again counts from 1. Where a letter stands is read from what was done to it, never stored.

-- +goose Up
CREATE TABLE dead_letters (
    stream_at           timestamptz NOT NULL,
    sequence            bigint NOT NULL CHECK (sequence > 0),
    at                  timestamptz NOT NULL,
    first_seen          timestamptz,
    job_sequence        bigint NOT NULL,
    deliveries          integer NOT NULL,
    replays             integer NOT NULL CHECK (replays >= 0), -- before it became this letter
    bytes               integer NOT NULL,
    sha256              bytea NOT NULL CHECK (octet_length(sha256) = 32), -- of the bytes
    reason              text COLLATE "C" NOT NULL,
    detail              text COLLATE "C" NOT NULL,
    source              text COLLATE "C" NOT NULL, -- '' = the subject holds no name
    route               text COLLATE "C" NOT NULL,
    fault               text COLLATE "C" NOT NULL, -- why it does not decode; '' = it does
    key                 uuid, -- of a letter that does not decode: what stands there as a key, if anything does
    fingerprint_version smallint,
    fingerprint         bytea,
    amount_minor        bigint,
    currency            text,
    PRIMARY KEY (stream_at, sequence),
    CONSTRAINT dead_letters_decoded CHECK ((fault = '') = (fingerprint IS NOT NULL) AND (fingerprint IS NULL) = (fingerprint_version IS NULL)),
    CONSTRAINT dead_letters_decoded_key CHECK (fingerprint IS NULL OR (key IS NOT NULL AND amount_minor IS NOT NULL)),
    CONSTRAINT dead_letters_amount CHECK ((amount_minor IS NULL) = (currency IS NULL))
);
CREATE INDEX dead_letters_key ON dead_letters (key, stream_at) WHERE key IS NOT NULL;

-- A selection as it was frozen. The id is made of the SHA-256 over all of it, so that whoever knows the id knows the content.
CREATE TABLE dead_plans (
    id         uuid PRIMARY KEY,
    draft      uuid NOT NULL UNIQUE, -- under which its letters were written before the id could be known
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    at         timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    by         text COLLATE "C" NOT NULL CHECK (by <> ''),
    stream_at  timestamptz NOT NULL,
    filter     text NOT NULL,
    letters    integer NOT NULL CHECK (letters > 0),
    CONSTRAINT dead_plans_expiry CHECK (expires_at > at)
);
CREATE TABLE dead_plan_letters (
    draft        uuid NOT NULL,
    sequence     bigint NOT NULL,
    class        text COLLATE "C" NOT NULL,
    sha256       bytea NOT NULL,
    key          uuid,
    amount_minor bigint,
    currency     text,
    PRIMARY KEY (draft, sequence)
);
CREATE INDEX dead_plan_letters_sequence ON dead_plan_letters (sequence);

-- A new operation in place of a dead letter, under a new key.
CREATE TABLE corrections (
    new_key        uuid PRIMARY KEY,
    stream_at      timestamptz NOT NULL,
    sequence       bigint NOT NULL,
    old_key        uuid, -- NULL: none could be read
    old_sha256     bytea NOT NULL,
    payload_sha256 bytea NOT NULL CHECK (octet_length(payload_sha256) = 32), -- of the new job
    source         text COLLATE "C" NOT NULL,
    route          text NOT NULL,
    amount_minor   bigint NOT NULL CHECK (amount_minor > 0),
    currency       text NOT NULL,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    by             text COLLATE "C" NOT NULL CHECK (by <> ''),
    CONSTRAINT corrections_letter UNIQUE (stream_at, sequence),
    CONSTRAINT corrections_another_key CHECK (old_key IS NULL OR old_key <> new_key)
);
-- One withdrawal is corrected once, however many letters say it: two corrections of it would both be paid.
CREATE UNIQUE INDEX corrections_old_key ON corrections (old_key) WHERE old_key IS NOT NULL;
CREATE UNIQUE INDEX corrections_old_bytes ON corrections (source, old_sha256) WHERE old_key IS NULL;

-- What was done to letters. replay, discard and correct are decisions: a letter gets one, ever. A replay and a correction are committed before
-- anything is published, and then published or failed says what came of it.
CREATE TABLE dead_letter_acts (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    stream_at    timestamptz NOT NULL,
    sequence     bigint NOT NULL,
    act          text COLLATE "C" NOT NULL CHECK (act IN ('replay', 'discard', 'correct', 'published', 'failed')),
    by           text COLLATE "C" NOT NULL CHECK (by <> ''),
    plan         uuid, -- its draft
    key          uuid,
    replay_n     integer CHECK (replay_n > 0),
    job_sequence bigint,
    duplicate    boolean,
    reason       text NOT NULL DEFAULT '', -- of a discard: in the words of whoever did it; of a failure: a code
    CONSTRAINT dead_letter_acts_replay CHECK ((act = 'replay') = (replay_n IS NOT NULL) AND (act <> 'replay' OR (key IS NOT NULL AND plan IS NOT NULL))),
    CONSTRAINT dead_letter_acts_correct CHECK (act <> 'correct' OR key IS NOT NULL),
    CONSTRAINT dead_letter_acts_discard CHECK (act <> 'discard' OR reason <> ''),
    CONSTRAINT dead_letter_acts_published CHECK (act <> 'published' OR (job_sequence IS NOT NULL AND duplicate IS NOT NULL))
);
CREATE UNIQUE INDEX dead_letter_acts_decision ON dead_letter_acts (stream_at, sequence) WHERE act IN ('replay', 'discard', 'correct');
CREATE UNIQUE INDEX dead_letter_acts_once ON dead_letter_acts (stream_at, sequence) WHERE act = 'published';
CREATE UNIQUE INDEX dead_letter_acts_replay_n ON dead_letter_acts (key, replay_n) WHERE act = 'replay';
CREATE INDEX dead_letter_acts_plan ON dead_letter_acts (plan, act, sequence) WHERE plan IS NOT NULL;

-- What the unique index cannot say: a key whose letter was corrected is not replayed by another letter; nothing is published without its decision.
-- +goose StatementBegin
CREATE FUNCTION refuse_dead_letter_act() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.act = 'replay' AND EXISTS (SELECT FROM corrections c WHERE c.old_key = NEW.key) THEN
    RAISE EXCEPTION 'dead letter %: its key has been replaced by a correction', NEW.sequence USING ERRCODE = 'PO021';
  END IF;
  IF NEW.act = 'correct' AND NOT EXISTS (SELECT FROM corrections c WHERE c.new_key = NEW.key AND c.stream_at = NEW.stream_at AND c.sequence = NEW.sequence) THEN
    RAISE EXCEPTION 'dead letter %: there is no such correction', NEW.sequence USING ERRCODE = 'PO021';
  END IF;
  IF NEW.act IN ('published', 'failed') AND NOT EXISTS (SELECT FROM dead_letter_acts a
      WHERE a.stream_at = NEW.stream_at AND a.sequence = NEW.sequence AND a.act IN ('replay', 'correct')) THEN
    RAISE EXCEPTION 'dead letter %: published without a decision', NEW.sequence USING ERRCODE = 'PO021';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER dead_letter_acts_guard BEFORE INSERT ON dead_letter_acts FOR EACH ROW EXECUTE FUNCTION refuse_dead_letter_act();

-- Four eyes, whatever door it comes by: a correction is what another person has approved, to the byte.
-- +goose StatementBegin
CREATE FUNCTION refuse_correction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM executions e JOIN proposals p ON p.id = e.proposal_id
                  WHERE p.act = 'correct' AND convert_from(p.content, 'UTF8')::jsonb @> jsonb_build_object('new_key', NEW.new_key,
                        'letter', NEW.sequence, 'payload_sha256', encode(NEW.payload_sha256, 'hex'))) THEN
    RAISE EXCEPTION 'corrections: only what another person has approved' USING ERRCODE = 'PO014';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER corrections_guard BEFORE INSERT ON corrections FOR EACH ROW EXECUTE FUNCTION refuse_correction();

-- The old key of a correction is closed: an operation that is cancelled from its beginning. Whoever sends the job again finds it finished, so
-- that it is never paid beside its correction. Says whether it was closed now: false, when there is an operation under the key already.
-- Runs as the owner, because operators make no operations; it makes none that could ever be sent.
-- +goose StatementBegin
CREATE FUNCTION close_corrected_key(replaced_by uuid, fingerprint_version smallint, fingerprint bytea, source text, route text, account text,
                                    amount_minor bigint, currency text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  old uuid;
  made bigint;
BEGIN
  SELECT c.old_key INTO old FROM corrections c JOIN dead_letter_acts a ON a.key = c.new_key AND a.act = 'correct' WHERE c.new_key = replaced_by;
  IF old IS NULL THEN
    RAISE EXCEPTION 'there is no correction of a letter with a key under %', replaced_by USING ERRCODE = 'PO021';
  END IF;
  INSERT INTO operations AS o (key, amount_minor, fingerprint_version, fingerprint, currency, source, route, debtor_account, state, outcome_at, code)
  VALUES (old, close_corrected_key.amount_minor, close_corrected_key.fingerprint_version, close_corrected_key.fingerprint, close_corrected_key.currency,
          close_corrected_key.source, close_corrected_key.route, account, 'cancelled', now(), 'corrected')
  ON CONFLICT ON CONSTRAINT operations_key DO NOTHING RETURNING o.id INTO made;
  IF made IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO observations (operation_id, claim_token, n, fence, kind, verdict, code) VALUES (made, replaced_by, 0, 0, 'note', '', 'corrected');
  INSERT INTO outbox (operation_id, fence, type, code) VALUES (made, 0, 'cancelled', 'corrected');
  RETURN true;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION close_corrected_key(uuid, smallint, bytea, text, text, text, bigint, text) FROM PUBLIC;

-- The key of a discarded letter is closed in the same way, with code 'discarded': its job is in the stream still, and is read again when its route
-- is configured, or after a recovery. Only by whoever discarded the letter.
-- +goose StatementBegin
CREATE FUNCTION close_discarded_key(letter_of timestamptz, letter bigint, fingerprint_version smallint, fingerprint bytea, source text, route text,
                                    account text, amount_minor bigint, currency text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  old uuid;
  who text;
  made bigint;
BEGIN
  SELECT a.key, a."by" INTO old, who FROM dead_letter_acts a WHERE a.stream_at = letter_of AND a.sequence = letter AND a.act = 'discard';
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
REVOKE EXECUTE ON FUNCTION close_discarded_key(timestamptz, bigint, smallint, bytea, text, text, text, bigint, text) FROM PUBLIC;

-- Several people share one login: what is written in a person's name takes that person's token. By statement, because a plan has many letters.
-- +goose StatementBegin
CREATE FUNCTION refuse_unproven_rows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM (SELECT DISTINCT a."by" AS who FROM added a) x WHERE NOT operator_proven(x.who, '{operator,admin}') AND NOT owner_speaks(x.who)) THEN
    RAISE EXCEPTION '%: written in the name of an operator without that operator''s token', TG_TABLE_NAME USING ERRCODE = 'PO011';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER dead_plans_proven AFTER INSERT ON dead_plans REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unproven_rows();
CREATE TRIGGER corrections_proven AFTER INSERT ON corrections REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unproven_rows();
CREATE TRIGGER dead_letter_acts_proven AFTER INSERT ON dead_letter_acts REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION refuse_unproven_rows();

CREATE TRIGGER dead_plans_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON dead_plans FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER dead_plan_letters_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON dead_plan_letters FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER corrections_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON corrections FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER dead_letter_acts_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON dead_letter_acts FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
