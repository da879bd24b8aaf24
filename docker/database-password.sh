#!/bin/sh
# Make the database's password if it is missing: as a file for PostgreSQL, and in foltr's database address. Only the
# services that mount this volume have the password.
set -eu
folder=${1:-/run/database}
[ -s "$folder/foltr.toml" ] && exit 0
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
umask 022
printf '%s' "$password" >"$folder/password"
printf '[operations]\ndb_url = "postgresql://foltr:%s@postgres:5432/foltr"\n' "$password" >"$folder/foltr.toml"
