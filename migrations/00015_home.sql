-- Where a ledger is at home, to the table; and what keys tell of themselves after a failover or a restore.
--
-- Why object ids beside server and timeline: a dump that is restored in place makes its tables anew, and a copy beside it is another database, while
-- server and timeline stay what they were. Either has forgotten claims under which money moved.
-- Why a key without a time of its own (any but version 7) stays in doubt until a person ends that: a source may repeat an order that was lost here
-- at any time, and nothing about such a key tells when it was made. lost_since is the earliest moment at which a lost claim can have been sent: what survives
-- is everything up to some moment, so nothing that was lost is older than the newest record that was kept.
-- Why a ledger has a name: a disk's snapshot that was put back looks like the ledger itself in all of that. What was published since is in the events'
-- stream still, and names the ledger it came from.
-- Why clocks that run ahead are remembered: their keys look younger than they are.

-- +goose Up
ALTER TABLE ledger_identity
  ADD COLUMN database_oid   oid, -- NULL: not remembered yet, by the end of this migration's command it is
  ADD COLUMN operations_oid oid,
  ADD COLUMN ledger_id      uuid NOT NULL DEFAULT gen_random_uuid(), -- a copy has it too
  ADD COLUMN lost_since     timestamptz; -- NULL: nothing was ever lost, or a person has said that no source will repeat what was

CREATE TABLE fast_clocks (
    source text COLLATE "C" PRIMARY KEY,
    ahead  interval NOT NULL CHECK (ahead > interval '0') -- how far its keys were ahead of the ledger's clock when they came
);
