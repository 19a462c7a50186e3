-- The database refuses what no program of ours writes: entries of an authorization on an operation that is not authorized, or of another amount or
-- currency (I6), and an operation that begins with an outcome which somebody must have reached (I4).
--
-- Why the owner may: corrections by hand are the owner's, who could take the triggers away as well. Why one look for each operation, not for each entry: the
-- sums are made anyway. Why the schema is named: whoever may make temporary tables could put one of the same
-- name in front. A claim pays nothing: for the states in which it makes operations no function is called.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION owner_writes() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'public.operations'::regclass), 'MEMBER')
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION refuse_unbalanced_entries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  wrong record;
BEGIN
  SELECT e.balance, e.operation_id INTO wrong
    FROM (SELECT operation_id, event, currency, sum(amount_minor) AS balance, max(amount_minor) AS moved, count(*) AS legs
            FROM added GROUP BY operation_id, event, currency) e
    LEFT JOIN LATERAL (SELECT o.state, o.amount_minor, o.currency FROM public.operations o WHERE o.id = e.operation_id LIMIT 1) o ON true
   WHERE e.balance <> 0
      OR e.event = 'authorized' AND (o.state = 'authorized' AND o.currency = e.currency AND o.amount_minor = e.moved AND e.legs = 2) IS NOT TRUE
   LIMIT 1;
  IF NOT FOUND OR wrong.balance = 0 AND owner_writes() THEN
    RETURN NULL;
  ELSIF wrong.balance <> 0 THEN
    RAISE EXCEPTION 'the entries of one event must sum to zero per currency (I6)' USING ERRCODE = 'PO006';
  END IF;
  RAISE EXCEPTION 'operation %: entries of an authorization, and it is not authorized, or not of that amount (I6)', wrong.operation_id USING ERRCODE = 'PO006';
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION refuse_born_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT owner_writes() THEN
    RAISE EXCEPTION 'operation %: it cannot begin as % (I4)', NEW.key, NEW.state USING ERRCODE = 'PO004';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER operations_i4_born BEFORE INSERT ON operations FOR EACH ROW
WHEN (NEW.state NOT IN ('open', 'claimed', 'cancelled')) EXECUTE FUNCTION refuse_born_outcome();
