-- Two exports that overlap: the second file holds rows of the first, under another run key. So that they are found, a run keeps of each row with a name of
-- its author's (row_ref) eight bytes of a hash over what makes it the same payment, for longer than its parts are there.
--
-- Why packed by part: a million rows are 8 MB that are written in 250 rows, beside the parts. Why no index over them: whoever compares has its own sums in
-- memory, and reads those of the few runs of the last days. Runs of before have none, and are not compared.

-- +goose Up
CREATE TABLE batch_sums (
    run_id uuid NOT NULL,
    part   integer NOT NULL,
    sums   bytea NOT NULL, -- of 8 bytes each, in their order
    PRIMARY KEY (run_id, part),
    CONSTRAINT batch_sums_form CHECK (octet_length(sums) > 0 AND octet_length(sums) % 8 = 0)
);
ALTER TABLE batch_sums ALTER COLUMN sums SET STORAGE EXTERNAL; -- hashes do not compress

-- They come and go with parts that belong to nobody yet. Once the run is on record they are what others are compared with.
-- +goose StatementBegin
CREATE FUNCTION refuse_sum_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM batch_runs WHERE id = CASE TG_OP WHEN 'INSERT' THEN NEW.run_id ELSE OLD.run_id END) THEN
    RAISE EXCEPTION 'batch_sums: % in a run that is on record', TG_OP USING ERRCODE = 'PO022';
  END IF;
  RETURN CASE TG_OP WHEN 'INSERT' THEN NEW ELSE OLD END;
END $$;
-- +goose StatementEnd
CREATE TRIGGER batch_sums_change BEFORE INSERT OR DELETE ON batch_sums FOR EACH ROW EXECUTE FUNCTION refuse_sum_change();
CREATE TRIGGER batch_sums_kept BEFORE UPDATE OR TRUNCATE ON batch_sums FOR EACH STATEMENT EXECUTE FUNCTION refuse_erasure();
