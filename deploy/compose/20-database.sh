#!/bin/sh
# Runs once, when Postgres makes its data directory: the database, and the passwords of its four roles that log in.
# psql quotes the passwords; they are never part of a command line.
set -eu
psql --quiet --set=ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\set owner_password `cat /run/secrets/postgres_owner`
\set worker_password `cat /run/secrets/postgres_worker`
\set desk_password `cat /run/secrets/postgres_desk`
\set batch_password `cat /run/secrets/postgres_batch`
ALTER ROLE paidonce_owner PASSWORD :'owner_password';
ALTER ROLE paidonce_worker PASSWORD :'worker_password';
ALTER ROLE paidonce_desk PASSWORD :'desk_password';
ALTER ROLE paidonce_batch PASSWORD :'batch_password';
CREATE DATABASE paidonce OWNER paidonce_owner;
REVOKE ALL ON DATABASE paidonce FROM PUBLIC;
GRANT CONNECT ON DATABASE paidonce TO paidonce_app, paidonce_operator;
SQL
