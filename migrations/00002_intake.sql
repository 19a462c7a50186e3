-- Jobs that were recorded here first (by the gateway, by a batch) and still have to be published to the broker.
--
-- Why a table of its own: the outbox holds events, which are relayed in the order of each key by the worker's role; a job is published once,
-- by the gateway's role, which may publish no events. Why a holder: whoever recorded a job publishes it, without asking the others; what it
-- leaves behind is taken over by age.

-- +goose Up
CREATE TABLE unpublished_jobs (
    operation_id bigint PRIMARY KEY,
    holder       uuid NOT NULL,
    at           timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
