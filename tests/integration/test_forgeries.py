"""A broker without access control: everybody may publish everywhere, and only signatures tell who it was."""

import itertools
from contextlib import AsyncExitStack

import pytest
from integration.peers import FEDERATION, ONE_EACH, TOPICS, HandMade, Operator, eventually, served
from integration.recorder import Recorder
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import issue_roster
from foltr.core.protocol.fields import Message, model_hash, pack_vector, payload_digest, unpack_vector
from foltr.core.protocol.orders import QuarantineClient, SetDeadline
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.federator.round import RoundPolicy
from foltr.storage.models import latest_model
from foltr.storage.queries import get_client, get_round, list_contributions, list_events

PAIR = RoundPolicy(min_clients=2, max_clients=2, min_time_s=0, max_time_s=3600)


@pytest.fixture
def broker(mosquitto_server):
    return mosquitto_server.url


async def refusals(database, kind):
    """(code, client) of every message that events of a kind are about, oldest first; equal ones share a row."""
    events = await list_events(database, FEDERATION, kind=kind)
    return [(event.code, event.client_id) for event in events for _ in range(event.n)]


async def model_of_round(database, number):
    row = await get_round(database, FEDERATION, number)
    model = await latest_model(database, FEDERATION)
    assert row is not None
    assert model is not None
    assert (row.state, row.model_version) == ("completed", model.version)
    return float(unpack_vector(model.weights)[0])


async def test_no_forgery_changes_a_round(broker, database):
    """What others say in somebody's name, and what was said before: refused, recorded, and answered if it helps."""
    operator = Operator()
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            served(broker, database, operator.plan(PAIR, n_rounds=1), operator.federator_key)
        )
        alice, bob, mallory = [
            await stack.enter_async_context(operator.peer(name, broker).connected())
            for name in ("alice", "bob", "mallory")
        ]
        ghost = HandMade(broker, "ghost", mallory.key, mallory.enrolment)
        await stack.enter_async_context(ghost.connected(join=False))
        genuine = alice.update(2.0)
        assert (await alice.send(genuine)).code is ReceiptCode.ACCEPTED

        # Mallory in alice's name, with her own key, without one, and with the enrolment that alice showed.
        forger = HandMade(broker, "alice", mallory.key, alice.enrolment)
        for key in (mallory.key, None):
            forger.key = key
            for said in (forger.join(), forger.leave()):
                await mallory.link.publish(*said)
                assert (await alice.membership_receipt()).code is ReceiptCode.BAD_SIGNATURE
            await mallory.link.publish(*forger.status(online=False))
            forged = forger.update(1e5, update_id="f" * 32)
            await mallory.link.publish(TOPICS.client("alice", ClientTopic.UPDATES), forged)
            receipt = await alice.update_receipt()
            assert (receipt.code, receipt.update_id) == (ReceiptCode.BAD_SIGNATURE, None)
            assert receipt.payload_digest == payload_digest(forged)
        # Under a name that nobody enrolled.
        assert (await ghost.tell(ghost.join())).code is ReceiptCode.NOT_ENROLLED
        assert (await ghost.send(ghost.update())).code is ReceiptCode.UNKNOWN_CLIENT
        # Alice's own bytes: a leave from before she came back, an update again, and on another topic.
        old_leave = alice.leave()
        assert (await alice.tell(alice.join())).code is ReceiptCode.JOINED
        await mallory.link.publish(*old_leave)
        assert (await alice.membership_receipt()).code is ReceiptCode.REPLAYED
        await mallory.link.publish(TOPICS.client("alice", ClientTopic.UPDATES), genuine)
        assert (await alice.update_receipt()).code is ReceiptCode.DUPLICATE
        assert (await mallory.send(genuine)).code is ReceiptCode.CLIENT_MISMATCH
        # Mallory as operator.
        revoked = [Revocation(client_id="alice", void_below=100)]
        roster = Roster(federation=FEDERATION, version=9, through=0, revoked=revoked, salt=bytes(32), forgotten=[])
        await mallory.link.publish(TOPICS.roster, issue_roster(mallory.key, roster))
        for order in (
            SetDeadline(federation=FEDERATION, round=1, max_time_s=0.001),
            QuarantineClient(federation=FEDERATION, client_id="alice", reason="a rival"),
        ):
            await mallory.link.publish(TOPICS.operator, issue_order(mallory.key, order, 1).payload)

        async def forged_orders():
            return [*await refusals(database, "roster_refused"), *await refusals(database, "order_refused")]

        assert await eventually(forged_orders, lambda found: len(found) == 3) == [("bad_signature", None)] * 3
        row = await get_round(database, FEDERATION, 1)
        assert (row.state, row.n_updates, row.max_time_s) == ("collecting", 1, PAIR.max_time_s)
        genuine_client = await get_client(database, FEDERATION, "alice")
        assert (genuine_client.online, genuine_client.quarantined_at) == (True, None)
        assert (await bob.send(bob.update(4.0))).code is ReceiptCode.ACCEPTED
        await running
    assert await model_of_round(database, 1) == (2.0 + 4.0) / 2
    assert [row.client_id for row in await list_contributions(database, FEDERATION)] == ["alice", "bob"]
    # One for each join, leave and status, with each of the two keys.
    assert await refusals(database, "message_refused") == [
        *[("bad_signature", "alice")] * 6,
        ("not_enrolled", "ghost"),
        ("replayed", "alice"),
    ]
    assert await refusals(database, "update_rejected") == [
        *[("bad_signature", "alice")] * 2,
        ("unknown_client", "ghost"),
        ("duplicate", "alice"),
        ("client_mismatch", "mallory"),
    ]


def model(version: int) -> ModelAnnouncement:
    weights = pack_vector([9.0] * 4)
    return ModelAnnouncement(
        federation=FEDERATION, version=version, ranker=LinearRankerSpec(n_features=4), weights=weights
    )


def round_(number: int, *, is_open: bool = True) -> RoundAnnouncement:
    return RoundAnnouncement(
        federation=FEDERATION,
        round=number,
        open=is_open,
        base_version=0,
        base_hash=model_hash(pack_vector([0.0] * 4)),
        withdraws_below=0,
        opened_at=0,
        closes_at=1,
        training=ONE_EACH,
    )


def receipt(code: ReceiptCode, update_id: str | None = None) -> UpdateReceipt:
    return UpdateReceipt(federation=FEDERATION, client_id="alice", update_id=update_id, code=code)


@pytest.mark.usefixtures("patient_devices")
async def test_a_device_believes_its_federator_only(broker, database):
    """Forged announcements and receipts, unsigned, self-signed and moved, change nothing on the device."""
    operator, mallory = Operator(), SigningKey.generate()
    sequences, inbox = itertools.count(2**62), TOPICS.client("alice", ClientTopic.INBOX)
    device = EdgeClient(operator.enrol("alice", broker), store=":memory:", experiment=Experiment(seed=1))
    listener = operator.peer("listener", broker)
    join_topic = TOPICS.client("alice", ClientTopic.JOIN)
    async with AsyncExitStack() as stack:
        recorder = await stack.enter_async_context(Recorder(broker, join_topic).listening())
        async with served(broker, database, operator.plan(PAIR, n_rounds=1), operator.federator_key):
            await stack.enter_async_context(device)
            await device.next_round(timeout_s=PATIENCE_S)
            device.record_clicks(device.rank([[1.0] * 4, [0.0] * 4]), [0])
            assert not (await device.wait_settled(PATIENCE_S)).is_pending
        assert device.receipts == {"accepted": 1}
        # From here on no federator is there to answer: this one only speaks when we let it.
        await stack.enter_async_context(listener.connected(join=False))

        async def say(topic: str, message: Message, key: SigningKey | None, signed_for: str | None = None) -> None:
            payload = encode(message, signed_for or topic, next(sequences), key)
            await listener.link.publish(topic, payload)

        genuine = operator.federator_key
        await say(TOPICS.round, round_(2), genuine)
        second = await device.next_round(after=1, timeout_s=PATIENCE_S)
        await until(lambda: recorder.heard, "the join was not heard")
        join = payload_digest(recorder.heard[join_topic][-1])
        device.record_clicks(device.rank([[1.0] * 4, [0.0] * 4]), [0])
        for key in (None, mallory, operator.key):
            await say(TOPICS.model, model(7), key)
            await say(TOPICS.round, round_(99), key)
            for code in (ReceiptCode.ACCEPTED, ReceiptCode.LATE, ReceiptCode.UNKNOWN_CLIENT, ReceiptCode.BUSY):
                await say(inbox, receipt(code), key)
            left = {"code": ReceiptCode.LEFT, "payload_digest": join}
            await say(inbox, MembershipReceipt(federation=FEDERATION, client_id="alice", **left), key)
        # The federator's own signature, for another topic; and an announcement of its own that is out of date.
        await say(TOPICS.model, model(7), genuine, signed_for=TOPICS.round)
        await say(inbox, receipt(ReceiptCode.ACCEPTED), genuine, signed_for=inbox.replace("alice", "bob"))
        await listener.link.publish(TOPICS.round, encode(round_(1, is_open=False), TOPICS.round, 1, genuine))
        # The broker keeps the order of one sender, so after this one all of the above have been looked at.
        await say(inbox, receipt(ReceiptCode.STALE, "f" * 32), genuine)

        async def receipts():
            return device.receipts

        await eventually(receipts, lambda found: "stale" in found)
        assert device.receipts == {"accepted": 1, "stale": 1}
        assert not await device.wait_settled(0.01), "no receipt for it came from the federator"
        assert device.model_version == 0
        assert await device.next_round(timeout_s=PATIENCE_S) == second
        assert device.n_updates_counted == 1
