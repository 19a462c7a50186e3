-- Payloads may be purged (I10): of operations that are finished, that nobody has contradicted, and whose job was published.
--
-- Why a trigger beside the statement of the purge: an unfinished operation without its payload can never be sent, and nobody would notice
-- before its turn came. Why per statement: a purge deletes a thousand rows at once.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION refuse_payload_loss() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM gone g CROSS JOIN LATERAL ( -- row by row: gone has no statistics, and operations may be large
      SELECT FROM operations o WHERE o.id = g.operation_id AND (o.state NOT IN ('authorized', 'rejected', 'cancelled') OR o.contradicted_at IS NOT NULL)
         OFFSET 0) AS needed
     UNION ALL
    SELECT FROM gone g CROSS JOIN LATERAL (SELECT FROM unpublished_jobs u WHERE u.operation_id = g.operation_id OFFSET 0) AS waiting
  ) THEN
    RAISE EXCEPTION 'a payload that is still needed is not deleted: its operation is unfinished, contradicted, or not published yet' USING ERRCODE = 'PO009';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER payloads_needed AFTER DELETE ON payloads REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_payload_loss();
CREATE TRIGGER payloads_not_emptied BEFORE TRUNCATE ON payloads FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
