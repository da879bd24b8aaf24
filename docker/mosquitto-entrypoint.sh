#!/bin/sh
# Run Mosquitto and signal it after each change of its users or access list: enrolment runs in another container, which
# cannot send the signal.
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
