#!/bin/sh
# Started as root, the folders are given to the user that Mosquitto becomes.
set -e
if [ "$(id -u)" = 0 ]; then
    chown -R mosquitto:mosquitto /mosquitto 2>/dev/null || true
fi
exec "$@"
