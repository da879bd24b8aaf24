#!/bin/sh
# Bring the tables up to this version, then become the federator.
set -e
foltr db upgrade --give-up-after 60
exec foltr federator run "$@"
