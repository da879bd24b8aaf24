"""The whole system in one process: a federator and devices over a real broker and a real database."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from integration.oracle import power_learner
from integration.peers import DIM, FEDERATION, HandMade, Operator, make_plan, served
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.fields import pack_vector, payload_digest, unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import DenseDelta
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.models import list_models
from foltr.storage.queries import count_rejections, list_clients, list_contributions, list_events, list_rounds


async def contribute_each_round(broker: str, i: int, credentials: Credentials | None = None) -> Counter[str]:
    client = EdgeClient(
        credentials,
        store=":memory:",
        connection=Connection(broker=broker, federation=FEDERATION, client_id=f"oracle-{i:02d}"),
        experiment=Experiment(learner=power_learner(i), seed=i),
    )
    async with client:
        newest = 0
        while True:
            round_ = await client.next_round(after=newest, timeout_s=PATIENCE_S)
            if not round_.open:
                break
            newest = round_.round
            client.record_clicks(client.rank(np.ones((2, DIM), np.float32)), [0])
        await client.wait_settled(PATIENCE_S)
        return Counter(client.receipts)


@pytest.mark.parametrize("mqtt_broker", ["mosquitto_server", "iotcore_broker"], indirect=True)
async def test_every_update_counts_once_and_is_in_the_database(mqtt_broker, database):
    """Five devices, six rounds: 30 receipts, 30 rows, and every model is the exact mean of its round."""
    n_clients, n_rounds = 5, 6
    plan = make_plan(RoundPolicy(n_clients, n_clients, 0, 3600), n_rounds=n_rounds)
    service = FederatorService(plan, database, BrokerAddress.parse(mqtt_broker), give_up_after_s=PATIENCE_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        devices = [group.create_task(contribute_each_round(mqtt_broker, i)) for i in range(n_clients)]
    assert sum((task.result() for task in devices), Counter()) == {ReceiptCode.ACCEPTED: n_clients * n_rounds}
    rounds = await list_rounds(database, FEDERATION)
    assert [(row.round, row.state, row.n_updates) for row in rounds] == [
        (number, "completed", n_clients) for number in range(1, n_rounds + 1)
    ]
    assert len(await list_contributions(database, FEDERATION)) == n_clients * n_rounds
    models = await list_models(database, FEDERATION)
    mean = sum(2.0**i for i in range(n_clients)) / n_clients
    first_weights = [float(unpack_vector(model.weights)[0]) for model in models]
    assert first_weights == pytest.approx([mean * version for version in range(n_rounds + 1)])
    assert all(model.published_at is not None for model in models)


async def test_the_deadline_fires_without_any_message(mqtt_broker, database):
    """A round that nobody contributes to ends at its deadline, with a reason."""
    plan = make_plan(RoundPolicy(1, 5, 0, 0.3), n_rounds=2)
    service = FederatorService(plan, database, BrokerAddress.parse(mqtt_broker), give_up_after_s=PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        await service.run()
    rounds = await list_rounds(database, FEDERATION)
    assert [(row.state, row.reason) for row in rounds] == [("abandoned", "no_updates")] * 2
    assert all(row.duration_s >= 0.3 for row in rounds)


async def test_a_vanished_device_does_not_hold_up_the_others(mqtt_broker, database):
    """With one of three gone, the quorum of two makes the model after the minimum time."""
    plan = make_plan(RoundPolicy(2, 3, 0.2, 3600), n_rounds=3)
    service = FederatorService(plan, database, BrokerAddress.parse(mqtt_broker), give_up_after_s=PATIENCE_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        for i in range(2):
            group.create_task(contribute_each_round(mqtt_broker, i))
    assert [row.state for row in await list_rounds(database, FEDERATION)] == ["completed"] * 3


async def test_a_signed_federation_completes_rounds(mqtt_broker, database):
    """Every message signed, every client enrolled: the same exact means, and the database says whose key it was."""
    n_clients, n_rounds, operator = 3, 3, Operator()
    plan = operator.plan(RoundPolicy(n_clients, n_clients, 0, 3600), n_rounds=n_rounds)
    identities = [operator.enrol(f"oracle-{i:02d}", mqtt_broker) for i in range(n_clients)]
    async with served(mqtt_broker, database, plan, operator.federator_key), asyncio.TaskGroup() as group:
        for i, credentials in enumerate(identities):
            group.create_task(contribute_each_round(mqtt_broker, i, credentials))
    models = await list_models(database, FEDERATION)
    mean = sum(2.0**i for i in range(n_clients)) / n_clients
    assert [float(unpack_vector(model.weights)[0]) for model in models] == pytest.approx(
        [mean * version for version in range(n_rounds + 1)]
    )
    assert [client.public_key for client in await list_clients(database, FEDERATION)] == [
        credentials.key.public for credentials in identities
    ]
    assert await count_rejections(database, FEDERATION) == {}


async def test_bad_messages_get_a_receipt_and_an_event_and_the_round_goes_on(mqtt_broker, database):
    """Every kind of bad update is answered with its reason and recorded; a good one then completes the round.

    What was refused before it was looked at whose it is, is named by the digest of its bytes only.
    """
    plan = make_plan(RoundPolicy(1, 1, 0, 3600), n_rounds=1)
    async with served(mqtt_broker, database, plan) as running, HandMade(mqtt_broker, "peer").connected() as peer:
        good = peer.update()
        nan = pack_vector([np.nan] * DIM)
        unread = {
            ReceiptCode.MALFORMED: good[:-3],
            ReceiptCode.WRONG_SHAPE: peer.update(body=DenseDelta(dim=2, values=pack_vector([1.0, 2.0]))),
            ReceiptCode.NOT_FINITE: peer.update(body=DenseDelta(dim=DIM, values=nan)),
            ReceiptCode.TOO_LARGE: bytes(300_000),
            ReceiptCode.UNSUPPORTED_VERSION: good.replace(b"\xa1v\x01", b"\xa1v\x09"),
            ReceiptCode.OUT_OF_RANGE: peer.update(body=DenseDelta(dim=DIM, values=pack_vector([1e9] * DIM))),
            ReceiptCode.CLIENT_MISMATCH: peer.update(client_id="another"),
            ReceiptCode.WRONG_FEDERATION: peer.update(federation="another"),
        }
        read = {
            ReceiptCode.STALE: peer.update(base_version=7),
            ReceiptCode.UNKNOWN_ROUND: peer.update(round=9),
            ReceiptCode.LATE: peer.update(round=0),
        }
        for code, payload in unread.items():
            receipt = await peer.send(payload)
            assert (receipt.code, receipt.update_id) == (code, None)
            # A message too large to be an update on this topic may be somebody's copy: not even its bytes are named.
            named = None if code is ReceiptCode.TOO_LARGE else payload_digest(payload)
            assert receipt.payload_digest == named
        for code, payload in read.items():
            receipt = await peer.send(payload)
            assert (receipt.code, receipt.update_id) == (code, "0" * 32)
        async with HandMade(mqtt_broker, "stranger").connected(join=False) as stranger:
            assert (await stranger.send(stranger.update())).code is ReceiptCode.UNKNOWN_CLIENT
        assert (await peer.send(good)).code is ReceiptCode.ACCEPTED
        await running
    rejected = await count_rejections(database, FEDERATION)
    assert rejected == dict.fromkeys((*unread, *read, ReceiptCode.UNKNOWN_CLIENT), 1)
    events = await list_events(database, FEDERATION, limit=100)
    assert {event.code for event in events if event.kind == "update_rejected"} == set(rejected)
    assert [row.state for row in await list_rounds(database, FEDERATION)] == ["completed"]


async def test_a_resent_update_is_told_duplicate_and_counts_once(mqtt_broker, database):
    """The same update sent three times, also into the next round: one row, and receipts that say so."""
    plan = make_plan(RoundPolicy(2, 2, 0, 3600), n_rounds=2)
    async with (
        served(mqtt_broker, database, plan) as running,
        HandMade(mqtt_broker, "one").connected() as one,
        HandMade(mqtt_broker, "other").connected() as other,
    ):
        assert (await one.send(one.update())).code is ReceiptCode.ACCEPTED
        assert (await one.send(one.update())).code is ReceiptCode.DUPLICATE
        second = one.update(update_id="f" * 32)
        assert (await one.send(second)).code is ReceiptCode.ALREADY_CONTRIBUTED
        assert (await other.send(other.update(update_id="1" * 32))).code is ReceiptCode.ACCEPTED
        assert (await one.send(one.update())).code is ReceiptCode.DUPLICATE  # round 2 is open by now
        relabelled = one.update(round=2, base_version=1)
        assert (await one.send(relabelled)).code is ReceiptCode.DUPLICATE
        for peer, update_id in ((one, "2" * 32), (other, "3" * 32)):
            receipt = await peer.send(peer.update(update_id=update_id, round=2, base_version=1))
            assert receipt.code is ReceiptCode.ACCEPTED
        await running
    assert len(await list_contributions(database, FEDERATION)) == 4
