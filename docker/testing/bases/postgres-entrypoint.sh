#!/bin/bash
# What the real image's start does, as far as the Compose files ask for it: a first database with its user and password,
# no TCP before that is done, and the server as process 1 and as the user postgres.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown -R postgres:postgres "$PGDATA" /var/run/postgresql
    chmod 700 "$PGDATA"
    exec gosu postgres "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=${POSTGRES_USER:-postgres}
    database=${POSTGRES_DB:-$user}
    if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then
        password=$(<"$POSTGRES_PASSWORD_FILE")
    else
        password=${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE}
    fi
    initdb --username="$user" --pwfile=<(printf '%s\n' "$password") --encoding=UTF8 >/dev/null
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
    pg_ctl --pgdata "$PGDATA" --options "-c listen_addresses=''" --wait start >/dev/null
    [ "$database" = postgres ] || PGPASSWORD=$password createdb --username="$user" "$database"
    pg_ctl --pgdata "$PGDATA" --mode fast --wait stop >/dev/null
fi
exec "$@"
