"""A device with credentials, against real brokers: what it signs, whom it believes, how its sessions follow."""

import asyncio

import pytest
from support.device_options import grouped
from support.device_under_policy import FEDERATOR, OPERATOR, identity
from support.federator_by_hand import TOPICS, Federator, adding_learner, device, see
from support.waiting import PATIENCE_S, until

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess, write_secret
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.membership import Join
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signing import SESSION_STEPS, SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.events import AuditLogCut
from foltr.edge_client.options import Connection

STRANGER = SigningKey.generate()


def enrolled(credentials, store=":memory:", **options):
    return EdgeClient(credentials, store=store, **grouped(learner=adding_learner, seed=1, **options))


async def test_credentials_are_enough(mqtt_broker, tmp_path):
    """Federation, name, broker and key from one file."""
    credentials = identity(broker=mqtt_broker)
    file = tmp_path / "device-7.json"
    write_secret(file, credentials.model_dump_json())
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(file) as client:
        assert (client.federation, client.client_id) == ("mail", "device-7")
        envelope = open_envelope(await federator.next("join"))
        assert envelope.is_signed_by(credentials.key.public, TOPICS.client("device-7", ClientTopic.JOIN))
        assert envelope.read(Join).enrolment == credentials.enrolment_bytes


def test_what_cannot_be_used_leaves_no_store_behind(nowhere, path):
    """It is refused before the store is opened, so that the next try has it."""
    access = BrokerAccess(broker_url="mqtts://127.0.0.1", ca="no certificate")
    without_certificate = identity(broker="mqtt://elsewhere").model_copy(update={"broker": access})
    for credentials, arguments, said in (
        (without_certificate, {}, "broker_ca: "),
        (identity(broker="nonsense://127.0.0.1"), {}, "broker_url: "),
        (identity(broker=nowhere), {"federation": "photos"}, "was given, but the credentials are for 'mail'"),
        (identity(broker=nowhere), {"client_id": "device-8"}, "was given, but the credentials are for 'device-7'"),
    ):
        with pytest.raises(SettingsError, match=said):
            enrolled(credentials, path, **arguments)
    named = {"broker": "mqtt://127.0.0.1", "federation": "mail", "client_id": "device-7"}
    for missing in named:
        arguments = {name: value for name, value in named.items() if name != missing}
        with pytest.raises(SettingsError, match=f"^{missing}: "):
            EdgeClient(connection=Connection(**arguments), store=path)
    assert not path.exists()


@pytest.mark.parametrize("key", [None, STRANGER], ids=["unsigned", "another key"])
async def test_what_others_announce_and_answer_is_ignored(mqtt_broker, key):
    """The federator's own is taken: its model, its round, and its receipt, without which no update ends."""
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(identity(broker=mqtt_broker)) as client:
        federator.key = None
        await federator.announce(1, base=7, key=key)
        federator.key = FEDERATOR
        await federator.announce(1, base=3)
        assert (await client.next_round(timeout_s=PATIENCE_S)).base_version == 3
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
        for code, newest in ((ReceiptCode.JOINED, None), (ReceiptCode.LEFT, None), (ReceiptCode.REPLAYED, 2**50)):
            await federator.membership("device-7", code, to=other, newest_sequence=newest)
        await federator.announce(1)
        await client.next_round()  # the inbox was heard before: one connection, in order
        see(client, 1, 2)
        await federator.nothing_on("updates")  # it has not joined
        await federator.membership("device-7", ReceiptCode.JOINED, to=join)
        update = open_envelope(await federator.next("updates"))
        assert update.sequence // SESSION_STEPS == sequence // SESSION_STEPS
        assert not await client.leave(timeout_s=0.05)  # clock: runs out (nobody has confirmed it)


async def test_a_cut_log_of_erasures_is_seen_over_restarts_and_keys(mqtt_broker, path):
    """By what the federator has signed alone, the newest of it; the application hears it once."""

    def head(seq):
        return AuditHead(federation="mail", seq=seq, hash=bytes([seq]) * 32, at=1_000.0)

    told, credentials, next_key = [], identity(broker=mqtt_broker), SigningKey.generate()
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        async with enrolled(credentials, path) as client:
            await federator.say(TOPICS.audit_head, head(7), sequence=20, retain=True)
            await until(lambda: client.newest_audit_entry == 7)
        async with enrolled(credentials, path, on_event=told.append) as client:
            await federator.say(TOPICS.audit_head, head(5), sequence=19, retain=True)
            await federator.say(TOPICS.audit_head, head(9), sequence=21, retain=True, key=STRANGER)
            await federator.say(TOPICS.audit_head, head(8), sequence=21, retain=True)
            await until(lambda: client.newest_audit_entry == 8)
            assert client.audit_log_cut is None
            keys = {"federation": "mail", "sequence": 1, "old_key": FEDERATOR.public, "new_key": next_key.public}
            statement = encode(FederatorKey(**keys), TOPICS.federator_key, 1, OPERATOR)
            await federator.link.publish(TOPICS.federator_key, statement, retain=True)
            federator.key = next_key
            await federator.say(TOPICS.audit_head, head(3), sequence=1, retain=True)
            await until(lambda: client.audit_log_cut is not None)
    cuts = [event for event in told if isinstance(event, AuditLogCut)]
    assert [(cut.before, cut.after) for cut in cuts] == [(8, 3)]
