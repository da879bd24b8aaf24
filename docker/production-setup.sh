#!/bin/sh
# Makes what the production stack needs, each thing once: the broker's configuration with certificates, the operator's
# folder with the enrolment key, passwords, credentials, tokens, and the policy of secure sums. Run by the service
# `setup`, which has no network. Each volume it writes is mounted only by the service that needs it.
set -eu
umask 077
operator=/operator/foltr
foltr_user=10001 broker_user=1883

/bin/sh /usr/local/bin/database-password.sh /database

# You have moved the operator's folder to its own host. Without it a new authority would be made, and lock everybody out.
if [ -e /federator/credentials.json ] && [ ! -e "$operator/enrolment.key" ]; then
    echo "the enrolment key is on another host: nothing to set up"
    exit 0
fi

# Again with --force if an older version wrote the access list without the desk, or the configuration without the
# plugin. The devices' credentials stay valid.
if [ ! -e "$operator/broker.json" ] || ! grep -q '^user @desk$' /mosquitto/config/acl ||
    [ ! -e /mosquitto/config/foltr_subscriptions.so ]; then
    mkdir -p "$operator"
    foltr broker config --tls --federation "$FOLTR_FEDERATION" --host "$HOST" --host mosquitto --host localhost \
        --listen 0.0.0.0 --port "$PORT" --out /mosquitto/config --data-dir /mosquitto/data --uid $broker_user \
        --operator "$operator" --plugin /usr/local/lib/foltr_subscriptions.so --force
fi
for helper in north south; do
    [ -e /helpers/$helper/credentials.json ] ||
        foltr helper enrol $helper --operator "$operator" --privacy "$FOLTR_PRIVACY" --replace --out /helpers/$helper/credentials.json
done
if [ "$FOLTR_PRIVACY" = secure ] && ! ls "$operator"/policies/* >/dev/null 2>&1; then
    for helper in north south; do
        foltr helper keys --credentials /helpers/$helper/credentials.json --store /helpers/$helper/store.sqlite \
            --out /tmp/$helper.keys
    done
    # Unquoted: several words, as the operator gave them.
    foltr policy new --operator "$operator" --helper /tmp/north.keys --helper /tmp/south.keys $POLICY
fi
# The federator's copy, updated after `foltr federator rotate-key` or a new policy.
if [ -e "$operator/federator.json" ]; then
    cp "$operator/federator.json" /federator/credentials.json
fi
# A one-time token for each device that has not enrolled itself. Valid ones stay: a device may be about to use them.
listed=$(foltr device tokens --operator "$operator" --json)
open=$(printf '%s' "$listed" | python3 -c 'import json, sys
print(*(row["token"] for row in json.load(sys.stdin)["tokens"] if row["state"] == "open"), sep="\n")')
names= number=1
while [ "$number" -le "$DEVICES" ]; do
    name=$(printf 'device-%04d' "$number")
    [ -e /devices/$name/credentials.json ] || [ -e /devices/$name/forgotten ] ||
        { [ -n "$open" ] && grep -q -s -F "$open" /tokens/$name.token; } || names="$names $name"
    number=$((number + 1))
done
if [ -n "$names" ]; then
    # Unquoted: several words.
    foltr device enrol $names --token --expires "$TOKEN_EXPIRES" --operator "$operator" --replace --out-dir /tokens
fi
chown -R $broker_user:$broker_user /operator /mosquitto/config /mosquitto/data
chown -R $foltr_user:$foltr_user /federator /helpers/north /helpers/south /devices /tokens
