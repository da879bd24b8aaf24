#!/bin/sh
# The HTTP API with its page. Before the first start it makes a viewer's token for Prometheus, in a volume that only the
# two share. Make people's tokens in this container: foltr api token new viewer
set -eu
if [ ! -s /monitoring/token ]; then
    foltr api token new viewer --days 3650 >/monitoring/token.new
    chmod 644 /monitoring/token.new # Prometheus runs as another user
    mv /monitoring/token.new /monitoring/token
fi
exec foltr api run "$@"
