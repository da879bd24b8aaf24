"""A device with credentials, against real brokers: what it signs, whom it believes, how its sessions follow."""

import asyncio

import pytest
from support.device_options import grouped
from support.device_stores import stored
from support.federator_by_hand import TOPICS, Federator, adding_learner, device, see
from support.waiting import PATIENCE_S, until

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess, device_identity, write_secret
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.membership import Join, Status
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SESSION_STEPS, SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import ModelUpdate
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.events import AuditLogCut
from foltr.edge_client.options import Connection

OPERATOR, FEDERATOR, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()


def identity(url, serial=1):
    return device_identity(OPERATOR, FEDERATOR.public, "mail", "device-7", serial, BrokerAccess(broker_url=url))


def enrolled(credentials, store=":memory:", **options):
    return EdgeClient(credentials, store=store, **grouped(learner=adding_learner, seed=1, **options))


async def test_credentials_are_enough(mqtt_broker, tmp_path):
    """Federation, name, broker and key from one file."""
    credentials = identity(mqtt_broker)
    file = tmp_path / "device-7.json"
    write_secret(file, credentials.model_dump_json())
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(file) as client:
        assert (client.federation, client.client_id) == ("mail", "device-7")
        envelope = open_envelope(await federator.next("join"))
        assert envelope.is_signed_by(credentials.key.public, TOPICS.client("device-7", ClientTopic.JOIN))
        assert envelope.read(Join).enrolment == credentials.enrolment_bytes


@pytest.mark.parametrize("argument", [{"federation": "photos"}, {"client_id": "device-8"}])
def test_arguments_must_agree_with_the_credentials(argument, nowhere, path):
    """Told with both values, before anything is opened."""
    with pytest.raises(SettingsError, match=r"was given, but the credentials are for '(mail|device-7)'"):
        enrolled(identity(nowhere), path, **argument)
    assert not path.exists()


def test_what_cannot_be_used_leaves_no_store_behind(path):
    """An address, or a certificate: told before the store is opened, so that it is not locked for the next try."""
    access = BrokerAccess(broker_url="mqtts://127.0.0.1", ca="no certificate")
    credentials = identity("mqtt://elsewhere").model_copy(update={"broker": access})
    for wrong in (credentials, identity("nonsense://127.0.0.1")):
        with pytest.raises(SettingsError):
            enrolled(wrong, path)
    assert not path.exists()


async def test_arguments_may_repeat_the_credentials(mqtt_broker, nowhere):
    """And the broker may be another one than they name."""
    async with enrolled(identity(nowhere), federation="mail", client_id="device-7", broker=mqtt_broker) as client:
        await client.wait_connected(PATIENCE_S)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"federation": "mail", "client_id": "device-7"}, "broker"),
        ({"broker": "mqtt://127.0.0.1", "client_id": "device-7"}, "federation"),
        ({"broker": "mqtt://127.0.0.1", "federation": "mail"}, "client_id"),
    ],
)
def test_without_credentials_everything_must_be_named(arguments, name):
    """The message names what is not there."""
    with pytest.raises(SettingsError, match=f"^{name}: "):
        EdgeClient(connection=Connection(**arguments), store=":memory:")


@pytest.mark.parametrize("key", [None, STRANGER], ids=["unsigned", "another key"])
async def test_a_forged_announcement_is_ignored(mqtt_broker, key):
    """Neither its model nor its round; the federator's own are taken."""
    async with Federator(mqtt_broker) as forger, enrolled(identity(mqtt_broker)) as client:
        await forger.announce(1, base=7, key=key)
        await forger.next("join")
        see(client, 1, 2)
        await forger.nothing_on("updates")
        assert client.model_version is None
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(identity(mqtt_broker)) as client:
        await federator.announce(1, base=3)
        assert (await client.next_round(timeout_s=PATIENCE_S)).base_version == 3


@pytest.mark.parametrize("key", [None, STRANGER], ids=["unsigned", "another key"])
async def test_a_forged_receipt_is_ignored(mqtt_broker, key):
    """Nobody but the federator ends an update; one that anybody may sign is no receipt."""
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(identity(mqtt_broker)) as client:
        await federator.announce(1)
        await client.next_round()
        see(client, 1, 2)
        update = await federator.update()
        federator.key = None
        await federator.receipt(update, ReceiptCode.ACCEPTED, key=key)
        await federator.receipt(update, ReceiptCode.MALFORMED, named=False, key=key)
        assert not await client.wait_settled(0.2)
        assert client.receipts == {}
        await federator.receipt(update, ReceiptCode.ACCEPTED, key=FEDERATOR)
        assert await client.wait_settled(PATIENCE_S)
        assert client.receipts == {"accepted": 1}


async def test_an_older_announcement_is_ignored_in_every_connection(mosquitto_server):
    """What was believed is not taken back, whatever the broker retained; the federator announces the newest again."""
    url = mosquitto_server.url
    async with enrolled(identity(url)) as client:
        async with Federator(url, key=FEDERATOR) as federator:
            await federator.announce(5, base=4, sequence=50)
            await client.next_round()
            await federator.announce(4, base=3, sequence=40)
            await federator.announce(6, base=4, sequence=60)
            assert (await client.next_round(after=5)).round == 6
            assert client.model_version == 4
            await federator.announce(4, base=3, sequence=40)
        mosquitto_server.stop()
        mosquitto_server.start()
        async with Federator(url, key=FEDERATOR) as federator:
            await federator.announce(7, base=5, sequence=70)
            assert (await client.next_round(after=6)).round == 7
            assert client.model_version == 5


async def test_each_connection_rises_above_the_last_will_of_the_one_before(mosquitto_server, path):
    """Over a broker that dies and a device that is started again."""
    async with Federator(mosquitto_server.url) as federator, device(mosquitto_server.url, path):
        hello = open_envelope(await federator.next("status"))
        assert hello.read(Status).online
    with stored(path) as store:
        assert hello.sequence // SESSION_STEPS == store.newest_session()
    mosquitto_server.kill()
    mosquitto_server.start()
    async with Federator(mosquitto_server.url) as federator, device(mosquitto_server.url):
        again = open_envelope(await federator.next("status"))
        assert hello.sequence // SESSION_STEPS < again.sequence // SESSION_STEPS


@pytest.mark.usefixtures("resend_fast")
async def test_a_replayed_receipt_lifts_the_session(mqtt_broker):
    """The next join is above the newest sequence number the federator has seen."""
    newest = (2**42) * SESSION_STEPS + 5
    async with Federator(mqtt_broker, takes_joins=False) as federator, device(mqtt_broker):
        await federator.next("join")
        await federator.membership("device-7", ReceiptCode.REPLAYED, newest_sequence=newest)
        async with asyncio.timeout(PATIENCE_S):
            while (sequence := open_envelope(await federator.next("join")).sequence) <= newest:
                pass
        assert sequence // SESSION_STEPS == 2**42 + 1


async def test_membership_receipts_of_another_device_are_ignored(mqtt_broker):
    """They answer what a device of the same name sent, perhaps with the same sequence number."""
    federator = Federator(mqtt_broker, takes_joins=False, takes_leaves=False)
    async with federator, device(mqtt_broker) as client:
        join = await federator.next("join")
        sequence = open_envelope(join).sequence
        other = encode(decode(join, Join), TOPICS.client("device-7", ClientTopic.JOIN), sequence, STRANGER)
        for code in (ReceiptCode.JOINED, ReceiptCode.LEFT):
            await federator.membership("device-7", code, to=other)
        await federator.membership("device-7", ReceiptCode.REPLAYED, to=other, newest_sequence=2**50)
        await federator.announce(1)
        await client.next_round()  # the inbox was heard before: one connection, in order
        see(client, 1, 2)
        await federator.nothing_on("updates")  # it has not joined
        await federator.membership("device-7", ReceiptCode.JOINED, to=join)
        update = open_envelope(await federator.next("updates"))
        assert update.sequence // SESSION_STEPS == sequence // SESSION_STEPS
        assert not await client.leave(timeout_s=0.05)  # clock: runs out (nobody has confirmed it)


async def test_leave_tells_whether_it_was_confirmed(mqtt_broker):
    """True with the federator's answer; False where it is away, and the broker holds the message for it."""
    async with Federator(mqtt_broker), device(mqtt_broker) as client:
        await client.wait_connected()
        assert await client.leave(timeout_s=PATIENCE_S)
    async with device(mqtt_broker) as client:
        await client.wait_connected()
        assert not await client.leave(timeout_s=0.1)  # clock: runs out


async def test_an_update_waits_for_the_new_enrolment(mqtt_broker, path):
    """Made under a key that is replaced: the same update_id and content, under the new key, and it settles."""
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1)
        async with enrolled(identity(mqtt_broker), path) as client:
            await client.next_round()
            see(client, 1, 2)
            first = await federator.update()
        renewed = identity(mqtt_broker, serial=2)
        async with enrolled(renewed, path) as client:
            payload = await federator.next("updates")
            envelope = open_envelope(payload)
            assert envelope.is_signed_by(renewed.key.public, TOPICS.client("device-7", ClientTopic.UPDATES))
            assert envelope.read(ModelUpdate) == first
            await federator.accept(first, client)


async def test_a_log_of_erasures_that_was_cut_is_seen_after_a_restart(mqtt_broker, path):
    """By what the federator has signed alone; the application hears it once, and may ask at any time."""

    def head(seq, watermark=0):
        return AuditHead(federation="mail", seq=seq, hash=bytes([watermark]) * 32, at=1_000.0)

    told = []
    credentials = identity(mqtt_broker)
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.say(TOPICS.audit_head, head(7), retain=True)
        async with enrolled(credentials, path) as client:
            await until(lambda: client.newest_audit_entry == 7)
        async with enrolled(credentials, path, on_event=told.append) as client:
            assert client.audit_log_cut is None
            federator.key = STRANGER
            await federator.say(TOPICS.audit_head, head(9), retain=True)
            federator.key = FEDERATOR
            await federator.say(TOPICS.audit_head, head(5), retain=True)
            await until(lambda: client.audit_log_cut is not None)
    cuts = [event for event in told if isinstance(event, AuditLogCut)]
    assert [(cut.before, cut.after) for cut in cuts] == [(7, 5)]


async def test_a_cut_is_seen_under_the_next_key_and_an_older_head_is_none(mqtt_broker, path):
    """The operator has given the federator another key; and a broker that repeats what was said is not believed."""

    def head(seq):
        return AuditHead(federation="mail", seq=seq, hash=bytes([seq]) * 32, at=1_000.0)

    credentials, next_key = identity(mqtt_broker), SigningKey.generate()
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(credentials, path) as client:
        await federator.say(TOPICS.audit_head, head(7), sequence=20, retain=True)
        await until(lambda: client.newest_audit_entry == 7)
        await federator.say(TOPICS.audit_head, head(5), sequence=19, retain=True)
        await federator.say(TOPICS.audit_head, head(8), sequence=21, retain=True)
        await until(lambda: client.newest_audit_entry == 8)
        assert client.audit_log_cut is None
        keys = {"federation": "mail", "sequence": 1, "old_key": FEDERATOR.public, "new_key": next_key.public}
        statement = encode(FederatorKey(**keys), TOPICS.federator_key, 1, OPERATOR)
        await federator.link.publish(TOPICS.federator_key, statement, retain=True)
        federator.key = next_key
        await federator.say(TOPICS.audit_head, head(3), sequence=1, retain=True)
        await until(lambda: client.audit_log_cut is not None)
        assert (client.audit_log_cut.before, client.audit_log_cut.after) == (8, 3)
