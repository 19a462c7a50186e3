-- Roles of paidonce, to be run once per server by a superuser (or a role with CREATEROLE), before `paidonce migrate up`. Safe to run again.
-- Set passwords or certificates by your own means, for example:  \password paidonce_worker
--
--   paidonce_owner   owns the database and runs `paidonce migrate up` and `paidonce recover`
--   paidonce_app     the rights of the application (no login); see migrations/grants.sql
--   paidonce_worker  what `paidonce worker` logs in as
--   paidonce_reader  sees everything but payloads (no login): grant it to people and dashboards
--   paidonce_operator  the rights of operators' commands and console (no login). Who an operator is, a token says; see `paidonce operators`
--   paidonce_desk    what operators' commands and console log in as
--   paidonce_batch   what `paidonce batch` logs in as: the desk's rights, and making operations
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_owner') THEN
    CREATE ROLE paidonce_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_app') THEN
    CREATE ROLE paidonce_app NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_worker') THEN
    CREATE ROLE paidonce_worker LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE IN ROLE paidonce_app;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_reader') THEN
    CREATE ROLE paidonce_reader NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_operator') THEN
    CREATE ROLE paidonce_operator NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_desk') THEN
    CREATE ROLE paidonce_desk LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE IN ROLE paidonce_operator;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'paidonce_batch') THEN
    CREATE ROLE paidonce_batch LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE IN ROLE paidonce_operator;
  END IF;
END $$;
-- A client that dies or freezes must not keep locks. paidonce sets the same inside each of its transactions; these catch everything else.
ALTER ROLE paidonce_worker SET lock_timeout = '5s';
ALTER ROLE paidonce_worker SET statement_timeout = '30s';
ALTER ROLE paidonce_worker SET idle_in_transaction_session_timeout = '5s';
ALTER ROLE paidonce_desk SET lock_timeout = '5s';
ALTER ROLE paidonce_desk SET statement_timeout = '60s';
ALTER ROLE paidonce_desk SET idle_in_transaction_session_timeout = '5s';
ALTER ROLE paidonce_batch SET lock_timeout = '5s';
ALTER ROLE paidonce_batch SET statement_timeout = '60s';
ALTER ROLE paidonce_batch SET idle_in_transaction_session_timeout = '5s';
