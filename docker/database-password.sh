#!/bin/sh
# A password for the database, unless there is one: as a file for PostgreSQL, and in the address that foltr is given.
# Whoever has this volume has the password; no other service has the volume.
set -eu
folder=${1:-/run/database}
[ -s "$folder/foltr.toml" ] && exit 0
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
umask 022
printf '%s' "$password" >"$folder/password"
printf '[operations]\ndb_url = "postgresql://foltr:%s@postgres:5432/foltr"\n' "$password" >"$folder/foltr.toml"
