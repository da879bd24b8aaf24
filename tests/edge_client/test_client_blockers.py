"""What keeps a device from taking part is said as it is: the broker, the login, the federator, or a refused join."""

import asyncio
import re

import numpy as np
import pytest
from support.device_under_policy import identity
from support.federator_by_hand import TOPICS, Federator, device, see
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, until

from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.receipts import ReceiptCode
from foltr.edge_client.blockers import BlockerKind
from foltr.edge_client.client import EdgeClient


async def beat(federator, *, online=True):
    status = FederatorStatus(federation="mail", online=online, at=1.0, interval_s=30.0, software_version="1")
    await federator.say(TOPICS.federator_status, status, retain=True)


async def words_of_next_round(client):
    with pytest.raises(UnavailableError) as caught:
        await client.next_round(timeout_s=0.2)  # clock: runs out
    return str(caught.value)


async def test_a_broker_that_is_away_is_no_federator_that_is(nowhere):
    """With its address, the cause and the next step."""
    async with device(nowhere) as client:
        await until(lambda: "onnect" in client.blocker.message.split(": ", 2)[-1])
        assert client.blocker.kind is BlockerKind.BROKER_AWAY
        assert str(client.blocker).startswith(f"MQTT broker {nowhere}: ")
        assert client.federator_online is None
        said = await words_of_next_round(client)
        assert nowhere in said
        assert "foltr broker run" in said
        assert "federator" not in said


async def test_who_gave_up_the_broker_waits_for_no_receipt(nowhere):
    """It says at once what waits, and why, however long it might have waited."""
    async with device(nowhere, give_up_after_s=0.1) as client, asyncio.timeout(PATIENCE_S):
        see(client, 1)
        settled = await client.wait_settled(2 * PATIENCE_S)
        assert "1 list is in no update yet: MQTT broker" in str(settled)


async def test_a_broker_that_was_lost_is_said_to_be(mosquitto_server):
    """Since when, too."""
    async with Federator(mosquitto_server.url) as federator, device(mosquitto_server.url) as client:
        await beat(federator)
        await until(lambda: client.federator_online)
        mosquitto_server.kill()
        await until(lambda: client.blocker is not None)
        assert client.federator_online is None
        assert client.blocker.kind is BlockerKind.BROKER_AWAY
        assert re.search(r" lost for \d+ s: ", client.blocker.message)


async def test_a_login_that_is_refused_is_called_so(tmp_path):
    """With what the broker said, and its code."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    server.start()
    try:
        known = server.service("operator")
        access = BrokerAccess(broker_url=known.broker_url, username="device-7", password="wrong", ca=known.ca)  # noqa: S106
        credentials = identity().model_copy(update={"broker": access})
        async with EdgeClient(credentials, store=":memory:") as client:
            await until(lambda: client.blocker.kind is BlockerKind.LOGIN_REFUSED)
            said = await words_of_next_round(client)
        assert "it refuses this user or this password (" in said
        assert "code 135" in said
        assert "foltr device enrol" in said
    finally:
        server.stop()


async def test_a_federator_that_is_away_is_said_to_be(mqtt_broker):
    """Whether it never spoke at this broker, or said goodbye; and that it is there, where it only opens no round."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await client.wait_connected(PATIENCE_S)
        assert client.blocker.kind is BlockerKind.FEDERATOR_AWAY
        assert "the broker has no message of the federator of 'mail'" in await words_of_next_round(client)
        await beat(federator)
        await until(lambda: client.federator_online)
        assert client.blocker is None
        assert "the federator of 'mail' is running" in await words_of_next_round(client)
        await beat(federator, online=False)
        await until(lambda: client.federator_online is False)
        said = await words_of_next_round(client)
        assert re.search(r"no round after 0 within 0\.2 s: the federator of 'mail' is away, last heard \d+ s ago", said)
        assert "foltr federator run" in said


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ReceiptCode.NOT_ENROLLED, BlockerKind.JOIN_REFUSED),
        (ReceiptCode.REVOKED, BlockerKind.JOIN_REFUSED),
        (ReceiptCode.BUSY, None),
    ],
)
async def test_who_is_not_taken_in_need_not_wait(mqtt_broker, code, kind):
    """Its rounds are announced to all, so it is told at once; not where it only has to ask again."""
    async with Federator(mqtt_broker, takes_joins=False) as federator, device(mqtt_broker) as client:
        await beat(federator)
        await federator.next("join")
        await federator.membership("device-7", code)
        if kind is None:
            await until(lambda: client.federator_online)
            assert client.blocker is None
            return
        await until(lambda: client.blocker is not None and client.blocker.kind is kind)
        with pytest.raises(UnavailableError, match=rf"device-7 of 'mail': the federator refuses it: {code}.*enrol"):
            await client.next_round(timeout_s=PATIENCE_S)
        assert not client.has_joined
        await federator.membership("device-7", ReceiptCode.JOINED)
        await until(lambda: client.has_joined)
        assert client.blocker is None


async def test_another_number_of_features_keeps_a_device_from_taking_part(mqtt_broker):
    """Its owner hears how many either has, and what to do; not a word in the log alone."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        await beat(federator)
        await client.next_round()
        await until(lambda: client.blocker is None)
        client.record_clicks(client.rank(np.eye(3, 5)), [0])
        assert client.blocker.kind is BlockerKind.OTHER_FEATURES
        assert "this application has 5 features, and the federation 16" in client.blocker.message
        assert "--features" in client.blocker.message


async def test_two_devices_of_one_identity_see_each_other(mqtt_broker, monkeypatch):
    """At the fourth connection that ends soon, also while connected, before either stays away."""
    monkeypatch.setattr("foltr.broker.backoff._SOON_S", PATIENCE_S)  # so that a stall makes no connection a steady one
    async with device(mqtt_broker) as one, device(mqtt_broker) as other:
        for client in (one, other):
            await until(
                lambda client=client: (
                    client.blocker is not None and client.blocker.kind is BlockerKind.SESSION_TAKEN_OVER
                )
            )
            assert "enrol another identity" in client.blocker.message
