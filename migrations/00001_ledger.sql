-- The ledger: one narrow row per operation, everything else hung on its internal id.
--
-- Why this shape: write cost decides speed. The caller's key, often random, lives in ONE unique index; no index covers a column that
-- changes (but contradicted_at, set at most once), so nearly every update is heap-only (HOT); what is due lives in a small side table.
-- There are no foreign keys: each would lock and dirty the parent row once per child row, and nothing here is ever deleted that a child
-- could lose.
-- Why triggers beside grants: the grants bind the application's role, the triggers bind the owner and whoever restores a dump as well.

-- +goose Up
CREATE TYPE operation_state AS ENUM ('open', 'claimed', 'authorized', 'rejected', 'cancelled', 'parked');
CREATE TYPE settlement_state AS ENUM ('pending', 'settled', 'failed', 'returned');
CREATE TYPE entry_event AS ENUM ('authorized', 'settled', 'returned', 'failed');
CREATE TYPE outbox_type AS ENUM ('accepted', 'authorized', 'rejected', 'cancelled', 'parked', 'settled', 'failed', 'returned', 'contradicted');

-- I4: the state table, once in SQL. The Go twin is ledger.TransitionAllowed; a test compares them over all pairs.
-- +goose StatementBegin
CREATE FUNCTION operation_transition_allowed(before operation_state, after operation_state) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT before = after
      OR (before = 'open' AND after IN ('claimed', 'cancelled', 'parked', 'authorized'))
      OR (before = 'claimed' AND after IN ('open', 'authorized', 'rejected', 'cancelled', 'parked'))
      OR (before = 'parked' AND after IN ('authorized', 'rejected', 'open'))
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION settlement_transition_allowed(before settlement_state, after settlement_state) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT before IS NOT DISTINCT FROM after
      OR (after IS NOT NULL AND CASE WHEN before IS NULL THEN after = 'pending'
                                     WHEN before = 'pending' THEN after IN ('settled', 'failed')
                                     ELSE before IN ('settled', 'failed') AND after = 'returned' END)
$$;
-- +goose StatementEnd

CREATE TABLE operations (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key                 uuid NOT NULL,
    amount_minor        bigint NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    fingerprint_version smallint NOT NULL,
    fingerprint         bytea NOT NULL,
    currency            text NOT NULL,
    source              text NOT NULL,
    route               text NOT NULL,
    debtor_account      text NOT NULL,
    -- what changes comes last
    state               operation_state NOT NULL,
    in_doubt            boolean NOT NULL DEFAULT false,
    held                boolean NOT NULL DEFAULT false,
    unobserved          smallint NOT NULL DEFAULT 0, -- consecutive claims without an observation
    epoch               smallint NOT NULL DEFAULT 0,
    settlement          settlement_state,
    fence               integer NOT NULL DEFAULT 0,
    claim_token         uuid,
    lease_until         timestamptz,
    first_sent_at       timestamptz,
    outcome_at          timestamptz,
    contradicted_at     timestamptz,
    partner             text,
    credential          text,
    partner_key         text,
    transfer_id         text,
    code                text,

    CONSTRAINT operations_key UNIQUE (key), -- I1: the guard
    CONSTRAINT operations_amount_positive CHECK (amount_minor > 0),
    CONSTRAINT operations_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT operations_key_real CHECK (key NOT IN ('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff')),
    CONSTRAINT operations_fingerprint_length CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT operations_fence CHECK (fence >= 0 AND epoch >= 0 AND unobserved >= 0),
    CONSTRAINT operations_claim CHECK (state <> 'claimed' OR (claim_token IS NOT NULL AND lease_until IS NOT NULL AND fence > 0)),
    CONSTRAINT operations_outcome_time CHECK ((state IN ('authorized', 'rejected', 'cancelled')) = (outcome_at IS NOT NULL)),
    CONSTRAINT operations_authorized CHECK (state <> 'authorized'
        OR (transfer_id IS NOT NULL AND transfer_id <> '' AND partner IS NOT NULL AND partner_key IS NOT NULL AND first_sent_at IS NOT NULL)),
    CONSTRAINT operations_doubt CHECK (NOT in_doubt OR state IN ('open', 'claimed', 'parked')),
    CONSTRAINT operations_doubt_sent CHECK (NOT in_doubt OR first_sent_at IS NOT NULL),
    CONSTRAINT operations_settlement CHECK ((state = 'authorized') = (settlement IS NOT NULL)),
    CONSTRAINT operations_contradicted CHECK (contradicted_at IS NULL OR state IN ('authorized', 'rejected', 'cancelled')),
    CONSTRAINT operations_held CHECK (NOT held OR state = 'open'),
    CONSTRAINT operations_reason CHECK (NOT (held OR state IN ('rejected', 'cancelled', 'parked')) OR (code IS NOT NULL AND code <> ''))
) WITH (fillfactor = 50);
CREATE INDEX operations_contradictions ON operations (contradicted_at) WHERE contradicted_at IS NOT NULL; -- empty in a good life; the alert counts it

-- +goose StatementBegin
CREATE FUNCTION refuse_operation_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'operation %: % -> % (fence % -> %) breaks I4: an outcome, a key, a fingerprint and a fence never go back',
    OLD.id, OLD.state, NEW.state, OLD.fence, NEW.fence USING ERRCODE = 'PO004';
END $$;
-- +goose StatementEnd
-- The condition is inlined into the update: no function is called for a change that is allowed.
CREATE TRIGGER operations_i4 BEFORE UPDATE ON operations FOR EACH ROW
WHEN (NOT operation_transition_allowed(OLD.state, NEW.state)
   OR NOT settlement_transition_allowed(OLD.settlement, NEW.settlement)
   OR NEW.fence < OLD.fence OR NEW.epoch < OLD.epoch
   OR OLD.id <> NEW.id OR OLD.key <> NEW.key
   OR OLD.fingerprint <> NEW.fingerprint OR OLD.fingerprint_version <> NEW.fingerprint_version
   OR OLD.amount_minor <> NEW.amount_minor OR OLD.currency <> NEW.currency OR OLD.source <> NEW.source OR OLD.route <> NEW.route
   OR OLD.debtor_account <> NEW.debtor_account OR OLD.created_at <> NEW.created_at
   OR (OLD.outcome_at IS NOT NULL AND (OLD.outcome_at IS DISTINCT FROM NEW.outcome_at OR OLD.transfer_id IS DISTINCT FROM NEW.transfer_id
       OR OLD.partner IS DISTINCT FROM NEW.partner OR OLD.partner_key IS DISTINCT FROM NEW.partner_key))
   OR (OLD.state IN ('rejected', 'cancelled') AND OLD.code IS DISTINCT FROM NEW.code)
   OR (OLD.contradicted_at IS NOT NULL AND OLD.contradicted_at IS DISTINCT FROM NEW.contradicted_at)
   OR (OLD.partner IS NOT NULL AND OLD.partner IS DISTINCT FROM NEW.partner))
EXECUTE FUNCTION refuse_operation_change();

-- The job as it arrived. Written once; a purge may delete it, never change it.
CREATE TABLE payloads (
    operation_id bigint PRIMARY KEY,
    not_before   timestamptz,
    not_after    timestamptz,
    published_at timestamptz,
    traceparent  text,
    body         bytea NOT NULL
);

-- Exactly one row per unfinished operation: when somebody must look at it next (the end of the lease while it is claimed).
CREATE TABLE due (
    operation_id bigint PRIMARY KEY,
    due_at       timestamptz NOT NULL,
    parked       boolean NOT NULL DEFAULT false,
    partner      text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX due_next ON due (partner, parked, due_at);

-- I2: committed before the first byte leaves.
CREATE TABLE attempts (
    operation_id  bigint NOT NULL,
    fence         integer NOT NULL CHECK (fence > 0),
    renderer      smallint NOT NULL,
    claim_token   uuid NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    body_sha256   bytea NOT NULL CHECK (octet_length(body_sha256) = 32),
    partner       text NOT NULL,
    credential    text NOT NULL,
    endpoint      text NOT NULL,
    partner_key   text NOT NULL,
    end_to_end_id text NOT NULL,
    PRIMARY KEY (operation_id, fence)
);

-- One fact each. Addressed by claim token, since ids and fences can be issued again after a failover.
CREATE TABLE observations (
    operation_id  bigint NOT NULL,
    claim_token   uuid NOT NULL,
    n             smallint NOT NULL, -- position under the token, so that the same write twice is one row
    fence         integer NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    authoritative boolean NOT NULL DEFAULT false,
    kind          text NOT NULL CHECK (kind IN ('verdict', 'look_up', 'webhook', 'late', 'note')),
    verdict       text NOT NULL CHECK (verdict IN ('', 'authorized', 'rejected', 'not_executed', 'in_flight', 'key_reused', 'mismatch', 'unknown',
                                                   'not_found', 'no_answer')),
    transfer_id   text,
    code          text,
    evidence      jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (operation_id, claim_token, n)
);

-- Evidence for a key that the ledger does not know (a claim lost in a failover, news that came before its operation): kept until matched.
CREATE TABLE strays (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         uuid NOT NULL,
    claim_token uuid NOT NULL,
    n           smallint NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    kind        text NOT NULL,
    verdict     text NOT NULL,
    partner_key text,
    transfer_id text,
    code        text,
    evidence    jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT strays_once UNIQUE (claim_token, key, n) -- a token is minted per batch: with the key it names one claim
);
CREATE INDEX strays_key ON strays (key);

-- The journal. Account names: customer:<source>/<account>, transit:<partner>, nostro:<partner>.
CREATE TABLE entries (
    operation_id bigint NOT NULL,
    event        entry_event NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    amount_minor bigint NOT NULL CHECK (amount_minor <> 0),
    currency     text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    account      text COLLATE "C" NOT NULL, -- an index on collated text breaks silently when the server's libraries change
    PRIMARY KEY (operation_id, event, account) -- I6
);
-- I6: all entries of one event come in one statement and sum to zero. Checked once per statement, over its own rows.
-- +goose StatementBegin
CREATE FUNCTION refuse_unbalanced_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM added GROUP BY operation_id, event, currency HAVING sum(amount_minor) <> 0) THEN
    RAISE EXCEPTION 'the entries of one event must sum to zero per currency (I6)' USING ERRCODE = 'PO006';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER entries_i6 AFTER INSERT ON entries REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION refuse_unbalanced_entries();

-- What happened and was not published yet. The relay renders the event, publishes it and deletes the row.
CREATE TABLE outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint NOT NULL,
    fence        integer NOT NULL,
    type         outbox_type NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    code         text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE TABLE pauses (
    scope  text COLLATE "C" NOT NULL CHECK (scope IN ('all', 'partner', 'route', 'source')),
    name   text COLLATE "C" NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    by     text NOT NULL CHECK (by <> ''),
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, name),
    CONSTRAINT pauses_all_has_no_name CHECK ((scope = 'all') = (name = ''))
);
CREATE TABLE pause_log (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope  text NOT NULL,
    name   text NOT NULL,
    act    text NOT NULL CHECK (act IN ('pause', 'resume')),
    reason text NOT NULL CHECK (reason <> ''),
    by     text NOT NULL CHECK (by <> ''),
    at     timestamptz NOT NULL DEFAULT now()
);

-- Which server and timeline this ledger was last known to live on. When they change, a committed claim may be missing: claims stop until
-- `paidonce recover` has run, and everything published before doubt_before is asked after before it is sent.
CREATE TABLE ledger_identity (
    one               boolean PRIMARY KEY DEFAULT true CHECK (one),
    system_identifier text NOT NULL,
    timeline          integer NOT NULL,
    doubt_before      timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE TABLE recoveries (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at                timestamptz NOT NULL DEFAULT now(),
    by                text NOT NULL CHECK (by <> ''),
    reason            text NOT NULL CHECK (reason <> ''),
    from_system       text NOT NULL,
    from_timeline     integer NOT NULL,
    to_system         text NOT NULL,
    to_timeline       integer NOT NULL,
    put_in_doubt      bigint NOT NULL
);

-- One holder at a time for what must not run twice side by side (the relay, for the order of events). By the database clock.
CREATE TABLE leases (
    name   text COLLATE "C" PRIMARY KEY,
    holder uuid NOT NULL,
    until  timestamptz NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION refuse_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on %: evidence and keys are never changed or erased (I9, I10)', TG_OP, TG_TABLE_NAME USING ERRCODE = 'PO009';
END $$;
-- +goose StatementEnd
CREATE TRIGGER operations_kept BEFORE DELETE OR TRUNCATE ON operations FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER payloads_kept BEFORE UPDATE ON payloads FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER attempts_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON attempts FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER observations_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON observations FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER entries_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON entries FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER strays_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON strays FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER pause_log_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON pause_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
CREATE TRIGGER recoveries_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON recoveries FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
