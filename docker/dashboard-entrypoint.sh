#!/bin/sh
# The HTTP API with its page. Before it starts the first time, Prometheus gets a token: a viewer's, in a volume that
# nobody else sees. People's tokens are made in here: foltr api token new viewer
set -eu
if [ ! -s /monitoring/token ]; then
    foltr api token new viewer --days 3650 >/monitoring/token.new
    chmod 644 /monitoring/token.new # Prometheus is another user
    mv /monitoring/token.new /monitoring/token
fi
exec foltr api run "$@"
