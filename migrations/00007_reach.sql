-- Which programs may run on this schema, said by the schema itself: only it knows what a later change broke.
--
-- Why not by counting versions: a release may bring many small steps, and the workers of the release before must go on beside it while they
-- are replaced one by one. A step that they cannot live with raises oldest_program in the same file.

-- +goose Up
CREATE TABLE schema_reach (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    oldest_program bigint NOT NULL CHECK (oldest_program > 0) -- the least version a program must have been written for
);
INSERT INTO schema_reach (oldest_program) VALUES (1);
GRANT SELECT ON schema_reach TO PUBLIC; -- every program asks it, under whatever role
