#!/bin/sh
# Upgrade the tables, then become the federator.
set -e
foltr db upgrade --give-up-after 60
exec foltr federator run "$@"
