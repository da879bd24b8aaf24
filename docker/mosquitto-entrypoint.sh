#!/bin/sh
# Mosquitto, told of each change of its users or its access list: who enrols devices is in another container, and can
# send it no signal.
config=/mosquitto/config
seen() { cat $config/passwords $config/acl 2>/dev/null | cksum; }
before=$(seen)
while sleep 2; do
    now=$(seen)
    if [ "$now" != "$before" ]; then
        before=$now
        kill -HUP 1
    fi
done &
exec mosquitto -c $config/mosquitto.conf
